"""How a policy acts in a continuous environment, given its noise, in torch. Twin: acting_jax.py."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ....envs.dag.continuous_params import EDGE
from . import density_torch
from .batch import Kind, Noise
from .policy_torch import Choice


def choose(
    kind: Kind,
    choice: Choice | None,
    can_move: Bool[Tensor, "*b"],
    can_jump: Bool[Tensor, "*b"],
    noise: Noise,
    epsilon: float,
) -> tuple[Float[Tensor, "*b d"], Bool[Tensor, "*b"]]:
    """Ratios of a move, and whether to jump instead; a jump wherever no move is possible.

    Where `explore` is below `epsilon`, and everywhere if there is no choice, ratios are uniform and a jump is as likely
    as a move.
    """
    if choice is None:
        ratio, jumps = noise.ratio, noise.jump < 0.5
    else:
        explores = noise.explore < epsilon
        ratio = torch.where(explores[..., None], noise.ratio, density_torch.draw(kind, choice.raw, noise))
        jumps = noise.jump < torch.where(explores, 0.5, choice.jump.sigmoid())
    return ratio.clamp(EDGE, 1 - EDGE), ~can_move | (can_jump & jumps)
