"""Where values part: the first torch call whose inputs JAX has too and whose result it has not.

A call that only computes in another way is no bug: JAX has the same numbers again further on. So the search goes from
what differs back to values that JAX has, and a call is guilty when the difference vanishes once it gives what one of
JAX's equations gave.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .causes import Cause, put, substitute, usual_causes
from .pairing import EQUAL, Index, distance, multiset
from .points import Point, ancestors
from .trial import Leaf, Trial, WatchedSide
from .watching import Call, Change

CALLS, CANDIDATES = 40, 10  # places, and JAX values at each, that are tried
ATTRIBUTES = ("grad", "data")  # calls that compute nothing
OTHERS = 60  # values that are tried for an operand


@dataclass(frozen=True, eq=False)
class Guilty:
    """A call whose result must be another for the difference to vanish, and JAX's value there."""

    call: Call
    point: Point
    jax: Point | None
    whole: bool  # the difference vanishes, or only what follows the call agrees


@dataclass(frozen=True, eq=False)
class Blamed:
    """A cause and the point it belongs to."""

    point: Point
    cause: Cause


class Values:
    """The values of both halves at one level, paired."""

    def __init__(self, trial: Trial):
        self.trial = trial
        self.found, side = trial.run(write=True)
        self.side: WatchedSide = side
        self.watch = side.watch
        self.points, self.calls = self.watch.points, self.watch.calls
        self.program, self.jax_points = trial.equations()
        self.jax_index = Index(self.jax_points.values(), parts=True)

    @cached_property
    def matched(self) -> dict[int, list[int]]:
        """The JAX points of each torch point; inputs are the same by definition."""
        return {n: self.jax_index.find(point.value) for n, point in self.points.items()}

    def has_partner(self, number: int) -> bool:
        """Whether JAX has the value of a torch point."""
        return self.points[number].operation in ("input", "constant") or bool(self.matched[number])

    @cached_property
    def only_in_jax(self) -> set[int]:
        """JAX points that torch has not."""
        index = Index(self.points.values(), parts=True)
        return {n for n, point in self.jax_points.items() if point.lines and not index.find(point.value)}

    @cached_property
    def differing(self) -> list[Leaf]:
        """What differs in the end."""
        return self.trial.differences(self.found)

    @cached_property
    def roots(self) -> list[int]:
        """The torch points of what differs."""
        found = []
        for quantity, name in self.differing:
            tensor = self.side.results.get((quantity, name))
            if tensor is None and self.side.module is not None:
                tensor = dict(self.side.module.state_dict(keep_vars=True)).get(name)
            number = self.watch.number_of(tensor)
            found += [] if number is None else [number]
        return list(dict.fromkeys(found))

    @cached_property
    def region(self) -> set[int]:
        """Points without partner on the way to what differs."""
        found, waiting = set(), list(self.roots)
        while waiting:
            number = waiting.pop()
            if number in found or (self.has_partner(number) and number not in self.roots):
                continue
            found.add(number)
            waiting += self.points[number].reads
        return found

    @cached_property
    def parametric(self) -> set[int]:
        """Points that are parameters, or computed from parameters alone."""
        found: set[int] = set()
        for number, point in self.points.items():
            if point.name and not point.name.startswith("batch"):
                found.add(number)
            elif point.reads and found.issuperset(point.reads):
                found.add(number)
        return found

    @cached_property
    def suspects(self) -> list[tuple[Call, Point]]:
        """Calls of the region in order, those first whose inputs JAX has."""
        own = [self.points[n] for n in sorted(self.region) if self.points[n].call in self.calls]
        own = [point for point in own if point.operation not in ATTRIBUTES]
        first = [p for p in own if all(self.has_partner(n) for n in p.reads)]
        rest = [p for p in own if p not in first]
        return [(self.calls[p.call], p) for p in (*first, *rest)][:CALLS]

    # Where

    def guilty(self) -> Guilty | None:
        """The first call that, given one of JAX's values, makes the difference vanish."""
        for call, point in self.suspects:
            for candidate in self._candidates(point):
                if self.trial.heals({call.number: self._substitute(call, point, candidate)}):
                    return Guilty(call, point, candidate, True)
        return None

    def partly_guilty(self) -> Guilty | None:
        """The first call after which, given one of JAX's values, the next calls agree: others differ later."""
        for call, point in self.suspects[:8]:
            readers = [p for p in self.points.values() if point.number in p.reads and p.number in self.region]
            for candidate in self._candidates(point) if readers else ():
                if not self.sources(candidate.number) & set(point.reads):
                    continue
                change = {call.number: self._substitute(call, point, candidate)}
                done = self.trial.attempt(change, write=True)
                if done is None:
                    continue
                _, side = done
                after = [p for own in readers if (p := side.watch.points.get(own.number)) is not None]
                if any(
                    np.ptp(p.value) > 0 and self.jax_index.find(p.value) for p in after if p.value.dtype.kind == "f"
                ):
                    return Guilty(call, point, candidate, False)
        return None

    def _candidates(self, point: Point) -> Iterator[Point]:
        size = point.value.size
        apart = {n: d for d, n in self.jax_index.nearest(point.value, self.only_in_jax)}
        same = [n for n in sorted(self.only_in_jax) if self.jax_points[n].value.size == size]
        related = lambda n: bool(self.sources(n) & set(point.reads))
        shaped = lambda n: self.jax_points[n].value.shape == point.value.shape
        kept = sorted(same, key=lambda n: (not related(n), not shaped(n), apart.get(n, math.inf)))[:CANDIDATES]
        for number in point.reads:  # what JAX does not do to a value
            skipped = [n for n in self.matched.get(number, ()) if self.jax_points[n].value.shape == point.value.shape]
            kept += [n for n in skipped[:1] if n not in kept]
        yield from (self.jax_points[n] for n in kept)

    def _substitute(self, call: Call, point: Point, candidate: Point) -> Change:
        return substitute(candidate.value, call.points.index(point.number))

    # Why

    def cause(self, guilty: Guilty) -> "Blamed | None":
        """What makes the guilty call give JAX's numbers. An operand whose numbers JAX has only in another order may
        be wrong itself: that is looked at first, and is then the place."""
        for number in guilty.point.reads:
            maker = self.calls.get(self.points[number].call)
            if maker is not None and guilty.whole and not self._in_order(number):
                for cause in usual_causes(maker):
                    if self.trial.heals({maker.number: cause.change}):
                        return Blamed(self.points[number], cause)
        target = None if guilty.jax is None else guilty.jax.value
        for cause in usual_causes(guilty.call):
            if self._explains(guilty.call, cause, target, guilty.whole):
                return Blamed(guilty.point, cause)
        for cause in (
            *self._in_jax_layout(guilty.call),
            *self._moved_factor(guilty.call),
            *self._other_operands(guilty.call),
        ):
            if self._explains(guilty.call, cause, target, guilty.whole):
                return Blamed(guilty.point, cause)
        return None

    def _in_order(self, number: int) -> bool:
        """Whether JAX has a value in the same order too."""
        if self.points[number].operation in ("input", "constant"):
            return True
        own = self.points[number].value.astype(np.float64).ravel()
        partners = (self.jax_points[n].value.astype(np.float64).ravel() for n in self.matched[number])
        return any(p.size != own.size or distance(p, own) <= EQUAL for p in partners)

    def _explains(self, call: Call, cause: Cause, target: np.ndarray | None, whole: bool) -> bool:
        done = self.trial.attempt({call.number: cause.change})
        if done is None:
            return False
        found, side = done
        if whole:
            return not self.trial.differences(found)
        given = side.watch.changed.get(call.number)
        return target is not None and isinstance(given, Tensor) and _equal(given.detach().numpy(), target)

    def cause_anywhere(self) -> tuple[Call, Point, Cause] | None:
        """A usual cause at a suspect: at all calls of its line, its function or its module, or at the call alone."""
        for scope in ("line", "function", "module", "call"):
            seen = set()
            for call, point in (*self._last, *self.suspects[:12]):
                group = [c for c in self.calls.values() if c.name == call.name and _alike(c, call, scope)]
                key = tuple(c.number for c in group)
                if (len(group) < 2 and scope != "call") or key in seen:
                    continue
                seen.add(key)
                for cause in usual_causes(call):
                    if self.trial.heals({c.number: cause.change for c in group}):
                        return call, point, cause
        return None

    @cached_property
    def _last(self) -> list[tuple[Call, Point]]:
        """The calls that gave what differs."""
        own = [self.points[n] for n in self.roots if self.points[n].call in self.calls]
        return [(self.calls[p.call], p) for p in own if p.operation not in ATTRIBUTES][:4]

    def stale(self) -> tuple[Call, Point, Cause] | None:
        """Parameters as they were before the update, at all calls of a line."""
        for call, point in self.suspects[:12] if self.trial.level.startswith("update") else ():
            changes = {}
            for other in (c for c in self.calls.values() if c.name == call.name and _alike(c, call, "line")):
                for at, operand in enumerate(other.args):
                    name = self.watch.parameter_of(operand) if at and isinstance(operand, Tensor) else None
                    if name is not None:
                        changes[other.number] = put(at, torch.as_tensor(self.trial.weights[name]))
            if changes and self.trial.heals(changes):
                text = f"an operand of {call.name}: JAX reads the parameters from before the update"
                return call, point, Cause("operand", text, next(iter(changes.values())))
        return None

    def exchanged(self) -> tuple[Call, Point, Cause] | None:
        """Two calls of one value each, one after the other: in JAX the second comes first."""
        for call, point in self.suspects[:8]:
            for after in (c for c in self.calls.values() if point.number in c.reads):
                first, second = call, after
                if not (_is_unary(first) and _is_unary(second)) or first.number == second.number:
                    continue

                def late(f, a, k, own=first):
                    return _again(own, f(*a, **k))

                changes = {first.number: lambda f, a, k: a[0], second.number: late}
                if self.trial.heals(changes):
                    text = f"the order: torch {first.name} then {second.name}, JAX {second.name} then {first.name}"
                    return call, point, Cause("order", text, late)
        return None

    def _in_jax_layout(self, call: Call) -> Iterator[Cause]:
        """Operands whose elements stand in another order in JAX."""
        for at, operand in enumerate(call.args):
            number = self.watch.number_of(operand)
            if number is None:
                continue
            own = self.points[number].value.reshape(-1)
            for partner in self.matched[number]:
                value = self.jax_points[partner].value
                if value.size == own.size and not _equal(value.reshape(-1), own):
                    numbers = torch.as_tensor(value.reshape(operand.shape).copy()).to(operand.dtype)
                    text = f"the elements of operand {at + 1} of {call.name} stand in another order in JAX"
                    yield Cause("layout", text, put(at, numbers))

    def _moved_factor(self, call: Call) -> Iterator[Cause]:
        """c x - y and x - c y: a factor on the other operand."""
        if call.name not in ("add", "sub") or len(call.args) < 2:
            return
        for at in (0, 1):
            number = self.watch.number_of(call.args[at])
            maker = None if number is None else self.calls.get(self.points[number].call)
            if maker is None or maker.name not in ("mul", "rmul", "div") or len(maker.args) != 2:
                continue
            x, factor = maker.args if isinstance(maker.args[0], Tensor) else maker.args[::-1]
            if isinstance(factor, int | float):
                factor = 1 / factor if maker.name == "div" else factor

                def change(f, a, k, x=x, factor=factor, at=at):
                    pair = (x, factor * a[1]) if at == 0 else (factor * a[0], x)
                    return f(*pair, *a[2:], **k)

                text = f"the factor {factor:g}: torch on operand {at + 1} of {call.name}, JAX on the other"
                yield Cause("factor", text, change)

    def _other_operands(self, call: Call) -> Iterator[Cause]:
        """Another value of the same shape for one operand: inputs first, then what was computed before."""
        for at, operand in enumerate(call.args):
            if not isinstance(operand, Tensor):
                continue
            own = self.watch.number_of(operand)
            before = [p for p in self.points.values() if p.number < min(call.points) and p.number != own]
            alike = [p for p in before if p.value.shape == tuple(operand.shape) and p.number in self._in_jax]
            alike = [p for p in alike if p.value.dtype.kind == _kind(operand)]
            named = [p for p in alike if p.name]
            others = [p for p in alike if not p.name][-OTHERS:]
            for point in (*named, *reversed(others)):
                text = f"operand {at + 1} of {call.name}: torch {self.describe(own)}, JAX {self.describe(point.number)}"
                yield Cause("operand", text, put(at, torch.as_tensor(point.value.copy()).to(operand.dtype)))

    @cached_property
    def _in_jax(self) -> set[int]:
        return {n for n in self.points if self.has_partner(n)}

    # Words

    def describe(self, number: int | None) -> str:
        """A torch point in words: its name, or the operation and line that gave it."""
        if number is None:
            return "a constant"
        point = self.points[number]
        if point.name:
            return point.name
        place = f" (line {point.where.rpartition(':')[2]})" if point.where else ""
        return f"the result of {point.operation}{place}"

    def returned(self) -> tuple[Leaf, Point, Point | None] | None:
        """A result that JAX gives although torch has it elsewhere: the halves return different values."""
        torch_index = Index(p for p in self.points.values() if p.call in self.calls)
        for quantity, name in self.differing:
            theirs = self.trial.expected.get(quantity, {}).get(name)
            if theirs is None or quantity not in ("info", "metrics", "output", "loss") or theirs.size == 0:
                continue
            if theirs.dtype.kind != "f" or np.ptp(theirs) == 0 and theirs.size > 1:
                continue
            if found := torch_index.find(theirs):
                number = self.watch.number_of(self.side.results.get((quantity, name)))
                return (quantity, name), self.points[found[0]], None if number is None else self.points[number]
        return None

    def sources(self, number: int) -> set[int]:
        """The torch points that a JAX point was computed from: the nearest that both halves have."""
        back = self._torch_of
        found, waiting = set(), list(self.jax_points[number].reads)
        while waiting:
            at = waiting.pop()
            if at in back:
                found.add(back[at])
            elif at in self.jax_points:
                waiting += self.jax_points[at].reads
        return found

    @cached_property
    def _torch_of(self) -> dict[int, int]:
        named = {p.name: p.number for p in self.points.values() if p.name}
        found = {n: named[p.name] for n, p in self.jax_points.items() if p.name in named}
        for number, partners in sorted(self.matched.items(), reverse=True):
            found |= {partner: number for partner in partners if not self.jax_points[partner].name}
        return found

    def operands_apart(self, guilty: Guilty) -> str:
        """In words, when the two places read different values."""
        if guilty.jax is None:
            return ""
        ours = {n for n in guilty.point.reads}
        theirs = self.sources(guilty.jax.number)
        wide = {m for n in ours for m in ancestors(self.points, n)}
        more = [self.describe(n) for n in sorted(theirs - wide)][:3]
        fewer = [self.describe(n) for n in sorted(ours - {m for n in theirs for m in ancestors(self.points, n)})][:3]
        words = [f"JAX reads {', '.join(more)}"] if more else []
        words += [f"torch reads {', '.join(fewer)}"] if fewer else []
        return "; ".join(words)

    def read_in_jax_alone(self, guilty: Guilty) -> str:
        """Inputs, by name, that only JAX reads at the place."""
        if guilty.jax is None:
            return ""
        wide = {m for n in guilty.point.reads for m in ancestors(self.points, n)}
        return ", ".join(
            self.points[n].name for n in sorted(self.sources(guilty.jax.number) - wide) if self.points[n].name
        )

    def nearest(self, point: Point) -> Point | None:
        """The JAX value nearest to one of torch, among those that torch has not."""
        near = self.jax_index.nearest(point.value, self.only_in_jax)
        return self.jax_points[near[0][1]] if near else None


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.size != b.size:
        return False
    if a.shape == b.shape:
        return distance(np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()) <= EQUAL
    x, y = multiset(a), multiset(b)
    return x.size == y.size and distance(x, y) <= EQUAL


def _alike(one: Call, other: Call, scope: str) -> bool:
    if scope == "line":
        return one.line == other.line and one.lines[:1] == other.lines[:1]
    if scope == "module":
        return bool(one.module) and one.module == other.module
    return scope == "function" or one.number == other.number


def _is_unary(call: Call) -> bool:
    x, out = call.args[0] if call.args else None, call.tensor
    return isinstance(x, Tensor) and out is not None and x.shape == out.shape and out is not x


def _again(call: Call, x: Tensor) -> Tensor:
    """A recorded call on another first argument."""
    function = getattr(torch.nn.functional, call.name, None) or getattr(torch, call.name)
    return function(x, *call.args[1:], **call.kwargs)


def _kind(tensor: Tensor) -> str:
    return "f" if tensor.is_floating_point() else "b" if tensor.dtype is torch.bool else "i"
