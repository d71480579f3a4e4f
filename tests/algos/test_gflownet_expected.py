"""Exact expectations of losses: equal to sums over all trajectories, and the mean of what sampling gives."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gflownet_small import tiny
from gflownet_tables import all_trajectories, graph_of

from crossfade.algos.gflownet import (
    expected_loss_jax,
    expected_loss_torch,
    initial_parameters,
    learner_jax,
    learner_torch,
    losses_torch,
)
from crossfade.algos.gflownet.batch_torch import to_tensors
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import acting_torch, nodes_numpy, noise_numpy, vectorized
from crossfade.bridge.libraries import named_leaves
from crossfade.envs.dag.bayesnet.params import BayesNetParams
from crossfade.envs.dag.conformance import FAST_COMPILE
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.envs.dag.registry import make
from crossfade.envs.dag.toy.params import ToyParams
from crossfade.errors import UsageError
from crossfade.random import random_numpy
from crossfade.systems.gflownet.gradient_noise_jax import gradient_noise

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")
BY_MOMENTS = ("tb", "vargrad", "subtb")
# Ways to a state of one length and of several, every object may stop and not every one, few ways and many.
WORLDS = [GridParams(1, 5, max_increment=4), HypergridParams(2, 3), ToyParams(), BayesNetParams(3)]
EXPLORING = {"epsilon": 0.3, "temperature": 1.5}


def name(params):
    return type(params).__name__.removesuffix("Params")


def losses_for(params):
    return [loss for loss in LOSSES if loss != "mdb" or params.terminating]


def configs_for(params):
    """Every loss there, both gradients, on policy and exploring."""
    return [
        tiny(env=params, loss=loss, layers=1, through_sampling=through, **(EXPLORING if through else {}))
        for loss in losses_for(params)
        for through in (False, True)
    ]


@cache
def parameters_of(config):
    """The same random networks for every loss, and a log Z that is not zero."""
    drawn = initial_parameters.parameters(config, make(config.env, "numpy"), random_numpy.key(3), "float64")
    return {name: 2 * value for name, value in drawn.items()} | {"log_z": np.array([0.7])}


def torch_side(config):
    env = make(config.env, "numpy")
    policy = learner_torch.make_policy(config, env, parameters_of(config))
    return policy, to_tensors(nodes_numpy.table(env, config.loss == "fm"), torch.float64)


def gradient_of(value, policy):
    found = torch.autograd.grad(value, list(policy.parameters()), allow_unused=True, materialize_grads=True)
    return {name: g.numpy() for name, g in zip(dict(policy.named_parameters()), found, strict=True)}


def by_torch(config):
    policy, nodes = torch_side(config)
    value, info = expected_loss_torch.loss(policy, nodes, graph_of(config.env), config)
    return value.detach(), gradient_of(value, policy), info


def by_hand(config):
    """The sum over all trajectories of probability times loss, from the sampled losses and a walk through each."""
    env = make(config.env, "numpy")
    policy, nodes = torch_side(config)
    placed = nodes_numpy.at_table(all_trajectories(env), env, nodes_numpy.table(env, config.loss == "fm"))
    batch = to_tensors(placed, torch.float64)
    output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask)
    softmax = torch.softmax(output.logits / config.temperature, -1)
    uniform = nodes.forward_mask.double() / nodes.forward_mask.sum(-1, keepdim=True)
    sampler = (1 - config.epsilon) * softmax + config.epsilon * uniform
    probability = sampler[batch.node[:-1], batch.action].where(batch.valid, 1.0).prod(0)
    assert probability.sum().item() == pytest.approx(1, abs=1e-12)
    weight = probability if config.through_sampling else probability.detach()

    along, length = losses_torch.terms(output, batch), batch.valid.sum(0)
    if config.loss == "vargrad":
        estimate = along.log_reward - (along.log_pf - along.log_pb).sum(0)
        residual = estimate - (weight * estimate).sum()
        value = (weight * losses_torch.regression(residual, config.regression)).sum()
    else:
        count = {"tb": torch.ones_like(length), "subtb": torch.ones_like(length), "mdb": length - 1}
        weight = weight * count.get(config.loss, length)
        value = (weight * each(along, output, batch, policy.log_z, config)).sum() / weight.sum()
    info = {
        "loss": value,
        "log_z": policy.log_z.sum(),
        "mean_log_reward": (probability * along.log_reward).sum(),
        "mean_length": (probability * length).sum(),
    }
    return value.detach(), gradient_of(value, policy), info


def each(along, output, batch, log_z, config):
    """The sampled loss of each trajectory alone; of no transition it is 0."""
    cut = lambda columns, b: columns[..., [b]]
    found = []
    for b in range(batch.valid.shape[1]):
        if config.loss == "fm":
            steps = {name: cut(getattr(batch, name), b) for name in ("node", "action", "parent", "valid")}
            found.append(losses_torch.flow_matching(output, batch._replace(**steps), config.regression))
        else:
            found.append(losses_torch.balance(losses_torch.Terms(*(cut(term, b) for term in along)), log_z, config))
    return torch.stack(found).nan_to_num()


def assert_same(found, expected, name):
    """Value, gradient by name, and what is logged."""
    (value, gradient, info), (other, other_gradient, other_info) = found, expected
    assert value.item() == pytest.approx(other.item(), rel=1e-12), name
    assert info.keys() == other_info.keys()
    for key in info:
        assert info[key].item() == pytest.approx(other_info[key].item(), rel=1e-12), key
    assert gradient.keys() == other_gradient.keys()
    size = max(np.abs(leaf).max() for leaf in other_gradient.values())
    assert size > 0
    for leaf in gradient:
        np.testing.assert_allclose(gradient[leaf], other_gradient[leaf], rtol=0, atol=1e-11 * size, err_msg=name)


@pytest.mark.parametrize("params", WORLDS, ids=name)
def test_expectations_and_gradients_are_sums_over_all_trajectories(params):
    for config in configs_for(params):
        assert_same(by_torch(config), by_hand(config), config.loss)


@pytest.mark.parametrize(
    "params", [WORLDS[0], *(pytest.param(w, marks=pytest.mark.slow) for w in WORLDS[1:])], ids=name
)
def test_expectations_are_the_same_in_both_frameworks(params, x64):
    configs, graph, env = configs_for(params), graph_of(params), make(params, "jax")

    def every(policies, nodes):
        measure = jax.value_and_grad(expected_loss_jax.loss, has_aux=True)
        return [measure(policy, nodes, graph, config) for policy, config in zip(policies, configs, strict=True)]

    policies = [learner_jax.make_policy(config, env, parameters_of(config)) for config in configs]
    nodes = jax.tree.map(jnp.asarray, nodes_numpy.table(make(params, "numpy")))
    for config, ((value, info), gradient) in zip(
        configs, jax.jit(every, compiler_options=FAST_COMPILE)(policies, nodes), strict=True
    ):
        assert_same((value, named_leaves(gradient), info), by_torch(config), config.loss)


@cache
def sampled_batches(params, batches=64, size=500):
    """What the sampler of the policy makes of one key after another."""
    env, config = make(params, "numpy"), tiny(env=params, layers=1, **EXPLORING)
    policy, nodes = torch_side(config)
    logits = policy.forward_logits(nodes.observation).detach()

    def choose(state, gumbel, explore):
        mask, noise, coin = map(torch.from_numpy, (env.forward_mask(state), gumbel, explore))
        return acting_torch.choose(logits[env.index(state)], mask, noise, coin, **EXPLORING).numpy()

    keys = [random_numpy.fold_in(random_numpy.key(5), i) for i in range(batches)]
    noises = [noise_numpy.draw(key, env.max_steps, size, env.n_actions, "float64") for key in keys]
    return [vectorized.sample(choose, env, noise) for noise in noises]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_mean_of_the_sampled_loss_and_gradient_is_the_expected_one(loss):
    params = HypergridParams(2, 3)
    env, config = make(params, "numpy"), tiny(env=params, loss=loss, layers=1, **EXPLORING)
    policy, _ = torch_side(config)
    table, rows = nodes_numpy.table(env, loss == "fm"), []
    for trajectories in sampled_batches(params):
        batch = to_tensors(nodes_numpy.at_table(trajectories, env, table), torch.float64)
        value, _ = losses_torch.loss(policy, batch, config)
        rows.append(flat(value.detach(), gradient_of(value, policy)))
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
    value, gradient, _ = by_torch(config)
    off = np.abs(mean - flat(value, gradient))
    assert (off <= 5 * error + 1e-12).all()
    assert (error < 0.1 * np.abs(mean).max()).all()  # the comparison says something

    value, gradient, _ = by_torch(replace(config, through_sampling=True))
    assert (np.abs(mean - flat(value, gradient)) > 5 * error + 1e-12).any()  # another gradient is noticed


def flat(value, gradient):
    return np.concatenate([[value], *(leaf.ravel() for leaf in gradient.values())])


@pytest.mark.parametrize("kind", ["half", "huber", "exponential", "linex"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_regression_is_expected_or_refused(loss, kind):
    config = tiny(env=WORLDS[0], loss=loss, layers=1, regression=kind)
    if loss in BY_MOMENTS and kind != "half":
        with pytest.raises(UsageError, match="expected regression=square or half"):
            by_torch(config)
    else:
        assert_same(by_torch(config), by_hand(config), loss)


def test_sub_trajectory_balance_of_any_decay_is_expected():
    for decay in (0.5, 1.0, 1.7):
        config = tiny(env=WORLDS[0], loss="subtb", layers=1, subtb_lambda=decay)
        assert_same(by_torch(config), by_hand(config), str(decay))


@pytest.mark.parametrize("through_sampling", [False, True])
def test_the_expected_gradient_finds_the_target_and_the_gradient_of_the_expectation_may_drop_a_mode(through_sampling):
    """The value also falls where the policy learns not to go where its loss is large: then an object is lost."""
    config = tiny(env=WORLDS[0], loss="tb", layers=1, through_sampling=through_sampling)
    policy, nodes = torch_side(config)
    graph, optimizer, values = graph_of(config.env), torch.optim.Adam(policy.parameters(), lr=0.05), []
    for _ in range(300):
        value, _ = expected_loss_torch.loss(policy, nodes, graph, config)
        optimizer.zero_grad(set_to_none=False)
        value.backward()
        optimizer.step()
        values.append(value.item())
    found = exact_numpy.terminating_distribution(graph, learner_torch.log_pf_table(policy, make(config.env, "numpy")))
    distance = exact_numpy.total_variation(found, graph.target)
    assert values[-1] < 1e-3 < 1 < values[0]
    assert distance > 0.2 if through_sampling else distance < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_the_noise_of_large_batches_has_no_bias(loss):
    """The sampled gradients of the JAX half have the exact one for a mean."""
    config = tiny(env=WORLDS[0], loss=loss, layers=1, batch_size=1000, **EXPLORING)
    found = gradient_noise(config, batches=200, parameters=parameters_of(config))
    assert found.bias < 2 * found.bias_error < 0.05
    other = gradient_noise(replace(config, through_sampling=True), batches=200, parameters=parameters_of(config))
    assert other.bias > 5 * other.bias_error  # sampling gives another gradient than that of the expected loss


def test_vargrad_of_n_trajectories_is_too_small_by_one_part_in_n():
    config = tiny(env=WORLDS[0], loss="vargrad", layers=1, batch_size=4)
    found = gradient_noise(config, batches=20_000, parameters=parameters_of(config))
    assert found.bias == pytest.approx(1 / 4, abs=3 * found.bias_error)
    assert found.bias_error < 0.03 < found.noise
