"""Depth-first search for the correspondence under which both models compute the same values.

Torch's parameters are assigned in the order in which they are used. Assigning a torch array to a JAX leaf is right when
the value that torch computes with it (say `x @ W.T`) then appears among the values that JAX can now compute, in any
layout. So each choice is checked at once, and JAX is evaluated only as far as it is known (program_jax.py). Some
choices can only be checked by later values or by the final outputs, and need backtracking: between branches that look
alike (two heads on one trunk), between orders of features (heads, or q, k and v), and where JAX's values are hidden
(inside a scan).
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from heapq import heappop, heappush
from itertools import count, product
from typing import NamedTuple

import numpy as np

from ..mapping import Entry, leaves_of
from .candidates import Candidate, Item
from .dataflow_torch import Point
from .locating import Operation, first_differing
from .probing import Gap, Probing
from .program_jax import Values, Wave

Choice = tuple[Entry, ...]  # one way to assign the items of a stage

CHOICES = 600  # most combinations tried in one stage, the likeliest first
LOOK = 8  # how many of them are tried when the values of earlier stages did not appear
UNKNOWN = Gap(np.inf, 1.0)

# Equal for arrays with the same numbers in another order; the first one usually tells two arrays apart.
MOMENTS: tuple[Callable[[np.ndarray], float], ...] = (
    np.max,
    np.min,
    np.sum,
    lambda a: np.abs(a).sum(),
    lambda a: np.square(a).sum(),
)


class Attempt(NamedTuple):
    """The entries so far and what JAX computes with them; those whose value appeared; the number of stages whose value
    appeared, and of those since then whose value did not."""

    entries: tuple[Entry, ...]
    wave: Wave
    held: tuple[Entry, ...] = ()
    shown: int = 0
    unseen: int = 0


class Stage(NamedTuple):
    """Items that are assigned together, and the point of torch's trace whose values show whether that is right."""

    items: list[Item]
    point: Point
    values: Values


class Search:
    """The search. `best` holds the entries found: proved if `solve` returned True, else the best attempt, of which
    `held` are those whose values appeared in JAX."""

    def __init__(self, probing: Probing, items: list[Item], fixed: tuple[Entry, ...]):
        self.probing, self.both = probing, probing.both
        self.program = self.both.jax.program
        self.items = items
        self.fixed = fixed  # overrides
        self.owner = {name: item for item in items for name in item.names}
        self.stages = list(self._stages())
        self.order = {path: at for at, path in enumerate(self.both.jax.uses)}
        self.best, self.held, self.shown, self.gap = fixed, (), -1, UNKNOWN

    @property
    def proved(self) -> bool:
        """Whether the outputs agree under the best attempt."""
        return self.gap.excess <= 1

    def solve(self) -> bool:
        """First requires every value to appear; if some never does, searches again without requiring it. Where the
        models differ, looks last for the attempt in which they differ least."""
        many, few = 2000 + 40 * len(self.stages), CHOICES + 8 * len(self.stages)  # one a stage when all goes well
        return self._walk(False, many) or self._walk(True, few) or self._walk_alike(few)

    def _begin(self) -> Attempt:
        """Leaves that no item could go to keep the model's own values."""
        wanted = {path for item in self.items for candidate in item.candidates for path in candidate.leaves}
        wanted |= paths(self.fixed)
        alone = {p: np.asarray(leaf, self.both.wide) for p, leaf in self.both.floats.items() if p not in wanted}
        wave = self.program.begin(self.both.inputs)
        return Attempt(self.fixed, self.program.advance(wave, alone | self.leaves(self.fixed))[0], self.fixed)

    def _walk(self, dark: bool, tries: int) -> bool:
        """Goes through the stages, and back where nothing fits or the outputs do not agree at the end.

        With `dark`, a stage whose value never appears is assigned all the same: it may be computed inside a scan.
        """
        self.tries = tries  # choices that may still be tried
        trail: list[Iterator[Attempt]] = [iter([self._begin()])]
        while trail and self.tries > 0:
            attempt = next(trail[-1], None)
            if attempt is None:
                trail.pop()
                continue
            finished = len(trail) > len(self.stages)
            if self._judge(attempt, finished):
                return True
            if not finished:
                self.both.progress(len(trail), len(self.stages))
                trail.append(self._settle(self.stages[len(trail) - 1], attempt, dark))
        return False

    def _walk_alike(self, tries: int) -> bool:
        """Of branches that look alike (two heads on one trunk), those under which the most values appear, the fewest
        missing first."""
        self.tries, pushed = tries, count()
        waiting = [(0, 0, next(pushed), self._begin())]  # values missing, minus the stages done, in order
        while waiting and self.tries > 0:
            missing, done, _, attempt = heappop(waiting)
            finished = -done == len(self.stages)
            if self._judge(attempt, finished) or finished:
                return self.proved
            for after in self._likeliest(self.stages[-done], attempt):
                less = after.shown == attempt.shown
                heappush(waiting, (missing + less, done - 1, next(pushed), after))
        return False

    def _likeliest(self, stage: Stage, before: Attempt) -> Iterator[Attempt]:
        """Every way in which the value of a stage appears; if there is none, the likeliest of those for whose leaves
        JAX waits."""
        choices = self._choices(stage.items, before.entries)
        shows = False
        for choice, wave in self._showing(stage, choices, before):
            shows = True
            yield Attempt((*before.entries, *choice), wave, (*before.held, *choice), before.shown + 1)
        awaited = self.program.awaited(before.wave)
        ready = [c for c in choices if not shows and self._may_show(self._wanted(stage, c), paths(c), awaited)]
        for choice in ready[:LOOK] or ([] if shows else choices[:1]):
            self.tries -= 1
            wave, _ = self.program.advance(before.wave, self.leaves(choice))
            yield Attempt((*before.entries, *choice), wave, before.held, before.shown, before.unseen + 1)

    def _judge(self, attempt: Attempt, finished: bool) -> bool:
        """Whether the outputs agree under a finished attempt; keeps the one that came farthest."""
        gap = self._gap(attempt.entries) if finished else UNKNOWN
        proved = gap.excess <= 1
        if proved or (attempt.shown, finished) > (self.shown, self.gap is not UNKNOWN):
            self.best, self.held, self.shown, self.gap = attempt.entries, attempt.held, attempt.shown, gap
        return proved

    def _settle(self, stage: Stage, before: Attempt, dark: bool) -> Iterator[Attempt]:
        """The attempt with this stage's items assigned, in every way for which the right value appears; with `dark`
        then in every other way."""
        choices = self._choices(stage.items, before.entries)
        seen = []
        for choice, wave in self._showing(stage, choices, before):
            seen.append(choice)
            yield Attempt((*before.entries, *choice), wave, (*before.held, *choice), before.shown + 1)
        for choice in choices if dark else ():
            if choice not in seen and self.tries > 0:
                self.tries -= 1
                wave, _ = self.program.advance(before.wave, self.leaves(choice))
                yield Attempt((*before.entries, *choice), wave, before.held, before.shown, before.unseen + 1)

    def _showing(self, stage: Stage, choices: list[Choice], before: Attempt) -> Iterator[tuple[Choice, Wave]]:
        """The choices for which the value appears, and what JAX then computes.

        After the first one only two kinds can qualify: the same leaves in another layout, or a branch that looks alike.
        After some stages without a value only the likeliest are tried: the two models probably differ.
        """
        awaited = self.program.awaited(before.wave)
        found: set[str] | None = None
        for choice in choices if not before.unseen else choices[: max(1, LOOK >> before.unseen)]:
            mine = paths(choice)
            if found is not None and len(mine) == len(choice) and mine != found and not mine.isdisjoint(found):
                continue
            wanted = self._wanted(stage, choice)
            if not self._may_show(wanted, mine, awaited):
                continue
            if self.tries <= 0:
                return
            self.tries -= 1
            wave, values = self.program.advance(before.wave, self.leaves(choice))
            if self._appear(wanted, values if choice else wave.values()):
                found = mine if found is None else found
                yield choice, wave

    def _may_show(self, wanted: Values, mine: set[str], awaited: list[int]) -> bool:
        """Whether some equation waits for these leaves and no others, or the value is the leaves themselves."""
        bits = sum(self.program.bits[path] for path in mine)
        size = sum(self.both.floats[path].size for path in mine)
        return not mine or any(not waits & ~bits for waits in awaited) or size == sum(value.size for value in wanted)

    def _appear(self, wanted: Values, values: Values) -> bool:
        return all(appears(value, values, self.both.tolerance) for value in wanted)

    def _gap(self, entries: tuple[Entry, ...]) -> Gap:
        self.tries -= 1
        return self.probing.gap(entries)

    def _choices(self, items: list[Item], entries: tuple[Entry, ...]) -> list[Choice]:
        """The ways to assign the items to free leaves, the likeliest first: as similar arrays were assigned before."""
        taken = paths(entries)
        home: dict[str, set[str]] = {}
        for entry in entries:
            for name in entry.torch:
                home.setdefault(_parent(name), set()).update(map(_parent, entry.jax))
        usual = {_pattern(entry) for entry in entries}

        def unlikely(*choice: Candidate) -> tuple:
            pairs = [(e.torch[0], path) for c in choice for e in c.entries for path in e.jax]
            away = sum(_parent(path) not in home.get(_parent(name), {_parent(path)}) for name, path in pairs)
            alike = sum(likeness(e.torch[0], e.jax[0]) for c in choice for e in c.entries)
            cost = sum(0 if c.entries and {_pattern(e) for e in c.entries} <= usual else c.cost for c in choice)
            return cost, away, -alike, [self.order.get(path, len(self.order)) for _, path in pairs]

        kept = int(CHOICES ** (1 / len(items)))
        options = []
        for item in items:
            free = sorted((c for c in item.candidates if not c.leaves & taken), key=unlikely)[:kept]
            options.append(free + [Candidate((), cost=9)] * (item.optional or not free))
        fitting = sorted(filter(_apart, product(*options)), key=lambda choice: unlikely(*choice))
        return [tuple(entry for candidate in choice for entry in candidate.entries) for choice in fitting]

    def _stages(self) -> Iterator[Stage]:
        """For each point of the trace the items that are used there for the first time."""
        settled: set[str] = set()
        points = self.both.trace.points
        for point in points:
            new = {id(item): item for n in sorted(point.names - settled) if (item := self.owner.get(n))}
            if new:
                settled.update(n for item in new.values() for n in item.names)
                yield Stage(list(new.values()), point, self._values(point, points))

    def _values(self, point: Point, points: list[Point]) -> Values:
        """The values that JAX should compute for a point, given how it groups torch's arrays.

        Arrays that only JAX holds as one have one value, joined with the same step of the others; arrays that only
        torch stacks have one value for each row.
        """
        items = lambda p: {id(item): item for n in p.names if (item := self.owner.get(n))}
        mine = items(point)
        if point.value.shape[:1] in [(item.rows,) for item in mine.values()]:
            return list(point.value)
        same = lambda p: items(p).keys() == mine.keys() != set()
        return [np.concatenate([p.value.ravel() for p in points if p is point or same(p)])]

    def _wanted(self, stage: Stage, choice: Choice) -> Values:
        """The values of a stage; where one array goes to several leaves, its features in the same pieces."""
        for entry in choice:
            if cut := next((op for op in entry.rule.ops if op.name == "split"), None):
                shape = self.both.shapes[entry.torch[0]]
                along = [1] * len(shape)
                along[cut.args[0]] = -1
                marks = np.broadcast_to(np.arange(shape[cut.args[0]]).reshape(along), shape)
                if stage.point.value.shape[stage.point.features] == shape[cut.args[0]]:
                    pieces = map(np.unique, entry.rule.forward((marks,)))
                    return [stage.point.value.take(piece, stage.point.features) for piece in pieces]
        return stage.values

    def leaves(self, entries: tuple[Entry, ...]) -> dict[str, np.ndarray]:
        """The JAX leaves that hold the weights of the first draw."""
        return {p: np.asarray(a, self.both.wide) for p, a in leaves_of(entries, self.both.weights).items()}

    def first_difference(self) -> tuple[Point | None, Operation | None]:
        """On the draw that differs, under the best attempt, the first value with a parameter that does not appear in
        JAX, and the first operation at all."""
        draw = self.gap.draw
        changed, factor = ({}, 1.0) if draw is None else (draw.weights, draw.probe.inputs)
        values = self.both.values_jax(leaves_of(self.best, self.both.weights | changed), factor)
        appears_there = lambda value: appears(value, values, self.both.tolerance)
        operation = self.both.watch_with(changed, factor, lambda run: first_differing(run, appears_there))
        return self._first_point(self.both.trace_with(changed, factor).points, values), operation

    def _first_point(self, points: list[Point], values: Values) -> Point | None:
        for point in points:
            entries = tuple(entry for entry in self.best if not point.names.isdisjoint(entry.torch))
            stage = Stage([], point, self._values(point, points))
            if entries and not self._appear(self._wanted(stage, entries), values):
                return point
        return None


def _apart(choice: tuple[Candidate, ...]) -> bool:
    """Whether no two candidates want the same leaf."""
    leaves = [path for candidate in choice for path in candidate.leaves]
    return len(leaves) == len(set(leaves))


def paths(entries: tuple[Entry, ...]) -> set[str]:
    """The JAX leaves that the entries fill."""
    return {path for entry in entries for path in entry.jax}


def appears(value: np.ndarray, values: Values, tolerance: float) -> bool:
    """Whether some array holds the same numbers in any order: equal count, extremes and moments of the finite ones."""
    size = value.size
    value = np.asarray(value, np.float64)
    whole = bool(np.isfinite(value).all())
    value = value if whole else value[np.isfinite(value)]
    if not value.size:
        return True
    moments = [moment(value) for moment in MOMENTS]
    slack = tolerance * np.abs(value).sum()

    def same(other: np.ndarray) -> bool:
        other = np.asarray(other, np.float64)
        other = other if whole else other[np.isfinite(other)]
        pairs = zip(MOMENTS, moments, strict=True)
        return other.size == value.size and all(
            abs(moment(other) - mine) <= slack + tolerance * abs(mine) for moment, mine in pairs
        )

    with np.errstate(invalid="ignore", over="ignore"):  # an infinite number is equal to none of the finite ones
        return any(other.size == size and same(other) for other in values)


def likeness(name: str, path: str) -> int:
    """The number of words that two names share."""
    return len(_words(name) & _words(path))


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+|[0-9]+", text.lower()))


def _pattern(entry: Entry) -> tuple:
    """What the entries of like layers have in common: the rule, and the last words of the names."""
    last = lambda name: name.rpartition(".")[2]
    within = lambda path: ".".join(path.split(".")[-2:]) if len(entry.jax) > 1 else last(path)
    return repr(entry.rule), tuple(map(last, entry.torch)), tuple(map(within, entry.jax))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
