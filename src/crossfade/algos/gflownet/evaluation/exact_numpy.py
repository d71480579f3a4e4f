"""Exact evaluation of a tabular policy on an enumerated graph: the plain reference. The JAX twin is exact_jax.py.

Policies are tables of log-probabilities, rows numbered as in the graph: `log_pf` over forward actions (stop last),
`log_pb` over backward actions. Entries that the masks exclude are never read.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Shaped

from ....envs.dag.enumeration import Graph

Forward = Float[np.ndarray, "states actions"]
Backward = Float[np.ndarray, "states parents"]
Vector = Float[np.ndarray, " states"]
Scalar = np.float64


def reach_probability(graph: Graph, log_pf: Forward) -> Vector:
    """u(s): the probability that a trajectory passes through s.

    u(source) = 1 and u(s') = sum over edges s -> s' of u(s) P_F(s' | s), level by level.
    """
    way_in = np.where(graph.backward_mask, np.exp(log_pf[graph.parent, graph.redo]), 0)
    u = np.zeros(len(graph.level))
    u[graph.source] = 1
    for states in graph.levels[1:]:
        u[states] = (u[graph.parent[states]] * way_in[states]).sum(-1)
    return u


def terminating_distribution(graph: Graph, log_pf: Forward) -> Vector:
    """p_T(x) = u(x) P_F(stop | x): the distribution of the objects that a policy makes."""
    p_stop = np.where(graph.forward_mask[:, -1], np.exp(log_pf[:, -1]), 0)
    return reach_probability(graph, log_pf) * p_stop


def optimal_policy(graph: Graph, log_pb: Backward) -> tuple[Vector, Forward]:
    """The log-flow F* and the forward policy that sample R / Z with the given backward policy: zero loss.

    F*(s) = R(s) + sum over children s' of F*(s') P_B(s | s'), P_F*(s' | s) = F*(s') P_B(s | s') / F*(s) and
    P_F*(stop | s) = R(s) / F*(s). F*(source) is Z. Invalid actions get -inf.
    """
    log_flow = np.zeros(len(graph.level))
    log_out = np.full(graph.forward_mask.shape, -np.inf)
    log_out[:, -1] = graph.log_reward
    log_out[:, :-1][graph.forward_mask[:, :-1]] = log_pb[graph.child, graph.undo][graph.forward_mask[:, :-1]]
    for states in reversed(graph.levels):
        log_out[states, :-1] += log_flow[graph.child[states]]
        log_flow[states] = np.logaddexp.reduce(log_out[states], axis=-1)
    return log_flow, log_out - log_flow[:, None]


def log_path_counts(graph: Graph) -> Vector:
    """log n(s): n counts the ways from the source to s."""
    log_n = np.zeros(len(graph.level))
    for states in graph.levels[1:]:
        ways = np.where(graph.backward_mask[states], log_n[graph.parent[states]], -np.inf)
        log_n[states] = np.logaddexp.reduce(ways, axis=-1)
    return log_n


def uniform_backward(graph: Graph) -> Backward:
    """The backward policy that takes each valid backward action alike; -inf elsewhere."""
    count = graph.backward_mask.sum(-1, keepdims=True)
    return np.where(graph.backward_mask, -np.log(np.maximum(count, 1)), -np.inf)


def max_entropy_backward(graph: Graph) -> Backward:
    """P_B(s | s') = n(s) / n(s'): all ways from the source to an object alike; -inf elsewhere."""
    log_n = log_path_counts(graph)
    return np.where(graph.backward_mask, log_n[graph.parent] - log_n[:, None], -np.inf)


def total_variation(p: Vector, q: Vector) -> Scalar:
    """1/2 sum |p - q|, between 0 and 1."""
    return np.abs(p - q).sum() / 2


def l1(p: Vector, q: Vector) -> Scalar:
    """sum |p - q|, between 0 and 2."""
    return np.abs(p - q).sum()


def kl(p: Vector, q: Vector) -> Scalar:
    """sum p log(p / q) in nats; infinite where q misses what p has."""
    some = p > 0
    with np.errstate(divide="ignore"):
        return (p[some] * (np.log(p[some]) - np.log(q[some]))).sum()


def jsd(p: Vector, q: Vector) -> Scalar:
    """The Jensen-Shannon divergence in nats, between 0 and log 2."""
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def mean_reward(p: Vector, log_reward: Vector) -> Scalar:
    """The expected reward of an object drawn from p; for p = R / Z it is sum R^2 / sum R."""
    return (p * np.exp(log_reward)).sum()


def mode_coverage(visits: Shaped[np.ndarray, " states"], modes: Bool[np.ndarray, " states"]) -> Scalar:
    """The share of the modes that were visited at least once."""
    return (modes & (visits > 0)).sum() / modes.sum()


def metrics(graph: Graph, p: Vector, log_z: float) -> dict[str, Scalar]:
    """How far a distribution of objects and an estimate of log Z are from the target; kl is KL(target || p)."""
    return {
        "tv": total_variation(graph.target, p),
        "l1": l1(graph.target, p),
        "kl": kl(graph.target, p),
        "jsd": jsd(graph.target, p),
        "mean_reward": mean_reward(p, graph.log_reward),
        "log_z_error": np.float64(math.fabs(log_z - graph.log_z)),
    }
