"""The flow along a vector field whose conditions stay the same, in JAX.

The first layer is linear in x, t and the conditions c = (s, a, z), W (x, t, c) + b = W_x x + W_t t + (W_c c + b): the
last part, nearly all of its work, is computed once for a whole flow.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....nn.layers_jax import linear_of_rows
from ..networks_jax import VectorField


class ConditionedField(NamedTuple):
    """A vector field given s, a and z."""

    field: VectorField
    offset: Float[Array, "*batch width"]
    """W_c c + b."""

    def velocity(self, x: Float[Array, "*goals vector"], t: Float[Array, "*times"]) -> Float[Array, "*goals vector"]:
        """v(x, t | s, a, z). x may have more axes in front than c; t is one number, or one for each row of c."""
        net, vector = self.field.vector_field_net, x.shape[-1]
        by_x, by_t = net.layers[0].weight[:, :vector], net.layers[0].weight[:, vector]
        shape = self.offset.shape
        times = jnp.broadcast_to(t[..., None] if t.ndim else t, shape)
        offset = self.offset + times * jnp.broadcast_to(by_t, shape)
        hidden = linear_of_rows(x, by_x, None)
        return net._behind_first(hidden + jnp.broadcast_to(offset, hidden.shape))


def conditioned(
    field: VectorField,
    observations: Float[Array, "*batch observation"],
    actions: Float[Array, "*batch action"],
    latents: Float[Array, "*batch latent"],
) -> ConditionedField:
    """The field given these conditions."""
    first = field.vector_field_net.layers[0]
    conditions = jnp.concatenate([observations, actions, latents], -1)
    return ConditionedField(field, linear_of_rows(conditions, first.weight[:, -conditions.shape[-1] :], first.bias))


def euler(
    field: ConditionedField,
    start: Float[Array, "*goals vector"],
    steps: int,
    bounds: Float[Array, "2 vector"] | None,
) -> Float[Array, "*goals vector"]:
    """x <- clip(x + v(x, i / K) / K, least + 1e-5, greatest - 1e-5) for i = 0 .. K - 1, from x = start."""
    dtype = field.offset.dtype

    def step(i: Array, x: Float[Array, "*goals vector"]) -> Float[Array, "*goals vector"]:
        x = x + field.velocity(x, i.astype(dtype) / steps) / steps
        if bounds is None:
            return x
        return jnp.clip(x, *(jnp.broadcast_to(bound, x.shape) for bound in (bounds[0] + 1e-5, bounds[1] - 1e-5)))

    return jax.lax.fori_loop(0, steps, step, start.astype(dtype))
