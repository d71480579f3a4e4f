"""Actor and critic on a common trunk, in JAX. Twin: network_torch.py, with the same parameter names."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...nn.layers_jax import apply_to_rows as apply, trunk


class ActorCritic(eqx.Module):
    """Logits of the actions and the value of the state.

    `mlp`: tanh layers, then a linear actor and a linear critic. `seed`: two times Linear, ReLU, LayerNorm of width 256,
    then for each head Linear, ReLU of width 128 and Linear. `base` are the inputs and actions of the network that this
    one has grown from, if it has.
    """

    trunk: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    actor: tuple[eqx.nn.Linear, ...]
    critic: tuple[eqx.nn.Linear, ...]

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        network: Literal["mlp", "seed"] = "mlp",
        hidden: int = 64,
        layers: int = 2,
    ):
        widths, head, norms = ([hidden] * layers, [], 0) if network == "mlp" else ([256, 256], [128], 2)
        self.trunk = trunk([observation_dim, *widths])
        self.norms = tuple(eqx.nn.LayerNorm(width) for width in widths[:norms])
        self.actor = trunk([widths[-1], *head, n_actions])
        self.critic = trunk([widths[-1], *head, 1])

    def __call__(self, observation: Float[Array, "*n o"]) -> tuple[Float[Array, "*n a"], Float[Array, "*n"]]:
        x = observation
        for i, layer in enumerate(self.trunk):
            x = _normed(self.norms[i], jax.nn.relu(apply(layer, x))) if self.norms else jnp.tanh(apply(layer, x))
        return _head(self.actor, x), _head(self.critic, x)[..., 0]


def _head(layers: tuple[eqx.nn.Linear, ...], x: Float[Array, "*n i"]) -> Float[Array, "*n outputs"]:
    for layer in layers[:-1]:
        x = jax.nn.relu(apply(layer, x))
    return apply(layers[-1], x)


def _normed(norm: eqx.nn.LayerNorm, x: Float[Array, "*n i"]) -> Float[Array, "*n i"]:
    """torch's LayerNorm: the biased variance, with 1e-5 beside it."""
    assert norm.weight is not None and norm.bias is not None
    centred = x - x.mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return y * jnp.broadcast_to(norm.weight, x.shape) + jnp.broadcast_to(norm.bias, x.shape)
