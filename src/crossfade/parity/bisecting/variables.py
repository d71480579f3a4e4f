"""Where two halves that run line by line part: functions and variables of the same name, compared in their order.

Ports keep names. So the search goes down the calls: into the first function that is given the same in both halves and
returns something else, to the first of its variables that differs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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


def parting(host: Function, other: Function) -> Parting | None:
    """The first difference inside two calls that were given the same and return something else."""
    agreed = host.begin, other.begin
    for _, ours, theirs, name in sorted(_events(host, other), key=lambda event: event[0]):
        if isinstance(ours, Function) and isinstance(theirs, Function):
            for path in (path for path in ours.given if path in theirs.given):
                a, b = ours.given[path], theirs.given[path]
                if a.shape == b.shape and not equal(a, b):
                    place = Point(ours.begin, f"{path} of {ours.name}", a, ours.lines)
                    there = Point(theirs.begin, f"{path} of {theirs.name}", b, theirs.lines)
                    return _told(path, place, there, host, other, agreed)
            if (apart := returned_apart(ours, theirs)) is not None:
                deeper = parting(ours, theirs)
                return _told(*apart, ours, theirs, (ours.begin, theirs.begin)) if deeper is None else deeper
            agreed = max(agreed[0], ours.end), max(agreed[1], theirs.end)
        elif isinstance(ours, Point) and isinstance(theirs, Point):
            if not equal(ours.value, theirs.value):
                return _told(name, ours, theirs, host, other, agreed)
            agreed = max(agreed[0], ours.number), max(agreed[1], theirs.number)
    apart = returned_apart(host, other)
    return None if apart is None else _told(*apart, host, other, agreed)


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
        a, b = mine[name], its[name]
        pairs = zip(a, b, strict=True) if len(a) == len(b) else [(a[-1], b[-1])]
        yield from ((y.number, x, y, name) for x, y in pairs if x.value.shape == y.value.shape)


Key = tuple[str, tuple[str, ...]]  # name and parameters of a function


def _inside(function: Function, other: Function) -> tuple[dict[Key, list[Function]], dict[str, list[Point]]]:
    """Calls and variables of a function. Calls that the other half has no function for are taken as part of it; of
    their variables the last value counts."""
    known = {_key(call) for part in other.calls for call in part}
    calls: dict[Key, list[Function]] = {}
    held = list(function.held)

    def collect(own: list[Function]) -> None:
        for call in own:
            if call.name[0] != "<" and _key(call) in known:
                calls.setdefault(_key(call), []).append(call)
            else:
                held.extend({point.operation: point for point in call.held}.values())
                collect(call.calls)

    collect(function.calls)
    variables: dict[str, list[Point]] = {}
    for point in sorted(held, key=lambda p: p.number):
        variables.setdefault(point.operation, []).append(point)
    return calls, variables


def _key(function: Function) -> Key:
    """Without the mark of private functions."""
    return function.name.strip("_"), tuple(name for name in function.parameters if name != "self")


def _path(point: Point) -> str:
    """The name of a result, without that of its function."""
    return point.operation.partition(": ")[2]


def _told(name: str, ours: Point, theirs: Point, host: Function, other: Function, agreed: tuple[int, int]) -> Parting:
    known = dict(host.given) | {p.operation: p.value for p in host.held if p.number < ours.number}
    return Parting(name, _first_holder(host, ours, agreed[0]), _first_holder(other, theirs, agreed[1]), known)


def _first_holder(function: Function, point: Point, after: int) -> Point:
    """Where a value came to be, inside of a function and after a time: it may have been handed on from there."""
    held = (p for part in function for p in (*part.held, *part.returned) if after < p.number <= point.number)
    same = [p for p in held if p.value.shape == point.value.shape and equal(p.value, point.value)]
    return min(same, key=lambda p: p.number, default=point)


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """The same numbers in the same shape, but for rounding in float64."""
    if a.shape != b.shape:
        return False
    return bool(np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-9, 1e-12, equal_nan=True))
