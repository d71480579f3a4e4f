"""The numbers that both models are run on: random weights and scaled inputs.

A model as it was made hides mistakes: its scales are one, its biases and running means zero. One draw of numbers hides
mistakes as well: `relu6` is `relu` below six, `abs(scale)` is `scale` above zero, a clamp is nothing inside its range.
So the first draw, with which parameters are matched, has positive vectors of size one, fit for a variance; and the
PROBES that prove the match have both signs, small and large numbers, and inputs scaled by themselves.
"""

from collections.abc import Iterable, Mapping as Named
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]
Weights = dict[str, np.ndarray]  # by torch name


@dataclass(frozen=True)
class Probe:
    """Factors of the example's inputs, of random matrices, and of random vectors and scalars of both signs."""

    inputs: float
    matrices: float
    vectors: float

    @property
    def ordinary(self) -> bool:
        """Whether numbers are of size one, so that nothing can overflow."""
        return {abs(self.inputs), self.matrices, self.vectors} == {1.0}

    def __str__(self) -> str:
        factors = {"inputs": self.inputs, "weight matrices": self.matrices, "weight vectors": self.vectors}
        parts = [f"{what} times {factor:g}" for what, factor in factors.items() if factor != 1.0]
        return ", ".join(["weights of both signs", *parts])


# Two by two: the vectors of the second have the opposite signs of those of the first.
PROBES = (
    Probe(1.0, 1.0, 1.0),
    Probe(-1.0, 1.0, 1.0),
    Probe(0.03, 0.3, 0.3),
    Probe(-10.0, 1.0, 1.0),
    Probe(1.0, 1.0, 10.0),
    Probe(100.0, 1.0, 1.0),
    Probe(1.0, 10.0, 1.0),
    Probe(-1000.0, 1.0, 1000.0),
)


def first_draw(rng: np.random.Generator, shape: Shape, positive: bool = False) -> np.ndarray:
    """Normal matrices with variance 1 / fan-in; vectors, scalars and `positive` arrays uniform in [0.5, 1.5]."""
    if positive or len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape)
    return _matrix(rng, shape)


def probe_draw(number: int, shapes: Named[str, Shape], positive: Iterable[str]) -> Weights:
    """The weights of PROBES[number] for arrays of these shapes; those named `positive` have no negative numbers."""
    probe, positive = PROBES[number], set(positive)
    rng, signs = np.random.default_rng((2, number)), np.random.default_rng((3, number // 2))
    weights = {}
    for name, shape in shapes.items():
        sign = signs.choice((-1.0, 1.0), shape) * (1.0 - 2.0 * (number % 2))
        if name in positive:
            weights[name] = first_draw(rng, shape, positive=True) * probe.vectors
        elif len(shape) < 2:
            weights[name] = first_draw(rng, shape) * sign * probe.vectors
        else:
            weights[name] = _matrix(rng, shape) * probe.matrices
    return weights


def _matrix(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))


def is_continuous(array: np.ndarray) -> bool:
    """Whether an input can be scaled: not all its numbers are whole. Flags, counts and pixels are left unscaled."""
    return array.dtype.kind == "f" and bool(np.any(np.isfinite(array) & (array != np.round(array))))


def is_neutral(array: np.ndarray) -> bool:
    """Whether an array is all zeros, all ones or the identity, so that it may have no effect on the outputs."""
    return bool((array == 0).all() or (array == 1).all()) or (
        array.ndim == 2 and array.shape[0] == array.shape[1] and np.array_equal(array, np.eye(len(array)))
    )


def disturbed(array: np.ndarray) -> np.ndarray:
    """Other values of the same type, to test whether the outputs depend on the array."""
    if array.dtype == bool:
        return ~array
    if array.dtype.kind in "iu":
        return np.asarray(array + 1)
    return first_draw(np.random.default_rng(4), array.shape, positive=True)
