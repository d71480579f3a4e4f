"""The verb train."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..registry import System, find
from .common import Common, print_json
from .configured import Words, read_config, read_system

if TYPE_CHECKING:
    from ..run import RunDir


@dataclass(kw_only=True)
class Train(Common):
    """Train a system. `crossfade list SYSTEM` shows its settings.

    crossfade train SYSTEM mode=jax_full steps=5000 seed=0

    crossfade train --resume runs/SYSTEM/RUN mode=torch

    crossfade train SYSTEM --weights runs/SYSTEM/RUN
    """

    words: Words = ()
    """The system, then any settings."""
    preset: str | None = None
    """A named setting to start from."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""
    resume: Path | None = None
    """Go on with this run from its last checkpoint, in another mode too."""
    weights: Path | None = None
    """Start from the parameters of this run or checkpoint, with a fresh optimiser, and from what else the system takes
    over, such as the statistics of its observations."""

    def run(self) -> int:
        from ..run import RunDir
        from ..trainers.saving import adopt
        from ..trainers.training import train

        if self.resume is not None and self.weights is not None:
            raise UsageError(
                "--resume goes on with everything, --weights starts anew from parameters: use one of them."
            )
        if self.resume is not None and (self.preset or self.config):
            raise UsageError("--resume takes the settings of the run: leave --preset and --config out, or give words.")
        quiet = self.quiet or self.json
        if self.resume is not None:
            with RunDir.open(self.resume, write=True) as run:
                system, words = _resumed(run, self.words)
                result = train(system, read_config(system, words, run.config_path), run, resume=True, quiet=quiet)
        else:
            system, words = read_system(self.words)
            config = read_config(system, words, self.config, self.preset)
            start, note = (None, "") if self.weights is None else adopt(system, config, self.weights)
            if note and not quiet:
                print(note)
            with RunDir.create(
                self.runs_dir, system.name, config.parts, config.seed, config, place=system.place
            ) as run:
                result = train(system, config, run, start=start, weights=self.weights, quiet=quiet)
        if self.json:
            return print_json({"run": str(run.path), **result})
        for name, value in result.items():
            print(f"{name:<18} {value:.6g}")
        print(f"run: {run.path}")
        return 0


def _resumed(run: "RunDir", words: tuple[str, ...]) -> tuple[System, tuple[str, ...]]:
    if words and "=" not in words[0]:
        if words[0] != run.system:
            raise UsageError(f"{run.path} is a run of {run.system}, not of {words[0]}.")
        words = words[1:]
    return find(run.system), words
