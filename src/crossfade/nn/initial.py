"""Initial laws of parameters, in NumPy: both frameworks start from the same bits.

A law draws in float64 and `draw` rounds, so that runs of either precision start at the same place. Weights have torch's
shape, (outputs, inputs).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Float64

from ..random import random_numpy as random

Shape = tuple[int, ...]
Law = Callable[[np.ndarray, Shape], np.ndarray]
"""`(key, shape) -> float64 array`."""

TRUNCATED = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at two deviations."""
BELOW_MINUS_TWO = 0.022750131948179195
"""Probability that a standard normal lies below -2."""


def constant(value: float) -> Law:
    """Every entry is `value`."""
    return lambda key, shape: np.full(shape, value)


def uniform(fan_in: int | float) -> Law:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), torch's default for weights and biases of linear layers."""
    bound = 1 / math.sqrt(fan_in)
    return lambda key, shape: random.uniform(key, shape, "float64", -bound, bound)


def lecun_normal() -> Law:
    """A normal cut at two standard deviations, with variance 1 / fan_in."""

    def law(key: np.ndarray, shape: Shape) -> np.ndarray:
        return _truncated(key, shape) / math.sqrt(shape[1])

    return law


def lecun_uniform() -> Law:
    """U(-b, b), b = sqrt(3 / fan_in): variance 1 / fan_in."""

    def law(key: np.ndarray, shape: Shape) -> np.ndarray:
        bound = math.sqrt(3 / shape[1])
        return random.uniform(key, shape, "float64", -bound, bound)

    return law


def he_normal() -> Law:
    """A normal cut at two standard deviations, with variance 2 / fan_in, for weights (outputs, inputs, *kernel)."""

    def law(key: np.ndarray, shape: Shape) -> np.ndarray:
        return math.sqrt(2 / math.prod(shape[1:])) * _truncated(key, shape)

    return law


def variance_scaling(scale: float) -> Law:
    """U(-b, b), b = sqrt(3 scale / ((fan_in + fan_out) / 2)): Xavier's uniform law at scale 1 (Glorot and Bengio 2010).

    For weights (*members, outputs, inputs), each member by itself, and (outputs, inputs, height, width).
    """

    def law(key: np.ndarray, shape: Shape) -> np.ndarray:
        kernel = math.prod(shape[2:]) if len(shape) == 4 else 1
        fan_out, fan_in = shape[:2] if len(shape) == 4 else shape[-2:]
        bound = math.sqrt(3 * scale / (kernel * (fan_in + fan_out) / 2))
        return random.uniform(key, shape, "float64", -bound, bound)

    return law


def orthogonal(gain: float = 1.0) -> Law:
    """`gain` times orthonormal rows or columns, whichever are fewer, uniform among all such (Mezzadri 2007)."""
    return partial(_orthogonal, gain)


def _orthogonal(gain: float, key: np.ndarray, shape: Shape) -> Float64[np.ndarray, "outputs inputs"]:
    long, short = max(shape), min(shape)
    q, r = np.linalg.qr(random.normal(key, (long, short), "float64"))
    q = gain * (q * np.sign(np.diag(r)))
    return q if shape[0] == long else q.T


def _truncated(key: np.ndarray, shape: Shape) -> np.ndarray:
    """A normal cut at two standard deviations, with variance 1."""
    from scipy.special import ndtri

    return ndtri(random.uniform(key, shape, "float64", BELOW_MINUS_TWO, 1 - BELOW_MINUS_TWO)) / TRUNCATED


def linear_shapes(name: str, fan_in: int, fan_out: int) -> dict[str, Shape]:
    """The parameters of a linear layer, by torch's names."""
    return {f"{name}.weight": (fan_out, fan_in), f"{name}.bias": (fan_out,)}


def draw(laws: Mapping[str, tuple[Law, Shape]], key: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Every parameter by its law; the i-th draws from fold_in(key, i)."""
    return {
        name: np.ascontiguousarray(law(random.fold_in(key, i), shape), dtype)
        for i, (name, (law, shape)) in enumerate(laws.items())
    }
