"""The discriminator, and the policy that carries it, in torch. Twin: discriminator_jax.py, with the same parameter
names."""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from ...nn.distribution import Distribution
from ..ppo.architecture import Architecture
from ..ppo.network_torch import ActorCritic


class Discriminator(nn.Module):
    """D(x) of a transition x = (Phi(s), Phi(s')): W h + b behind the hidden layers h = relu(W h + b)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*widths) for widths in pairwise((inputs, *hidden, 1)))

    def forward(self, x: Float[Tensor, "*n x"]) -> Float[Tensor, "*n"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).relu()
        return last(x).squeeze(-1)


class StyledActorCritic(ActorCritic):
    """PPO's network with a discriminator beside it, which it does not use: all that learns is one object."""

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
