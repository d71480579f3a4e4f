"""How a policy acts in a continuous environment, given its noise, in JAX. Twin: acting_torch.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ....envs.dag.continuous_params import EDGE
from .batch import Kind, Noise
from .density_jax import draw
from .policy_jax import Choice

Number = float | Float[Array, ""]


def choose(
    kind: Kind,
    choice: Choice | None,
    can_move: Bool[Array, "*batch"],
    can_jump: Bool[Array, "*batch"],
    noise: Noise,
    epsilon: Number,
) -> tuple[Float[Array, "*batch d"], Bool[Array, "*batch"]]:
    """Ratios of a move, and whether to jump instead; a jump wherever no move is possible.

    Where `explore` is below `epsilon`, and everywhere if there is no choice, ratios are uniform and a jump is as likely
    as a move.
    """
    if choice is None:
        ratio, jumps = noise.ratio, noise.jump < 0.5
    else:
        explores = noise.explore < epsilon
        ratio = jnp.where(explores[..., None], noise.ratio, draw(kind, choice.raw, noise))
        jumps = noise.jump < jnp.where(explores, 0.5, jax.nn.sigmoid(choice.jump))
    return jnp.clip(ratio, EDGE, 1 - EDGE), ~can_move | (can_jump & jumps)
