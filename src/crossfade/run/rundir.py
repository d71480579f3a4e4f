"""A run's folder.

    runs/<system>/<algo>-<env>-<mode>-s<seed>-<yyyymmdd-hhmmss>/
      config.yaml       every setting
      meta.json         when, how and on what it ran; one entry in `sessions` for each start and resume
      metrics.jsonl     every figure logged; the source of truth
      tensorboard/      the same for TensorBoard, made from metrics.jsonl
      checkpoints/  eval/  plots/
      lock              held by the process that writes
      done              there when the run has reached its end; holds its result
      done-<step>       the result of an earlier end, of a run that was prolonged from there

The lock is the kernel's, so it dies with its process however that dies, and cannot go stale. To go on with a run:

    run = RunDir.open(path, write=True)
    saved = run.read_config(Config)              # and make the new config from it
    if result := run.completed(config.steps):    # nothing to do
        return result
    bundle = ...                                 # load the checkpoint, make the trainer: all that may be refused
    run.resume(bundle.step, config=config)       # the first change to the folder, after all checks

Files that are damaged or missing raise a RunError that names them.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import IO, Any, TypeVar

from ..config import from_yaml, read_tree, to_yaml
from ..errors import DataError, RunError, UsageError, UserCodeError, nearest
from . import metrics, provenance
from .files import ADVICE, read_json, read_text, reading, write_bytes, write_json, write_text, writing

Config = TypeVar("Config")
REFUSED = (UsageError, UserCodeError, DataError)
"""What says that a run cannot begin as it was asked for."""

_CHECKPOINT = re.compile(r"[0-9]{10,18}")
_SESSION: dict[str, type | tuple[type, ...]] = {  # of meta.json, as provenance.session gives it
    "started": str,
    "argv": list,
    "git": (str, NoneType),
    "versions": dict,
    "platform": str,
    "cores": (int, NoneType),
}


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
        self._new = False

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
        text = to_yaml(config)
        facts = {"system": system, "place": place, "seed": seed, "sessions": [provenance.session()]}
        run = cls(_new_folder(Path(root) / system, name))
        try:
            run._take_lock()
            with writing(run.path):
                for folder in (run.checkpoints, run.eval, run.plots):
                    folder.mkdir()
                run.metrics_path.touch()
            write_text(run.config_path, text)
            write_json(run.meta_path, facts)  # last: what has none is no run
        except BaseException:
            run.close()
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        run._new = True
        return run

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False) -> "RunDir":
        """An existing run. To go on with it: `write=True`, load a checkpoint, then `resume` at its step."""
        run = cls(Path(path))
        if not os.path.isfile(run.meta_path):
            hint = nearest(run.path.name, _names_in(run.path.parent))
            raise UsageError(f"expected a run's folder (with meta.json) at {str(path)!r}, found none.{hint}")
        if write:
            run._take_lock()
        return run

    def completed(self, steps: int) -> metrics.Row | None:
        """The result of a run that has reached so many steps already: there is nothing to go on with."""
        result = self.result
        return result if result is not None and result["step"] >= steps else None

    def check_resume(self, step: int) -> None:
        """Raises unless the run can go on from `step`: nothing is touched."""
        self._need_lock()
        steps = [int(name) for name in _names_in(self.checkpoints) if _CHECKPOINT.fullmatch(name)]
        if max(steps, default=0) > step:
            raise UsageError(
                f"{self.path}: asked to resume at step {step}, but there is a checkpoint of step {max(steps)}, "
                f"which would be taken for the latest. Resume from that one, or remove it first."
            )
        metrics.read_rows(self.metrics_path)
        _ = self.meta, self.result

    def resume(self, step: int, *, config: Any = None) -> None:
        """Goes back to `step`: rows logged after it are dropped, to be logged again. Use before making a Log.

        `config` replaces the one in the folder. Everything is checked before anything is changed, and a run that is
        killed between two changes can be resumed again. The result of a run that is prolonged is kept beside.
        """
        self.check_resume(step)
        facts, result = self.meta, self.result
        facts["sessions"].append(provenance.session() | {"resumed_at": step})
        text = None if config is None else to_yaml(config)
        if result is not None:
            with writing(self.done_path):
                self.done_path.rename(self.path / f"done-{result['step']:010d}")
        write_json(self.meta_path, facts)
        if text is not None:
            write_text(self.config_path, text)
        metrics.truncate(self.metrics_path, step)

    def annotate(self, notes: Mapping[str, str]) -> None:
        """Adds notes that readers of the run's figures must see to the session under way."""
        self._need_lock()
        facts = self.meta
        facts["sessions"][-1].setdefault("notes", {}).update(notes)
        write_json(self.meta_path, facts)

    def read_config(self, cls: type[Config]) -> Config:
        return from_yaml(read_text(self.config_path, "the settings of a run"), cls, source=str(self.config_path))

    @property
    def settings(self) -> dict[str, Any]:
        """What config.yaml says, whatever system it is of."""
        return read_tree(read_text(self.config_path, "the settings of a run"), str(self.config_path))

    @property
    def meta(self) -> dict[str, Any]:
        facts = read_json(self.meta_path, "the circumstances of a run")
        if problem := _problem(facts):
            raise RunError(f"{self.meta_path}: expected the circumstances of a run, got {problem}. {ADVICE}")
        return facts

    @property
    def system(self) -> str:
        """The system's name, or the place of its record."""
        return self.meta.get("place") or self.meta["system"]

    @property
    def result(self) -> metrics.Row | None:
        """What `finish` was given, and the step; None while the run is not complete."""
        if not os.path.lexists(self.done_path):
            return None
        with reading(self.done_path, "the result of a run") as file:
            line = file.read()
        try:
            return metrics.decode(line)
        except ValueError as error:
            raise RunError(
                f"{self.done_path}: expected the result of a run, a JSON object with a step and numbers, got "
                f"{line[:60]!r}: {error}. Restore it from a copy; without it the run counts as not finished."
            ) from error

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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """A new run that was refused before it had anything to keep leaves no folder."""
        self.close()
        if self._new and isinstance(error, REFUSED) and not self._rows_or_checkpoints():
            shutil.rmtree(self.path, ignore_errors=True)

    def _rows_or_checkpoints(self) -> bool:
        size = os.path.getsize(self.metrics_path) if os.path.isfile(self.metrics_path) else 0
        return size > 0 or bool(_names_in(self.checkpoints))

    def _take_lock(self) -> None:
        with writing(self.path / "lock"):
            lock = open(self.path / "lock", "a+", errors="replace")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read(20).strip() or "unknown"
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


def _problem(facts: Any) -> str | None:
    """What is wrong with the content of a meta.json."""
    match facts:
        case {"system": str(), "seed": int(), "sessions": [_, *_] as sessions} if type(facts["seed"]) is int:
            for number, session in enumerate(sessions, 1):
                if not isinstance(session, dict):
                    return f"session {number}: {repr(session)[:80]}"
                for key, kinds in _SESSION.items():
                    if key not in session or not isinstance(session[key], kinds):
                        return f"{key} of session {number}: {repr(session.get(key))[:80]}"
                if not all(isinstance(word, str) for word in session["argv"]):
                    return f"argv of session {number}: {repr(session['argv'])[:80]}"
            return None
    return f"no system, seed and sessions: {repr(facts)[:80]}"


def _names_in(folder: Path) -> list[str]:
    """Names in a folder; none where there is no folder."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{folder}: expected a folder, got an error: {error.strerror}. {ADVICE}") from error


def _new_folder(parent: Path, name: str) -> Path:
    """A folder of this name, or with -2, -3, ... when another run began in the same second."""
    number = 1
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            path = parent / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return path
