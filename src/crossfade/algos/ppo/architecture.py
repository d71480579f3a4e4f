"""The shape of an actor-critic network, and the laws of its parameters. Framework-free."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ...nn.initial import Law, constant, lecun_normal, lecun_uniform, orthogonal

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Architecture:
    """Actor and critic on a common trunk, if there is one; each head is linear behind its hidden layers."""

    trunk: tuple[int, ...] = (64, 64)
    """Widths of the trunk's layers."""
    head: tuple[int, ...] = ()
    """Widths of the hidden layers of each head."""
    activation: Literal["tanh", "relu", "swish"] = "tanh"
    """Of every hidden layer."""
    layer_norm: bool = False
    """Layers of the trunk are normalised behind their activation."""
    initial: Literal["orthogonal", "lecun", "lecun_uniform"] = "orthogonal"
    """Weights at the start: orthogonal of gain sqrt(2), 0.01 for the actor's output and 1 for the critic's; or LeCun's
    normal or uniform law. Biases are 0."""

    def seen(self, observation_dim: int) -> int:
        """Numbers that the heads see."""
        return self.trunk[-1] if self.trunk else observation_dim

    def shapes(self, observation_dim: int, n_outputs: int, n_free: int = 0) -> dict[str, Shape]:
        """The shape of every parameter, by its name in torch and in JAX; the last `n_free` outputs are `log_std`."""
        return {name: shape for name, (_, shape) in self.laws(observation_dim, n_outputs, n_free).items()}

    def laws(
        self, observation_dim: int, n_outputs: int, n_free: int = 0, log_std: float = 0.0
    ) -> dict[str, tuple[Law, Shape]]:
        """How every parameter is drawn at the start; free outputs are `log_std`."""
        found: dict[str, tuple[Law, Shape]] = {"log_std": (constant(log_std), (n_free,))} if n_free else {}

        def layers(name: str, *widths: int, output_gain: float = math.sqrt(2)) -> None:
            for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
                gain = output_gain if i == len(widths) - 2 else math.sqrt(2)
                law = {"lecun": lecun_normal(), "lecun_uniform": lecun_uniform()}.get(self.initial, orthogonal(gain))
                found[f"{name}.{i}.weight"] = law, (fan_out, fan_in)
                found[f"{name}.{i}.bias"] = constant(0.0), (fan_out,)

        layers("trunk", observation_dim, *self.trunk)
        for i, width in enumerate(self.trunk if self.layer_norm else ()):
            found[f"norms.{i}.weight"] = constant(1.0), (width,)
            found[f"norms.{i}.bias"] = constant(0.0), (width,)
        seen = self.seen(observation_dim)
        layers("actor", seen, *self.head, n_outputs - n_free, output_gain=0.01)
        layers("critic", seen, *self.head, 1, output_gain=1.0)
        return found
