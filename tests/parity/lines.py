"""Where a half that runs in Python is another with a bug than without: the first line, or value of a variable.

Halves are run line by line (JAX without `jit`). A function that is exchanged for another is a place as a whole, with
the one it stands for.
"""

import hashlib
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import jax

from crossfade.bridge.source_lines import is_search, is_users, line_text
from crossfade.parity.bisecting.host import _arrays

PLUMBING = ("patched", "patched.<locals>.call", "within.<locals>.<lambda>")
EXCHANGING = ("return patched(right, (",)
"""Pieces of lines by which functions are exchanged for others: those are the places, not the line."""
MANY = 2000  # events
Event = tuple[str, str, str]  # line, variable or "", value


class Steps:
    """Every line of the user's code that is run, every value that a variable comes to hold or a function returns."""

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

    def without(self, code: CodeType) -> "Steps":
        """But for the events of one function."""
        kept = [i for i, (own, _, _) in enumerate(self.frames) if own is not code]
        found = Steps()
        found.events, found.frames = [self.events[i] for i in kept], [self.frames[i] for i in kept]
        return found

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if not is_users(frame.f_code.co_filename) or frame.f_code.co_qualname in PLUMBING or _is_setting(frame):
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
            for path, array in _arrays(value, "return") if event == "return" else ():
                self._add(frame, at[0], path, _digest(array), False)
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


def _is_setting(frame: FrameType | None) -> bool:
    """Whether settings are read, or what is called for it: a setting is no place, its use is."""
    while frame is not None and not is_search(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith("config.py") or frame.f_code.co_name == "settings":
            return True
        frame = frame.f_back
    return False


def _digest(array: Any) -> str:
    return hashlib.md5(repr((array.shape, str(array.dtype))).encode() + array.tobytes()).hexdigest()


def first_lines(clean: Callable[[], Any], wrong: Callable[[], Any]) -> set[tuple[str, tuple[str, ...]]]:
    """The first lines at which two runs part, of both; nothing where they are the same. What is kept from a first run
    on must have been computed before."""
    runs = [Steps().run(call) for call in (clean, wrong)]
    if runs[0].events == runs[1].events:
        return set()
    again = zip(runs[0].events, Steps().run(clean).events, strict=False)
    noise = {event[:2] for event, other in again if event != other}  # what is another in every run
    while True:
        pairs = zip(runs[0].events, runs[1].events, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b and not noise & {a[:2], b[:2]}), None)
        if at is None:
            return set()
        own = [runs[1].events[at][0], *(lines[0] for lines in _alone(runs[1], at, runs[0]))]
        if not any(piece in line_text(line) for piece in EXCHANGING for line in own):
            break
        runs = [run.without(runs[1].frames[at][0]) for run in runs]
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
