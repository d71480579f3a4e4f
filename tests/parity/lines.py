"""Where a half that runs in Python is another with a bug than without: the first line, or value of a variable.

Halves are run line by line (JAX without `jit`). A function that is exchanged for another is a place as a whole, with
the one it stands for.
"""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax

from crossfade import random
from crossfade.bridge.source_lines import is_search, is_users
from crossfade.parity.bisecting.host import _arrays

PLUMBING = ("patched.<locals>.call", "within.<locals>.<lambda>")
RANDOM = str(Path(random.__file__).parent)  # it computes in memory that is not set before
MANY = 2000  # events
Event = tuple[str, str, str]  # line, variable or "", value


class Steps:
    """Every line of the user's code that is run, and every value that a variable comes to hold."""

    def __init__(self):
        self.events: list[Event] = []
        self.frames: list[tuple[CodeType, tuple[str, ...], bool]] = []
        """Of each event its function, the lines that led to it, and whether the function begins there."""
        self._kept: list[FrameType] = []
        self._held: dict[tuple[int, str], str] = {}

    def run(self, call: Callable[[], Any]) -> "Steps":
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            with jax.disable_jit():
                call()
        finally:
            sys.settrace(before)
        return self

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        file_name = frame.f_code.co_filename
        if not is_users(file_name) or file_name.startswith(RANDOM) or frame.f_code.co_qualname in PLUMBING:
            return None
        if file_name.endswith("config.py") or frame.f_code.co_name == "settings":  # a setting is no place: its use is
            return None
        self._kept.append(frame)
        for name, value in frame.f_locals.items():
            for path, array in _arrays(value, name):
                self._held[id(frame), path] = _digest(array)
        at, fresh = [frame.f_lineno], [True]

        def step(frame: FrameType, event: str, value: Any) -> Any:
            for name, held in list(frame.f_locals.items()):
                for path, array in _arrays(held, name):
                    if self._held.get((id(frame), path)) != (digest := _digest(array)):
                        self._held[id(frame), path] = digest
                        self._add(frame, at[0], path, digest, False)
            at[0] = frame.f_lineno
            if event == "line":
                self._add(frame, at[0], "", "", fresh[0])
                fresh[0] = False
            return step

        return step

    def _add(self, frame: FrameType, line: int, name: str, digest: str, fresh: bool) -> None:
        own = f"{frame.f_code.co_filename}:{line}"
        self.events.append((own, name, digest))
        lines, outer = [own], frame.f_back
        while outer is not None and not is_search(outer.f_code.co_filename):
            if is_users(outer.f_code.co_filename) and outer.f_code.co_qualname not in PLUMBING:
                lines.append(f"{outer.f_code.co_filename}:{outer.f_lineno}")
            outer = outer.f_back
        self.frames.append((frame.f_code, tuple(lines), fresh))


def _digest(array: Any) -> str:
    return hashlib.md5(repr((array.shape, str(array.dtype))).encode() + array.tobytes()).hexdigest()


def first_lines(clean: Callable[[], Any], wrong: Callable[[], Any]) -> set[tuple[str, tuple[str, ...]]]:
    """The first lines at which two runs part, of both; nothing where they are the same."""
    runs = [Steps().run(call) for call in (clean, wrong)]
    again = zip(runs[0].events, Steps().run(clean).events, strict=False)
    noise = {event[:2] for event, other in again if event != other}  # what is another in every run
    pairs = zip(runs[0].events, runs[1].events, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b and not noise & {a[:2], b[:2]}), None)
    if at is None:
        return set()
    found = set()
    exchanged = runs[0].frames[at][0] is not runs[1].frames[at][0] and any(run.frames[at][2] for run in runs)
    for run, other in (runs, runs[::-1]):
        code, lines, _ = run.frames[at]
        own = {line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno}
        own = {f"{code.co_filename}:{line}" for line in own} if exchanged else set()
        found |= {("line", (line, *lines[1:])) for line in own | {lines[0]}}
        found |= {("line", lines) for lines in _alone(run, at, other)}
    return found


def _alone(run: Steps, at: int, other: Steps) -> list[tuple[str, ...]]:
    """Lines of the function that one run alone goes through, until it comes to where the other one is."""
    own = [i for i in range(at, min(at + MANY, len(run.events))) if not run.events[i][1]]
    ends = next((n for n, i in enumerate(own) if run.events[i][0] == other.events[at][0]), len(own))
    code, theirs = run.frames[at][0], {event[0] for event in other.events}
    return [run.frames[i][1] for i in own[:ends] if run.frames[i][0] is code and run.events[i][0] not in theirs]
