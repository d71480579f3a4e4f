"""The trunk of the policies, discrete and continuous, in torch. In JAX: `nn/layers_jax.py`."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu


def trunk(widths: list[int]) -> nn.ModuleList:
    """Linear layers of these widths, the first one that of the input."""
    return nn.ModuleList(nn.Linear(*pair) for pair in zip(widths[:-1], widths[1:], strict=True))


def features(layers: nn.ModuleList, h: Float[Tensor, "*nodes observation"]) -> Float[Tensor, "*nodes features"]:
    """What the trunk makes of an observation: LeakyReLU after every layer."""
    for layer in layers:
        h = leaky_relu(layer(h), 0.01)
    return h
