"""How different is too different: pure functions on NumPy arrays by name, used by `bridge` and by `parity`.

Two correct ports agree in float64 to rounding, so float64 decides: anything above a tight tolerance is another system.
Float32 is then held to its own measured noise, the distance of each side from its float64 self. By the triangle
inequality two sides that agree in float64 stay within twice that noise, so a clean port cannot raise an alarm, however
chaotic its float32 trajectory.

Differences are relative to the scale of their leaf, its largest magnitude. A masking constant (-1e9 on illegal actions)
is no measure of that scale: it is left aside, and held to its own magnitude.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

Leaves = Mapping[str, np.ndarray]  # arrays by name

EPS32 = float(np.finfo(np.float32).eps)
EPS64 = float(np.finfo(np.float64).eps)
SENTINEL = 1e6  # a larger number that both sides hold bit for bit is a masking constant, not a measure of scale
MASKED = 1e8  # a larger number that both sides hold to a millionth is a value with a masking constant added
NOISE_ULPS = 8  # no float32 noise floor is lower
NOISE_FACTOR = 10  # float32 may differ by so many noise floors


class Verdict(IntEnum):
    """From best to worst, so that `max` of several is the verdict of the whole."""

    EQUAL = 0  # bit for bit
    ROUNDING = 1  # the same system: equal in float64, float32 within measured noise
    DIFFERENT = 2

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Difference:
    """The worst place of a comparison: where, both values, and the size relative to the leaf's scale."""

    leaf: str
    kind: str  # values, non-finite, shape, dtype, missing, hollow, or no counterpart
    size: float = 0.0
    allowed: float = 0.0  # in the same unit as `size`
    index: tuple[int, ...] = ()
    torch: str = ""
    jax: str = ""


@dataclass(frozen=True)
class Comparison:
    """The verdict on one quantity and its worst place."""

    verdict: Verdict
    worst: Difference


def compare(torch: Leaves, jax: Leaves, allowed: Mapping[str, float], *, dtypes: bool = False) -> Comparison:
    """Compares leaf by leaf; `allowed` is the largest absolute difference each leaf may show.

    With `dtypes` a floating leaf must also have the same precision on both sides: in a float64 run a float32 result is
    a leak.
    """
    if odd := next(_structural(torch, jax, dtypes), None):
        return Comparison(Verdict.DIFFERENT, odd)
    worst, worst_excess, equal = Difference("", "values"), -1.0, True
    for leaf in torch:
        limit = allowed.get(leaf, 0.0)
        difference, distance = _measure(leaf, torch[leaf], jax[leaf], limit)
        equal = equal and distance == 0.0
        excess = 0.0 if distance == 0.0 else distance / max(limit, float(np.finfo(np.float64).tiny))
        if excess > worst_excess:
            worst, worst_excess = difference, excess
    verdict = Verdict.EQUAL if equal else Verdict.ROUNDING if worst_excess <= 1.0 else Verdict.DIFFERENT
    return Comparison(verdict, worst)


def allow_float64(torch: Leaves, jax: Leaves, relative: float, floor: float = 0.0) -> dict[str, float]:
    """Allowed absolute differences of a float64 run: a share of the leaf's scale, but at least `floor`.

    The floor is for sums that cancel: the gradient of a bias in front of a batch normalisation is zero but for
    rounding. Integers and booleans must be equal. A leaf that is no wider than float32 can only agree to that.
    """
    allowed = {}
    for leaf in _common(torch, jax):
        a, b = torch[leaf], jax[leaf]
        narrow = NOISE_FACTOR * least_noise(a, b) if is_narrow(a) or is_narrow(b) else 0.0
        allowed[leaf] = max(relative * scale(a, b), floor, narrow) if _inexact(a) else 0.0
    return allowed


def largest(*groups: Leaves) -> float:
    """The largest scale among the floating leaves of some groups."""
    return max((scale(a, a) for group in groups for a in group.values() if _inexact(a)), default=0.0)


def allow_float32(
    torch: Leaves, jax: Leaves, torch64: Leaves, jax64: Leaves, rounding: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Allowed absolute differences of a float32 run: ten times the noise measured on this very quantity.

    The noise of a side is its distance from its float64 self. A bug that exists in float32 alone (a cast to bfloat16,
    an integer that overflows) would count as noise of its own side and pay for itself: so where the sides are unlike,
    the noise of the worse one counts up to `rounding`, what rounding is known to do to each leaf. Without `rounding`
    all of it counts: that is for results that feed back into themselves, such as long training.
    """
    allowed = {}
    for leaf in _common(torch, jax, torch64, jax64):
        better, worse = sorted((_noise(torch[leaf], torch64[leaf]), _noise(jax[leaf], jax64[leaf])))
        known = worse if rounding is None else min(worse, rounding.get(leaf, 0.0))
        allowed[leaf] = NOISE_FACTOR * max(better, known, least_noise(torch[leaf], jax[leaf]))
    return allowed


def allow_unproved(torch: Leaves, jax: Leaves, rounding: Mapping[str, float], longest_sum: int) -> dict[str, float]:
    """Allowed absolute differences of a float32 run with no float64 beside it.

    The noise floor is then estimated: that of sums of `longest_sum` terms, or what rounding is known to do to each
    leaf, whichever is larger.
    """
    growth = max(1.0, np.sqrt(longest_sum) / NOISE_ULPS)
    return {
        leaf: NOISE_FACTOR * max(growth * least_noise(torch[leaf], jax[leaf]), rounding.get(leaf, 0.0))
        for leaf in _common(torch, jax)
    }


def least_noise(a: np.ndarray, b: np.ndarray) -> float:
    """Eight units in the last place of the leaf's scale; nothing for integers."""
    return NOISE_ULPS * EPS32 * scale(a, b) if _inexact(a) else 0.0


def is_narrow(array: np.ndarray) -> bool:
    """Floating point below float64."""
    return _inexact(array) and array.dtype not in (np.float64, np.complex128)


def noise(single: Leaves, double: Leaves) -> float:
    """How far a float32 result is from its float64 self: the worst leaf, relative to its scale."""
    apart = distances(single, double)
    return max(
        (relative(apart[leaf], single[leaf], double[leaf]) for leaf in apart if _inexact(single[leaf])), default=0.0
    )


def distances(a: Leaves, b: Leaves) -> dict[str, float]:
    """The largest finite distance of every leaf."""
    return {leaf: _noise(a[leaf], b[leaf]) for leaf in _common(a, b)}


def relative(distance: float, a: np.ndarray, b: np.ndarray) -> float:
    """An absolute distance as a share of the leaf's scale."""
    unit = scale(a, b)
    return 0.0 if distance == 0.0 else distance / unit if unit > 0.0 else float("inf")


def _common(*groups: Leaves) -> list[str]:
    return [leaf for leaf in groups[0] if all(leaf in g and g[leaf].shape == groups[0][leaf].shape for g in groups)]


def _structural(torch: Leaves, jax: Leaves, dtypes: bool) -> Iterator[Difference]:
    for leaf in (*torch, *(name for name in jax if name not in torch)):
        if leaf not in jax or leaf not in torch:
            words = {True: "given", False: "absent"}
            yield Difference(leaf, "missing", torch=words[leaf in torch], jax=words[leaf in jax])
            continue
        a, b = torch[leaf], jax[leaf]
        if a.shape != b.shape:
            yield Difference(leaf, "shape", torch=str(a.shape), jax=str(b.shape))
        elif _inexact(a) != _inexact(b) or (dtypes and is_narrow(a) != is_narrow(b)):
            yield Difference(leaf, "dtype", torch=str(a.dtype), jax=str(b.dtype))


def _measure(leaf: str, a: np.ndarray, b: np.ndarray, allowed: float) -> tuple[Difference, float]:
    apart = elementwise(a, b)
    distance = float(apart.max(initial=0.0))
    if distance == 0.0:
        return Difference(leaf, "values", allowed=relative(allowed, a, b)), 0.0
    index = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
    difference = Difference(
        leaf,
        "values" if np.isfinite(distance) else "non-finite",
        size=relative(distance, a, b),
        allowed=relative(allowed, a, b),
        index=index,
        torch=_show(a[index]),
        jax=_show(b[index]),
    )
    return difference, distance


def _noise(a: np.ndarray, b: np.ndarray) -> float:
    """The largest finite distance: a NaN or an overflow that only one side has is never noise."""
    apart = elementwise(a, b)
    return float(apart.max(where=np.isfinite(apart), initial=0.0))


def elementwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| of each element: zero where both hold the same NaN or infinity, infinite where only one does.

    The distance of two masked values is taken relative to their magnitude, and put in units of the array's scale.
    """
    same = a == b
    if not _inexact(a):
        # Integers of 2**53 and more would collapse in float64; what is unequal is at least one apart.
        apart = np.maximum(np.abs(a.astype(np.float64) - b.astype(np.float64)), 1.0)
        return np.where(same, 0.0, apart)
    wide_a, wide_b = _wide(a), _wide(b)
    same = same | (np.isnan(wide_a) & np.isnan(wide_b))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(wide_a - wide_b)
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    masked = _masked(a, b) & ~same
    if masked.any():
        apart[masked] *= scale(a, b) / np.abs(wide_a[masked])
    return apart


def scale(a: np.ndarray, b: np.ndarray) -> float:
    """The largest magnitude of two arrays, masking constants (-1e9, finfo.min) left aside."""
    size = np.maximum(np.abs(_wide(a)), np.abs(_wide(b)))
    finite = np.isfinite(size)
    counts = finite & ~_masked(a, b)
    return float(size.max(where=counts, initial=0.0)) or float(size.max(where=finite, initial=0.0))


def _masked(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which elements hold a masking constant on both sides, or a value to which one was added."""
    wide_a, wide_b = _wide(a), _wide(b)
    size = np.maximum(np.abs(wide_a), np.abs(wide_b))
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(wide_a - wide_b) <= 1e-6 * size
    return np.asarray(np.isfinite(size) & (((a == b) & (size >= SENTINEL)) | (near & (size >= MASKED))))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _inexact(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"


def _show(value: np.generic) -> str:
    return repr(value.item())
