"""The training objectives of GFlowNets, in JAX. Twin: losses_torch.py.

Each is a pure function of what the networks say along the trajectories (`Terms`), written as its paper has it. Sums
over transitions include stop, whose log P_B is 0.
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


class Terms(NamedTuple):
    """Log-probabilities, flows and rewards along trajectories, time first."""

    log_pf: Float[Array, "steps batch"]
    """log P_F of each transition; 0 in padding."""
    log_pb: Float[Array, "steps batch"]
    """log P_B of each transition; 0 in padding, and at stop unless a fault is asked for."""
    log_flow: Float[Array, "states batch"]
    """log F(s_t)."""
    log_reward: Float[Array, " batch"]
    """log R of the finished object."""
    log_reward_t: Float[Array, "states batch"]
    """log R(s_t), where R is defined on every state."""
    stop_t: Float[Array, "states batch"]
    """log P_F(stop | s_t)."""
    valid: Bool[Array, "steps batch"]
    """False in padding."""
    stop: Bool[Array, "steps batch"]
    """The transition that ends the trajectory."""


def terms(output: PolicyOutput, batch: Batch) -> Terms:
    """What the losses are made of, looked up along the trajectories."""
    log_reward = batch.log_reward.astype(output.log_pf.dtype)
    stop = batch.valid & (batch.action == output.log_pf.shape[-1] - 1)
    last = jnp.where(stop, batch.node[:-1], 0).sum(0)
    undo_stop = 0 if output.log_pb_stop is None else output.log_pb_stop[batch.node[:-1]]
    return Terms(
        log_pf=jnp.where(batch.valid, output.log_pf[batch.node[:-1], batch.action], 0),
        log_pb=jnp.where(batch.valid, jnp.where(stop, undo_stop, output.log_pb[batch.node[1:], batch.parent]), 0),
        log_flow=output.log_flow[batch.node],
        log_reward=log_reward[last],
        log_reward_t=log_reward[batch.node],
        stop_t=output.log_pf[batch.node, -1],
        valid=batch.valid,
        stop=stop,
    )


def regression(residual: Float[Array, "*shape"], kind: str = "square") -> Float[Array, "*shape"]:
    """What is done to a residual t; each is 0 with slope 0 at t = 0.

    square t^2, half t^2 / 2, huber t^2 / 2 up to |t| = 1 and |t| - 1/2 beyond, exponential e^t + e^-t - 2 with t held
    within 80, linex e^t - t - 1 (Hu et al., "Beyond squared error", 2025).
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


def trajectory_balance(terms: Terms, log_z: Float[Array, " z_dim"], kind: str = "square") -> Scalar:
    """Trajectory balance (Malkin et al. 2022): log Z + sum log P_F - sum log P_B - log R(x), mean over trajectories."""
    return regression(log_z.sum() - _log_z_estimate(terms), kind).mean()


def vargrad(terms: Terms, kind: str = "square") -> Scalar:
    """Trajectory balance with log Z estimated by the batch (Zhang et al. 2023): the variance of the estimates.

    The mean is held constant; for the square its gradient is zero anyway.
    """
    estimate = _log_z_estimate(terms)
    return regression(jax.lax.stop_gradient(estimate.mean()) - estimate, kind).mean()


def detailed_balance(terms: Terms, kind: str = "square") -> Scalar:
    """Detailed balance (Bengio et al. 2023): log F(s) + log P_F - log F(s') - log P_B, mean over transitions.

    At stop, log F(s') is log R(x).
    """
    after = _flow_after(terms)
    return _mean(regression(terms.log_flow[:-1] + terms.log_pf - after - terms.log_pb, kind), terms.valid)


def modified_detailed_balance(terms: Terms, kind: str = "square") -> Scalar:
    """Detailed balance without F where every state may stop (Deleu et al. 2022), mean over transitions but stop.

    log R(s) + log P_F(s'|s) + log P_F(stop|s') - log R(s') - log P_B(s|s') - log P_F(stop|s): F(s) P_F(stop|s) = R(s).
    """
    ratio = terms.log_reward_t - terms.stop_t  # log F, were the policy perfect
    return _mean(regression(ratio[:-1] + terms.log_pf - ratio[1:] - terms.log_pb, kind), terms.valid & ~terms.stop)


def sub_trajectory_balance(terms: Terms, lambda_: float | Scalar = 0.9, kind: str = "square") -> Scalar:
    """SubTB(lambda) (Madan et al. 2023): balance of every piece i < j of a trajectory, the sink included.

    r_ij = log F(s_i) + sum_{i <= t < j} (log P_F - log P_B) - log F(s_j), with log F = log R at the sink, weighted by
    lambda^(j-i), normalised in each trajectory. With c_t the sum before t and g_t = log F(s_t) - c_t, r_ij = g_i - g_j.
    """
    steps = jnp.cumsum(terms.log_pf - terms.log_pb, axis=0)
    g = jnp.concatenate([terms.log_flow[:1], _flow_after(terms) - steps])
    i, j = jnp.triu_indices(len(g), k=1)
    # One factor less than lambda^(j-i), which the normalisation takes back: lambda = 0 is then detailed balance.
    weight = jnp.where(terms.valid[j - 1], (jnp.asarray(lambda_, g.dtype) ** (j - i - 1))[:, None], 0)  # (pairs, batch)
    return ((weight * regression(g[i] - g[j], kind)).sum(0) / weight.sum(0)).mean()


def flow_matching(output: PolicyOutput, batch: Batch, kind: str = "square") -> Scalar:
    """Flow matching (Bengio et al. 2021): log inflow - log outflow, mean over transitions, each for where it leads.

    The logits are log edge flows. A state takes in the flow of the edges from its parents and sends out that of its
    valid actions; a finished object takes in the flow of its stop edge, and its reward is what it must be.
    """
    inflow = jax.nn.logsumexp(
        jnp.where(batch.backward_mask, output.logits[batch.parent_node, batch.parent_action], MASKED), axis=-1
    )
    imbalance = inflow - jax.nn.logsumexp(output.logits, axis=-1)
    finished = output.logits[:, -1] - batch.log_reward.astype(output.logits.dtype)
    stop = batch.action == output.logits.shape[-1] - 1
    return _mean(regression(jnp.where(stop, finished[batch.node[:-1]], imbalance[batch.node[1:]]), kind), batch.valid)


def forward_looking(terms: Terms, kind: str = "square") -> Scalar:
    """Forward-looking detailed balance (Pan et al. 2023): DB with log F = log F~ + log R on every state.

    At stop, F~ is 1 and the reward stays the same: log F~(x) + log P_F(stop|x).
    """
    flow, reward = terms.log_flow, terms.log_reward_t
    gain = jnp.where(terms.stop, 0, reward[1:] - reward[:-1])
    after = jnp.where(terms.stop, 0, flow[1:])
    return _mean(regression(flow[:-1] + terms.log_pf - gain - after - terms.log_pb, kind), terms.valid)


def balance(terms: Terms, log_z: Float[Array, " z_dim"], config: GFlowNetConfig) -> Scalar:
    """The loss that the config names, of trajectories; flow matching is one of nodes, not of trajectories."""
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
    """The loss that the config names, and what to log about the batch. The policy is evaluated once on every node."""
    output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
    along = terms(output, batch)
    if config.loss == "fm":
        value = flow_matching(output, batch, config.regression)
    else:
        value = balance(along, policy.log_z, config)
    return value, summary(value, policy.log_z, along)


def summary(value: Scalar, log_z: Float[Array, " z_dim"], terms: Terms) -> dict[str, Scalar]:
    """What to log about a batch."""
    return {
        "loss": value,
        "log_z": log_z.sum(),
        "mean_log_reward": terms.log_reward.mean(),
        "mean_length": terms.valid.sum(0).astype(value.dtype).mean(),
    }


def log_partition(output: PolicyOutput, log_z: Scalar, log_reward: Scalar, name: str) -> Scalar | None:
    """The estimate of log Z that a loss trains, read off the networks' output at the source; None for VarGrad."""
    match name:
        case "tb":
            return log_z
        case "db" | "subtb":
            return output.log_flow
        case "fldb":
            return output.log_flow + log_reward
        case "mdb":
            return log_reward - output.log_pf[..., -1]
        case "fm":
            return jax.nn.logsumexp(output.logits, axis=-1)
    return None


def _log_z_estimate(terms: Terms) -> Float[Array, " batch"]:
    """log R(x) + sum log P_B - sum log P_F: log Z, were the policy perfect."""
    return terms.log_reward - (terms.log_pf - terms.log_pb).sum(0)


def _flow_after(terms: Terms) -> Float[Array, "steps batch"]:
    """log F of the state each transition leads to; of a finished object that is its log-reward."""
    return jnp.where(terms.stop, jnp.broadcast_to(terms.log_reward, terms.stop.shape), terms.log_flow[1:])


def _mean(values: Float[Array, "steps batch"], among: Bool[Array, "steps batch"]) -> Scalar:
    """The mean over some transitions; 0 when there are none."""
    return jnp.where(among, values, 0).sum() / jnp.maximum(among.sum(), 1)
