"""The exact expectation of a loss over all trajectories of an enumerable world, in JAX. Twin: expected_loss_torch.py.

Nothing is sampled and there is no noise. Trajectories count by the probability that the sampler makes them, its epsilon
and temperature included, and the value is what the sampled loss tends to as the batch grows. For tb and subtb it is the
mean of the sampled loss at any batch size; vargrad of a batch of n is smaller by 1 - 1/n, and the losses of transitions
divide by the number of transitions in the batch, which here is its mean. The graph is host data: close over it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...envs.dag.enumeration import Graph
from ...errors import UsageError
from .batch import MASKED, Batch
from .config import GFlowNetConfig
from .losses_jax import regression
from .policy_jax import PolicyOutput

Scalar = Float[Array, ""]
Vector = Float[Array, " states"]
Edges = Float[Array, "states actions"]
Parents = Float[Array, "states parents"]


class Transitions(NamedTuple):
    """Every transition of the environment, one for each state and action, stop last; zero where it is not valid."""

    probability: Edges
    """The probability that the sampler takes the transition in its state."""
    log_pf: Edges
    log_pb: Edges
    child: Int[np.ndarray, "states actions"]
    """Where it leads; stop stays."""
    valid: Bool[Array, "states actions"]


def loss(policy: Any, nodes: Batch, graph: Graph, config: GFlowNetConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The expectation of the loss that the config names, and what is logged with it.

    `nodes` are all states of the environment, see nodes_*.table. With `config.through_sampling` the gradient is
    that of the value; without it the weights of the trajectories are held, and the gradient is the expectation of the
    sampled gradient.
    """
    output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask, nodes.log_pb)
    nodes = nodes._replace(log_reward=nodes.log_reward.astype(output.log_pf.dtype))
    every = _transitions(output, nodes, graph, config)
    start = jnp.zeros_like(nodes.log_reward).at[graph.source].set(1)
    reach = _solve(graph, _into(every.probability, graph), start)
    log_z = policy.log_z.sum()
    match config.loss:
        case "tb" | "vargrad":
            value = _trajectory_balance(every, reach, log_z, nodes.log_reward, graph, config)
        case "subtb":
            value = _sub_trajectory_balance(every, start, output.log_flow, nodes.log_reward, graph, config)
        case _:
            among, residual = _residuals(every, output, nodes, graph, config.loss)
            weight = jnp.where(among, reach[:, None] * every.probability, 0)
            total = weight.sum()  # 0 where none of these transitions is ever made, and so is the loss
            cost = regression(jnp.where(among, residual, 0), config.regression)
            value = (weight * cost).sum() / jnp.where(total > 0, total, 1)
    return value, {
        "loss": value,
        "log_z": log_z,
        "mean_log_reward": (reach * every.probability[:, -1] * nodes.log_reward).sum(),
        "mean_length": reach.sum(),
    }


def _transitions(output: PolicyOutput, nodes: Batch, graph: Graph, config: GFlowNetConfig) -> Transitions:
    valid = nodes.forward_mask
    probability = jax.nn.softmax(output.logits / config.temperature)
    uniform = valid.astype(probability.dtype) / valid.sum(-1, keepdims=True)
    probability = (1 - config.epsilon) * probability + config.epsilon * uniform
    undo_stop = jnp.zeros_like(nodes.log_reward) if output.log_pb_stop is None else output.log_pb_stop
    log_pb = jnp.concatenate([output.log_pb[graph.child, graph.undo], undo_stop[:, None]], axis=-1)
    return Transitions(
        probability=probability if config.through_sampling else jax.lax.stop_gradient(probability),
        log_pf=jnp.where(valid, output.log_pf, 0),
        log_pb=jnp.where(valid, log_pb, 0),
        child=np.column_stack([graph.child, np.arange(len(graph.child), dtype=np.int32)]),
        valid=valid,
    )


def _trajectory_balance(
    every: Transitions, reach: Vector, log_z: Scalar, log_reward: Vector, graph: Graph, config: GFlowNetConfig
) -> Scalar:
    """E (log Z + A - log R(x))², where A sums log P_F - log P_B over a trajectory.

    By the law of total variance: the mean and the variance of A among the ways to each state follow from those of its
    parents, and near the optimum nothing large is subtracted. For vargrad log Z is E (log R(x) - A).
    """
    way_in = _into(every.probability, graph)
    share = reach[graph.parent] * way_in / jnp.where(reach > 0, reach, 1)[:, None]  # of those who came, by this way
    gain = every.log_pf - every.log_pb
    step = _into(gain, graph)
    mean = _solve(graph, share, (share * step).sum(-1))
    spread = mean[graph.parent] + step - mean[:, None]
    variance = _solve(graph, share, (share * spread**2).sum(-1))
    at_stop = reach * every.probability[:, -1]
    estimate = log_reward - mean - gain[:, -1]
    if config.loss == "vargrad":
        log_z = jax.lax.stop_gradient((at_stop * estimate).sum())
    return _scale(config) * (at_stop * (variance + (log_z - estimate) ** 2)).sum()


def _sub_trajectory_balance(
    every: Transitions, start: Vector, log_flow: Vector, log_reward: Vector, graph: Graph, config: GFlowNetConfig
) -> Scalar:
    """E of the weighted mean over all pieces i < j of a trajectory of (g_i - g_j)² with weight λ^(j-i-1).

    The mean is over a number of pieces that depends on the length, so the sweep is over time. It carries, for every
    state, expectations over the trajectories that stand there at time t: of 1, of Σ_i λ^(t-i) (g_i - g_t), of the
    pieces that end at t, and of all pieces so far.
    """
    decay = config.subtb_lambda
    p, step = _into(every.probability, graph), _into(every.log_pf - every.log_pb, graph)
    stop = every.probability[:, -1]
    residual = log_flow[graph.parent] + step - log_flow[:, None]
    residual_stop = log_flow + every.log_pf[:, -1] - every.log_pb[:, -1] - log_reward

    def tick(carry, times):
        here, first, ending, total = carry
        weight, normaliser = times
        last = decay * ending + 2 * residual_stop * first + residual_stop**2 * weight * here
        stopped = (stop * (total + last)).sum() / normaliser
        here, first, ending, total = (at_state[graph.parent] for at_state in carry)
        ending = (p * (decay * ending + 2 * residual * first + residual**2 * weight * here)).sum(-1)
        total = (p * total).sum(-1) + ending
        first = decay * (p * (first + residual * weight * here)).sum(-1)
        return ((p * here).sum(-1), first, ending, total), stopped

    weight = np.cumsum(float(decay) ** np.arange(len(graph.levels)))
    times = jnp.asarray(weight, start.dtype), jnp.asarray(np.cumsum(weight), start.dtype)
    zero = jnp.zeros_like(start)
    return _scale(config) * jax.lax.scan(tick, (start, zero, zero, zero), times)[1].sum()


def _residuals(
    every: Transitions, output: PolicyOutput, nodes: Batch, graph: Graph, name: str
) -> tuple[Bool[Array, "states actions"], Edges]:
    """Which transitions a loss is a mean over, and the residual of each."""
    log_reward, moves = nodes.log_reward, every.valid.at[:, -1].set(False)
    if name == "fm":
        inflow = jnp.where(graph.backward_mask, output.logits[graph.parent, graph.redo], MASKED)
        imbalance = jax.nn.logsumexp(inflow, axis=-1) - jax.nn.logsumexp(output.logits, axis=-1)
        return every.valid, jnp.where(moves, imbalance[every.child], (output.logits[:, -1] - log_reward)[:, None])
    if name == "db":
        before, after = output.log_flow, jnp.where(moves, output.log_flow[every.child], log_reward[:, None])
    elif name == "fldb":
        before = output.log_flow + log_reward
        after = jnp.where(moves, before[every.child], log_reward[:, None])
    else:
        before = log_reward - every.log_pf[:, -1]  # log F, where every state may stop
        after = before[every.child]
    return moves if name == "mdb" else every.valid, before[:, None] + every.log_pf - after - every.log_pb


def _solve(graph: Graph, weight: Parents, constant: Vector) -> Vector:
    """y(s) = constant(s) + the sum over the parents of s of weight(s, parent) y(parent), level by level."""
    levels = graph.padded_levels
    rows = np.minimum(levels, len(graph.level) - 1)  # padding repeats the last state; its result is dropped

    def visit(y, level):
        states, parents, weights, constants = level
        return y.at[states].set(constants + (weights * y[parents]).sum(-1), mode="drop"), None

    return jax.lax.scan(visit, jnp.zeros_like(constant), (levels, graph.parent[rows], weight[rows], constant[rows]))[0]


def _into(edges: Edges, graph: Graph) -> Parents:
    """The values of the transitions that lead into each state; zero where there is none."""
    return jnp.where(graph.backward_mask, edges[graph.parent, graph.redo], 0)


def _scale(config: GFlowNetConfig) -> float:
    """What the regression makes of a square, for losses that are known by moments alone."""
    if config.regression not in ("square", "half"):
        raise UsageError(
            f"objective=expected loss={config.loss}: expected regression=square or half, whose mean follows from two "
            f"moments, got {config.regression}. Use one of them, a loss of transitions (db, mdb, fm, fldb), or "
            f"objective=sampled."
        )
    return 1.0 if config.regression == "square" else 0.5
