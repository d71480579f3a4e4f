"""The settings every system shares; a system's own config extends this one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError

Mode = Literal["torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full"]
MODES: tuple[Mode, ...] = ("torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full")


@dataclass(frozen=True)
class RunConfig:
    mode: Mode = "jax_full"
    """Which component runs where: a rung of the ladder."""
    steps: int = 5000
    """Iterations in all."""
    seed: int = 0
    """Every random number of the run comes from this."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks."""
    chunk: int = 100
    """Iterations between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: int = 100
    """Iterations per row of the log."""
    eval_every: int = 1000
    """Iterations between evaluations; 0 evaluates only at the end."""
    checkpoint_every: int = 1000
    """Iterations between checkpoints; one is also written at the end and when the run is stopped."""
    keep: int = 3
    """Checkpoints to keep."""

    def __post_init__(self):
        for name, least in (("steps", 1), ("chunk", 1), ("log_every", 1), ("eval_every", 0), ("checkpoint_every", 0)):
            if (value := getattr(self, name)) < least:
                raise UsageError(f"{name}: expected at least {least}, got {value}.")
        if self.seed < 0:
            raise UsageError(f"seed: expected 0 or more, got {self.seed}.")

    @property
    def sources(self) -> tuple[Path, ...]:
        """Files that the run reads: it is resumed only while they are what they were."""
        return ()

    def course(self, update: int) -> dict[str, float]:
        """Settings that change as training goes on, by name, as they are during an update; they are logged."""
        return {}

    def check_resumed(self, saved: Any) -> None:
        """Refuses to go on with a run by settings that would break its course; most systems have nothing to refuse."""
