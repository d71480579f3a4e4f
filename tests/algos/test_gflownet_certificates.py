"""The zero-loss certificate: at the analytic optimum every loss is 0, nothing moves, and the policy samples R / Z.

For every environment that can be enumerated, every loss defined on it, both frameworks, every execution and every mode.
One batch holds a trajectory through each transition there is, so a wrong residual anywhere would show.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gflownet_small import tiny
from gflownet_tables import graph_of, optimum, tabular, through_every_edge

from crossfade.algos.gflownet import (
    expected_loss_torch,
    learner_jax,
    learner_torch,
    losses_jax,
    losses_torch,
)
from crossfade.algos.gflownet.batch import Trajectories
from crossfade.algos.gflownet.batch_torch import to_tensors
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import nodes_jax, nodes_numpy
from crossfade.bridge.libraries import named_leaves
from crossfade.envs.dag.conformance import FAST_COMPILE
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.registry import ENVS, params_class
from crossfade.registry import find
from crossfade.run.settings import MODES
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")
EXECUTIONS = ("dense", "table", "unique")
WORDS = {
    "grid": [{"n_dim": 2, "length": 4}, {"n_dim": 2, "length": 3, "max_increment": 2, "max_dim_per_action": 2}],
    "hypergrid": [{"n_dim": 2, "length": 4}],
    "toy": [{}],
    "set": [{"n_items": 4, "max_size": 2}, {"n_items": 4, "max_size": 2, "fixed_size": True}],
    "bits": [
        {"n_bits": 8, "word_bits": 4, "n_modes": 2, "order": order} for order in ("append", "prepend_append", "free")
    ],
    "sequence": [{"length": 2, "letters": "abc", "order": order} for order in ("append", "prepend_append", "free")],
    "ising": [{"side": 2, "coupling": 0.3, "field": 0.1}],
    "bayesnet": [{"n_nodes": 3}],
    "phylo": [{"n_species": 4}],
}
WORLDS = [params_class(name)(**words) for name in ENVS for words in WORDS[name]]
ZERO = 1e-12


def name(params) -> str:
    order = f"-{params.order}" if hasattr(params, "order") else ""
    return type(params).__name__.removesuffix("Params") + order


def losses_for(params):
    """Modified detailed balance needs every object to be allowed to stop."""
    return [loss for loss in LOSSES if loss != "mdb" or params.terminating]


def config_for(params, loss, execution="table"):
    return tiny(env=params, loss=loss, layers=0, execution=execution)


def shaken(parameters):
    """The optimum, a little off."""
    rng = np.random.default_rng(1)
    head = parameters["forward_head.weight"]
    return parameters | {"forward_head.weight": head + rng.normal(size=head.shape)}


def assert_certified(params, loss, value, gradient, log_pf, shaken_value):
    graph = graph_of(params)
    assert value <= ZERO, loss
    assert max(np.abs(leaf).max() for leaf in gradient.values()) <= ZERO * max(1, np.abs(graph.log_z)), loss
    p = exact_numpy.terminating_distribution(graph, np.asarray(log_pf))
    np.testing.assert_allclose(p, graph.target, rtol=0, atol=ZERO)
    assert shaken_value > 1e-3, loss


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("params", WORLDS, ids=name)
def test_every_loss_is_zero_at_the_optimum_in_torch(params, execution):
    env = tabular(params, "numpy")
    trajectories = through_every_edge(env, graph_of(params))
    batch = {
        "dense": lambda: nodes_numpy.dense(trajectories, env, parents=True),
        "table": lambda: nodes_numpy.at_table(trajectories, env, nodes_numpy.table(env, parents=True)),
        "unique": lambda: nodes_numpy.unique(trajectories, env, env.n_states + 1, parents=True),
    }[execution]()
    batch = to_tensors(batch, torch.float64)
    for loss in losses_for(params):
        config, parameters = config_for(params, loss, execution), optimum(loss, params)
        policy = learner_torch.make_policy(config, env, parameters)
        value, gradient = measured(policy, losses_torch.loss(policy, batch, config)[0])
        other = learner_torch.make_policy(config, env, shaken(parameters))
        with torch.no_grad():
            off, _ = losses_torch.loss(other, batch, config)
        assert_certified(params, loss, value, gradient, learner_torch.log_pf_table(policy, env), off.item())


def measured(policy, value):
    found = torch.autograd.grad(value, list(policy.parameters()), allow_unused=True, materialize_grads=True)
    return value.item(), {name: g.numpy() for name, g in zip(dict(policy.named_parameters()), found, strict=True)}


# Each loss with each execution once in the default run, in one world of each environment; torch has all worlds above.
ONE_OF_EACH = list({type(params): params for params in reversed(WORLDS)}.values())[::-1]
ONE_OF_EACH.sort(key=lambda params: not params.terminating)  # the first three have mdb too, with each execution
FEW = [
    (
        params,
        EXECUTIONS[i % 3],
        [loss for k, loss in enumerate(LOSSES) if (i // 3 + k) % 3 == 0 and loss in losses_for(params)],
    )
    for i, params in enumerate(ONE_OF_EACH)
]
ALL = [(params, execution, losses_for(params)) for params in WORLDS for execution in EXECUTIONS]


def test_the_default_run_has_every_loss_with_every_execution():
    assert len({(loss, execution) for _, execution, losses in FEW for loss in losses}) == len(LOSSES) * len(EXECUTIONS)


@pytest.mark.parametrize(
    "params, execution, losses",
    [
        pytest.param(
            *case, marks=[] if case in FEW else pytest.mark.slow, id=f"{name(case[0])}-{case[1]}-{len(case[2])}"
        )
        for case in FEW + ALL
    ],
)
def test_losses_are_zero_at_the_optimum_in_jax(params, execution, losses, x64):
    env = tabular(params, "jax")
    trajectories = Trajectories(*map(jnp.asarray, through_every_edge(tabular(params, "numpy"), graph_of(params))))
    configs = [config_for(params, loss, execution) for loss in losses]

    @eqx.filter_jit(compiler_options=FAST_COMPILE)
    def every(parameters, trajectories):
        policies = [learner_jax.make_policy(c, env, p) for c, p in zip(configs, parameters, strict=True)]
        batch = {
            "dense": lambda: nodes_jax.dense(trajectories, env, parents=True),
            "table": lambda: nodes_jax.at_table(trajectories, env, nodes_jax.table(env, parents=True)),
            "unique": lambda: nodes_jax.unique(trajectories, env, env.n_states, parents=True),
        }[execution]()
        measure = jax.value_and_grad(lambda policy, config: losses_jax.loss(policy, batch, config)[0])
        found = [measure(policy, config) for policy, config in zip(policies, configs, strict=True)]
        return found, [learner_jax.log_pf_table(policy, env) for policy in policies]

    optima = [optimum(config.loss, params) for config in configs]
    found, tables = every(jax.tree.map(jnp.asarray, optima), trajectories)
    others, _ = every(jax.tree.map(jnp.asarray, list(map(shaken, optima))), trajectories)
    for config, (value, gradient), log_pf, (off, _) in zip(configs, found, tables, others, strict=True):
        assert_certified(params, config.loss, value, named_leaves(gradient), log_pf, off)


@pytest.mark.parametrize("params", WORLDS, ids=name)
def test_every_expected_loss_is_zero_at_the_optimum(params):
    env, graph = tabular(params, "numpy"), graph_of(params)
    nodes = to_tensors(nodes_numpy.table(env), torch.float64)
    for loss in losses_for(params):
        for through_sampling in (False, True):
            config = replace(config_for(params, loss), through_sampling=through_sampling)
            policy = learner_torch.make_policy(config, env, optimum(loss, params))
            value, gradient = measured(policy, expected_loss_torch.loss(policy, nodes, graph, config)[0])
            assert value <= ZERO, loss
            assert max(np.abs(leaf).max() for leaf in gradient.values()) <= ZERO * max(1, abs(graph.log_z)), loss


# A grid of one dimension shows its state as a one-hot: a linear policy of the environment as it is holds the optimum.
LINE = GridParams(n_dim=1, length=5, max_increment=4)
DEFAULT = {("torch", loss) for loss in LOSSES} | {("torch_pure", "db"), ("jax_full", "fm")}


@pytest.mark.parametrize(
    "mode, loss",
    [
        pytest.param(mode, loss, marks=[] if (mode, loss) in DEFAULT else pytest.mark.slow)
        for mode in MODES
        for loss in LOSSES
    ],
)
def test_every_mode_stays_at_the_optimum(mode, loss, monkeypatch):
    """Adam divides a gradient by its size plus 1e-8 and so makes steps out of rounding errors at ordinary rates. At a
    rate of 1e-9 it leaves the optimum where it is and moves everything else by that."""
    monkeypatch.setattr(
        "crossfade.trainers.torch_pure.find_compiler", lambda: ("", "not asked for")
    )  # uncompiled: see test_modes
    # jax_minimal first compares a torch and a JAX loss in proportion to their size, which is 1e-31 here.
    monkeypatch.setattr("crossfade.bridge.stepping.live.prove", lambda *step: ())
    config = replace(config_for(LINE, loss), mode=mode, batch_size=16, epsilon=0.5, lr=1e-9, lr_z=1e-9)

    def moved(start):
        with precision(config):
            trainer = make_trainer(find("gflownet"), config, Snapshot(start))
            losses = trainer.run(0, 3)["loss"]
            end, found = trainer.snapshot().parameters, trainer.evaluate().metrics
        return max(np.abs(end[name] - start[name]).max() for name in start), np.max(losses), found["eval/tv"]

    distance, value, total_variation = moved(optimum(loss, LINE))
    assert distance <= 1e-15 and value <= ZERO and total_variation <= ZERO
    if mode == "torch":
        distance, value, total_variation = moved(shaken(optimum(loss, LINE)))
        assert distance > 1e-9 and value > 1e-3 and total_variation > 1e-3


def test_the_toy_graph_has_the_published_normaliser():
    graph = graph_of(params_class("toy")())
    rewards = np.exp(graph.log_reward)
    assert (rewards > 0).sum() == 6
    assert rewards.sum() == pytest.approx(112, rel=1e-12)
    assert graph.log_z == pytest.approx(4.71849887, abs=1e-8)
