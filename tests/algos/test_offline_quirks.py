"""Every fault of the published system that is kept by default has a switch, and the switch changes a number.

Those of the data are proved where the data are: `PROVED` says where.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from crossfade.algos.offline import statistics_jax, statistics_torch
from crossfade.algos.offline.config import QUIRKS
from crossfade.algos.offline.fb_repr import agent_torch as fb
from crossfade.algos.offline.hilp import agent_torch as hilp
from crossfade.algos.offline.mbpo_rebrac import agent_torch as mbpo
from crossfade.errors import UsageError
from crossfade.parity.arrays import torch_tree
from crossfade.systems.offline.system_torch import System
from crossfade.systems.offline.twin import offline, settings

PRE = "pretrain=1000"
PROVED = {
    "tiny_model_buffer": ("quirks", "test_u1_nothing_imagined_is_learned_from"),
    "standing_rollouts": ("quirks", "test_u2_rollouts_stand_where_they_begin"),
    "constant_center": ("quirks", "test_u3_the_centre_stays_where_it_is"),
    "unsynced_target": ("quirks", "test_u4_the_target_critic_starts_by_itself"),
    "geometric_offset": ("data_sampling", "test_a_geometric_goal_is_a_step_ahead_unless_that_is_corrected"),
    "own_statistics": ("data_statistics", "test_each_phase_has_its_own_statistics_as_published"),
    "foreign_next_actions": ("data_sampling", "test_next_actions_of_ends_are_foreign_as_published"),
    "bare_dino": ("quirks", "test_u8_dino_has_no_encoder_unless_told"),
    "latent_mix": ("quirks", "test_u9_latents_are_mixed_the_wrong_way_round"),
    "exorl_validation": ("data_rows", "test_too_large_a_validation_set_shortens_the_training_set_as_published"),
    "summed_norms": ("quirks", "test_u12_the_norm_of_a_gradient_is_a_sum_of_norms"),
    "first_member": ("quirks", "test_u13_directions_are_those_of_the_first_member"),
}


def test_every_quirk_is_proved_somewhere():
    assert set(PROVED) == set(QUIRKS)
    for place, test in PROVED.values():
        assert f"def {test}(" in (Path(__file__).parent / f"test_offline_{place}.py").read_text(), test


def first(*words):
    """A policy in torch and the first batch of its twin, with the config."""
    twin = offline(*words)
    return twin.torch, torch_tree(twin.batch_at(0), "float32"), settings(*words)


def terms(*words, update=4):
    """The terms of an update, told by both ways of learning."""
    twin = offline(*words)
    return {n: float(x) for n, x in twin.loss[0](twin.torch, torch_tree(twin.batch_at(update), "float32"))[1].items()}


def test_u1_nothing_imagined_is_learned_from():
    kept, mended = terms("agent=mbpo_rebrac"), terms("agent=mbpo_rebrac", "corrected=tiny_model_buffer")
    plain = terms("agent=rebrac")
    assert kept["reward_loss"] == mended["reward_loss"] and kept["transition_loss"] == mended["transition_loss"]
    assert kept["critic_loss"] != mended["critic_loss"] and kept["actor_loss"] != mended["actor_loss"]
    assert kept.keys() == mended.keys() and plain.keys() < kept.keys()


@pytest.mark.parametrize("kept", [True, False])
def test_u2_rollouts_stand_where_they_begin(kept):
    words = ("agent=mbpo_rebrac", "agent.rollout_steps=2", *(() if kept else ("corrected=standing_rollouts",)))
    policy, batch, config = first(*words)
    n = len(batch.rewards)
    rows = mbpo.imagine(policy, batch.observations, torch.zeros(2, 2, n, 2), config)
    begun = rows.observations[:n] if kept else rows.next_observations[:n]
    assert torch.equal(rows.observations[n:], begun)
    assert torch.equal(rows.next_actions[:-1], rows.actions[1:]) is kept
    assert not torch.equal(rows.observations[:n], rows.next_observations[:n])


@pytest.mark.parametrize("kept", [True, False])
def test_u3_the_centre_stays_where_it_is(kept):
    words = ("agent=dino_rebrac", PRE, "lr=0.1", *(() if kept else ("corrected=constant_center",)))
    policy, batch, _ = first(*words)
    twin, before = offline(*words), policy["target_repr_center"].array.clone()
    twin.update[0](policy, twin.optimizer[0]([p for p in policy.parameters() if p.requires_grad]), batch)
    assert torch.equal(policy["target_repr_center"].array, before) is kept


@pytest.mark.parametrize("kept", [True, False])
def test_u4_the_target_critic_starts_by_itself(kept):
    start = System(settings("agent=fb_repr", *(() if kept else ("corrected=unsynced_target",)))).parameters()
    weight = "value_net.layers.0.weight"
    assert np.array_equal(start[f"critic.{weight}"], start[f"target_critic.{weight}"]) is not kept
    assert np.array_equal(start[f"forward_repr.{weight}"], start[f"target_forward_repr.{weight}"])


def test_u8_dino_has_no_encoder_unless_told():
    with pytest.raises(UsageError, match="corrected=bare_dino"):
        settings("agent=dino_rebrac", "encoder=none")
    mended = settings("agent=dino_rebrac", "encoder=none", "corrected=bare_dino")
    assert mended.encoding == "mlp" and mended.sizes((2,), 2).code == 6


def test_u9_latents_are_mixed_the_wrong_way_round():
    """With latent_mix=0 no latent is normal as published; corrected, all are."""
    words = ("agent=fb_repr", PRE, "agent.latent_mix=0")
    for corrected in ((), ("corrected=latent_mix",)):
        policy, batch, config = first(*words, *corrected)
        found = fb.prepare(policy, batch, config).latents
        normal = fb.on_sphere(batch.noise["latent"])
        assert (found == normal).all(1).float().mean() == (1 if corrected else 0)


def test_u12_the_norm_of_a_gradient_is_a_sum_of_norms():
    arrays = {"a": np.array([3.0, 0.0], np.float32), "b": np.array([[0.0], [-4.0]], np.float32)}
    for words, norm in (((), 7.0), (("corrected=summed_norms",), 5.0)):
        summed = settings(*words).has("summed_norms")
        ours = statistics_torch.gradient_statistics({n: torch.from_numpy(a) for n, a in arrays.items()}, summed)
        theirs = statistics_jax.gradient_statistics({n: jnp.asarray(a) for n, a in arrays.items()}, summed)
        for found in (ours, theirs):
            assert {n: float(x) for n, x in found.items()} == {"max": 3.0, "min": -4.0, "norm": norm}


def test_u13_directions_are_those_of_the_first_member():
    rewards = []
    for words in ((), ("corrected=first_member",)):
        policy, batch, config = first("agent=hilp", PRE, *words)
        both = policy["value"].encode(batch.next_observations) - policy["value"].encode(batch.observations)
        prepared = hilp.prepare(policy, batch, config)
        expected = ((both.mean(0) if words else both[0]) * prepared.latents).sum(-1)
        assert torch.allclose(prepared.rewards, expected, rtol=1e-5, atol=1e-6)
        rewards.append(prepared.rewards)
    assert not torch.allclose(*rewards)
