"""Every offline agent is one system in both frameworks, in both phases and revisions, from networks to updates."""

import numpy as np
import pytest
from offline_halves import CASES, PHASE, apart, halves

from crossfade import parity
from crossfade.systems.offline.twin import offline
from crossfade.verdict import Verdict
from default_run import few, few_of

LEARNER = ["forward", "loss", "grad", "update"]
VARIANTS = {
    "iql, critic's gradient": ("agent=iql", "agent.actor_loss=ddpgbc", "const_std=false"),
    "iql, encoded": ("agent=iql", "encoder=mlp"),
    "crl, symmetric": ("agent=crl_infonce", "agent.contrastive=symmetric", "const_std=false"),
    "td, sampled": ("agent=td_infonce", "const_std=false", "agent.logit_agg=min"),
    "fb, mixed the other way": ("agent=fb_repr", PHASE["pre"], "faithful=false", "agent.latent_mix=0.3"),
    "fb, one phase after the other": ("agent=fb_repr", "pretrain=6"),
    "hilp, all members": ("agent=hilp", PHASE["pre"], "corrected=first_member"),
    "hilp, one phase after the other": ("agent=hilp", "pretrain=6"),
    "infom, latents of the data": ("agent=infom", "agent.critic_latents=encoding", "agent.clip_flow_goals=false"),
    "infom, encoded": ("agent=infom", "encoder=mlp", "const_std=false", "agent.normalize_q_loss=true"),
    "dino, a centre that moves": ("agent=dino_rebrac", "pretrain=6", "corrected=constant_center"),
    "mbpo, imagined transitions": ("agent=mbpo_rebrac", "corrected=tiny_model_buffer,standing_rollouts"),
    "mbpo, standing rollouts": ("agent=mbpo_rebrac", "corrected=tiny_model_buffer", "agent.rollout_steps=2"),
}
CLONING = ("iql, pre", "rebrac, pre", "mbpo_rebrac, pre")  # pre-training that others have too
IN_DEFAULT = [name for name in CASES if not name.endswith("old") and name not in CLONING]


def assert_same(words, updates, parameters):
    """Tolerances: networks and losses 1e-12, gradients 1e-10, and `parameters` for all that updates have moved."""
    torch, jax = halves(offline(*words), updates)
    assert apart(jax.output, torch.output) <= 1e-12
    assert apart(jax.told[0], torch.told[0]) <= 1e-12
    assert apart(jax.gradient, torch.gradient) <= 1e-10
    assert apart(jax.parameters, torch.parameters) <= parameters
    assert all(apart(jax.moments[slot], moment) <= parameters for slot, moment in torch.moments.items())
    assert max(map(apart, jax.told, torch.told)) <= parameters
    return torch


@pytest.mark.parametrize("words", few_of(CASES, *IN_DEFAULT, "fb_repr, pre, old"))
def test_ten_updates_are_the_same(words):
    after = assert_same(words, 10, 1e-9)
    assert len({float(told["loss"]) for told in after.told}) == 10  # ten batches
    assert all(count == 10 for count in after.moments["step"].values())


@pytest.mark.slow
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_hundred_updates_are_the_same(words):
    assert_same(words, 100, 1e-9)


@pytest.mark.parametrize("words", few_of(VARIANTS, "mbpo, imagined transitions"))
def test_variants_are_the_same(words):
    assert_same(words, 10, 1e-9)


def test_a_difference_is_seen():
    """Another expectile by a thousandth, on one side."""
    twin, other = offline("agent=iql"), offline("agent=iql", "agent.expectile=0.901")
    mixed = parity.Twin("mixed", **{f: getattr(twin, f) for f in ("torch", "jax", "mapping", "batches", "forward")})
    object.__setattr__(mixed, "optimizer", twin.optimizer)
    object.__setattr__(mixed, "update", (other.update[0], twin.update[1]))
    torch, jax = halves(mixed, 1)
    assert apart(jax.output, torch.output) <= 1e-12 < 1e-5 < apart(jax.told[0], torch.told[0])
    assert apart(jax.gradient, torch.gradient) > 1e-5


# Verdicts, in both precisions


@pytest.mark.parametrize("case", few(["rebrac, pre", "mbpo_rebrac, pre"], "mbpo_rebrac, pre"))
def test_the_learner_is_the_same_but_for_rounding(case):
    report = parity.check(offline(*CASES[case]), LEARNER)
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} == set(LEARNER)


@pytest.mark.slow
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_every_level_is_proved(words):
    report = parity.check(offline(*words))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} == {"map", *LEARNER, "updates"}


# Images


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Rows of images 64x64x3 of bytes, four trajectories, in OGBench's form."""
    rng, n, path = np.random.default_rng(0), 40, tmp_path_factory.mktemp("images") / "rows.npz"
    np.savez(
        path,
        observations=rng.integers(0, 256, (n, 64, 64, 3), np.uint8),
        actions=rng.uniform(-0.9, 0.9, (n, 2)).astype(np.float32),
        terminals=(np.arange(n) % 10 == 9).astype(np.float32),
        rewards=rng.normal(size=n).astype(np.float32),
        masks=(np.arange(n) % 7 != 6).astype(np.float32),
    )
    return f"data={path}"


IMAGES = {f"{name}, impala_debug": (*words, "encoder=impala_debug") for name, words in CASES.items()} | {
    f"{name}, {encoder}": (*CASES[name], f"encoder={encoder}")
    for name, encoder in (("iql, fine", "impala_small"), ("infom, pre", "impala_small"), ("iql, fine", "resnet_34"))
}  # four ResNet-34 and their moments in float64, twice, are 12 GB
IMAGES = {name: words for name, words in IMAGES.items() if "mbpo" not in name}


COARSE = 1e-4
"""Adam's epsilon for images: larger than the rounding of their gradients."""


@pytest.mark.parametrize("words", few_of(IMAGES, "iql, pre, impala_debug"))
def test_agents_of_images_are_the_same(words, images, monkeypatch):
    """Networks, losses and first gradients at any rate; parameters and moments after ten updates.

    Adam's step is lr m / (sqrt(v) + eps). Where gelu is all but 0 a weight's gradient is 1e-10 and less, and its last
    bits are rounding: with the usual eps of 1e-8 that is a hundredth of a step like any other, whatever the network. An
    eps above the rounding makes a step as exact as its gradient. The usual one is proved above, where nothing is
    saturated. Steps are small, too: rounding feeds on itself, with lr=1e-3 up to 3e-8 in ten updates of a deep encoder.
    """
    for place in ("systems.offline.twin", "algos.offline.learner_jax"):
        monkeypatch.setattr(f"crossfade.{place}.EPS", COARSE)
    own = images, "validation=0", "batch_size=4", "p_aug=1", "lr=1e-4"
    assert_same((*words, *own, *views(words)), 10, 1e-9)


def views(words):
    """What pre-training by views asks for."""
    return ("num_aug=2", "inplace_aug=false") if "agent=dino_rebrac" in words else ()
