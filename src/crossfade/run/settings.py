"""The settings every system shares; a system's own config extends this one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import UsageError
from ..ranges import Count, Natural, Seed, check

Arrays = dict[str, np.ndarray]
Mode = Literal["torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full"]
MODES: tuple[Mode, ...] = ("torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full")


@dataclass(frozen=True)
class RunConfig:
    mode: Mode = "jax_full"
    """Which component runs where: a rung of the ladder."""
    steps: Count = 5000
    """Iterations in all."""
    seed: Seed = 0
    """Every random number of the run comes from this."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks."""
    chunk: Count = 100
    """Iterations between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: Count = 100
    """Iterations per row of the log."""
    eval_every: Natural = 1000
    """Iterations between evaluations; 0 evaluates only at the end."""
    checkpoint_every: Natural = 1000
    """Iterations between checkpoints; one is also written at the end and when the run is stopped."""
    keep: Count = 3
    """Checkpoints to keep."""
    devices: Count = 1
    """Devices that share the work of mode=jax_full; on a CPU give each a core."""

    bookkeeping: ClassVar[tuple[str, ...]] = (
        "mode",
        "devices",
        "chunk",
        "log_every",
        "eval_every",
        "checkpoint_every",
        "keep",
    )
    """Settings that change nothing of what is learned: runs that differ in them alone are the same trial."""

    def __post_init__(self):
        check(self)
        if self.devices > 1 and self.mode != "jax_full":
            raise UsageError(f"devices: expected 1 in mode={self.mode}, got {self.devices}. Only jax_full shares them.")

    @property
    def parts(self) -> tuple[str, ...]:
        """Algorithm, environment and mode: the name of a run's folder."""
        return type(self).__name__.removesuffix("Config").lower(), self.mode

    @property
    def test_set(self) -> str:
        """What runs of this config are judged by, in words, equal for configs judged by the same; empty if known."""
        return ""

    @property
    def sources(self) -> tuple[Path, ...]:
        """Files that the run reads: it is resumed only while they are what they were."""
        return ()

    @property
    def breaks(self) -> tuple[int, ...]:
        """Updates after which a phase of training ends. No chunk goes beyond one, and policies are evaluated there."""
        return ()

    @property
    def trainer_place(self) -> str:
        """Another trainer than the mode's: `module:Class`, `(config, snapshot, step) -> trainers.trainer.Trainer`."""
        return ""

    @property
    def env_steps(self) -> int:
        """Steps of environments in an update, for the log; 0 where there are none, or as many as chance decides."""
        return 0

    def footprint(self) -> dict[str, int]:
        """Bytes of memory that a run needs at least, by what they are for; what nobody has counted is left out."""
        return {}

    def course(self, update: int) -> dict[str, float]:
        """Settings that change as training goes on, by name, as they are during an update; they are logged."""
        return {}

    def check_resumed(self, saved: "RunConfig") -> None:
        """Refuses to go on with a run by settings that would break its course; most systems have nothing to refuse."""

    def adopt(
        self, parameters: Arrays, buffer: dict[str, Any] | None, saved: "RunConfig | None"
    ) -> tuple[Arrays, dict[str, Any] | None, str]:
        """What a run of this config takes over from a checkpoint of another: parameters, buffer, a note to print.

        `buffer` is that of the checkpoint and `saved` its config, where there are such. By default the parameters as
        they are, an empty buffer, and nothing to say.
        """
        return parameters, None, ""

    def exported(self, buffer: dict[str, Any]) -> Arrays:
        """Arrays of the buffer without which the parameters are of no use, stored beside them in a checkpoint."""
        return {}

    def blame(self) -> str:
        """Why training may have left the finite numbers, as far as the config alone can tell; empty if it cannot."""
        return ""
