"""Actor and critic on a common trunk or apart, in JAX. Twin: network_torch.py, with the same parameter names."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...nn.distribution import Distribution
from ...nn.layers_jax import RowsLinear, trunk
from .architecture import Architecture


class ActorCritic(eqx.Module):
    """Outputs of the action distribution, and the value of the state.

    h = phi(W x + b) for each layer of the trunk, then LayerNorm(h) if so shaped; outputs and value are W h + b behind
    the hidden layers phi(W h + b) of their heads. Free outputs are the parameter `log_std`, whatever the state.
    Parameters are drawn by `Architecture.laws`: made here they mean nothing.
    """

    log_std: Float[Array, " free"] | None
    trunk: tuple[RowsLinear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    actor: tuple[RowsLinear, ...]
    critic: tuple[RowsLinear, ...]
    activation: Literal["tanh", "relu", "swish"] = eqx.field(static=True)

    def __init__(self, observation_dim: int, actions: Distribution, architecture: Architecture):
        widths, head = architecture.trunk, architecture.head
        self.activation = architecture.activation
        self.log_std = jnp.zeros(actions.n_free) if actions.n_free else None
        self.trunk = trunk([observation_dim, *widths], RowsLinear)
        self.norms = tuple(eqx.nn.LayerNorm(width) for width in (widths if architecture.layer_norm else ()))
        seen = architecture.seen(observation_dim)
        self.actor = trunk([seen, *head, actions.n_outputs - actions.n_free], RowsLinear)
        self.critic = trunk([seen, *head, 1], RowsLinear)

    def __call__(self, observation: Float[Array, "*n o"]) -> tuple[Float[Array, "*n outputs"], Float[Array, "*n"]]:
        h = observation
        for i, layer in enumerate(self.trunk):
            h = self._phi(layer(h))
            h = _normed(self.norms[i], h) if self.norms else h
        outputs = self._head(self.actor, h)
        if self.log_std is not None:
            free = jnp.broadcast_to(self.log_std, (*outputs.shape[:-1], len(self.log_std)))
            outputs = jnp.concatenate([outputs, free], -1)
        return outputs, self._head(self.critic, h)[..., 0]

    def _phi(self, x: Float[Array, "*n i"]) -> Float[Array, "*n i"]:
        return {"tanh": jnp.tanh, "relu": jax.nn.relu, "swish": jax.nn.silu}[self.activation](x)

    def _head(self, layers: tuple[RowsLinear, ...], h: Float[Array, "*n i"]) -> Float[Array, "*n outputs"]:
        for layer in layers[:-1]:
            h = self._phi(layer(h))
        return layers[-1](h)


def _normed(norm: eqx.nn.LayerNorm, x: Float[Array, "*n i"]) -> Float[Array, "*n i"]:
    """torch's LayerNorm: (x - E x) / sqrt(E (x - E x)^2 + 1e-5) weight + bias."""
    assert norm.weight is not None and norm.bias is not None
    centred = x - x.mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return y * jnp.broadcast_to(norm.weight, x.shape) + jnp.broadcast_to(norm.bias, x.shape)
