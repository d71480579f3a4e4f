"""Several hosts as one run of mode `jax_full`: a process on each, with its share of the devices (`jax.distributed`).

All hosts make the same calls in the same order, as `jax.distributed` demands. Host 0 keeps the run's folder; the others
write theirs to a temporary place and forget it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from .. import checkpoint
from ..config import read_tree, to_yaml
from ..errors import UsageError
from ..run import RunDir, provenance
from ..run.settings import RunConfig
from .meeting import meet

PACKAGES = ("crossfade", "numpy", "jax", "jaxlib", "equinox", "optax")  # whose versions must be the same everywhere
NOT_COPIED = ("lock", "tensorboard", "plots", "eval")  # of a run that is resumed: what training does not read


@dataclass(frozen=True)
class Hosts:
    """Which host this is, of how many, and where host 0 listens."""

    coordinator: str
    count: int
    number: int

    def __post_init__(self):
        if not self.place[0] or not 0 < self.place[1] < 65536:
            raise UsageError(
                f"--coordinator: expected ADDRESS:PORT of host 0, such as 10.0.0.1:7000, got {self.coordinator!r}."
            )
        if self.count < 2:
            raise UsageError(f"--hosts: expected at least 2, got {self.count}. One host needs none of these options.")
        if not 0 <= self.number < self.count:
            raise UsageError(f"--host: expected 0 to {self.count - 1}, the number of this host, got {self.number}.")

    @property
    def place(self) -> tuple[str, int]:
        """Address and port of the coordinator."""
        address, _, port = self.coordinator.rpartition(":")
        return address.strip("[]"), int(port) if port.isdecimal() else 0

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def join(self, config: RunConfig, weights: Path | None = None) -> None:
        """Meets the others. To be called before anything else is asked of JAX, on every host with the same config;
        `weights` is the folder of the run or checkpoint that training starts from, if it does."""
        if config.mode != "jax_full" or config.devices % self.count:
            raise UsageError(
                f"--hosts {self.count}: expected mode=jax_full and devices= a multiple of {self.count}, which counts "
                f"the devices of all hosts; got mode={config.mode} devices={config.devices}."
            )
        meet(*self.place, self.count, self.number, _facts(config, weights))
        jax.config.update("jax_num_cpu_devices", config.devices // self.count)
        jax.distributed.initialize(self.coordinator, self.count, self.number)
        found = jax.device_count()  # devices are made here, as many as were asked for
        if found < config.devices:
            raise UsageError(f"devices: expected at most {found}, which all hosts have together, got {config.devices}.")

    def any(self, own: bool) -> bool:
        """Whether any host says so. All must ask."""
        return bool(multihost_utils.process_allgather(np.array(own)).any())

    @contextmanager
    def runs_dir(self, given: Path) -> Iterator[Path]:
        """Where this host makes its run: the folder given, or one that is gone afterwards."""
        if self.is_first:
            yield given
            return
        with tempfile.TemporaryDirectory(prefix="crossfade-host-") as folder:
            yield Path(folder)

    @contextmanager
    def run_to_resume(self, path: Path) -> Iterator[Path]:
        """The run that this host goes on with: the one given, or a copy that is gone afterwards."""
        with self.runs_dir(path) as folder:
            if not self.is_first:
                RunDir.open(path)  # refuses what is no run
                shutil.copytree(path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
            yield folder


def _facts(config: RunConfig, weights: Path | None) -> dict[str, str]:
    """What all hosts must have in common: settings, versions, the files they read, and where they start."""
    versions = {f"version of {name}": text for name, text in provenance.versions().items() if name in PACKAGES}
    files = {f"contents of {name}": digest for name, digest in provenance.digests(config.sources).items()}
    start: dict[str, str] = {}
    if weights is not None:
        kept = RunDir(weights).checkpoints
        start["checkpoint"] = str(checkpoint.load(kept if kept.is_dir() else weights, side="numpy").step)
    return {**_settings(read_tree(to_yaml(config), "the settings")), **versions, **files, **start}


def _settings(tree: Any, path: str = "") -> dict[str, str]:
    if not isinstance(tree, dict):
        return {path: str(tree)}
    return {k: v for name, part in tree.items() for k, v in _settings(part, f"{path}.{name}" if path else name).items()}
