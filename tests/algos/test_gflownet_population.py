"""Populations: each member is the run that its config gives alone, and is judged exactly."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from gflownet_small import tiny

from crossfade.algos.gflownet import population
from crossfade.algos.gflownet.evaluation import evaluate
from crossfade.algos.gflownet.learner_jax import log_pf_table, log_z
from crossfade.algos.gflownet.population import VARYING, Population
from crossfade.algos.gflownet.system_jax import System
from crossfade.errors import UsageError

OTHER = {"seed": 1, "lr": 3e-3, "lr_z": 0.03, "epsilon": 0.4, "temperature": 1.7, "subtb_lambda": 0.3}


def alone(config, steps):
    """The metrics and the policy of an ordinary run, and the system that made it."""
    system = System(config)
    policy = system.make_policy(system.parameters())
    tx = system.make_optimizer(policy)
    policy, *_, metrics = system.train(policy, tx, tx.init(policy), system.start_buffer(), 0, steps)
    return metrics, policy, system


@pytest.mark.parametrize(
    ("loss", "execution", "varied"),
    [
        ("tb", "table", ("seed", "lr", "lr_z", "epsilon", "temperature")),
        ("subtb", "dense", ("subtb_lambda",)),
        ("tb", "unique", ("seed",)),
    ],
)
def test_each_member_is_the_run_trained_alone_and_judged_exactly(x64, loss, execution, varied):
    base = tiny(loss=loss, execution=execution, epsilon=0.1, temperature=1.2, layers=1)
    configs = [base, *(replace(base, **{name: OTHER[name]}) for name in varied)]
    together = Population(configs)
    (first, _), (second, exact) = together.run(0, 4), together.run(4, 4)
    metrics = {name: np.concatenate([first[name], second[name]], axis=1) for name in first}
    assert len({tuple(losses) for losses in metrics["loss"]}) == len(configs), "a setting did not reach its member"
    for i, config in enumerate(configs):
        expected, policy, system = alone(config, 8)
        for name, values in expected.items():
            np.testing.assert_allclose(metrics[name][i], values, rtol=0, atol=1e-9, err_msg=name)
        own = jax.tree.map(lambda leaf, i=i: leaf[i], together.members.policy)
        for leaf, other in zip(jax.tree.leaves(own), jax.tree.leaves(policy), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-9)
        actions = [np.asarray(system.sample(p, jax.random.key(3)).action) for p in (own, policy)]
        np.testing.assert_array_equal(*actions)
        judged = evaluate(config.env, partial(log_pf_table, own, system.env), log_z(own, system.env, config)).metrics
        assert {name: values[i] for name, values in exact.items()} == pytest.approx(
            {name: judged[f"eval/{name}"] for name in ("tv", "log_z_error")}, abs=1e-12
        )


def test_one_program_serves_members_of_any_settings():
    before = population.train._cache_size()
    for lr in (1e-3, 2e-3):
        configs = [tiny(dtype="float32", loss="vargrad", layers=0, lr=lr, seed=seed) for seed in (0, 1)]
        _, exact = Population(configs).run(0, 2)
        assert exact.keys() == {"tv"}, "VarGrad learns no log Z"
    assert population.train._cache_size() == before + 1


@pytest.mark.parametrize(
    ("configs", "hint"),
    [
        ([], "at least one"),
        ([tiny(), tiny(hidden=16)], f"may differ in {', '.join(VARYING)}, but these differ in hidden"),
        ([tiny(mode="torch")], "jax_full"),
    ],
)
def test_what_one_program_cannot_hold_is_refused(configs, hint):
    with pytest.raises(UsageError, match=hint):
        Population(configs)
