"""Populations of offline agents: each member is the run that its config gives alone, and is judged as that run is."""

import json
from dataclasses import replace
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import HALF, tiny

from crossfade.algos.offline.config import AGENTS
from crossfade.algos.offline.data.source import geometric
from crossfade.cli import main
from crossfade.config import apply
from crossfade.errors import UsageError
from crossfade.registry import find
from crossfade.systems.offline import population_jax
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.population_jax import OF_AGENT, VARYING, Population
from crossfade.trainers.making import make_trainer, precision
from default_run import few

OTHER = ("seed=1", "lr=3e-3", "tau=0.3", "gamma=0.7")
OTHERS = {
    "iql": ("agent.expectile=0.7", "agent.alpha=3"),
    "rebrac": ("agent.alpha_actor=0.3", "agent.alpha_critic=0.1", "agent.actor_noise=0.7", "agent.noise_clip=0.4"),
    "crl_infonce": ("agent.alpha=1", "agent.penalty=0.5"),
    "td_infonce": ("agent.alpha=1",),
    "fb_repr": (
        "agent.expectile=0.7",
        "agent.alpha_repr=3",
        "agent.alpha_awr=3",
        "agent.orthonormal=2",
        "agent.latent_mix=0.1",
    ),
    "hilp": ("agent.expectile=0.7", "agent.alpha=3"),
    "infom": ("agent.expectile=0.7", "agent.alpha=3", "agent.kl_weight=0.5"),
    "dino_rebrac": (
        "agent.view_noise=1",
        "agent.view_clip=0.3",
        "agent.temperature=0.3",
        "agent.target_temperature=0.2",
        "agent.center_rate=0.5",
    ),
    "mbpo_rebrac": ("agent.alpha_actor=0.3",),
}
"""What another member of an agent's population may have."""


def settings(agent: str, *words: str) -> OfflineDataConfig:
    """A run of both phases, with all that is corrected: rings of imagined transitions, a centre that moves."""
    own = [f"agent={agent}", "faithful=false", "dtype=float64"]
    small = ("agent.latent_dim=3", "agent.flow_steps=2", "agent.flow_goals=2", "agent.rollouts=4")
    known = apply(OfflineDataConfig(), own).agent
    own += [word for word in small if hasattr(known, word.removeprefix("agent.").split("=")[0])]
    shared = [word for word in tiny("offline") if not word.startswith("agent")]
    return apply(OfflineDataConfig(), [*shared, *own, "encoder_hidden=8", *words])


@pytest.mark.slow
@pytest.mark.parametrize("agent", few(OTHERS, "iql"))
def test_each_member_is_the_run_trained_alone_and_judged_alike(agent):
    configs = [settings(agent), settings(agent, *OTHER, *OTHERS[agent])]
    with precision(configs[0]):
        together = Population(configs)
        chunks = [together.run(0, HALF), together.run(HALF, HALF)]
        figures = together.evaluate()
        for i, config in enumerate(configs):
            alone = make_trainer(find("offline"), config)
            for number, chunk in enumerate(chunks):
                for name, expected in alone.run(number * HALF, HALF).items():
                    np.testing.assert_allclose(chunk[name][i], expected, rtol=1e-9, atol=1e-9, err_msg=name)
            mine = jax.tree.map(itemgetter(i), (together.members.policy, together.members.memory))
            for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves((alone.policy, alone.buffer)), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
            own = {f"eval/{name}": column[i] for name, column in figures.items()}
            assert own == pytest.approx(alone.evaluate().metrics, rel=1e-9, abs=1e-9)


def test_one_that_left_the_finite_numbers_has_no_figures():
    base = settings("iql")
    with precision(base):
        together = Population([base, replace(base, seed=1)])
        broken = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), together.members.policy)
        together.members = together.members._replace(policy=broken)
        figures = together.evaluate()
    assert all(np.isnan(column[0]) and np.isfinite(column[1]) for column in figures.values())


@pytest.mark.parametrize("agent", few(OTHERS, "iql"))
def test_every_setting_that_may_vary_is_felt_and_one_program_serves_members_of_any(agent):
    words = (*OTHER, *OTHERS[agent])
    configs = [settings(agent), *(settings(agent, word) for word in words)]
    before = population_jax.train._cache_size()
    with precision(configs[0]):
        together = Population(configs)
        for step in (0, HALF):
            together.run(step, HALF)
        again = Population([replace(config, lr=2e-3, seed=2) for config in configs])
        for step in (0, HALF):
            again.run(step, HALF)
    leaves = jax.tree.leaves(together.members.policy)
    after = {tuple(np.concatenate([leaf[i].reshape(-1) for leaf in leaves]).tolist()) for i in range(len(configs))}
    follows = any(name.startswith("target_") for name in together.members.policy)  # else nobody reads tau
    assert len(after) == len(configs) - (not follows)
    assert population_jax.train._cache_size() == before + 2, "one for each phase"


def test_the_words_name_every_setting_that_may_vary_and_agents_have_no_other():
    named = {word.split("=")[0] for words in OTHERS.values() for word in words}
    assert named == {f"agent.{name}" for name in OF_AGENT} and OTHERS.keys() == AGENTS.keys()
    assert {word.split("=")[0] for word in OTHER} | named == set(VARYING)


def test_actors_learn_every_other_time_in_one_branch_for_all():
    """The step is that of all members: were it batched, `cond` would compute both branches and select."""
    base = replace(settings("iql"), pretrain=0)
    with precision(base):
        together = Population([base, replace(base, seed=1)])
        given = together.members, together.there["finetuning"], 0, HALF, together.systems[0].sizes, "finetuning"
        program = str(jax.make_jaxpr(population_jax.train, static_argnums=(3, 4, 5, 6))(*given, together.config))
    assert " cond[" in program


def test_members_read_one_copy_of_the_data_and_goals_by_their_own_discount():
    base = settings("hilp", "gamma=0.9")
    with precision(base):
        together = Population([base, replace(base, gamma=0.2, lr=0.1)])
    first, second = (system.data.learning["pretraining"] for system in together.systems)
    assert first.data.observations is second.data.observations
    table = np.asarray(together.members.geometric["pretraining"])
    short = geometric(0.2, 10**6)
    assert (
        len(short) < table.shape[1] and (table[1, : len(short)] == short).all() and (table[1, len(short) :] == 1).all()
    )
    assert (table[0] == geometric(0.9, table.shape[1])).all()


def test_what_one_program_cannot_hold_is_refused():
    base = settings("hilp")
    for other, hint in (
        (replace(base, agent=replace(base.agent, latent_dim=4)), "differ in agent.latent_dim"),
        (settings("iql"), "differ in agent"),
        (replace(base, hidden=(4,)), "differ in hidden"),
    ):
        with pytest.raises(UsageError, match=hint):
            Population([base, other])


@pytest.mark.slow
def test_a_sweep_ranks_by_success(tmp_path, capsys):
    words = [*tiny("offline"), "--over", "seed=0..1", "agent.alpha=1,10"]
    assert main(["sweep", "offline", *words, "--runs-dir", str(tmp_path)]) == 0
    assert "success" in capsys.readouterr().out
    (folder,) = (tmp_path / "offline").iterdir()
    members = json.loads((folder / "sweep.json").read_text())["members"]
    assert sorted(tuple(member["settings"].values()) for member in members) == [(0, 1), (0, 10), (1, 1), (1, 10)]
    success = [member["last"]["eval/success"] for member in members]
    assert success == sorted(success, reverse=True)
