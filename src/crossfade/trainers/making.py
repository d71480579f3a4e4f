"""The trainer of a config: its mode decides which half of the system is loaded, and no other framework is imported."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ..errors import CheckpointError
from ..loading import load_attribute
from ..registry import System
from ..run.settings import Arrays, RunConfig
from .system import JaxSystem, Snapshot, TorchSystem
from .trainer import Trainer


def torch_half(system: System, config: RunConfig) -> TorchSystem[Any, Any]:
    """The torch half of a system."""
    return load_attribute(system.torch)(config)


def jax_half(system: System, config: RunConfig) -> JaxSystem[Any, Any]:
    """The JAX half of a system."""
    return load_attribute(system.jax)(config)


def make_trainer(system: System, config: RunConfig, snapshot: Snapshot | None = None, step: int = 0) -> Trainer:
    """The trainer of `config.mode`, or the config's own, at the start or where a snapshot was taken."""
    if config.trainer_place:
        return load_attribute(config.trainer_place)(config, snapshot, step)
    half: Any = (torch_half if config.mode in ("torch", "torch_pure", "jax_minimal") else jax_half)(system, config)
    start = half.parameters()
    snapshot = snapshot or Snapshot(start, {})
    check_fits(snapshot.parameters, start)
    match config.mode:
        case "torch":
            from .torch_loop import TorchTrainer

            return TorchTrainer(half, snapshot, step)
        case "torch_pure":
            from .torch_pure import TorchPureTrainer

            return TorchPureTrainer(half, snapshot, step)
        case "jax_minimal":
            from .jax_minimal import JaxMinimalTrainer

            return JaxMinimalTrainer(half, jax_half(system, config), snapshot, step)
        case "jax_policy":
            from .jax_policy import JaxPolicyTrainer

            return JaxPolicyTrainer(half, snapshot, step)
        case "jax_full":
            from .jax_full import JaxFullTrainer

            return JaxFullTrainer(half, snapshot, step)


def check_fits(found: Arrays, expected: Arrays) -> None:
    """A checkpoint must hold the parameters of this config, in its precision."""
    form = lambda array: "nothing" if array is None else f"{array.dtype} {array.shape}"
    wrong = [
        f"  {name}: expected {form(expected.get(name))}, got {form(found.get(name))}"
        for name in expected | found
        if form(expected.get(name)) != form(found.get(name))
    ]
    if wrong:
        raise CheckpointError(
            "the checkpoint does not fit this config:\n" + "\n".join(wrong) + "\nUse the run's own settings."
        )


@contextlib.contextmanager
def precision(config: RunConfig) -> Iterator[None]:
    """64-bit JAX for a float64 run, and only for that."""
    if config.dtype == "float32" or config.mode in ("torch", "torch_pure"):
        yield
        return
    import jax

    with jax.enable_x64(True):
        yield
