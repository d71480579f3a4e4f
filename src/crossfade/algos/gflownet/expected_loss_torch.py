"""The exact expectation of a loss over all trajectories of an enumerable world, in torch. Twin: expected_loss_jax.py.

Nothing is sampled and there is no noise. Trajectories count by the probability that the sampler makes them, its epsilon
and temperature included, and the value is what the sampled loss tends to as the batch grows. For tb and subtb it is the
mean of the sampled loss at any batch size; vargrad of a batch of n is smaller by 1 - 1/n, and the losses of transitions
divide by the number of transitions in the batch, which here is its mean.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...envs.dag.enumeration import Graph
from ...errors import UsageError
from .batch import MASKED, Batch
from .config import GFlowNetConfig
from .losses_torch import regression
from .policy_torch import PolicyOutput

Scalar = Float[Tensor, ""]
Vector = Float[Tensor, " states"]
Edges = Float[Tensor, "states actions"]
Parents = Float[Tensor, "states parents"]


class Transitions(NamedTuple):
    """Every transition of the environment, one for each state and action, stop last; zero where it is not valid."""

    probability: Edges
    """The probability that the sampler takes the transition in its state."""
    log_pf: Edges
    log_pb: Edges
    child: Int[np.ndarray, "states actions"]
    """Where it leads; stop stays."""
    valid: Bool[Tensor, "states actions"]


def loss(policy: Any, nodes: Batch, graph: Graph, config: GFlowNetConfig) -> tuple[Scalar, dict[str, Tensor]]:
    """The expectation of the loss that the config names, and what is logged with it.

    `nodes` are all states of the environment, see nodes_*.table. With `config.through_sampling` the gradient is
    that of the value; without it the weights of the trajectories are held, and the gradient is the expectation of the
    sampled gradient.
    """
    output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask, nodes.log_pb)
    every = _transitions(output, nodes, graph, config)
    start = torch.zeros_like(nodes.log_reward)
    start[graph.source] = 1
    reach = _solve(graph, _into(every.probability, graph), start)
    log_z = policy.log_z.sum()
    match config.loss:
        case "tb" | "vargrad":
            value = _trajectory_balance(every, reach, log_z, nodes.log_reward, graph, config)
        case "subtb":
            value = _sub_trajectory_balance(every, start, output.log_flow, nodes.log_reward, graph, config)
        case _:
            among, residual = _residuals(every, output, nodes, graph, config.loss)
            weight = (reach[:, None] * every.probability).where(among, 0.0)
            total = weight.sum()  # 0 where none of these transitions is ever made, and so is the loss
            cost = regression(residual.where(among, 0.0), config.regression)
            value = (weight * cost).sum() / total.where(total > 0, 1.0)
    return value, {
        "loss": value,
        "log_z": log_z,
        "mean_log_reward": (reach * every.probability[:, -1] * nodes.log_reward).sum(),
        "mean_length": reach.sum(),
    }


def _transitions(output: PolicyOutput, nodes: Batch, graph: Graph, config: GFlowNetConfig) -> Transitions:
    valid = nodes.forward_mask
    probability = (output.logits / config.temperature).softmax(-1)
    uniform = valid.to(probability.dtype) / valid.sum(-1, keepdim=True)
    probability = (1 - config.epsilon) * probability + config.epsilon * uniform
    undo_stop = torch.zeros_like(nodes.log_reward) if output.log_pb_stop is None else output.log_pb_stop
    log_pb = torch.cat([output.log_pb[graph.child, graph.undo], undo_stop[:, None]], -1)
    return Transitions(
        probability=probability if config.through_sampling else probability.detach(),
        log_pf=output.log_pf.where(valid, 0.0),
        log_pb=log_pb.where(valid, 0.0),
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
    share = reach[graph.parent] * way_in / reach.where(reach > 0, 1.0)[:, None]  # of those who came, by this way
    gain = every.log_pf - every.log_pb
    step = _into(gain, graph)
    mean = _solve(graph, share, (share * step).sum(-1))
    spread = mean[graph.parent] + step - mean[:, None]
    variance = _solve(graph, share, (share * spread.square()).sum(-1))
    at_stop = reach * every.probability[:, -1]
    estimate = log_reward - mean - gain[:, -1]
    if config.loss == "vargrad":
        log_z = (at_stop * estimate).sum().detach()
    return _scale(config) * (at_stop * (variance + (log_z - estimate).square())).sum()


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
    here, first, ending, total = start, torch.zeros_like(start), torch.zeros_like(start), torch.zeros_like(start)
    value, weight, normaliser = torch.zeros_like(start).sum(), 0.0, 0.0
    for _ in range(len(graph.levels)):
        weight = decay * weight + 1
        normaliser += weight
        last = decay * ending + 2 * residual_stop * first + residual_stop.square() * weight * here
        value = value + (stop * (total + last)).sum() / normaliser
        here, first, ending, total = (at_state[graph.parent] for at_state in (here, first, ending, total))
        ending = (p * (decay * ending + 2 * residual * first + residual.square() * weight * here)).sum(-1)
        total = (p * total).sum(-1) + ending
        first = decay * (p * (first + residual * weight * here)).sum(-1)
        here = (p * here).sum(-1)
    return _scale(config) * value


def _residuals(
    every: Transitions, output: PolicyOutput, nodes: Batch, graph: Graph, name: str
) -> tuple[Bool[Tensor, "states actions"], Edges]:
    """Which transitions a loss is a mean over, and the residual of each."""
    log_reward, moves = nodes.log_reward, every.valid.clone()
    moves[:, -1] = False
    if name == "fm":
        inflow = output.logits[graph.parent, graph.redo].where(nodes.backward_mask, MASKED).logsumexp(-1)
        imbalance = inflow - output.logits.logsumexp(-1)
        return every.valid, imbalance[every.child].where(moves, (output.logits[:, -1] - log_reward)[:, None])
    if name == "db":
        before, after = output.log_flow, output.log_flow[every.child].where(moves, log_reward[:, None])
    elif name == "fldb":
        before = output.log_flow + log_reward
        after = before[every.child].where(moves, log_reward[:, None])
    else:
        before = log_reward - every.log_pf[:, -1]  # log F, where every state may stop
        after = before[every.child]
    return moves if name == "mdb" else every.valid, before[:, None] + every.log_pf - after - every.log_pb


def _solve(graph: Graph, weight: Parents, constant: Vector) -> Vector:
    """y(s) = constant(s) + the sum over the parents of s of weight(s, parent) y(parent), level by level."""
    y = constant
    for states in graph.levels[1:]:
        y = y.index_put(
            (torch.from_numpy(states),), constant[states] + (weight[states] * y[graph.parent[states]]).sum(-1)
        )
    return y


def _into(edges: Edges, graph: Graph) -> Parents:
    """The values of the transitions that lead into each state; zero where there is none."""
    return edges[graph.parent, graph.redo].where(torch.as_tensor(graph.backward_mask, device=edges.device), 0.0)


def _scale(config: GFlowNetConfig) -> float:
    """What the regression makes of a square, for losses that are known by moments alone."""
    if config.regression not in ("square", "half"):
        raise UsageError(
            f"objective=expected loss={config.loss}: expected regression=square or half, whose mean follows from two "
            f"moments, got {config.regression}. Use one of them, a loss of transitions (db, mdb, fm, fldb), or "
            f"objective=sampled."
        )
    return 1.0 if config.regression == "square" else 0.5
