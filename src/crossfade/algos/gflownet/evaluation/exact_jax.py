"""Exact evaluation of a tabular policy on an enumerated graph, compiled. The plain twin is exact_numpy.py.

One `scan` over the levels of the graph; within a level all states at once, by gathers alone. Works under `jit`, `vmap`
and `grad` (the graph is host data: close over it), in JAX's default float.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Shaped

from ....envs.dag.enumeration import Graph

Forward = Float[Array, "states actions"]
Backward = Float[Array, "states parents"]
Vector = Float[Array, " states"]


def reach_probability(graph: Graph, log_pf: Forward) -> Vector:
    """u(s): the probability that a trajectory passes through s.

    u(source) = 1 and u(s') = sum over edges s -> s' of u(s) P_F(s' | s), level by level.
    """
    way_in = jnp.where(graph.backward_mask, _probability(graph, log_pf)[graph.parent, graph.redo], 0)
    levels = graph.padded_levels[1:]
    u = jnp.zeros(len(graph.level), way_in.dtype).at[graph.source].set(1)

    def visit(u, level):
        states, parents, p = level
        return u.at[states].set((u[parents] * p).sum(-1), mode="drop"), None

    return jax.lax.scan(visit, u, (levels, _rows(graph.parent, levels), way_in.at[levels].get(mode="clip")))[0]


def terminating_distribution(graph: Graph, log_pf: Forward) -> Vector:
    """p_T(x) = u(x) P_F(stop | x): the distribution of the objects that a policy makes."""
    return reach_probability(graph, log_pf) * _probability(graph, log_pf)[:, -1]


def optimal_policy(graph: Graph, log_pb: Backward) -> tuple[Vector, Forward]:
    """The log-flow F* and the forward policy that sample R / Z with the given backward policy: zero loss.

    F*(s) = R(s) + sum over children s' of F*(s') P_B(s | s'), P_F*(s' | s) = F*(s') P_B(s | s') / F*(s) and
    P_F*(stop | s) = R(s) / F*(s). F*(source) is Z. Invalid actions get -inf.
    """
    log_way_out = jnp.where(graph.forward_mask[:, :-1], log_pb[graph.child, graph.undo], -jnp.inf)
    log_reward = jnp.asarray(graph.log_reward, log_pb.dtype)
    levels = graph.padded_levels

    def visit(log_flow, level):
        states, children, log_p, log_r = level
        out = jnp.concatenate([log_flow[children] + log_p, log_r[:, None]], axis=-1)
        return log_flow.at[states].set(jax.nn.logsumexp(out, axis=-1), mode="drop"), None

    rows = (
        levels,
        _rows(graph.child, levels),
        log_way_out.at[levels].get(mode="clip"),
        log_reward.at[levels].get(mode="clip"),
    )
    log_flow = jax.lax.scan(visit, jnp.zeros_like(log_reward), rows, reverse=True)[0]
    out = jnp.concatenate([log_flow[graph.child] + log_way_out, log_reward[:, None]], axis=-1)
    return log_flow, out - log_flow[:, None]


def log_path_counts(graph: Graph) -> Vector:
    """log n(s): n counts the ways from the source to s."""
    levels = graph.padded_levels[1:]
    masks = _rows(graph.backward_mask, levels)

    def visit(log_n, level):
        states, parents, mask = level
        return log_n.at[states].set(jax.nn.logsumexp(log_n[parents], axis=-1, where=mask), mode="drop"), None

    return jax.lax.scan(visit, jnp.zeros(len(graph.level)), (levels, _rows(graph.parent, levels), masks))[0]


def uniform_backward(graph: Graph) -> Backward:
    """The backward policy that takes each valid backward action alike; -inf elsewhere."""
    count = jnp.asarray(graph.backward_mask).sum(-1, keepdims=True)
    return jnp.where(graph.backward_mask, -jnp.log(jnp.maximum(count, 1)), -jnp.inf)


def max_entropy_backward(graph: Graph) -> Backward:
    """P_B(s | s') = n(s) / n(s'): all ways from the source to an object alike; -inf elsewhere."""
    log_n = log_path_counts(graph)
    return jnp.where(graph.backward_mask, log_n[graph.parent] - log_n[:, None], -jnp.inf)


def total_variation(p: Vector, q: Vector) -> Float[Array, ""]:
    """1/2 sum |p - q|, between 0 and 1."""
    return jnp.abs(p - q).sum() / 2


def l1(p: Vector, q: Vector) -> Float[Array, ""]:
    """sum |p - q|, between 0 and 2."""
    return jnp.abs(p - q).sum()


def kl(p: Vector, q: Vector) -> Float[Array, ""]:
    """sum p log(p / q) in nats; infinite where q misses what p has."""
    some = p > 0
    ratio = jnp.log(jnp.where(some, p, 1)) - jnp.log(jnp.where(some, q, 1))
    return (p * ratio).sum()


def jsd(p: Vector, q: Vector) -> Float[Array, ""]:
    """The Jensen-Shannon divergence in nats, between 0 and log 2."""
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def mean_reward(p: Vector, log_reward: Vector) -> Float[Array, ""]:
    """The expected reward of an object drawn from p; for p = R / Z it is sum R^2 / sum R."""
    return (p * jnp.exp(log_reward)).sum()


def mode_coverage(visits: Shaped[Array, " states"], modes: Bool[Array, " states"]) -> Float[Array, ""]:
    """The share of the modes that were visited at least once."""
    return (modes & (visits > 0)).sum() / modes.sum()


def metrics(graph: Graph, p: Vector, log_z: Float[Array, ""]) -> dict[str, Float[Array, ""]]:
    """How far a distribution of objects and an estimate of log Z are from the target; kl is KL(target || p)."""
    target = jnp.asarray(graph.target, p.dtype)
    return {
        "tv": total_variation(target, p),
        "l1": l1(target, p),
        "kl": kl(target, p),
        "jsd": jsd(target, p),
        "mean_reward": mean_reward(p, jnp.asarray(graph.log_reward, p.dtype)),
        "log_z_error": jnp.abs(log_z - graph.log_z),
    }


def _probability(graph: Graph, log_pf: Forward) -> Forward:
    """exp(log_pf) with zeros, and zero gradients, at invalid actions."""
    return jnp.where(graph.forward_mask, jnp.exp(jnp.where(graph.forward_mask, log_pf, 0)), 0)


def _rows(table: Shaped[np.ndarray, "states columns"], levels: Int32[np.ndarray, "levels width"]) -> np.ndarray:
    """The rows of a host table, level by level; padding repeats the last state, whose result is dropped."""
    return table[np.minimum(levels, len(table) - 1)]
