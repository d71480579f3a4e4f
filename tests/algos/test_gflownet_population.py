"""Populations: each member is the run that its config gives alone, and is judged exactly."""

import operator
from dataclasses import replace

import jax
import numpy as np
import pytest
from gflownet_small import tiny, with_optimizers

from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.learner_jax import log_pf_table, log_z
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.registry import make
from crossfade.errors import UsageError
from crossfade.systems.gflownet import population_jax
from crossfade.systems.gflownet.discrete_jax import System
from crossfade.systems.gflownet.population_jax import VARYING, Population

OTHER: dict = {"seed": 1, "lr": 3e-3, "lr_z": 0.03, "epsilon": 0.4, "temperature": 1.7, "subtb_lambda": 0.3}


def alone(config, steps):
    """The metrics and the policy of an ordinary run, and the system that made it.

    Over the table whatever the population does: executions give the same run, and this one compiles fastest.
    """
    system = System(replace(config, execution="table"))
    policy = system.make_policy(system.parameters())
    policy, *_, metrics = system.train(policy, *with_optimizers(system, policy), system.start_buffer(), 0, steps)
    return metrics, policy, system


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "execution", "settings", "varied"),
    [
        ("tb", "table", {}, ("seed", "lr", "lr_z", "epsilon", "temperature")),
        ("subtb", "dense", {"replay_batch": 2, "replay_capacity": 3}, ("subtb_lambda",)),
        ("tb", "unique", {"clip_norm": 1.0, "lr_period": 3}, ("lr",)),
    ],
)
def test_each_member_is_the_run_trained_alone_and_judged_exactly(x64, loss, execution, settings, varied):
    base = tiny(loss=loss, execution=execution, epsilon=0.1, temperature=1.2, layers=1, **settings)
    graph = enumerate_states(make(base.env, "numpy"))
    others = [{name: OTHER[name]} for name in varied]
    configs = [replace(base, **other) for other in ({}, *others, {name: OTHER[name] for name in varied})]
    together = Population(configs)
    first, second, exact = together.run(0, 4), together.run(4, 4), together.evaluate()
    metrics = {name: np.concatenate([first[name], second[name]], axis=1) for name in first}
    assert len({tuple(losses) for losses in metrics["loss"][:-1]}) == len(configs) - 1, "a setting is not felt"
    for i in (0, len(configs) - 1):
        config = configs[i]
        expected, policy, system = alone(config, 8)
        for name, values in expected.items():
            np.testing.assert_allclose(metrics[name][i], values, rtol=0, atol=1e-9, err_msg=name)
        own = jax.tree.map(operator.itemgetter(i), together.members.policy)
        for leaf, other in zip(jax.tree.leaves(own), jax.tree.leaves(policy), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-9)
        actions = [np.asarray(system.sample(p, jax.random.key(3)).action) for p in (own, policy)]
        np.testing.assert_array_equal(*actions)
        p = exact_numpy.terminating_distribution(graph, np.asarray(log_pf_table(own, system.env)))
        judged = exact_numpy.metrics(graph, p, log_z(own, system.env, config))
        for name in ("tv", "log_z_error"):
            assert exact[name][i] == pytest.approx(judged[name], abs=1e-12)


def test_one_program_serves_members_of_any_settings():
    before = population_jax.train._cache_size()
    for lr in (1e-3, 2e-3):
        configs = [tiny(dtype="float32", loss="vargrad", layers=0, lr=lr, seed=seed) for seed in (0, 1)]
        population = Population(configs)
        population.run(0, 2)
        assert population.evaluate().keys() == {"tv"}, "VarGrad learns no log Z"
    assert population_jax.train._cache_size() == before + 1


@pytest.mark.parametrize(
    ("configs", "hint"),
    [
        ([], "at least one"),
        ([tiny(), tiny(hidden=16)], f"may differ in {', '.join(VARYING)}, but these differ in hidden"),
        ([tiny(mode="torch")], "jax_full"),
        ([tiny(env=CubeParams())], "discrete"),
    ],
)
def test_what_one_program_cannot_hold_is_refused(configs, hint):
    with pytest.raises(UsageError, match=hint):
        Population(configs)
