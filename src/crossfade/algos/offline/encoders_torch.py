"""Encoders of observations, in torch; modules.py says what they compute. Twin: encoders_jax.py."""

from jaxtyping import Float
from torch import Tensor, nn

from . import modules
from .networks_torch import MLP


class MLPEncoder(nn.Module):
    """An MLP with layer norms whose last layer is linear."""

    def __init__(self, spec: modules.MLPEncoder):
        super().__init__()
        self.spec = spec
        self.mlp = MLP(spec.mlp)

    def forward(self, observations: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch code"]:
        return self.mlp(observations)


def make_encoder(spec: modules.Encoder) -> nn.Module:
    """The encoder of a specification."""
    match spec:
        case modules.MLPEncoder():
            return MLPEncoder(spec)
        case _:
            raise NotImplementedError
