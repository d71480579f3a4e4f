"""Layers of the offline agents' networks as data: shapes and initial laws. Framework-free.

Weights of linear layers start at V(scale), U(-b, b) with b = sqrt(3 scale / ((fan_in + fan_out) / 2)), which for scale
1 is Xavier's uniform law (Glorot and Bengio 2010); biases start at 0, norms at scale 1 and bias 0. An ensemble has its
members stacked: every array gets an axis of members in front, each member is drawn by itself, all read the same input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...nn.initial import Law, Shape, constant, variance_scaling

Laws = dict[str, tuple[Law, Shape]]
"""The parameters of a module: initial law and shape, by their names within it."""

EPS = 1e-6
"""Epsilon of every layer norm."""


@dataclass(frozen=True)
class MLP:
    """x <- W_i x + b_i, and behind every layer but the last gelu (its tanh form), then layer norm if there is one.

    With `activate_final` also behind the last. Parameters: `layers.i.weight` (out, in), `layers.i.bias`,
    `norms.i.weight`, `norms.i.bias`; with several members each has an axis of them in front.
    """

    inputs: int
    widths: tuple[int, ...]
    layer_norm: bool = False
    activate_final: bool = False
    members: int = 1

    @property
    def laws(self) -> Laws:
        found: Laws = {}
        for i, (fan_in, fan_out) in enumerate(zip((self.inputs, *self.widths), self.widths, strict=False)):
            found |= linear(f"layers.{i}", fan_in, fan_out, members=self.members)
            if self.layer_norm and (self.activate_final or i < len(self.widths) - 1):
                found |= norm(f"norms.{i}", fan_out, members=self.members)
        return found


def linear(name: str, fan_in: int, fan_out: int, scale: float = 1.0, members: int = 1) -> Laws:
    """Weight and bias of a linear layer."""
    front = (members,) if members > 1 else ()
    return {
        f"{name}.weight": (variance_scaling(scale), (*front, fan_out, fan_in)),
        f"{name}.bias": (constant(0.0), (*front, fan_out)),
    }


def norm(name: str, width: int, members: int = 1) -> Laws:
    """Weight and bias of a norm."""
    shape = (members, width) if members > 1 else (width,)
    return {f"{name}.weight": (constant(1.0), shape), f"{name}.bias": (constant(0.0), shape)}


def conv(name: str, before: int, channels: int) -> Laws:
    """Weight and bias of a 3x3 convolution."""
    return {
        f"{name}.weight": (variance_scaling(1.0), (channels, before, 3, 3)),
        f"{name}.bias": (constant(0.0), (channels,)),
    }


def within(prefix: str, laws: Mapping[str, tuple[Law, Shape]]) -> Laws:
    """The same parameters one level deeper."""
    return {f"{prefix}.{name}": law for name, law in laws.items()}
