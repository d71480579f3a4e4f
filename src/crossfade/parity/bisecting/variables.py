"""Where two halves that run line by line part: functions and variables of the same name, compared in their order.

Ports keep names. So the search goes down the calls: into the first function that is given the same in both halves and
returns something else, to the first of its variables that differs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .host import Function
from .points import Point


@dataclass(frozen=True, eq=False)
class Parting:
    """What a name stands for in both halves where they part first, and where each computed it."""

    name: str
    ours: Point
    theirs: Point
    known: dict[str, np.ndarray]  # what the host's function was given and holds by then
    maker: Function | None = None  # the host's function that returns the value


def first_parting(host: Function, other: Function) -> Parting | None:
    """The first difference of two halves; `host` and `other` are what calls them and computes nothing itself."""
    halves = [max(half.calls, key=lambda call: call.end - call.begin, default=half) for half in (host, other)]
    return parting(*halves)


def parting(host: Function, other: Function) -> Parting | None:
    """The first difference inside two calls that were given the same and return something else."""
    before: dict[str, tuple[int, int]] = {}  # when the last call of a function ended
    for _, ours, theirs, name in sorted(_events(host, other), key=lambda event: event[0]):
        if isinstance(ours, Function) and isinstance(theirs, Function):
            for path in (path for path in ours.given if path in theirs.given):
                a, b = ours.given[path], theirs.given[path]
                if a.shape == b.shape and not equal(a, b):
                    place = Point(ours.begin, f"{path} of {ours.name}", a, ours.lines)
                    there = Point(theirs.begin, f"{path} of {theirs.name}", b, theirs.lines)
                    told = _told(path, place, there, host, other, before.get(name))
                    return replace(told, known=told.known | {n: v for n, v in ours.given.items() if n != path})
            if (apart := returned_apart(ours, theirs)) is not None:
                return parting(ours, theirs) or _told(*apart, ours, theirs)
            hidden = not ours.returned and not theirs.returned  # it may return a function, or write to what it is given
            if hidden and (deeper := parting(ours, theirs)) is not None:
                return deeper
            before[name] = ours.end, theirs.end
        elif isinstance(ours, Point) and isinstance(theirs, Point) and not equal(ours.value, theirs.value):
            return _told(name, ours, theirs, host, other)
    apart = returned_apart(host, other)
    return None if apart is None else _told(*apart, host, other)


def returned_apart(ours: Function, theirs: Function) -> tuple[str, Point, Point] | None:
    """The first result that differs, by name."""
    results = {_path(p): p for p in theirs.returned}
    for point in ours.returned:
        other = results.get(_path(point))
        if other is not None and not equal(point.value, other.value):
            return _path(point) or ours.name, point, other
    return None


def _events(host: Function, other: Function) -> Iterator[tuple[int, Function | Point, Function | Point, str]]:
    """What both have under one name, by JAX's time: calls, and values of variables."""
    (ours, mine), (theirs, its) = _inside(host, other), _inside(other, host)
    for key in (key for key in ours if key in theirs):
        many = len(ours[key]) == len(theirs[key])
        pairs = zip(ours[key], theirs[key], strict=True) if many else [(ours[key][0], theirs[key][0])]
        yield from ((b.begin, a, b, key[0]) for a, b in pairs)
    for name in (name for name in mine if name in its):
        yield from ((y.number, x, y, name) for x, y in _paired(mine[name], its[name]) if x.value.shape == y.value.shape)


def _paired(mine: "Held", its: "Held") -> Iterable[tuple[Point, Point]]:
    """Values of one variable in their order, if both halves have as many: all that were set, or the last one of each
    call. Otherwise the very last."""
    for ours in (mine.every, mine.last):
        for theirs in (its.every, its.last):
            if len(ours) == len(theirs):
                return zip(ours, theirs, strict=True)
    return [(mine.every[-1], its.every[-1])]


@dataclass(eq=False)
class Held:
    """The values of one variable in a function, and in calls that are taken as part of it."""

    every: list[Point] = field(default_factory=list)
    last: list[Point] = field(default_factory=list)  # of each call


Key = tuple[str, tuple[str, ...]]  # name and parameters of a function


def _inside(function: Function, other: Function) -> tuple[dict[Key, list[Function]], dict[str, Held]]:
    """Calls and variables of a function. Calls that the other half has no function for are taken as part of it."""
    known = {_key(call) for part in other.calls for call in part}
    calls: dict[Key, list[Function]] = {}
    variables: dict[str, Held] = {}

    def collect(own: Function) -> None:
        for point in own.held:
            variables.setdefault(point.operation, Held()).every.append(point)
        for point in {point.operation: point for point in own.held}.values():
            variables[point.operation].last.append(point)
        for call in own.calls:
            if call.name[0] != "<" and _key(call) in known:
                calls.setdefault(_key(call), []).append(call)
            else:
                collect(call)

    collect(function)
    for held in variables.values():
        held.every.sort(key=lambda p: p.number)
        held.last.sort(key=lambda p: p.number)
    return calls, variables


def _key(function: Function) -> Key:
    """Without the mark of private functions."""
    return function.name.strip("_"), tuple(name for name in function.parameters if name != "self")


def _path(point: Point) -> str:
    """The name of a result, without that of its function."""
    return point.operation.partition(": ")[2]


def _told(
    name: str, ours: Point, theirs: Point, host: Function, other: Function, after: tuple[int, int] | None = None
) -> Parting:
    held = (own.every for own in _inside(host, other)[1].values())
    known = {p.operation: p.value for points in held for p in points if p.number < ours.number}
    since = (_last(host, ours), _last(other, theirs)) if after is None else after
    apart = ours.value, theirs.value
    ours, theirs = _first_holder(host, ours, name, since[0]), _first_holder(other, theirs, name, since[1])
    if (row := _first_row(*apart)) is not None:
        ours, theirs = _holder_of_row(host, ours, name, row), _holder_of_row(other, theirs, name, row)
        rows = [
            p if p.value.shape == value.shape[1:] else replace(p, value=p.value[row])
            for p, value in zip((ours, theirs), apart, strict=True)
        ]
        if theirs is rows[1]:  # what JAX knows in that row
            ours, theirs = rows
            there = next(own for own in other if theirs in own.held)
            known |= {p.operation: p.value for p in there.held if p.number < theirs.number}
    maker = next((own for own in host if any(ours is p for p in own.returned)), None)
    return Parting(name, ours, theirs, host.given | known, maker)


def _first_row(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    """The first row that differs."""
    if ours.shape != theirs.shape or not ours.ndim or len(ours) < 2:
        return None
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not equal(a, b)), None)


def _holder_of_row(function: Function, point: Point, name: str, row: int) -> Point:
    """The variable whose values were put together, at a row."""
    held: dict[str, list[Point]] = {}
    for part in function:
        for own in part.held:
            if _word(own.operation) == _word(name) and own.value.shape == point.value.shape[1:]:
                held.setdefault(own.operation, []).append(own)
    for points in held.values():
        points.sort(key=lambda p: p.number)
        if len(points) == len(point.value) and equal(np.stack([p.value for p in points]), point.value):
            return points[row]
    return point


def _last(function: Function, point: Point) -> int:
    """When a variable was set before."""
    own = (p.number for p in function.held if p.operation == point.operation and p.number < point.number)
    return max(own, default=function.begin)


def _first_holder(function: Function, point: Point, name: str, after: int) -> Point:
    """Where a value came to be, inside of a function and after a time: it may have been handed on from there. Numbers
    that may be equal by chance must have the same name."""
    held = (p for part in function for p in (*part.held, *part.returned) if after < p.number <= point.number)
    same = [p for p in held if p.value.shape == point.value.shape and equal(p.value, point.value)]
    if np.unique(point.value).size < 3:
        same = [p for p in same if _word(p.operation) == _word(name)]
        point = max((p for p in same if p.operation == name), key=lambda p: p.number, default=point)
        same = [p for p in same if p.number < point.number and p.lines[1:2] == point.lines[:1]]  # called from its line
    return min(same, key=lambda p: p.number, default=point)


def _word(name: str) -> str:
    """The last word of a path."""
    return name.rpartition(" ")[2].rpartition(".")[2]


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """The same numbers in the same shape, but for rounding in float64."""
    if a.shape != b.shape:
        return False
    return bool(np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-9, 1e-12, equal_nan=True))
