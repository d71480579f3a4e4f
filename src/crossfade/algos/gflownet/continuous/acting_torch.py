"""How a continuous policy acts, in torch. Twin: acting_jax.py."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ....envs.continuous_params import EDGE
from . import density_torch
from .batch import Kind, Noise
from .policy_torch import Heads, Policy

Action = tuple[Float[Tensor, "*b d"], Bool[Tensor, "*b"]]
"""Ratios, which mean something only without a jump, and whether to jump."""


def choose(
    kind: Kind,
    heads: Heads,
    can_move: Bool[Tensor, "*b"],
    can_jump: Bool[Tensor, "*b"],
    noise: Noise,
    epsilon: float,
) -> Action:
    """A draw from the heads; where `noise.explore` < epsilon ratios are uniform and a jump has the chance 1/2."""
    random = noise.explore < epsilon
    chance = torch.where(random, 0.5, heads.jump.sigmoid())
    ratio = noise.ratio
    if heads.raw is not None:
        ratio = torch.where(random[..., None], ratio, density_torch.draw(kind, heads.raw, noise))
    jump = torch.where(can_move & can_jump, noise.jump < chance, can_jump)
    return ratio.clamp(EDGE, 1 - EDGE), jump


@torch.no_grad()
def act(
    policy: Policy,
    observation: Float[Tensor, "*b o"],
    can_move: Bool[Tensor, "*b"],
    can_jump: Bool[Tensor, "*b"],
    noise: Noise,
    epsilon: float,
) -> Action:
    """The policy's forward actions on observations."""
    return choose(policy.kind, policy.forward_heads(observation), can_move, can_jump, noise, epsilon)


@torch.no_grad()
def act_back(
    policy: Policy,
    observation: Float[Tensor, "*b o"],
    can_move: Bool[Tensor, "*b"],
    can_jump: Bool[Tensor, "*b"],
    noise: Noise,
) -> Action:
    """The policy's backward actions on observations."""
    return choose(policy.kind, policy.backward_heads(observation), can_move, can_jump, noise, 0.0)
