"""What a half that runs in Python computes: the values of its variables, line by line."""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import jax
import numpy as np
import torch

from ...bridge.libraries import named_leaves
from ...bridge.source_lines import is_users
from .points import Point

LARGE = 100_000  # elements: variables above are not looked at
MOST = 20_000  # points


class HostValues:
    """Writes down every array and number that a variable of the user's code comes to hold, or a function returns."""

    def __init__(self):
        self.points: dict[int, Point] = {}
        self._seen: dict[tuple[int, str], np.ndarray] = {}
        self._lines: dict[int, int] = {}
        self._frames: list[FrameType] = []  # kept, so that the names of frames stay their own
        self._before: Any = None

    def __enter__(self) -> "HostValues":
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if not is_users(frame.f_code.co_filename) or len(self.points) > MOST:
            return None
        self._frames.append(frame)
        for name, value in frame.f_locals.items():  # arguments are not computed here
            for path, array in _arrays(value, name):
                self._seen[id(frame), path] = array
        self._lines[id(frame)] = frame.f_lineno
        return self._step

    def _step(self, frame: FrameType, event: str, value: Any) -> Any:
        line = self._lines.get(id(frame), frame.f_lineno)
        self._lines[id(frame)] = frame.f_lineno
        for name, held in list(frame.f_locals.items()):
            for path, array in _arrays(held, name):
                before = self._seen.get((id(frame), path))
                if before is None or not _identical(before, array):
                    self._seen[id(frame), path] = array
                    self._add(path, array, frame, line)
        if event == "return":
            for path, array in _arrays(value, ""):
                name = f"return of {frame.f_code.co_name}" + (f": {path}" if path else "")
                self._add(name, array, frame, frame.f_lineno)
        return self._step

    def _add(self, name: str, array: np.ndarray, frame: FrameType, line: int) -> None:
        lines, outer = [f"{frame.f_code.co_filename}:{line}"], frame.f_back
        while outer is not None:
            if is_users(outer.f_code.co_filename):
                lines.append(f"{outer.f_code.co_filename}:{outer.f_lineno}")
            outer = outer.f_back
        number = len(self.points)
        self.points[number] = Point(number, name, array, tuple(lines))


def _arrays(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays and numbers in a variable, by path."""
    if isinstance(value, str | bytes | type) or callable(value):
        return
    if not isinstance(value, bool | int | float | np.ndarray | np.generic | torch.Tensor | dict | tuple | list):
        return
    try:
        named = named_leaves(value)
    except (TypeError, ValueError):
        return
    for path, leaf in named.items() if len(named) <= 200 else ():
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().numpy() if leaf.layout is torch.strided and not leaf.is_complex() else None
        if isinstance(leaf, bool | int | float | np.ndarray | np.generic) and not isinstance(leaf, jax.Array):
            array = np.array(leaf)
            if array.dtype.kind in "biuf" and 0 < array.size <= LARGE:
                yield ".".join(filter(None, (name, path))), array


def _identical(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
