"""Losses at the edges of their formulas: the same value and gradient in both frameworks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gflownet_small import tiny

from crossfade.algos.gflownet import expected_loss_jax, expected_loss_torch, losses_jax, losses_torch
from crossfade.envs.dag.ground_truth import graph_of
from crossfade.systems.gflownet import discrete_jax, discrete_torch

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fldb")
FLOATS = ("log_pf", "log_pb", "log_flow", "log_reward", "log_reward_t", "stop_t")


def random_terms(lengths=(1, 2, 4, 3)) -> dict[str, np.ndarray]:
    """Terms of trajectories with these numbers of transitions; nothing is in balance."""
    rng, steps, batch = np.random.default_rng(0), max(lengths), len(lengths)
    time = np.arange(steps)[:, None]
    valid, stop = time < np.array(lengths), time == np.array(lengths) - 1
    draw = lambda *shape: rng.normal(size=shape)
    return {
        "log_pf": np.where(valid, draw(steps, batch), 0),
        "log_pb": np.where(valid & ~stop, draw(steps, batch), 0),
        "log_flow": draw(steps + 1, batch),
        "log_reward": draw(batch),
        "log_reward_t": draw(steps + 1, batch),
        "stop_t": draw(steps + 1, batch),
        "valid": valid,
        "stop": stop,
    }


def by_torch(arrays, config):
    """The loss, and its gradient with respect to every term."""
    terms = losses_torch.Terms(**{n: torch.tensor(a, requires_grad=n in FLOATS) for n, a in arrays.items()})
    value = losses_torch.balance(terms, torch.tensor([0.25, 0.5], dtype=torch.float64), config)
    leaves = [getattr(terms, name) for name in FLOATS]
    gradient = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else [None] * len(leaves)
    return float(value.detach()), [
        np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(leaves, gradient, strict=True)
    ]


def by_jax(arrays, config):
    def loss(floats):
        return losses_jax.balance(
            losses_jax.Terms(**{**jax.tree.map(jnp.asarray, arrays), **floats}), jnp.array([0.25, 0.5]), config
        )

    value, gradient = jax.jit(jax.value_and_grad(loss))({name: jnp.asarray(arrays[name]) for name in FLOATS})
    return float(value), [np.asarray(gradient[name]) for name in FLOATS]


def both(arrays, config):
    """The loss in torch, after it was found equal in JAX."""
    (value, gradient), (other, other_gradient) = by_torch(arrays, config), by_jax(arrays, config)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in gradient)
    assert other == pytest.approx(value, rel=1e-13, abs=1e-15)
    for ours, theirs in zip(gradient, other_gradient, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    return value


@pytest.mark.parametrize("loss", LOSSES)
def test_both_frameworks_have_the_same_value_and_gradient(loss, x64):
    assert both(random_terms(), tiny(loss=loss)) > 0.1


def test_subtb_with_lambda_0_is_detailed_balance_of_each_trajectory(x64):
    """SubTB weighs a piece of n transitions by lambda^n and normalises: as lambda falls to 0, those of 1 are left."""
    arrays, lengths = random_terms(), (1, 2, 4, 3)
    alone = [{name: a[..., b : b + 1] for name, a in arrays.items()} for b in range(len(lengths))]
    expected = np.mean([both(terms, tiny(loss="db")) for terms in alone])
    assert both(arrays, tiny(loss="subtb", subtb_lambda=0.0)) == pytest.approx(expected, rel=1e-13)
    assert both(arrays, tiny(loss="subtb", subtb_lambda=1e-9)) == pytest.approx(expected, rel=1e-7)


def test_modified_detailed_balance_without_a_transition_but_stop_is_0(x64):
    """A sum over no transitions: nothing is out of balance, and there is nothing to learn."""
    arrays, config = random_terms((1, 1, 1)), tiny(loss="mdb")
    assert both(arrays, config) == 0
    assert not any(g.any() for g in by_torch(arrays, config)[1])


def test_expected_modified_detailed_balance_of_a_policy_that_stops_at_once_is_0(x64):
    config = tiny(loss="mdb", objective="expected")
    ours, theirs = discrete_torch.System(config), discrete_jax.System(config)
    parameters = ours.parameters()
    parameters["forward_head.bias"][-1] = 1e4  # stop is certain: exp(-1e4) is 0
    graph = graph_of(config.env)
    policy = ours.make_policy(parameters)
    value, _ = expected_loss_torch.loss(policy, ours.tensors(ours.table), graph, config)
    value.backward()
    assert float(value.detach()) == 0 and all(not p.grad.any() for p in policy.parameters() if p.grad is not None)
    measure = jax.jit(jax.value_and_grad(lambda p, nodes: expected_loss_jax.loss(p, nodes, graph, config)[0]))
    value, gradient = measure(theirs.make_policy(parameters), theirs.table)
    assert value == 0 and all(not leaf.any() for leaf in jax.tree.leaves(gradient))
