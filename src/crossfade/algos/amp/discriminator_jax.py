"""The discriminator, and the policy that carries it, in JAX. Twin: discriminator_torch.py, with the same parameter
names."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ...nn.distribution import Distribution
from ...nn.layers_jax import apply, trunk
from ..ppo.architecture import Architecture
from ..ppo.network_jax import ActorCritic


class Discriminator(eqx.Module):
    """D(x) of a transition x = (Phi(s), Phi(s')): W h + b behind the hidden layers h = relu(W h + b)."""

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        self.layers = trunk([inputs, *hidden, 1])

    def __call__(self, x: Float[Array, "*n x"]) -> Float[Array, "*n"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(apply(layer, x))
        return apply(last, x)[..., 0]


class StyledActorCritic(ActorCritic):
    """PPO's network with a discriminator beside it, which it does not use: all that learns is one object."""

    discriminator: Discriminator

    def __init__(
        self,
        observation_dim: int,
        actions: Distribution,
        architecture: Architecture,
        inputs: int,
        hidden: tuple[int, ...],
    ):
        super().__init__(observation_dim, actions, architecture)
        self.discriminator = Discriminator(inputs, hidden)
