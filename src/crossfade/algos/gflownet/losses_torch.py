"""The losses of GFlowNets in torch. Twin: losses_jax.py.

Notation: l_F = log P_F(s'|s), l_B = log P_B(s|s'), log F the state flow, x the object a trajectory ends with. A
trajectory s_0 .. s_n = x ends with a stop, whose l_B is 0.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...errors import UsageError
from .batch import Batch
from .policy_torch import Policy, PolicyOutput


class Terms(NamedTuple):
    """The quantities that losses are made of, along the trajectories of a batch; zero where not valid."""

    log_pf: Float[Tensor, "steps batch"]
    log_pb: Float[Tensor, "steps batch"]
    log_flow: Float[Tensor, "steps+1 batch"]
    log_reward: Float[Tensor, " batch"]  # of the objects built
    log_reward_t: Float[Tensor, "steps+1 batch"]  # of every state on the way
    stop_t: Float[Tensor, "steps+1 batch"]  # log P_F(stop | s_t)
    valid: Bool[Tensor, "steps batch"]
    stop: Bool[Tensor, "steps batch"]


def terms(output: PolicyOutput, batch: Batch) -> Terms:
    """Reads the networks' outputs along the trajectories."""
    now, then = batch.node[:-1], batch.node[1:]
    stop = batch.valid & (batch.action == output.log_pf.shape[-1] - 1)
    log_pf = output.log_pf[now, batch.action]
    undo_stop = 0.0 if output.log_pb_stop is None else output.log_pb_stop[now]
    log_pb = torch.where(stop, undo_stop, output.log_pb[then, batch.parent])
    log_reward_t = batch.log_reward[batch.node]
    return Terms(
        log_pf=log_pf.where(batch.valid, 0.0),
        log_pb=log_pb.where(batch.valid, 0.0),
        log_flow=output.log_flow[batch.node],
        log_reward=log_reward_t[-1],
        log_reward_t=log_reward_t,
        stop_t=output.log_pf[batch.node, -1],
        valid=batch.valid,
        stop=stop,
    )


def regression(residual: Float[Tensor, "..."], kind: str) -> Float[Tensor, "..."]:
    """What a residual t costs: zero at zero, and t² near it but for a factor (Hu et al. 2025)."""
    t = residual
    if kind == "square":
        return t.square()
    if kind == "half":
        return t.square() / 2
    if kind == "huber":
        size = t.abs()
        return torch.where(size <= 1, t.square() / 2, size - 0.5)
    if kind == "exponential":
        t = t.clamp(-80, 80)
        return t.exp() + (-t).exp() - 2
    if kind == "linex":
        return t.exp() - t - 1
    raise ValueError(f"unknown regression {kind!r}")


def trajectory_balance(terms: Terms, log_z: Float[Tensor, ""], kind: str = "square") -> Float[Tensor, ""]:
    """(log Z + Σ l_F - Σ l_B - log R(x))², mean over trajectories (Malkin et al. 2022)."""
    residual = log_z + (terms.log_pf - terms.log_pb).sum(0) - terms.log_reward
    return regression(residual, kind).mean()


def vargrad(terms: Terms, kind: str = "square") -> Float[Tensor, ""]:
    """The variance of log R + Σ l_B - Σ l_F over the batch: trajectory balance without log Z (Zhang et al. 2023)."""
    z = terms.log_reward - (terms.log_pf - terms.log_pb).sum(0)
    return regression(z.mean().detach() - z, kind).mean()


def detailed_balance(terms: Terms, kind: str = "square") -> Float[Tensor, ""]:
    """(log F(s) + l_F - log F(s') - l_B)², mean over transitions; F(s') is R(x) after stop (Bengio et al. 2023)."""
    after = torch.where(terms.stop, terms.log_reward_t[1:], terms.log_flow[1:])
    residual = terms.log_flow[:-1] + terms.log_pf - after - terms.log_pb
    return _mean(regression(residual, kind), terms.valid)


def modified_detailed_balance(terms: Terms, kind: str = "square") -> Float[Tensor, ""]:
    """Detailed balance where every state may stop, so that F(s) = R(s) / P_F(stop|s) (Deleu et al. 2022).

    (log R(s) + l_F + log P_F(stop|s') - log R(s') - l_B - log P_F(stop|s))², mean over transitions but stops.
    """
    flow = terms.log_reward_t - terms.stop_t
    residual = flow[:-1] + terms.log_pf - flow[1:] - terms.log_pb
    return _mean(regression(residual, kind), terms.valid & ~terms.stop)


def sub_trajectory_balance(terms: Terms, lambda_: float, kind: str = "square") -> Float[Tensor, ""]:
    """Σ λ^(j-i) (log F(s_i) + Σ l_F - log F(s_j) - Σ l_B)² / Σ λ^(j-i), mean over trajectories (Madan et al. 2023).

    With c_t the sum of l_F - l_B before t, each residual is g_i - g_j of the one vector g_t = log F(s_t) - c_t. The
    state after stop has flow R(x).
    """
    steps = terms.valid.shape[0]
    gain = torch.where(terms.valid, terms.log_pf - terms.log_pb, 0.0)
    before = torch.cat([torch.zeros_like(gain[:1]), gain.cumsum(0)])
    stopped = torch.cat([torch.zeros_like(terms.stop[:1]), terms.stop])
    g = torch.where(stopped, terms.log_reward_t, terms.log_flow) - before  # (steps + 1, batch)
    reached = torch.cat([torch.ones_like(terms.valid[:1]), terms.valid])
    t = torch.arange(steps + 1, device=g.device)
    length = t[None, :] - t[:, None]
    pair = (length > 0)[..., None] & reached[:, None] & reached[None, :]
    weight = torch.where(pair, lambda_ ** length.clamp(min=0).to(g.dtype)[..., None], 0.0)
    residual = torch.where(pair, g[:, None] - g[None, :], 0.0)
    return ((weight * regression(residual, kind)).sum((0, 1)) / weight.sum((0, 1))).mean()


def flow_matching(output: PolicyOutput, batch: Batch, kind: str = "square") -> Float[Tensor, ""]:
    """Inflow against outflow of each state reached, stop edge against reward of each object (Bengio et al. 2021).

    (log Σ exp f(p, a) over parents - log Σ exp f(s, a) over actions)² and (f(x, stop) - log R(x))², one term for each
    transition, mean over all.
    """
    inflow = output.logits[batch.parent_node, batch.parent_action]
    inflow = inflow.masked_fill(~batch.backward_mask, -torch.inf)
    source = ~batch.backward_mask.any(-1, keepdim=True)
    inflow = inflow.masked_fill(source, 0.0).logsumexp(-1)  # the source has no parents and no term
    matching = inflow - output.logits.logsumexp(-1)
    now, then = batch.node[:-1], batch.node[1:]
    stop = batch.valid & (batch.action == output.logits.shape[-1] - 1)
    residual = torch.where(stop, output.logits[now, -1] - batch.log_reward[now], matching[then])
    return _mean(regression(residual, kind), batch.valid)


def forward_looking(terms: Terms, kind: str = "square") -> Float[Tensor, ""]:
    """Detailed balance of log F = log F~ + log R, R extended to every state (Pan et al. 2023).

    (log F~(s) + log R(s) + l_F - log F~(s') - log R(s') - l_B)², mean over transitions; F~ is 1 after stop.
    """
    after = torch.where(terms.stop, 0.0, terms.log_flow[1:])
    residual = terms.log_flow[:-1] + terms.log_reward_t[:-1] + terms.log_pf - after - terms.log_reward_t[1:]
    return _mean(regression(residual - terms.log_pb, kind), terms.valid)


def balance(terms: Terms, log_z: Float[Tensor, " z_dim"], config: Any) -> Float[Tensor, ""]:
    """The loss named by the config, for the losses of trajectories: all but flow matching."""
    kind = config.regression
    losses = {
        "tb": lambda: trajectory_balance(terms, log_z.sum(), kind),
        "vargrad": lambda: vargrad(terms, kind),
        "db": lambda: detailed_balance(terms, kind),
        "mdb": lambda: modified_detailed_balance(terms, kind),
        "subtb": lambda: sub_trajectory_balance(terms, config.subtb_lambda, kind),
        "fldb": lambda: forward_looking(terms, kind),
    }
    if config.loss not in losses:
        raise UsageError(f"loss={config.loss} is not a loss of trajectories. Use {', '.join(losses)}.")
    return losses[config.loss]()


def loss(policy: Policy, batch: Batch, config: Any) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """The loss named by the config, and what is logged with it."""
    output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
    along = terms(output, batch)
    if config.loss == "fm":
        value = flow_matching(output, batch, config.regression)
    else:
        value = balance(along, policy.log_z, config)
    return value, summary(value, policy.log_z, along)


def summary(value: Float[Tensor, ""], log_z: Float[Tensor, " z_dim"], terms: Terms) -> dict[str, Tensor]:
    """What is logged of a batch."""
    return {
        "loss": value,
        "log_z": log_z.sum(),
        "mean_log_reward": terms.log_reward.mean(),
        "mean_length": terms.valid.sum(0).to(value.dtype).mean(),
    }


def log_partition(
    output: PolicyOutput, log_z: Float[Tensor, ""], log_reward: Float[Tensor, ""], name: str
) -> Float[Tensor, ""] | None:
    """What a loss has learned of log Z: the flow out of the source, given the networks' output there.

    VarGrad learns none.
    """
    return {
        "tb": lambda: log_z,
        "vargrad": lambda: None,
        "db": lambda: output.log_flow,
        "mdb": lambda: log_reward - output.log_pf[..., -1],
        "subtb": lambda: output.log_flow,
        "fm": lambda: output.logits.logsumexp(-1),
        "fldb": lambda: output.log_flow + log_reward,
    }[name]()


def _mean(values: Float[Tensor, "steps batch"], where: Bool[Tensor, "steps batch"]) -> Float[Tensor, ""]:
    return torch.where(where, values, 0.0).sum() / where.sum()
