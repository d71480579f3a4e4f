"""The search for the one correspondence that gives the right numbers.

Torch's parameters are settled in the order they are used. Putting a torch array into a JAX leaf is right when the value
torch computes with it (say `x @ W.T`) then appears among the values JAX computes, in whatever layout. So each choice is
checked where it is made, and only choices between branches that look alike (two heads on one trunk) are left to the
final outputs, by going back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from .candidates import Candidate, Item
from .dataflow_torch import Point
from .mapping import Entry
from .pair import Pair


@dataclass
class Search:
    """State of one search; `solve` returns the entries, or None with the best attempt in `best`."""

    pair: Pair
    items: list[Item]
    fixed: tuple[Entry, ...]  # overrides
    budget: int = 0
    best: tuple[Entry, ...] = ()
    gap: float = np.inf
    _stages: list[tuple[list[Item], np.ndarray]] = field(default_factory=list)

    def solve(self) -> tuple[Entry, ...] | None:
        self._stages = list(_stages(self.pair.trace.points, self.items))
        self.order = {path: at for at, path in enumerate(self.pair.jax.uses)}
        self.best = self.fixed
        self.budget = 500 + 50 * len(self._stages)
        return self._settle(0, self.fixed)

    def _settle(self, stage: int, entries: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        """Settles the items of this stage and all later ones, given the entries so far."""
        if stage == len(self._stages):
            gap = self.pair.gap(self.leaves(entries))
            if len(entries) >= len(self.best) or gap < self.gap:
                self.best, self.gap = entries, gap
            return entries if gap <= self.pair.tolerance else None
        if len(entries) > len(self.best):
            self.best = entries
        items, value = self._stages[stage]
        choices = self._choices(items, entries)
        right = (c for c in choices if self._appears(value, (*entries, *c)))
        seen = False
        for choice in right:
            seen = True
            if (found := self._settle(stage + 1, (*entries, *choice))) is not None or self.budget <= 0:
                return found
        if not seen:  # the value cannot be seen (inside a scan, say): leave the decision to the outputs
            for choice in choices:
                found = self._settle(stage + 1, (*entries, *choice))
                if found is not None or self.budget <= 0:
                    return found
        return None

    def _choices(self, items: list[Item], entries: tuple[Entry, ...]) -> list[tuple[Entry, ...]]:
        """Every way to settle the items with free leaves, the likeliest first."""
        taken = {path for entry in entries for path in entry.jax}
        home = {_parent(name): _parent(e.jax[0]) for e in entries for name in e.torch}
        free = [[c for c in item.candidates if not c.leaves & taken] for item in items]
        for item, candidates in zip(items, free, strict=True):
            if item.optional or not candidates:
                candidates.append(Candidate((), cost=9))

        def unlikely(choice: tuple[Candidate, ...]) -> tuple:
            pairs = [(e.torch[0], e.jax[0]) for c in choice for e in c.entries]
            away = sum(home.get(_parent(name), _parent(path)) != _parent(path) for name, path in pairs)
            alike = sum(likeness(name, path) for name, path in pairs)
            return sum(c.cost for c in choice), away, -alike, [self.order.get(p, len(self.order)) for _, p in pairs]

        fits = (
            c for c in product(*free) if len(frozenset().union(*(x.leaves for x in c))) == sum(len(x.leaves) for x in c)
        )
        return [tuple(e for c in choice for e in c.entries) for choice in sorted(fits, key=unlikely)]

    def leaves(self, entries: tuple[Entry, ...]) -> dict[str, np.ndarray]:
        """The JAX leaves that hold the pair's random weights."""
        return leaves_of(entries, self.pair.weights)

    def _appears(self, value: np.ndarray, entries: tuple[Entry, ...]) -> bool:
        self.budget -= 1
        return appears(value, self.pair.run_jax(self.leaves(entries))[1], self.pair.tolerance)

    def first_difference(self) -> Point | None:
        """The first value of torch that JAX does not compute under the best attempt."""
        values = self.pair.run_jax(self.leaves(self.best))[1]
        missing = (p for p in self.pair.trace.points if not appears(p.value, values, self.pair.tolerance))
        return next(missing, None)


def leaves_of(entries: tuple[Entry, ...], weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Torch arrays by name, carried to JAX leaves by path."""
    leaves: dict[str, np.ndarray] = {}
    for entry in entries:
        leaves.update(zip(entry.jax, entry.rule.forward(tuple(weights[n] for n in entry.torch)), strict=True))
    return leaves


def _stages(points: list[Point], items: list[Item]) -> Iterator[tuple[list[Item], np.ndarray]]:
    """For each point the items first used there. The members of an ensemble are one stage: their values together."""
    owner = {name: item for item in items for name in item.names}
    settled: set[str] = set()
    for point in points:
        new = {id(owner[n]): owner[n] for n in sorted(point.names) if n in owner and n not in settled}
        if not new:
            continue
        together = {n for item in new.values() for n in item.names}
        settled |= together
        values = [p.value for p in points if p.names & together and _same_step(p, point, owner)]
        yield list(new.values()), np.concatenate([v.ravel() for v in values])


def _same_step(other: Point, point: Point, owner: dict[str, Item]) -> bool:
    """Whether two points are the same step of different members of an ensemble."""
    ids = lambda p: sorted(id(owner[n]) for n in p.names if n in owner)
    return other is point or (other.value.shape == point.value.shape and ids(other) == ids(point))


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
    words = lambda text: set(re.findall(r"[a-z]+|[0-9]+", text.lower()))
    return len(words(name) & words(path))


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
