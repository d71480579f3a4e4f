"""Advantages where episodes are cut off, on a Markov process whose values are known: two states that take turns.

In state A one earns a and goes to B, in B one earns b and goes back: V(A) = (a + gamma b) / (1 - gamma^2). A time limit
cuts the process off, which changes nothing about what a state is worth.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from crossfade.algos.ppo import gae_jax, gae_torch

GAMMA, LAMBDA, LIMIT = 0.9, 0.8, 5
REWARD = {"A": 1.0, "B": -0.5}
VALUE = {here: (REWARD[here] + GAMMA * REWARD[there]) / (1 - GAMMA**2) for here, there in (("A", "B"), ("B", "A"))}


def process(steps: int = 17) -> tuple[np.ndarray, ...]:
    """Two environments, one of which begins in A and one in B, cut off after every LIMIT steps."""
    names = np.array([["A", "B"] if t % 2 == 0 else ["B", "A"] for t in range(steps)])
    of = lambda table, states: np.vectorize(table.get)(states).astype(np.float64)
    truncated = np.broadcast_to((np.arange(steps) % LIMIT == LIMIT - 1)[:, None], names.shape).copy()
    other = np.where(names == "A", "B", "A")
    return of(REWARD, names), of(VALUE, names), of(VALUE, other), np.zeros_like(truncated), truncated


def advantages(mode: str) -> list[np.ndarray]:
    """As each framework finds them."""
    given = process()
    ours = gae_torch.gae(*map(torch.from_numpy, given), GAMMA, LAMBDA, mode)
    theirs = gae_jax.gae(*map(jnp.asarray, given), GAMMA, LAMBDA, mode)
    return [ours.numpy(), np.asarray(theirs)]


@pytest.mark.parametrize("mode", ["bootstrap", "mask"])
def test_a_critic_that_knows_the_values_has_no_advantage_anywhere(mode, x64):
    for found in advantages(mode):
        np.testing.assert_allclose(found, 0, atol=1e-13)


def test_a_limit_taken_for_an_end_costs_what_the_next_state_is_worth(x64):
    """A(t) = -(gamma lambda)^k gamma V(s') with k steps to the limit: every step of an episode is told wrongly."""
    _, _, next_value, _, truncated = process()
    steps, last = len(truncated), len(truncated) - len(truncated) % LIMIT
    for found in advantages("terminal"):
        for t in range(last):
            limit = t + (LIMIT - 1 - t % LIMIT)
            expected = -((GAMMA * LAMBDA) ** (limit - t)) * GAMMA * next_value[limit]
            np.testing.assert_allclose(found[t], expected, rtol=1e-12)
        np.testing.assert_allclose(found[last:steps], 0, atol=1e-13)  # not cut off within the rollout


def test_a_mask_leaves_out_the_step_and_what_lies_behind_it(x64):
    """With a critic that knows nothing the masked step has no advantage, and those before it end there."""
    reward, value, next_value, terminated, truncated = process()
    zero = np.zeros_like(value)
    given = reward, zero, zero, terminated, truncated
    ours = gae_torch.gae(*map(torch.from_numpy, given), GAMMA, LAMBDA, "mask").numpy()
    theirs = np.asarray(gae_jax.gae(*map(jnp.asarray, given), GAMMA, LAMBDA, "mask"))
    for found in (ours, theirs):
        assert not found[truncated].any()
        np.testing.assert_allclose(found[LIMIT - 2], reward[LIMIT - 2], rtol=1e-12)
        np.testing.assert_allclose(found[LIMIT - 3], reward[LIMIT - 3] + GAMMA * LAMBDA * reward[LIMIT - 2], rtol=1e-12)
