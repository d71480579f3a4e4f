"""A run's folder.

    runs/<system>/<algo>-<env>-<mode>-s<seed>-<yyyymmdd-hhmmss>/
      config.yaml       every setting
      meta.json         when, how and on what it ran; one entry in `sessions` for each start and resume
      metrics.jsonl     every figure logged; the source of truth
      tensorboard/      the same for TensorBoard, made from metrics.jsonl
      checkpoints/  eval/  plots/
      lock              held by the process that writes
      done              there when the run has reached its end; holds its result

The lock is the kernel's, so it dies with its process however that dies, and cannot go stale.
"""

import fcntl
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from ..config import from_yaml, to_yaml
from ..errors import CrossfadeError, UsageError, nearest
from . import metrics, provenance
from .files import write_bytes, write_json, write_text

Config = TypeVar("Config")

_CHECKPOINT = re.compile(r"\d{10,}")


class RunDir:
    """Made by `create` (a new run, locked) or `open` (an old one, to read or, locked, to go on with)."""

    def __init__(self, path: Path):
        self.path = path
        self.config_path = path / "config.yaml"
        self.meta_path = path / "meta.json"
        self.metrics_path = path / "metrics.jsonl"
        self.done_path = path / "done"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.eval = path / "eval"
        self.plots = path / "plots"
        self._lock: IO[str] | None = None

    @classmethod
    def create(
        cls, root: Path | str, system: str, parts: Sequence[str], seed: int, config: Any, *, place: str = ""
    ) -> "RunDir":
        """A new folder under `root`; `parts` are algorithm, environment and mode, `place` that of a system's record if
        the name alone does not find it."""
        for part in (system, *parts):
            if not re.fullmatch(r"[\w.+-]+", part) or part.startswith("."):
                raise UsageError(f"expected a name of letters, digits and _ . + - for a run's folder, got {part!r}.")
        name = "-".join((*parts, f"s{seed}", datetime.now().strftime("%Y%m%d-%H%M%S")))
        run = cls(_new_folder(Path(root) / system, name))
        run._take_lock()
        try:
            for folder in (run.checkpoints, run.eval, run.plots):
                folder.mkdir()
            run.metrics_path.touch()
            run.save_config(config)
            facts = {"system": system, "place": place, "seed": seed, "sessions": [provenance.session()]}
            write_json(run.meta_path, facts)
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False) -> "RunDir":
        """An existing run. To go on with it: `write=True`, load a checkpoint, then `resume` at its step."""
        run = cls(Path(path))
        if not run.meta_path.is_file():
            beside = [p.name for p in run.path.parent.iterdir()] if run.path.parent.is_dir() else []
            hint = nearest(run.path.name, beside)
            raise UsageError(f"expected a run's folder (with meta.json) at {str(path)!r}, found none.{hint}")
        if write:
            run._take_lock()
        return run

    def resume(self, step: int, *, meta: Any = None) -> None:
        """Goes back to `step`: rows logged after it are dropped, to be logged again. Use before making a Log."""
        self._need_lock()
        later = [p.name for p in self.checkpoints.iterdir() if _CHECKPOINT.fullmatch(p.name) and int(p.name) > step]
        if later:
            raise UsageError(
                f"{self.path}: asked to resume at step {step}, but there is a checkpoint of step {int(max(later))}, "
                f"which would be taken for the latest. Resume from that one, or remove it first."
            )
        metrics.truncate(self.metrics_path, step)
        self.done_path.unlink(missing_ok=True)
        facts = self.meta
        facts["sessions"].append(provenance.session() | {"resumed_at": step} | (meta or {}))
        write_json(self.meta_path, facts)

    def annotate(self, notes: Mapping[str, str]) -> None:
        """Adds notes that readers of the run's figures must see to the session under way."""
        self._need_lock()
        facts = self.meta
        facts["sessions"][-1].setdefault("notes", {}).update(notes)
        write_json(self.meta_path, facts)

    def save_config(self, config: Any) -> None:
        """Also on resume, when a setting such as the mode has changed."""
        self._need_lock()
        write_text(self.config_path, to_yaml(config))

    def read_config(self, cls: type[Config]) -> Config:
        return from_yaml(self.config_path.read_text(), cls, source=str(self.config_path))

    @property
    def meta(self) -> dict[str, Any]:
        try:
            return json.loads(self.meta_path.read_text())
        except ValueError as error:
            raise CrossfadeError(f"{self.meta_path}: expected JSON, got {error}; restore it from a copy.") from error

    @property
    def system(self) -> str:
        """The system's name, or the place of its record."""
        return self.meta.get("place") or self.meta["system"]

    @property
    def result(self) -> metrics.Row | None:
        """What `finish` was given, and the step; None while the run is not complete."""
        return metrics.decode(self.done_path.read_bytes()) if self.done_path.exists() else None

    def finish(self, step: int, result: Mapping[str, Any] | None = None) -> None:
        """Marks the run as complete; `result` holds the figures a reader should see first."""
        self._need_lock()
        row = {key: metrics.scalar(key, value) for key, value in (result or {}).items()}
        write_bytes(self.done_path, metrics.encode({"step": step, **row}))

    def close(self) -> None:
        """Lets others write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "RunDir":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_lock(self) -> None:
        lock = open(self.path / "lock", "a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise UsageError(
                f"{self.path} is being written by process {holder}; wait for it or stop it, then try again."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _need_lock(self) -> None:
        if self._lock is None:
            raise UsageError(f"{self.path} was opened to read; open it with write=True to change it.")


def list_runs(root: Path | str, system: str | None = None) -> list[Path]:
    """The runs under a root, oldest first."""
    found = [path.parent for path in Path(root).glob(f"{system or '*'}/*/meta.json")]
    return sorted(found, key=lambda path: (RunDir(path).meta["sessions"][0]["started"], path.name))


def _new_folder(parent: Path, name: str) -> Path:
    """A folder of this name, or with -2, -3, ... when another run began in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
