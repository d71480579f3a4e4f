"""Where two halves that run line by line part: functions and variables of the same name, compared in their order.

Ports keep names. So the search goes down the calls: into the first function that is given the same in both halves and
returns something else, to the first of its variables that differs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .host import Function
from .points import Point

Every = tuple[list[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True, eq=False)
class Parting:
    """What a name stands for in both halves where they part first, and where each computed it."""

    name: str
    ours: Point
    theirs: Point
    known: dict[str, np.ndarray]  # what the host's function was given and holds by then
    maker: Function | None = None  # the host's function that returns the value
    every: Every = ([], [])  # the same of all calls of a function, in both halves
    before: np.ndarray | None = None  # what JAX's function was given under the name


def first_parting(host: Function, other: Function) -> Parting | None:
    """The first difference of two halves; `host` and `other` are what calls them and computes nothing itself."""
    ours, theirs = (max(half.calls, key=lambda call: call.end - call.begin, default=half) for half in (host, other))
    if (found := parting(ours, theirs)) is not None:
        return found
    apart = returned_apart(ours, theirs)
    return None if apart is None else _with_another_key(ours, theirs) or _told(*apart, ours, theirs)


def parting(host: Function, other: Function) -> Parting | None:
    """The first difference inside two calls that were given the same, but for what they return."""
    before: dict[str, tuple[int, int]] = {}  # when the last call of a function ended
    for _, ours, theirs, name in sorted(_events(host, other), key=lambda event: event[0]):
        if isinstance(ours, Function) and isinstance(theirs, Function):
            for path in (path for path in ours.given if path in theirs.given):
                a, b = ours.given[path], theirs.given[path]
                if (a.shape == b.shape and not equal(a, b)) or _is_another(host, a, b):
                    place = Point(ours.begin, f"{path} of {ours.name}", a, _given_at(ours, path))
                    there = Point(theirs.begin, f"{path} of {theirs.name}", b, _given_at(theirs, path))
                    told = _told(path, place, there, host, other, before.get(name))
                    known = told.known | {n: v for n, v in ours.given.items() if n != path}
                    return replace(told, known=known, every=_every(host, other, ours, path))
            if (apart := returned_apart(ours, theirs)) is not None and not _is_dropped(ours, theirs):
                if (found := _exchanged(ours, theirs, apart) or parting(ours, theirs)) is not None:
                    return found
                if not _is_switch(ours, theirs):
                    return _with_another_key(ours, theirs) or _told(*apart, ours, theirs)
            hidden = not ours.returned and not theirs.returned  # it may write to what it is given
            if (hidden or ours.makes or theirs.makes) and (deeper := parting(ours, theirs)) is not None:
                return deeper
            before[name] = ours.end, theirs.end
        elif isinstance(ours, Point) and isinstance(theirs, Point) and not equal(ours.value, theirs.value):
            return _told(name, ours, theirs, host, other)
    return None


def _with_another_key(ours: Function, theirs: Function) -> Parting | None:
    """A key that JAX exchanges for another, and the host uses as it is given."""
    held = {point.operation for point in ours.held}
    for point in theirs.held:
        given = ours.given.get(point.operation) if point.operation not in held else None
        if given is not None and given.dtype == np.uint32 and given.shape == point.value.shape == (2,):
            if not equal(given, point.value):
                return Parting(point.operation, Point(ours.begin, point.operation, given, ours.lines), point, {})
    return None


def _is_dropped(ours: Function, theirs: Function) -> bool:
    """Whether what two calls return differs only in what their lines drop: they set the same variables to the same."""
    held = [
        {p.operation: p.value for p in call.parent.held[::-1] if p.where == call.lines[0] and p.number > call.end}
        for call in (ours, theirs)
        if call.parent is not None and call.lines
    ]
    both = [(held[0][name], held[1][name]) for name in held[0] if name in held[1]] if len(held) == 2 else []
    return bool(both) and all(equal(a, b) for a, b in both)


def _is_switch(ours: Function, theirs: Function) -> bool:
    """Whether one function tells both halves, by yes or no, what is not given to it: they part where it is used."""
    words = all(p.value.size == 1 and p.value.dtype.kind == "b" for p in ours.returned)
    return ours.code is theirs.code and words


def _is_another(host: Function, ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether one half is given other data, of another shape: what the host has too, elsewhere."""
    if ours.shape == theirs.shape or theirs.dtype.kind != "f" or theirs.size < 3 or np.ptp(theirs) == 0:
        return False
    return _has(host, theirs)


def _has(function: Function, value: np.ndarray) -> bool:
    """Whether a half has a value anywhere."""
    while function.parent is not None:
        function = function.parent
    values = (v for part in function for v in (*part.given.values(), *(p.value for p in (*part.held, *part.returned))))
    return any(v.shape == value.shape and equal(v, value) for v in values)


def _every(host: Function, other: Function, call: Function, path: str) -> Every:
    """What a parameter was in all calls of a function, in both halves."""
    halves = (_inside(*pair)[0].get(_key(call), []) for pair in ((host, other), (other, host)))
    ours, theirs = ([own.given[path] for own in calls if path in own.given] for calls in halves)
    return (ours, theirs) if len(ours) == len(theirs) else ([], [])


def _given_at(function: Function, path: str) -> tuple[str, ...]:
    """The lines that gave a function a value: what it has not as a parameter it has from where it was made. A value is
    followed by its name, through callers that were given it."""
    if path.split(".")[0] not in function.parameters and function.maker is not None:
        return function.maker.lines
    value, at = function.given[path], function
    alike = lambda name, other: _word(name) == _word(path) and equal(other, value)
    while at.parent is not None:
        held = [p for p in at.parent.held if p.number < at.begin and alike(p.operation, p.value)]
        if held:
            return held[-1].lines
        if not at.parent.lines or not any(alike(name, other) for name, other in at.parent.given.items()):
            break
        at = at.parent
    return at.lines


def _exchanged(ours: Function, theirs: Function, apart: tuple[str, Point, Point]) -> Parting | None:
    """Functions that others made, by another name: they part where those were called."""
    maker, other = ours.maker, theirs.maker
    if maker is None or other is None or _qualname(maker) == _qualname(other):
        return None
    path, mine, its = apart
    name = f"what {maker.name} gives for {other.name}" if path == ours.name else path
    mine, its = (
        replace(mine, operation=maker.name, lines=maker.lines),
        replace(its, operation=other.name, lines=other.lines),
    )
    return Parting(name, mine, its, ours.given)


def _qualname(function: Function) -> str:
    return "" if function.code is None else function.code.co_qualname


def returned_apart(ours: Function, theirs: Function) -> tuple[str, Point, Point] | None:
    """The first result that differs, by name."""
    results = {_path(p): p for p in theirs.returned}
    for point in ours.returned:
        other = results.get(_path(point))
        if other is not None and not equal(point.value, other.value):
            if point.value.shape == other.value.shape or _is_given_alike(ours, theirs):
                return _path(point) or ours.name, point, other
    return None


def _is_given_alike(ours: Function, theirs: Function) -> bool:
    """Whether two calls were given the same, as far as they have parameters of the same name."""
    return all(equal(value, theirs.given[path]) for path, value in ours.given.items() if path in theirs.given)


def _events(host: Function, other: Function) -> Iterator[tuple[int, Function | Point, Function | Point, str]]:
    """What both have under one name, by JAX's time: calls, and values of variables."""
    (ours, mine), (theirs, its) = _inside(host, other), _inside(other, host)
    for key in (key for key in ours if key in theirs):
        many = len(ours[key]) == len(theirs[key])
        pairs = zip(ours[key], theirs[key], strict=True) if many else [(ours[key][0], theirs[key][0])]
        pairs = [pair for pair in pairs if many or _is_given_alike(*pair)]
        yield from ((b.begin, a, b, key[0]) for a, b in pairs)
    for name in (name for name in mine if name in its):
        yield from ((y.number, x, y, name) for x, y in _paired(mine[name], its[name]) if x.value.shape == y.value.shape)


def _paired(mine: "Held", its: "Held") -> Iterable[tuple[Point, Point]]:
    """Values of one variable in their order, if both halves have as many: all that were set, or those of the functions
    themselves, or the last one of each call. Otherwise the very last."""
    ways = (mine.every, its.every), (mine.own, its.own), (mine.every, its.last), (mine.last, its.every)
    for ours, theirs in (*ways, (mine.last, its.last)):
        if ours and len(ours) == len(theirs):
            return zip(ours, theirs, strict=True)
    return [(mine.every[-1], its.every[-1])]


@dataclass(eq=False)
class Held:
    """The values of one variable in a function, and in calls that are taken as part of it."""

    every: list[Point] = field(default_factory=list)
    last: list[Point] = field(default_factory=list)  # of each call
    own: list[Point] = field(default_factory=list)  # of the function itself


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
    for point in function.held:
        variables[point.operation].own.append(point)
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
    holder = _first_holder(host, ours, name, since[0])
    ours = ours if _is_elsewhere(other, ours) and _word(holder.operation) != _word(name) else holder
    theirs = theirs if _is_elsewhere(host, theirs) else _first_holder(other, theirs, name, since[1])
    if (more := _one_more(host, other, theirs)) is not None:
        theirs = replace(theirs, operation=f"return of {more.name}", lines=more.lines)
    if (row := _first_row(*apart)) is not None:
        ours, theirs = _holder_of_row(host, ours, name, row), _holder_of_row(other, theirs, name, row)
        rows = [
            p if p.value.shape == value.shape[1:] else replace(p, value=np.asarray(p.value[row]))
            for p, value in zip((ours, theirs), apart, strict=True)
        ]
        if theirs is rows[1]:  # what JAX knows in that row
            ours, theirs = rows
            there = next(own for own in other if theirs in own.held)
            known |= {p.operation: p.value for p in there.held if p.number < theirs.number}
    maker = next((own for own in host if any(ours is p for p in own.returned)), None)
    given = [value for path, value in other.given.items() if _word(path) == _word(name)]
    return Parting(name, ours, theirs, host.given | known, maker, before=next(iter(given), None))


def _one_more(host: Function, other: Function, point: Point) -> Function | None:
    """A call that JAX makes more often than the host, and that led to a value: the outermost."""
    ours, theirs = _inside(host, other)[0], _inside(other, host)[0]
    for key, calls in theirs.items():
        for call in calls[1:] if key in ours and len(calls) > len(ours[key]) else ():
            if any(point is own for part in call for own in (*part.held, *part.returned)):
                return call
    return None


def _is_elsewhere(half: Function, point: Point) -> bool:
    """Whether the other half has a value too: then they part where it is taken, not where it came to be."""
    return is_telling(point.value) and _has(half, point.value)


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
    if not is_telling(point.value):
        if point.operation == name or not point.operation.startswith(f"{name} of "):  # that is given to a call
            same = [p for p in same if _word(p.operation) == _word(name)]
        else:
            return point
        point = max((p for p in same if p.operation == name), key=lambda p: p.number, default=point)
        same = [p for p in same if p.number < point.number and p.lines[1:2] == point.lines[:1]]  # called from its line
    return min(same, key=lambda p: p.number, default=point)


def is_telling(value: np.ndarray) -> bool:
    """Whether equal numbers are hardly by chance."""
    return np.unique(value).size > 2


def _word(name: str) -> str:
    """The last word of a path."""
    return name.rpartition(" ")[2].rpartition(".")[2]


def equal(a: np.ndarray | np.generic, b: np.ndarray | np.generic) -> bool:
    """The same numbers in the same shape, but for rounding in float64."""
    if a.shape != b.shape:
        return False
    return bool(np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-9, 1e-12, equal_nan=True))
