"""The shape of an actor-critic network. Framework-free."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal


@dataclass(frozen=True)
class Architecture:
    """Actor and critic on a common trunk; each head is linear behind its hidden layers."""

    trunk: tuple[int, ...] = (64, 64)
    """Widths of the trunk's layers."""
    head: tuple[int, ...] = ()
    """Widths of the hidden layers of each head."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of every hidden layer."""
    layer_norm: bool = False
    """Layers of the trunk are normalised behind their activation."""
    initial: Literal["orthogonal", "lecun"] = "orthogonal"
    """The law of the weights at the start, see init.py."""

    def shapes(self, observation_dim: int, n_outputs: int, n_free: int = 0) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by its name in torch and in JAX; the last `n_free` outputs are `log_std`."""
        found: dict[str, tuple[int, ...]] = {"log_std": (n_free,)} if n_free else {}

        def chain(name: str, *widths: int) -> None:
            for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
                found[f"{name}.{i}.weight"], found[f"{name}.{i}.bias"] = (fan_out, fan_in), (fan_out,)

        chain("trunk", observation_dim, *self.trunk)
        for i, width in enumerate(self.trunk if self.layer_norm else ()):
            found[f"norms.{i}.weight"] = found[f"norms.{i}.bias"] = (width,)
        chain("actor", self.trunk[-1], *self.head, n_outputs - n_free)
        chain("critic", self.trunk[-1], *self.head, 1)
        return found
