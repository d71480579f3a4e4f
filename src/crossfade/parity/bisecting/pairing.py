"""Pairs values of the two halves: equal numbers, in whatever order and however often repeated.

A layout (NHWC for NCHW) and a broadcast that only one half makes change neither which numbers there are nor how often
one occurs compared with another.
"""

import math
from collections.abc import Iterable

import numpy as np

from .points import Point

MEMBERS = 4  # of a stack
EQUAL = 1e-10  # of the largest number: what two correct halves may differ by in float64


def multiset(value: np.ndarray) -> np.ndarray:
    """The numbers of an array in order; those that all occur n times are given once."""
    numbers = np.asarray(value, np.float64).ravel()
    unique, counts = np.unique(numbers, return_counts=True)
    share = int(np.gcd.reduce(counts)) if counts.size else 1
    return np.repeat(unique, counts // share) if share > 1 else np.sort(numbers)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance of two arrays of equal size, as a share of the largest number; the same NaN or infinity is
    no distance."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    if not np.isfinite(a[~same]).all() or not np.isfinite(b[~same]).all():
        return math.inf
    finite = np.abs(np.concatenate([a[np.isfinite(a)], b[np.isfinite(b)]]))
    return float(np.abs(a[~same] - b[~same]).max() / max(finite.max(initial=0.0), np.finfo(np.float64).tiny))


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, in the same order where the shape is the same."""
    if a.size != b.size:
        return False
    if a.shape == b.shape:
        return distance(np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()) <= EQUAL
    x, y = multiset(a), multiset(b)
    return x.size == y.size and distance(x, y) <= EQUAL


class Index:
    """The values of one half, to be found by their numbers. With `parts` the members of a stack are found too: what is
    a list of modules in torch is one vmapped module in JAX."""

    def __init__(self, points: Iterable[Point], *, parts: bool = False):
        points = list(points)
        self.sorted = {point.number: multiset(point.value) for point in points}
        self._wholes = self._tables([(n, numbers) for n, numbers in self.sorted.items()])
        stacks = [p for p in points if parts and p.value.ndim > 1 and 1 < len(p.value) <= MEMBERS]
        self._parts = self._tables([(p.number, multiset(part)) for p in stacks for part in p.value])

    def _tables(self, entries: list[tuple[int, np.ndarray]]) -> dict[int, "_Table"]:
        by_size: dict[int, list[tuple[int, np.ndarray]]] = {}
        for number, numbers in entries:
            by_size.setdefault(numbers.size, []).append((number, numbers))
        return {size: _Table(own) for size, own in by_size.items()}

    def find(self, value: np.ndarray) -> list[int]:
        """The points that hold these numbers, whole ones first."""
        numbers = multiset(value)
        found = [n for tables in (self._wholes, self._parts) for n in tables.get(numbers.size, _NONE).find(numbers)]
        return list(dict.fromkeys(found))

    def nearest(self, value: np.ndarray, among: set[int]) -> list[tuple[float, int]]:
        """Points with as many numbers, by their distance."""
        numbers = multiset(value)
        own = self._wholes.get(numbers.size, _NONE).numbers
        return sorted((distance(self.sorted[n], numbers), n) for n in own if n in among)


class _Table:
    """Multisets of one size, with what equal ones have in common."""

    def __init__(self, entries: list[tuple[int, np.ndarray]]):
        self.numbers = [number for number, _ in entries]
        self.sorted = [numbers for _, numbers in entries]
        self.traits = np.stack([_traits(numbers) for numbers in self.sorted]) if entries else np.zeros((0, 3))

    def find(self, numbers: np.ndarray) -> list[int]:
        wanted = _traits(numbers)
        near = np.abs(self.traits - wanted) <= 10 * EQUAL * max(1e-300, np.abs(wanted).max())
        return [self.numbers[i] for i in np.flatnonzero(near.all(1)) if distance(self.sorted[i], numbers) <= EQUAL]


def _traits(numbers: np.ndarray) -> np.ndarray:
    """What equal multisets have in common, as means of the finite numbers."""
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return np.zeros(3)
    return np.array([finite.mean(), finite[0], finite[-1]])


_NONE = _Table([])
