"""Depth-first search for the correspondence under which both models compute the same values.

Torch's parameters are assigned in the order in which they are used. Assigning a torch array to a JAX leaf is right when
the value that torch computes with it (say `x @ W.T`) then appears among JAX's intermediate values, in any layout. So
each choice is checked at once. Two kinds of choice can only be checked by the final outputs, and need backtracking:
between branches that look alike (two heads on one trunk), and where JAX's values are hidden (inside a scan).
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from .candidates import Candidate, Item
from .dataflow_torch import Point
from .mapping import Entry, leaves_of
from .probing import Gap, Probing

Values = list[np.ndarray]
Choice = tuple[Entry, ...]  # one way to assign the items of a stage
Stage = tuple[list[Item], Values]  # items assigned together, and the values that show whether that is right

CHOICES = 125  # most combinations tried in one stage, the likeliest first
LOOK = 8  # how many of them are tried one by one; the others are tried many at once
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
    """The entries so far, the number of stages whose value appeared, and of those since then whose value did not."""

    entries: tuple[Entry, ...]
    shown: int = 0
    unseen: int = 0


class Search:
    """The search. `best` holds the entries found: proved if `solve` returned True, else the best attempt."""

    def __init__(self, probing: Probing, items: list[Item], fixed: tuple[Entry, ...]):
        self.probing, self.both = probing, probing.both
        self.items = items
        self.fixed = fixed  # overrides
        self.owner = {name: item for item in items for name in item.names}
        self.stages = list(self._stages())
        self.order = {path: at for at, path in enumerate(self.both.jax.uses)}
        self.best, self.shown, self.gap = fixed, -1, UNKNOWN

    def solve(self) -> bool:
        """First requires every value to appear; if some never does, searches again without requiring it."""
        many, few = 300 + 4 * len(self.stages), 50 + 2 * len(self.stages)  # one run for each stage when all goes well
        return self._walk(False, many) or (self.shown < len(self.stages) and self._walk(True, few))

    def _walk(self, dark: bool, runs: int) -> bool:
        """Goes through the stages, and back where nothing fits or the outputs do not agree at the end.

        With `dark`, a stage whose value never appears is assigned all the same: it may be computed inside a scan.
        """
        self.runs = runs  # how often the JAX model may still be run
        trail: list[Iterator[Attempt]] = [iter([Attempt(self.fixed)])]
        while trail and self.runs > 0:
            attempt = next(trail[-1], None)
            if attempt is None:
                trail.pop()
                continue
            finished = len(trail) > len(self.stages)
            gap = self._gap(attempt.entries) if finished else UNKNOWN
            proved = gap.excess <= 1
            if proved or (attempt.shown, -gap.excess) > (self.shown, -self.gap.excess):
                self.best, self.shown, self.gap = attempt.entries, attempt.shown, gap
            if proved:
                return True
            if not finished:
                trail.append(self._settle(*self.stages[len(trail) - 1], attempt, dark))
        return False

    def _settle(self, items: list[Item], wanted: Values, before: Attempt, dark: bool) -> Iterator[Attempt]:
        """The attempt with this stage's items assigned, in every way for which the right value appears; with `dark` and
        no such way, in every way."""
        choices = self._choices(items, before.entries)
        seen = False
        for choice in self._showing(wanted, choices, before):
            seen = True
            yield Attempt((*before.entries, *choice), before.shown + 1)
        if dark and not seen:
            yield from (Attempt((*before.entries, *choice), before.shown, before.unseen + 1) for choice in choices)

    def _showing(self, wanted: Values, choices: list[Choice], before: Attempt) -> Iterator[Choice]:
        """The choices for which the value appears.

        After the first one only two kinds can qualify: the same leaves in another layout, or a branch that looks alike.
        After some stages without a value only the likeliest are tried: the two models probably differ.
        """
        known = self.leaves(before.entries)
        likely = choices[: max(1, LOOK >> before.unseen)]
        others = choices[len(likely) :] if not before.unseen else []
        for at, choice in enumerate(likely):
            if self._shows(wanted, known | self.leaves(choice)):
                yield choice
                mine = paths(choice)
                others = [c for c in choices[at + 1 :] if paths(c) == mine or paths(c).isdisjoint(mine)]
                break
        for choice in self._promising(wanted, others, known):
            if self._shows(wanted, known | self.leaves(choice)):
                yield choice

    def _promising(self, wanted: Values, choices: list[Choice], known: dict[str, np.ndarray]) -> list[Choice]:
        """The choices left after trying many at once, each time several that share no leaf."""
        rounds: list[tuple[dict[str, np.ndarray], list[Choice]]] = []
        for choice in choices:
            new = self.leaves(choice)
            fits = next((turn for turn in rounds if turn[0].keys().isdisjoint(new)), None)
            if fits is None:
                rounds.append(fits := ({}, []))
            fits[0].update(new)
            fits[1].append(choice)
        return [choice for leaves, group in rounds if self._shows(wanted, known | leaves) for choice in group]

    def _shows(self, wanted: Values, leaves: dict[str, np.ndarray]) -> bool:
        if self.runs <= 0:
            return False
        self.runs -= 1
        return self._appear(wanted, self.both.run_jax(leaves)[1])

    def _appear(self, wanted: Values, values: Values) -> bool:
        return all(appears(value, values, self.both.tolerance) for value in wanted)

    def _gap(self, entries: tuple[Entry, ...]) -> Gap:
        self.runs -= 1
        return self.probing.gap(entries)

    def _choices(self, items: list[Item], entries: tuple[Entry, ...]) -> list[Choice]:
        """The ways to assign the items to free leaves, the likeliest first."""
        taken = paths(entries)
        home = {_parent(name): _parent(e.jax[0]) for e in entries for name in e.torch}

        def unlikely(*choice: Candidate) -> tuple:
            pairs = [(e.torch[0], e.jax[0]) for c in choice for e in c.entries]
            away = sum(home.get(_parent(name), _parent(path)) != _parent(path) for name, path in pairs)
            alike = sum(likeness(name, path) for name, path in pairs)
            return sum(c.cost for c in choice), away, -alike, [self.order.get(p, len(self.order)) for _, p in pairs]

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
                yield list(new.values()), self._values(point, points)

    def _values(self, point: Point, points: list[Point]) -> Values:
        """The values that JAX should compute for a point, given how it groups the members of an ensemble.

        Modules that only JAX stacks have one value, joined with the same step of the other members; modules that only
        torch stacks have one value for each row.
        """
        items = lambda p: {id(item): item for n in p.names if (item := self.owner.get(n))}
        mine = items(point)
        if point.value.shape[:1] in [(item.rows,) for item in mine.values()]:
            return list(point.value)
        same = lambda p: p.value.shape == point.value.shape and items(p).keys() == mine.keys() != set()
        members = [p.value.ravel() for p in points if p is point or same(p)]
        return [np.concatenate(members)]

    def leaves(self, entries: tuple[Entry, ...]) -> dict[str, np.ndarray]:
        """The JAX leaves that hold the weights of the first draw."""
        return leaves_of(entries, self.both.weights)

    def first_difference(self) -> Point | None:
        """The first value of torch that does not appear in JAX under the best attempt, on the draw that differs."""
        if (draw := self.gap.draw) is None:
            points, weights, factor = self.both.trace.points, self.both.weights, 1.0
        else:
            weights, factor = self.both.weights | draw.weights, draw.probe.inputs
            points = self.both.trace_with(draw.weights, factor).points
        _, values = self.both.run_jax(leaves_of(self.best, weights), factor)
        return next((p for p in points if not self._appear(self._values(p, points), values)), None)


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


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
