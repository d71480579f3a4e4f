"""Pairs values of the two halves: equal numbers, in whatever order and however often repeated.

A layout (NHWC for NCHW) and a broadcast that only one half makes change neither which numbers there are nor how often
one occurs compared with another.
"""

import math
from collections.abc import Iterable

import numpy as np

from .points import Point

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


class Index:
    """The values of one half, to be found by their numbers."""

    def __init__(self, points: Iterable[Point]):
        self.sorted = {point.number: multiset(point.value) for point in points}
        by_size: dict[int, list[int]] = {}
        for number, numbers in self.sorted.items():
            by_size.setdefault(numbers.size, []).append(number)
        self._by_size = {
            size: (np.array(own), np.stack([_traits(self.sorted[n]) for n in own])) for size, own in by_size.items()
        }

    def find(self, value: np.ndarray) -> list[int]:
        """The points that hold these numbers."""
        numbers = multiset(value)
        if numbers.size not in self._by_size:
            return []
        own, traits = self._by_size[numbers.size]
        wanted = _traits(numbers)
        near = np.abs(traits - wanted) <= 10 * EQUAL * max(1e-300, np.abs(wanted).max())
        return [int(n) for n in own[near.all(1)] if distance(self.sorted[int(n)], numbers) <= EQUAL]

    def nearest(self, value: np.ndarray, among: set[int]) -> list[tuple[float, int]]:
        """Points with as many numbers, by their distance."""
        numbers = multiset(value)
        own = self._by_size.get(numbers.size, (np.array([], int), None))[0]
        return sorted((distance(self.sorted[int(n)], numbers), int(n)) for n in own if int(n) in among)


def _traits(numbers: np.ndarray) -> np.ndarray:
    """What equal multisets have in common, as means of the finite numbers."""
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return np.zeros(3)
    return np.array([finite.mean(), finite[0], finite[-1]])
