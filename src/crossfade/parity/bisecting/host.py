"""What a half that runs in Python computes: the values of its variables, line by line, function by function.

A JAX half runs so too, without `jit`: its arrays are then numbers, but for those inside of `vmap` and the like.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.core import Tracer

from ...bridge.libraries import named_leaves
from ...bridge.source_lines import is_search, is_users
from .points import Point

LARGE = 100_000  # elements: variables above are not looked at
MOST = 60_000  # points


@dataclass(eq=False)
class Function:
    """One call of a function of the user's: what it was given, what its variables came to hold, what it called and
    what it gave. `begin` and `end` are times, and the numbers of points are: in their order all was computed."""

    name: str
    begin: int
    parameters: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # the caller's
    given: dict[str, np.ndarray] = field(default_factory=dict)
    held: list[Point] = field(default_factory=list)
    calls: list["Function"] = field(default_factory=list)
    returned: list[Point] = field(default_factory=list)
    end: int = sys.maxsize
    code: CodeType | None = None
    parent: "Function | None" = None
    makes: bool = False  # it returns functions
    maker: "Function | None" = None  # the call that returned this function

    def __iter__(self) -> Iterator["Function"]:
        """With all that is called from it."""
        yield self
        for call in self.calls:
            yield from call


class Enough(Exception):
    """More values than are looked at."""


class HostValues:
    """Writes down every array and number that a variable of the user's code comes to hold, or a function returns. With
    `stop` what runs is ended by `Enough` when there are very many: without `jit` it may take long."""

    def __init__(self, *, stop: bool = False):
        self.stop = stop
        self.points: dict[int, Point] = {}
        self.root = Function("", 0)
        self._seen: dict[tuple[int, str], np.ndarray] = {}
        self._objects: dict[tuple[int, str], Any] = {}  # what variables hold
        self._lines: dict[int, int] = {}
        self._frames: list[FrameType] = []  # kept, so that the names of frames stay their own
        self._functions: dict[int, Function] = {}
        self._makers: dict[FunctionType, Function] = {}  # the first call that returned a function
        self._time = 0
        self._before: Any = None

    def __enter__(self) -> "HostValues":
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _now(self) -> int:
        self._time += 1
        return self._time

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if not is_users(frame.f_code.co_filename):
            return None
        if len(self.points) > MOST:
            if self.stop:
                raise Enough
            return None
        if id(frame) in self._functions:  # a generator goes on
            return self._step
        self._frames.append(frame)
        code = frame.f_code
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        own = Function(code.co_name, self._now(), parameters, _lines(frame.f_back), code=code)
        own.maker = self._maker(frame)
        for name, value in frame.f_locals.items():  # arguments are not computed here
            self._objects[id(frame), name] = value
            for path, array in _arrays(value, name):
                self._seen[id(frame), path] = own.given[path] = array
        self._functions[id(frame)] = own
        own.parent = self._caller(frame)
        own.parent.calls.append(own)
        self._lines[id(frame)] = frame.f_lineno
        return self._step

    def _maker(self, frame: FrameType) -> Function | None:
        """The call that made the function of a frame, if the caller has only that one of its kind."""
        caller = {} if frame.f_back is None else frame.f_back.f_locals
        own = {f for f in caller.values() if isinstance(f, FunctionType) and f.__code__ is frame.f_code}
        return self._makers.get(own.pop()) if len(own) == 1 else None

    def _caller(self, frame: FrameType) -> Function:
        outer = frame.f_back
        while outer is not None:
            if id(outer) in self._functions:
                return self._functions[id(outer)]
            outer = outer.f_back
        return self.root

    def _step(self, frame: FrameType, event: str, value: Any) -> Any:
        line = self._lines.get(id(frame), frame.f_lineno)
        self._lines[id(frame)] = frame.f_lineno
        own = self._functions[id(frame)]
        for name, held in list(frame.f_locals.items()):
            known = self._objects.get((id(frame), name), self)
            if known is held and isinstance(held, jax.Array | bool | int | float):
                continue  # it cannot have changed
            self._objects[id(frame), name] = held
            for path, array in _arrays(held, name):
                before = self._seen.get((id(frame), path))
                if known is not held or before is None or not _identical(before, array):
                    self._seen[id(frame), path] = array
                    own.held.append(self._add(path, array, frame, line))
        if event == "return":
            for path, array in _arrays(value, ""):
                name = f"return of {frame.f_code.co_name}" + (f": {path}" if path else "")
                own.returned.append(self._add(name, array, frame, frame.f_lineno))
            for function in _made(value):
                own.makes = True
                self._makers.setdefault(function, own)
            own.end = self._now()
        return self._step

    def _add(self, name: str, array: np.ndarray, frame: FrameType, line: int) -> Point:
        number = self._now()
        point = Point(number, name, array, (f"{frame.f_code.co_filename}:{line}", *_lines(frame.f_back)))
        self.points[number] = point
        return point


def _lines(frame: FrameType | None) -> tuple[str, ...]:
    """The user's lines from a frame outwards."""
    lines = []
    while frame is not None and not is_search(frame.f_code.co_filename):
        if is_users(frame.f_code.co_filename):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(lines)


def _arrays(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays and numbers in a variable, by path."""
    if isinstance(value, str | bytes | type) or (callable(value) and not isinstance(value, jax.Array)):
        return
    kinds = bool | int | float | np.ndarray | np.generic | torch.Tensor | jax.Array | dict | tuple | list
    if not isinstance(value, kinds):
        return
    try:
        named = named_leaves(value)
    except (TypeError, ValueError):
        return
    for path, leaf in named.items() if len(named) <= 200 else ():
        if (array := _array(leaf)) is not None and array.dtype.kind in "biuf" and 0 < array.size <= LARGE:
            yield ".".join(filter(None, (name, path))), array


def _made(value: Any) -> Iterator[FunctionType]:
    """The functions in what a function returns."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, dict | tuple | list) and len(value) <= 200:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _made(part)


def _array(leaf: Any) -> np.ndarray | None:
    if isinstance(leaf, Tracer):
        return None
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().numpy().copy() if leaf.layout is torch.strided and not leaf.is_complex() else None
    if isinstance(leaf, jax.Array):
        keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if keys else leaf)
    return np.array(leaf) if isinstance(leaf, bool | int | float | np.ndarray | np.generic) else None


def _identical(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
