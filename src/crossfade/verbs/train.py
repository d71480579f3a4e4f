"""The verb train."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..ranges import Count, Natural
from ..registry import System, find
from .common import Common, print_json
from .configured import Words, read_config, read_system

if TYPE_CHECKING:
    from ..run import RunDir
    from ..trainers.hosts_jax import Hosts


@dataclass(kw_only=True)
class Train(Common):
    """Train a system. `crossfade list SYSTEM` shows its settings.

    crossfade train SYSTEM mode=jax_full steps=5000 seed=0

    crossfade train --resume runs/SYSTEM/RUN mode=torch

    crossfade train SYSTEM --weights runs/SYSTEM/RUN

    crossfade train SYSTEM mode=jax_full devices=8 --hosts 2 --host 0 --coordinator 10.0.0.1:7000
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
    hosts: Count | None = None
    """Hosts that share one run of mode=jax_full: the same command on each, with its --host and one --coordinator."""
    host: Natural | None = None
    """The number of this host, from 0; host 0 keeps the run."""
    coordinator: str | None = None
    """ADDRESS:PORT of host 0, at which the hosts meet."""

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
        hosts = self._hosts()
        is_kept = hosts is None or hosts.is_first
        quiet = self.quiet or self.json or not is_kept
        with ExitStack() as stack:
            start = None
            if self.resume is not None:
                path = self.resume if hosts is None else stack.enter_context(hosts.run_to_resume(self.resume))
                run = stack.enter_context(RunDir.open(path, write=True))
                system, words = _resumed(run, self.words)
                config = read_config(system, words, run.config_path)
                if hosts is not None:
                    hosts.join(config, run.checkpoints)
            else:
                system, words = read_system(self.words)
                config = read_config(system, words, self.config, self.preset)
                if hosts is not None:
                    hosts.join(config, self.weights)
                if self.weights is not None:
                    start, note = adopt(system, config, self.weights)
                    if note and not quiet:
                        print(note)
                root = self.runs_dir if hosts is None else stack.enter_context(hosts.runs_dir(self.runs_dir))
                run = stack.enter_context(
                    RunDir.create(root, system.name, config.parts, config.seed, config, place=system.place)
                )
            result = train(
                system,
                config,
                run,
                resume=self.resume is not None,
                start=start,
                weights=self.weights,
                quiet=quiet,
                agreed=bool if hosts is None else hosts.any,
            )
        kept = str(run.path) if is_kept else None
        if self.json:
            return print_json({"run": kept, **result})
        for name, value in result.items():
            print(f"{name:<18} {value:.6g}")
        print(f"run: {kept or 'kept by host 0'}")
        return 0

    def _hosts(self) -> "Hosts | None":
        """The hosts of the run; None where it has one."""
        given = self.hosts, self.host, self.coordinator
        if given == (None, None, None):
            return None
        if self.hosts is None or self.host is None or self.coordinator is None:
            raise UsageError(
                "a run on several hosts needs --hosts N, --host I and --coordinator ADDRESS:PORT: give all three."
            )
        from ..trainers.hosts_jax import Hosts

        return Hosts(self.coordinator, self.hosts, self.host)


def _resumed(run: "RunDir", words: tuple[str, ...]) -> tuple[System, tuple[str, ...]]:
    if words and "=" not in words[0]:
        if words[0] != run.system:
            raise UsageError(f"{run.path} is a run of {run.system}, not of {words[0]}.")
        words = words[1:]
    return find(run.system), words
