"""The float64 number that a float32 constant stands for: 0.1 for 0.10000000149011612.

A constant that one half holds in float32 and the other computes with in float64 differs by half a unit in the last
place of float32, which is no difference of the systems: in float32 both have the same bits. So where both halves are
run in float64 the float32 constant is taken for the number that was meant. That moves it by a unit in its last place,
so two constants that are farther apart stay apart.
"""

from collections.abc import Iterable

import numpy as np

from ..verdict import EPS32

MANY = 4096  # different numbers: a longer table is data, and stays as it is


class Meant:
    """Widens float32 constants. `numbers` are those that the other half computes with in float64: where one of them,
    its negative or its reciprocal is a float32 unit away at most, it is meant; else the shortest decimal is. An evenly
    spaced axis (`linspace`) is meant to be one, between the ends that are meant.

    Numbers that are float64 already stay, unless they are float32 ones that were widened before and one of `numbers`
    is meant (`np.float32(0.1)` in code that computes in float64).
    """

    def __init__(self, numbers: Iterable[float] = ()):
        known = np.array([n for n in set(numbers) if np.isfinite(n) and n != 0.0], np.float64)
        with np.errstate(over="ignore"):
            both = np.concatenate([known, 1.0 / known])
        self.known = np.unique(np.concatenate([[-np.inf], both, -both, [np.inf]]))
        self.changed: dict[float, float] = {}  # the constants that became another number

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The same numbers in float64."""
        wide = np.asarray(array, np.float64)
        single = array.dtype == np.float32
        with np.errstate(over="ignore"):
            if not single and not np.array_equal(wide.astype(np.float32), wide):
                return wide
        finite = np.isfinite(wide)
        found, places = np.unique(wide[finite], return_inverse=True)
        if not 0 < found.size <= MANY:
            return wide
        meant = wide.copy()
        meant[finite] = self._numbers(found, single)[places.reshape(-1)]
        if single and _is_axis(wide):
            meant = np.linspace(meant[0], meant[-1], wide.size)
        self.changed |= {a: b for a, b in zip(wide[finite].tolist(), meant[finite].tolist(), strict=True) if a != b}
        return meant

    def _numbers(self, found: np.ndarray, single: bool) -> np.ndarray:
        at = np.searchsorted(self.known, found)
        below, above = self.known[np.maximum(at - 1, 0)], self.known[at]
        near = np.where(found - below < above - found, below, above)
        decimal = np.array([float(str(number)) for number in found.astype(np.float32)]) if single else found
        meant = np.where(np.abs(near - found) <= EPS32 * np.abs(found), near, decimal)
        return np.where(found == np.round(found), found, meant)  # whole numbers are exact


def _is_axis(wide: np.ndarray) -> bool:
    """Whether numbers are evenly spaced but for the rounding of float32."""
    if wide.ndim != 1 or wide.size < 3 or not np.isfinite(wide).all():
        return False
    even = np.linspace(wide[0], wide[-1], wide.size)
    return bool(wide[0] != wide[-1] and np.abs(wide - even).max() <= EPS32 * np.abs(even).max())
