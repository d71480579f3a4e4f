"""Populations of PPO: each member is the run that its config gives alone, and is judged as that run is."""

import json
from dataclasses import replace
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import HALF, settings, tiny
from toy_point.system_jax import PointSystem

from crossfade.cli import main
from crossfade.errors import UsageError
from crossfade.loading import load_attribute
from crossfade.registry import find
from crossfade.systems import ppo_population_jax
from crossfade.systems.ppo_population_jax import VARYING, PPOPopulation
from crossfade.systems.trading.population_jax import Population
from crossfade.trainers.making import make_trainer, precision
from crossfade.verbs.sweep import combinations
from crossfade.verbs.sweep_report import record, write_page
from default_run import few

OTHER = {
    "seed": 1,
    "lr": 1e-3,
    "lr_final": 1e-4,
    "gamma": 0.9,
    "gae_lambda": 0.7,
    "clip": 1e-3,
    "value_coef": 0.9,
    "entropy_coef": 0.3,
    "clip_norm": 0.02,
}
MAKE = {"trading": Population, "toy_point:RECORD": lambda configs: PPOPopulation(configs, PointSystem)}


@pytest.mark.parametrize("system", few(MAKE, "toy_point:RECORD"))
def test_each_member_is_the_run_trained_alone_and_judged_alike(system):
    base = settings(system, "jax_full")
    configs = [base, replace(base, **OTHER)]
    with precision(base):
        together = MAKE[system](configs)
        chunks = [together.run(0, HALF), together.run(HALF, HALF)]
        figures = together.evaluate()
        alone = make_trainer(find(system), configs[1])
        for number, chunk in enumerate(chunks):
            for name, expected in alone.run(number * HALF, HALF).items():
                np.testing.assert_allclose(chunk[name][1], expected, rtol=1e-9, atol=1e-9, err_msg=name)
        policy = jax.tree.map(itemgetter(1), together.members.policy)
        for mine, theirs in zip(jax.tree.leaves(policy), jax.tree.leaves(alone.policy), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        own = {f"eval/{name}": column[1] for name, column in figures.items()}
        assert own == pytest.approx(alone.evaluate().metrics, abs=1e-9, nan_ok=True)  # one day has no Sharpe ratio
        broken = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), together.members.policy)
        together.members = together.members._replace(policy=broken)
        diverged = together.evaluate()
        assert all(np.isnan(column[0]) for column in diverged.values()), "a policy of NaN trades, but by accident"
        assert {f"eval/{name}": column[1] for name, column in diverged.items()} == pytest.approx(own, nan_ok=True)


def test_every_setting_that_may_vary_is_felt_and_one_program_serves_members_of_any():
    assert OTHER.keys() == set(VARYING)
    before = ppo_population_jax.train._cache_size()
    base = settings("toy_point:RECORD", "jax_full")
    configs = [base, *(replace(base, **{name: value}) for name, value in OTHER.items())]
    with precision(base):
        metrics = PPOPopulation(configs, PointSystem).run(0, HALF)
        PPOPopulation([replace(config, lr=2e-3, seed=2) for config in configs], PointSystem).run(0, HALF)
    assert len({tuple(losses) for losses in metrics["loss"]}) == len(configs)
    assert ppo_population_jax.train._cache_size() == before + 1


@pytest.mark.slow
def test_a_sweep_of_trading_ranks_by_dollars_per_day(tmp_path, capsys):
    words = [*tiny("trading"), "--over", "seed=0..1", "entropy_coef=0,0.1"]
    assert main(["sweep", "trading", *words, "--runs-dir", str(tmp_path)]) == 0
    assert "$ per day" in capsys.readouterr().out
    (folder,) = (tmp_path / "trading").iterdir()
    members = json.loads((folder / "sweep.json").read_text())["members"]
    assert sorted(tuple(member["settings"].values()) for member in members) == [(0, 0), (0, 0.1), (1, 0), (1, 0.1)]
    dollars = [member["last"]["eval/daily"] for member in members]
    assert dollars == sorted(dollars, reverse=True)
    assert members[0]["last"].keys() == {measure.name for measure in find("trading").headline}


def test_what_earns_most_over_its_seeds_comes_first(tmp_path):
    system, base = find("trading"), load_attribute(find("trading").config)()
    over = {"seed": ["0", "1"], "gamma": ["0.9", "0.5"]}
    dollars = dict(enumerate((10.0, 300.0, 20.0, -100.0)))  # of gamma 0.9 and 0.5 by turns
    history = {"step": 1, "rows": [(1, {f"{i}/eval/daily": value for i, value in dollars.items()})]}
    found = record(system, base, over, combinations(base, over), history)
    assert [member["last"]["eval/daily"] for member in found["members"]] == [300, 20, 10, -100]
    page = write_page(tmp_path / "sweep.html", system, found).read_text()
    table = page[page.index("Over seeds") :]
    assert table.index("gamma=0.5") < table.index("gamma=0.9")


def test_what_one_program_cannot_hold_is_refused():
    base = load_attribute(find("trading").config)()
    for other, hint in (
        ({"hidden": 8}, f"may differ in {', '.join(VARYING)}, but these differ in hidden"),
        ({"clip_norm": None}, "clip_norm: expected numbers in all members of a population, or none in all; got both"),
    ):
        with pytest.raises(UsageError, match=hint):
            Population([base, replace(base, **other)])
