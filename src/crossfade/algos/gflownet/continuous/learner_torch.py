"""A continuous GFlowNet in torch: its policy and its loss; updates are ..learner_torch's. Twin: learner_jax.py."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ....nn.parameters_torch import filled
from .. import losses_torch
from ..batch import MASKED
from ..config import GFlowNetConfig, needs_flow
from ..losses_torch import Terms
from . import density_torch, initial_parameters
from .batch import Batch, Kind, Options
from .policy_torch import Choice, Policy


def make_policy(config: GFlowNetConfig, env: Any, parameters: Mapping[str, np.ndarray]) -> Policy:
    """The policy of a config for an environment, with the given parameters by name, in `config.dtype`."""
    policy = Policy(
        initial_parameters.density(env.params),
        env.params.observation_dim,
        env.params.n_dim,
        components=config.components,
        hidden=config.hidden,
        layers=config.layers,
        backward=config.backward,
        flow=needs_flow(config.loss),
        z_dim=config.z_dim,
    )
    return filled(policy, parameters, config.dtype)


def terms(policy: Policy, batch: Batch) -> Terms:
    """The losses' terms along the trajectories of a batch; the log P_B of stop is 0.

    Every state gives the density of the transition that leaves it and of undoing the one that led to it.
    """
    output = policy(batch.observation)
    forward, back = _at(output.forward, slice(-1)), _at(output.backward, slice(1, None))
    log_pf = _log_prob(policy.kind, forward, _at(batch.forward, slice(-1)), batch.ratio, batch.jump)
    log_pb = _log_prob(policy.kind, back, _at(batch.backward, slice(1, None)), batch.ratio_back, batch.first)
    stop = batch.valid & batch.jump
    return Terms(
        log_pf=log_pf.where(batch.valid, 0.0),
        log_pb=log_pb.where(batch.valid & ~stop, 0.0),
        log_flow=output.log_flow,
        log_reward=batch.log_reward[-1],
        log_reward_t=batch.log_reward,
        stop_t=_log_choice(output.forward, batch.forward)[1].masked_fill(~batch.forward.can_jump, MASKED),
        valid=batch.valid,
        stop=stop,
    )


def loss(policy: Policy, batch: Batch, config: GFlowNetConfig) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """The loss that the config names, and what is logged of the batch."""
    along = terms(policy, batch)
    value = losses_torch.balance(along, policy.log_z, config)
    return value, losses_torch.summary(value, policy.log_z, along)


@torch.no_grad()
def log_z(policy: Policy, env: Any, config: GFlowNetConfig) -> float | None:
    """The estimate of log Z that the config's loss trains; None where it trains none."""
    if config.loss in ("tb", "vargrad"):
        return float(policy.log_z.sum()) if config.loss == "tb" else None
    source = env.reset((), np.dtype(config.dtype))
    log_flow = float(policy(torch.from_numpy(env.observe(source))).log_flow)
    return log_flow + float(env.log_reward(source)) if config.loss == "fldb" else log_flow


def _log_prob(
    kind: Kind,
    choice: Choice | None,
    options: Options,
    ratio: Float[Tensor, "steps batch d"],
    jump: Bool[Tensor, "steps batch"],
) -> Float[Tensor, "steps batch"]:
    """Log-density of each transition: of the jump where there was one, else of the move by these ratios."""
    log_move, log_jump = _log_choice(choice, options)
    log_ratio = 0.0 if choice is None else density_torch.log_prob(kind, choice.raw, ratio)
    return torch.where(jump, log_jump, log_move + log_ratio - options.log_width)


def _log_choice(choice: Choice | None, options: Options) -> tuple[Float[Tensor, "*nodes"], Float[Tensor, "*nodes"]]:
    """Log-probabilities of a move and of a jump: 0, which is certainty, unless both are possible."""
    both = options.can_move & options.can_jump
    logit = torch.zeros_like(options.log_width) if choice is None else choice.jump
    return logsigmoid(-logit).where(both, 0.0), logsigmoid(logit).where(both, 0.0)


def _at(tree: Any, index: slice) -> Any:
    return None if tree is None else type(tree)(*(array[index] for array in tree))
