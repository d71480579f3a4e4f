"""The losses of GFlowNets, in JAX. Twin: losses_torch.py.

A trajectory s_0 -> s_1 -> .. -> s_n = x ends with stop, the transition from x to the sink, whose log P_B is 0. A loss
is a function of `Terms`, the networks' outputs along trajectories. Its formula is the residual, which is 0 for a
perfect policy; `kind` says what a residual costs (see `regression`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...errors import UsageError, nearest
from .batch import MASKED, Batch
from .config import GFlowNetConfig
from .policy_jax import PolicyOutput

Scalar = Float[Array, ""]
LogZ = Float[Array, " z_dim"]
"""log Z is the sum of these."""


class Terms(NamedTuple):
    """Log-probabilities, flows and rewards along trajectories, time first."""

    log_pf: Float[Array, "steps batch"]
    """log P_F(s_t+1 | s_t) of every transition; 0 in padding."""
    log_pb: Float[Array, "steps batch"]
    """log P_B(s_t | s_t+1) of every transition; 0 in padding, and at stop unless a fault is asked for."""
    log_flow: Float[Array, "states batch"]
    """log F(s_t)."""
    log_reward: Float[Array, " batch"]
    """log R(x) of the finished object."""
    log_reward_t: Float[Array, "states batch"]
    """log R(s_t), where R is defined on every state."""
    stop_t: Float[Array, "states batch"]
    """log P_F(stop | s_t)."""
    valid: Bool[Array, "steps batch"]
    """False in padding."""
    stop: Bool[Array, "steps batch"]
    """The transition that ends the trajectory."""


def terms(output: PolicyOutput, batch: Batch) -> Terms:
    """The networks' outputs along the trajectories of a batch."""
    now, after = batch.node[:-1], batch.node[1:]
    stop = batch.valid & (batch.action == output.log_pf.shape[-1] - 1)
    log_pb_stop = 0 if output.log_pb_stop is None else output.log_pb_stop[now]
    log_reward_t = batch.log_reward.astype(output.log_pf.dtype)[batch.node]
    return Terms(
        log_pf=jnp.where(batch.valid, output.log_pf[now, batch.action], 0),
        log_pb=jnp.where(batch.valid, jnp.where(stop, log_pb_stop, output.log_pb[after, batch.parent]), 0),
        log_flow=output.log_flow[batch.node],
        log_reward=jnp.where(stop, log_reward_t[:-1], 0).sum(0),
        log_reward_t=log_reward_t,
        stop_t=output.log_pf[batch.node, -1],
        valid=batch.valid,
        stop=stop,
    )


def regression(residual: Float[Array, "*shape"], kind: str = "square") -> Float[Array, "*shape"]:
    """The cost of a residual t; each kind is 0 with slope 0 at t = 0 (Hu et al., "Beyond squared error", 2025).

    square t^2, half t^2 / 2, huber t^2 / 2 up to |t| = 1 and |t| - 1/2 beyond, exponential e^t + e^-t - 2 with t held
    within 80, linex e^t - t - 1.
    """
    match kind:
        case "square":
            return residual**2
        case "half":
            return residual**2 / 2
        case "huber":
            size = jnp.abs(residual)
            return jnp.where(size <= 1, residual**2 / 2, size - 0.5)
        case "exponential":
            held = jnp.clip(residual, -80, 80)
            return jnp.exp(held) + jnp.exp(-held) - 2
        case "linex":
            return jnp.exp(residual) - residual - 1
    known = ("square", "half", "huber", "exponential", "linex")
    raise UsageError(f"unknown regression {kind!r}.{nearest(kind, known)} Known: {', '.join(known)}.")


def trajectory_balance(terms: Terms, log_z: LogZ, kind: str = "square") -> Scalar:
    """Trajectory balance (Malkin et al. 2022), mean over trajectories.

    log Z + sum_t log P_F - sum_t log P_B - log R(x)
    """
    return regression(log_z.sum() - log_z_estimate(terms), kind).mean()


def vargrad(terms: Terms, kind: str = "square") -> Scalar:
    """Trajectory balance with log Z estimated by the batch (Zhang et al. 2023), mean over trajectories.

    mean(e) - e with e = log R(x) + sum_t log P_B - sum_t log P_F; the mean over the batch is held constant.
    """
    estimate = log_z_estimate(terms)
    return regression(jax.lax.stop_gradient(estimate.mean()) - estimate, kind).mean()


def detailed_balance(terms: Terms, kind: str = "square") -> Scalar:
    """Detailed balance (Bengio et al. 2023), mean over transitions.

    log F(s) + log P_F(s'|s) - log F(s') - log P_B(s|s'), where log F of the sink is log R(x)
    """
    residual = terms.log_flow[:-1] + terms.log_pf - _flow_after(terms) - terms.log_pb
    return _mean(regression(residual, kind), terms.valid)


def modified_detailed_balance(terms: Terms, kind: str = "square") -> Scalar:
    """Detailed balance without F where every state may stop (Deleu et al. 2022), mean over transitions except stop.

    log R(s) + log P_F(s'|s) + log P_F(stop|s') - log R(s') - log P_B(s|s') - log P_F(stop|s), because F(s) P_F(stop|s)
    = R(s). A batch in which every trajectory stops at once has no such transition: its loss is 0.
    """
    log_flow = terms.log_reward_t - terms.stop_t
    residual = log_flow[:-1] + terms.log_pf - log_flow[1:] - terms.log_pb
    return _mean(regression(residual, kind), terms.valid & ~terms.stop)


def sub_trajectory_balance(terms: Terms, lambda_: float | Scalar = 0.9, kind: str = "square") -> Scalar:
    """SubTB(lambda) (Madan et al. 2023): the balance of all pieces i < j of a trajectory, mean over trajectories.

    log F(s_i) + sum_{i <= t < j} (log P_F - log P_B) - log F(s_j), the sink included, where log F is log R(x). Pieces
    are averaged with weights lambda^(j-i-1), which is lambda^(j-i) up to normalisation and makes lambda = 0 detailed
    balance. With c_t the sum before t and g_t = log F(s_t) - c_t the residual is g_i - g_j.
    """
    steps = jnp.cumsum(terms.log_pf - terms.log_pb, axis=0)
    g = jnp.concatenate([terms.log_flow[:1], _flow_after(terms) - steps])
    i, j = jnp.triu_indices(len(g), k=1)
    weight = jnp.where(
        terms.valid[j - 1], (jnp.asarray(lambda_, g.dtype) ** (j - i - 1))[:, None], 0
    )  # (pieces, batch)
    residual = jnp.where(terms.valid[j - 1], g[i] - g[j], 0)
    return ((weight * regression(residual, kind)).sum(0) / weight.sum(0)).mean()


def flow_matching(output: PolicyOutput, batch: Batch, kind: str = "square") -> Scalar:
    """Flow matching (Bengio et al. 2021), mean over transitions, each judged by the state it leads to.

    logsumexp of the log flows into s' - logsumexp of those out of it, where the logits of P_F are the log edge flows;
    at stop, log flow of the stop edge - log R(x).
    """
    inflow = jax.nn.logsumexp(
        jnp.where(batch.backward_mask, output.logits[batch.parent_node, batch.parent_action], MASKED), axis=-1
    )
    imbalance = inflow - jax.nn.logsumexp(output.logits, axis=-1)
    finished = output.logits[:, -1] - batch.log_reward.astype(output.logits.dtype)
    stop = batch.action == output.logits.shape[-1] - 1
    return _mean(regression(jnp.where(stop, finished[batch.node[:-1]], imbalance[batch.node[1:]]), kind), batch.valid)


def forward_looking(terms: Terms, kind: str = "square") -> Scalar:
    """Forward-looking detailed balance (Pan et al. 2023), mean over transitions.

    log F~(s) + log R(s) + log P_F(s'|s) - log F~(s') - log R(s') - log P_B(s|s'): detailed balance of F = F~ R with R
    defined on every state. F~ of the sink is 1.
    """
    log_f, log_r = terms.log_flow, terms.log_reward_t
    gain = jnp.where(terms.stop, 0, log_r[1:] - log_r[:-1])
    after = jnp.where(terms.stop, 0, log_f[1:])
    return _mean(regression(log_f[:-1] + terms.log_pf - gain - after - terms.log_pb, kind), terms.valid)


def balance(terms: Terms, log_z: LogZ, config: GFlowNetConfig) -> Scalar:
    """The loss that the config names, if it is one of trajectories: all but flow matching."""
    kind = config.regression
    match config.loss:
        case "tb":
            return trajectory_balance(terms, log_z, kind)
        case "vargrad":
            return vargrad(terms, kind)
        case "db":
            return detailed_balance(terms, kind)
        case "mdb":
            return modified_detailed_balance(terms, kind)
        case "subtb":
            return sub_trajectory_balance(terms, config.subtb_lambda, kind)
        case "fldb":
            return forward_looking(terms, kind)
    raise UsageError(f"loss={config.loss} is not a loss of trajectories. Use tb, vargrad, db, mdb, subtb or fldb.")


def loss(policy: Any, batch: Batch, config: GFlowNetConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The loss that the config names, and what is logged of the batch. The policy is evaluated once on every node."""
    output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
    along = terms(output, batch)
    if config.loss == "fm":
        value = flow_matching(output, batch, config.regression)
    else:
        value = balance(along, policy.log_z, config)
    return value, summary(value, policy.log_z, along)


def summary(value: Scalar, log_z: LogZ, terms: Terms) -> dict[str, Scalar]:
    """What is logged of a batch: the loss, log Z, and the means of log R(x) and of the number of transitions."""
    return {
        "loss": value,
        "log_z": log_z.sum(),
        "mean_log_reward": terms.log_reward.mean(),
        "mean_length": terms.valid.sum(0).astype(value.dtype).mean(),
    }


def log_partition(output: PolicyOutput, log_z: LogZ, log_reward: Scalar, name: str) -> Scalar | None:
    """The estimate of log Z that a loss trains: the log flow out of the source, given the networks' output there.

    None for VarGrad, which trains none.
    """
    match name:
        case "tb":
            return log_z.sum()
        case "db" | "subtb":
            return output.log_flow
        case "fldb":
            return output.log_flow + log_reward
        case "mdb":
            return log_reward - output.log_pf[..., -1]
        case "fm":
            return jax.nn.logsumexp(output.logits, axis=-1)
    return None


def log_z_estimate(terms: Terms) -> Float[Array, " batch"]:
    """log R(x) + sum log P_B - sum log P_F: log Z, were the policy perfect."""
    return terms.log_reward - (terms.log_pf - terms.log_pb).sum(0)


def _flow_after(terms: Terms) -> Float[Array, "steps batch"]:
    """log F of the state that each transition leads to; log R(x) at the sink."""
    return jnp.where(terms.stop, terms.log_reward, terms.log_flow[1:])


def _mean(values: Float[Array, "steps batch"], among: Bool[Array, "steps batch"]) -> Scalar:
    """The mean over some transitions; 0 when there are none."""
    return jnp.where(among, values, 0).sum() / jnp.maximum(among.sum(), 1)
