"""How two places and their numbers compare, in words."""

from collections.abc import Iterable

import numpy as np

from .divergence import Place
from .points import Point


def torch_place(point: Point) -> Place:
    """A torch point as a place."""
    return Place(point.operation, point.where, point.module, point.lines)


def jax_place(point: Point | None) -> Place | None:
    """A JAX point as a place."""
    return None if point is None or not point.operation else Place(point.operation, point.where, "", point.lines)


def relation(ours: np.ndarray, theirs: np.ndarray, sizes: Iterable[int]) -> str:
    """How the numbers of two places compare."""
    a, b = np.asarray(ours, np.float64).ravel(), np.asarray(theirs, np.float64).ravel()
    if a.size != b.size:
        return f"torch has {a.size} numbers, JAX {b.size}"
    finite = np.isfinite(a) & np.isfinite(b) & (np.abs(a) > 1e-12 * np.abs(a).max(initial=0.0)) & (a != 0)
    if not finite.any():
        return "no finite numbers to compare"
    ratio = b[finite] / a[finite]
    if np.ptp(ratio) <= 1e-8 * np.abs(ratio).max():
        value = float(ratio.mean())
        if abs(value + 1) < 1e-9:
            return "JAX has the other sign"
        for n in sorted({s for s in sizes if s > 2}):
            if abs(value - n) < 1e-8 * n:
                return f"JAX is exactly {n} times torch, the size of an axis: a sum for a mean"
            if abs(value * n - 1) < 1e-8:
                return f"JAX is exactly 1/{n} of torch, the size of an axis: a mean for a sum"
        for n in sorted({s for s in sizes if s > 2}) if value else ():
            for words, other in ((f"{n * n}", n * n), (f"1/{n * n}", 1 / n**2)):
                if abs(value / other - 1) < 1e-8:
                    return f"JAX is {words} times torch, the square of the size of an axis"
        return f"JAX is {value:.10g} times torch" if finite.sum() > 1 or _plain(value) else _apart(a, b)
    apart = np.isfinite(a) & np.isfinite(b) & (a != 0) & ~np.isclose(a, b, 1e-10, 0.0)
    if 1 < apart.sum() < a.size and np.ptp(b[apart] / a[apart]) <= 1e-8 * np.abs(b[apart] / a[apart]).max():
        return f"JAX is {float((b[apart] / a[apart]).mean()):.10g} times torch in {apart.sum()} of {a.size} places"
    shift = b[finite] - a[finite]
    if finite.all() and a.size > 1 and np.ptp(shift) <= 1e-9 * max(np.abs(a).max(), np.abs(b).max()):
        return f"JAX is torch plus {float(shift.mean()):.10g}"
    if np.isfinite(a).all() and np.isfinite(b).all() and a.size > 3 and np.ptp(a) > 0:
        slope, offset = np.polyfit(a, b, 1)
        if np.abs(slope * a + offset - b).max() <= 1e-10 * np.abs(b).max():
            return f"JAX is {slope:.8g} times torch plus {offset:.8g}"
    return _apart(a, b)


def _plain(value: float) -> bool:
    return any(abs(value - other) < 1e-9 for other in (0.5, 2.0, 0.25, 4.0, 0.0))


def _apart(a: np.ndarray, b: np.ndarray) -> str:
    return f"largest distance {np.nanmax(np.abs(a - b), initial=0.0):.3g}, numbers up to {np.nanmax(np.abs(a)):.3g}"
