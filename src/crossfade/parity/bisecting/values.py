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

from .causes import substitute
from .pairing import Index, same_numbers
from .points import Point, ancestors
from .trial import Leaf, Trial, WatchedSide
from .watching import Call, Change

CALLS, CANDIDATES = 40, 10  # places, and JAX values at each, that are tried
ATTRIBUTES = ("grad", "data")  # calls that compute nothing
MORE = 12  # places after one that heals by a value which JAX computes from something else
PASSING = ("bool", "to", "float", "double", "long", "int", "squeeze", "unsqueeze", "view", "reshape", "clone", "detach")
"""Operations that hand a value on."""


LAYOUTS = ("view", "reshape", "flatten", "unflatten", "permute", "transpose", "swapaxes", "movedim")
"""Operations that show the same numbers in another layout: JAX seems to have their results, whatever their order is."""


@dataclass(frozen=True, eq=False)
class Guilty:
    """A call whose result must be another for the difference to vanish, and JAX's value there."""

    call: Call
    point: Point
    jax: Point | None
    whole: bool  # the difference vanishes, or only what follows the call agrees


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
        """Calls of the region in order, those first whose inputs JAX has, and last those inside of an optimiser."""
        own = [self.points[n] for n in sorted(self.region) if self.points[n].call in self.calls]
        own = [point for point in own if point.operation not in ATTRIBUTES]
        first = [p for p in own if all(self.has_partner(n) for n in p.reads)]
        rest = [p for p in own if p not in first]
        found = [(self.calls[p.call], p) for p in (*first, *rest)]
        return sorted(found, key=lambda suspect: suspect[0].by_optimizer)[:CALLS]

    # Where

    def guilty(self) -> Guilty | None:
        """The first call that, given one of JAX's values, makes the difference vanish; those first that JAX computes
        from what the call reads."""
        unrelated: Guilty | None = None
        for tried, (call, point) in enumerate(self.suspects):
            if unrelated is not None and tried > MORE:
                break
            for candidate in self._candidates(point):
                related = self._is_related(candidate, point)
                if (related or unrelated is None) and self.trial.heals(
                    {call.number: self._substitute(call, point, candidate)}
                ):
                    if related:
                        return Guilty(call, point, candidate, True)
                    unrelated = Guilty(call, point, candidate, True)
        return unrelated

    def _is_related(self, candidate: Point, point: Point) -> bool:
        """Whether JAX computes a value from what a call reads, or from another of its results, or has it as one of the
        call's operands."""
        near, sources = self._near(point), self.sources(candidate.number)
        if not near:
            return not sources
        if sources & self._shown(near) or any(self.points[n].call == point.call for n in sources):
            return True
        return any(candidate.number in self.matched[n] for n in near)

    def _shown(self, numbers: set[int]) -> set[int]:
        """These points and what they show in another layout: of equal numbers JAX's are taken for the first."""
        found, waiting = set(numbers), list(numbers)
        while waiting:
            point = self.points[waiting.pop()]
            if point.operation in LAYOUTS and point.reads:
                found.add(point.reads[0])
                waiting.append(point.reads[0])
        return found

    def _near(self, point: Point) -> set[int]:
        """What a point was computed from, as far back as JAX has no such values."""
        found, waiting = set(), list(point.reads)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += () if self.has_partner(number) else self.points[number].reads
        return found

    def partly_guilty(self) -> Guilty | None:
        """The first call after which, given one of JAX's values, the next calls agree: others differ later."""
        for call, point in self.suspects[:8]:
            readers = [p for p in self.points.values() if point.number in p.reads and p.number in self.region]
            for candidate in self._candidates(point) if readers else ():
                if not candidate.lines or not self._is_related(candidate, point):
                    continue
                change = {call.number: self._substitute(call, point, candidate)}
                done = self.trial.attempt(change, write=True)
                if done is None:
                    continue
                _, side = done
                after = [p for own in readers if (p := side.watch.points.get(own.number)) is not None]
                numbers = self.trial.level == "loss"  # terms of a loss are single numbers
                if candidate.number not in self.only_in_jax:  # a call that hands it on says nothing
                    after = [p for p in after if not same_numbers(p.value, candidate.value)]
                found = [n for p in after if is_telling(p.value, numbers) for n in self.jax_index.find(p.value)]
                if self.only_in_jax.intersection(found):  # it is none that torch had already
                    return Guilty(call, point, candidate, False)
        return None

    def _candidates(self, point: Point) -> Iterator[Point]:
        size = point.value.size
        apart = {n: d for d, n in self.jax_index.nearest(point.value, self.only_in_jax)}
        same = [n for n in sorted(self.only_in_jax) if self.jax_points[n].value.size == size]
        near = self._near(point)
        related = lambda n: bool(self.sources(n) & near)
        shaped = lambda n: self.jax_points[n].value.shape == point.value.shape
        kept = sorted(same, key=lambda n: (not related(n), not shaped(n), apart.get(n, math.inf)))[:CANDIDATES]
        for number in sorted(near, reverse=True):  # what JAX does not do to a value
            skipped = [n for n in self.matched.get(number, ()) if self.jax_points[n].value.shape == point.value.shape]
            kept += [n for n in skipped[:1] if n not in kept]
        if point.number in self.roots:  # it may seem equal beside larger numbers
            outputs = [n for n in self.program.outputs.values() if n in self.jax_points and n not in kept]
            kept += [n for n in outputs if self.jax_points[n].value.shape == point.value.shape]
        yield from (self.jax_points[n] for n in kept)

    def _substitute(self, call: Call, point: Point, candidate: Point) -> Change:
        return substitute(candidate.value, call.points.index(point.number))

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
            number = self.watch.number_of(self.side.results.get((quantity, name)))
            if found := [n for n in torch_index.find(theirs) if n != number]:
                return (quantity, name), self.points[found[0]], None if number is None else self.points[number]
        return None

    def sources(self, number: int) -> set[int]:
        """The torch points that a JAX point was computed from: the nearest that both halves have."""
        if number in self._sources:
            return self._sources[number]
        back, seen = self._torch_of, set()
        found, waiting = set(), list(self.jax_points[number].reads)
        while waiting:
            at = waiting.pop()
            if at in back:
                found.add(back[at])
            elif at in self.jax_points and at not in seen:  # through a residual sum there are two ways to each
                seen.add(at)
                waiting += self.jax_points[at].reads
        self._sources[number] = found
        return found

    @cached_property
    def _sources(self) -> dict[int, set[int]]:
        return {}

    @cached_property
    def _torch_of(self) -> dict[int, int]:
        named = {p.name: p.number for p in self.points.values() if p.name}
        found = {n: named[p.name] for n, p in self.jax_points.items() if p.name in named}
        for number, partners in sorted(self.matched.items(), reverse=True):
            found |= {partner: number for partner in partners if not self.jax_points[partner].name}
        return found

    def left_out(self, guilty: Guilty) -> str:
        """In words, calls before the guilty one that JAX does not make: it reads what they read."""
        if guilty.jax is None:
            return ""
        theirs = self.sources(guilty.jax.number) | {n for n in self.points if guilty.jax.number in self.matched[n]}
        missing = [n for n in guilty.point.reads if not self.has_partner(n) and set(self.points[n].reads) & theirs]
        made = {self.jax_points[n].operation for n in guilty.jax.reads if n in self.jax_points}
        missing = [n for n in missing if self.points[n].operation not in made]  # JAX makes such a call too
        return ", ".join(self.describe(n) for n in missing)

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

    def other_constants(self, guilty: Guilty) -> Iterator[tuple[str, np.ndarray]]:
        """Buffers that torch reads at the place and JAX has not, with the constants that JAX may read for them."""
        inputs = set(self.program.inputs.values())
        reads = () if guilty.jax is None else guilty.jax.reads
        fixed = [self.jax_points[n] for n in reads if n in self.jax_points and inputs.isdisjoint(self._origins(n))]
        for point in (self.points[n] for n in guilty.point.reads):
            if not point.name or point.name.startswith("batch") or point.name in self.program.inputs:
                continue
            ours = point.value
            yield from ((point.name, p.value.reshape(ours.shape)) for p in fixed if p.value.size == ours.size)

    def _origins(self, number: int) -> set[int]:
        """Everything a JAX point was computed from."""
        found, waiting = set(), [number]
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self.jax_points[number].reads if number in self.jax_points else ()
        return found

    def read_in_jax_alone(self, guilty: Guilty) -> str:
        """Inputs, by name, that only JAX reads at the place."""
        if guilty.jax is None:
            return ""
        wide = {m for n in guilty.point.reads for m in ancestors(self.points, n)}
        return ", ".join(
            self.points[n].name for n in sorted(self.sources(guilty.jax.number) - wide) if self.points[n].name
        )

    def unread_in_jax(self, guilty: Guilty) -> set[str]:
        """Leaves of the batch, by name, that a call reads as they are or in part, and that JAX does not read at all."""
        read = {n for p in self.jax_points.values() for n in p.reads}
        known = {name for name, n in self.program.inputs.items() if n in read}
        found, waiting = set(), list(guilty.point.reads)
        while waiting:
            point = self.points[waiting.pop()]
            if point.name.startswith("batch"):
                found |= {point.name} - known
            elif point.operation in (*PASSING, "getitem"):
                waiting += point.reads[:1]
        return found

    def never_read(self) -> list[tuple[Point, Point]]:
        """Leaves of the batch that no equation of JAX reads and from which torch computes what differs; each with the
        first call that reads it."""
        read = {n for equation in self.program.equations for n in equation.inputs} | set(self.program.outputs.values())
        unread = {name for name, n in self.program.inputs.items() if n not in read and name.startswith("batch")}
        used = {n for root in self.roots for n in ancestors(self.points, root)}
        found = []
        for own in (self.points[n] for n in sorted(used) if self.points[n].name in unread):
            readers = (p for p in self.points.values() if own.number in p.reads and p.number in used and p.lines)
            found += [(own, reader) for reader in (next(readers, None),) if reader is not None]
        return found

    def nearest(self, point: Point) -> Point | None:
        """The JAX value nearest to one of torch, among those that torch has not."""
        near = self.jax_index.nearest(point.value, self.only_in_jax)
        return self.jax_points[near[0][1]] if near else None


def is_telling(value: np.ndarray, numbers: bool) -> bool:
    """Whether equal numbers are hardly by chance; `numbers`: a single one may be."""
    if value.dtype.kind != "f":
        return False
    return bool(np.ptp(value) > 0) if value.size > 1 else numbers and float(value.flat[0]) not in (0.0, 1.0)
