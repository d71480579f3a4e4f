"""The search for the one correspondence that gives the right numbers.

Torch's parameters are settled in the order they are used. Putting a torch array into a JAX leaf is right when the value
torch computes with it (say `x @ W.T`) then appears among the values JAX computes, in whatever layout. So each choice is
checked where it is made, and only choices between branches that look alike (two heads on one trunk) are left to the
final outputs, by going back.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from .candidates import Candidate, Item
from .dataflow_torch import Point
from .mapping import Entry
from .pair import Pair

Stage = tuple[list[Item], np.ndarray]  # what is settled together, and the value that shows whether it is right

CHOICES = 2000  # combinations looked at in one stage, the likeliest ones


class Search:
    """A walk through the choices. `best` holds the entries found: proved if `solve` says so, else the best attempt."""

    def __init__(self, pair: Pair, items: list[Item], fixed: tuple[Entry, ...]):
        self.pair = pair
        self.items = items
        self.fixed = fixed  # overrides
        self.owner = {name: item for item in items for name in item.names}
        self.stages = list(self._stages())
        self.order = {path: at for at, path in enumerate(pair.jax.uses)}
        self.best, self.shown, self.gap = fixed, -1, np.inf

    def solve(self) -> bool:
        """Goes forward through the stages, and back where the outputs do not agree in the end."""
        runs = 300 + 4 * len(self.stages)  # runs of the JAX model; one for each stage when nothing looks alike
        start = [(self.fixed, 0)]
        trail: list[Iterator[tuple[tuple[Entry, ...], int]]] = [iter(start)]
        self.runs = 0
        while trail and self.runs < runs:
            entries, shown = next(trail[-1], (None, 0))
            if entries is None:
                trail.pop()
                continue
            finished = len(trail) > len(self.stages)
            gap = self.pair.gap(self.leaves(entries)) if finished else np.inf
            proved = gap <= self.pair.tolerance
            if proved or (shown, -gap) > (self.shown, -self.gap):
                self.best, self.shown, self.gap = entries, shown, gap
            if proved:
                return True
            if not finished:
                trail.append(self._settle(*self.stages[len(trail) - 1], entries, shown))
        return False

    def _settle(
        self, items: list[Item], value: np.ndarray, entries: tuple[Entry, ...], shown: int
    ) -> Iterator[tuple[tuple[Entry, ...], int]]:
        """The entries with this stage's items added, in every way that shows the right value."""
        choices = self._choices(items, entries)
        seen = False
        for choice in choices:
            self.runs += 1
            _, values = self.pair.run_jax(self.leaves((*entries, *choice)))
            if appears(value, values, self.pair.tolerance):
                seen = True
                yield (*entries, *choice), shown + 1
        if not seen:  # the value is out of sight (inside a scan, say): leave the decision to the outputs
            for choice in choices:
                self.runs += 1
                yield (*entries, *choice), shown

    def _choices(self, items: list[Item], entries: tuple[Entry, ...]) -> list[tuple[Entry, ...]]:
        """The ways to settle the items with free leaves, the likeliest first."""
        taken = {path for entry in entries for path in entry.jax}
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
        """For each point the items first used there."""
        settled: set[str] = set()
        for point in self.pair.trace.points:
            new = {id(item): item for n in sorted(point.names - settled) if (item := self.owner.get(n))}
            if new:
                settled.update(n for item in new.values() for n in item.names)
                yield list(new.values()), self._value(point)

    def _value(self, point: Point) -> np.ndarray:
        """What torch computes at a point; for a member of an ensemble, with the same step of the other members."""
        items = lambda p: {id(self.owner[n]) for n in p.names if n in self.owner}
        same = lambda p: items(p) == items(point) != set() and p.value.shape == point.value.shape
        return np.concatenate([p.value.ravel() for p in self.pair.trace.points if p is point or same(p)])

    def leaves(self, entries: tuple[Entry, ...]) -> dict[str, np.ndarray]:
        """The JAX leaves that hold the pair's random weights."""
        return leaves_of(entries, self.pair.weights)

    def first_difference(self) -> Point | None:
        """The first value of torch that JAX does not compute under the best attempt."""
        _, values = self.pair.run_jax(self.leaves(self.best))
        missing = (p for p in self.pair.trace.points if not appears(self._value(p), values, self.pair.tolerance))
        return next(missing, None)


def _apart(choice: tuple[Candidate, ...]) -> bool:
    """Whether no two candidates want the same leaf."""
    leaves = [path for candidate in choice for path in candidate.leaves]
    return len(leaves) == len(set(leaves))


def leaves_of(entries: tuple[Entry, ...], weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Torch arrays by name, carried to JAX leaves by path."""
    leaves: dict[str, np.ndarray] = {}
    for entry in entries:
        leaves.update(zip(entry.jax, entry.rule.forward(tuple(weights[n] for n in entry.torch)), strict=True))
    return leaves


def appears(value: np.ndarray, values: list[np.ndarray], tolerance: float) -> bool:
    """Whether some array holds the same numbers, in any order: equal count, sums, extremes."""
    mine = _moments(value)
    return any(
        other.size == value.size and np.allclose(_moments(other), mine, rtol=tolerance, atol=tolerance * mine[1])
        for other in values
    )


def _moments(value: np.ndarray) -> np.ndarray:
    if not value.size:
        return np.zeros(5)
    value = value.astype(np.float64).ravel()
    return np.array([value.sum(), np.abs(value).sum(), (value**2).sum(), value.max(), value.min()])


def likeness(name: str, path: str) -> int:
    """How many words two names share."""
    return len(_words(name) & _words(path))


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+|[0-9]+", text.lower()))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
