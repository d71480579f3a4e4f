"""Exact draws from R / Z, and Z itself, where a reward's form gives them without a walk over the states.

A bound from above on log Z needs objects from the target, and a claim about a large environment needs its true log Z.
Both are exact here: nothing is approximated and no chain has to mix.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Integer

from ...random import random_numpy as random
from ...random.random_numpy import Key

Draw = Callable[[Key, int], np.ndarray]


class Target(NamedTuple):
    """The distribution R / Z over objects."""

    draw: Draw
    """`draw(key, n)`: n independent objects, int32 (n, d)."""
    log_z: float | None
    """Log of the sum of all rewards, where the form of the reward gives that too."""


def listed(x: Int32[np.ndarray, "objects d"], log_reward: Float64[np.ndarray, " objects"]) -> Target:
    """The target whose objects are all given."""
    log_z = float(np.logaddexp.reduce(log_reward))
    share = np.exp(log_reward - log_z)

    def draw(key: Key, n: int) -> np.ndarray:
        return x[choose(share, random.uniform(key, (n,), np.float64))]

    return Target(draw, log_z)


def products(factor: Float64[np.ndarray, "terms d values"]) -> Target:
    """The target R(x) = sum over terms of the product over d of factor[term, d, x_d]: a mixture of products."""
    with np.errstate(divide="ignore"):
        log_mass = np.log(factor.sum(-1)).sum(-1)
    log_z = float(np.logaddexp.reduce(log_mass))
    share = np.exp(log_mass - log_z)

    def draw(key: Key, n: int) -> np.ndarray:
        which, where = random.split(key)
        term = choose(share, random.uniform(which, (n,), np.float64))
        u = random.uniform(where, (n, factor.shape[1]), np.float64)
        return np.stack([choose(factor[term, d], u[:, d]) for d in range(factor.shape[1])], axis=-1).astype(np.int32)

    return Target(draw, log_z)


def thinned(envelope: Target, log_ratio: Callable[[np.ndarray], np.ndarray]) -> Target:
    """The target that an envelope lies above: draws of it, each kept with probability exp(log_ratio) = R / envelope."""

    def draw(key: Key, n: int) -> np.ndarray:
        kept, rounds = [np.zeros((0, 0), np.int32)], 0
        while sum(map(len, kept)) < n:
            propose, keep = random.split(random.fold_in(key, rounds))
            x = envelope.draw(propose, n)
            kept.append(x[np.log(random.uniform(keep, (n,), np.float64)) < log_ratio(x)])
            rounds += 1
        return np.concatenate(kept[1:])[:n]

    return Target(draw, None)


def choose(weight: Float64[np.ndarray, "*rows values"], u: Float64[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
    """For each uniform number a value, in proportion to the weights: one row of them for all, or one for each."""
    reached = np.cumsum(weight, axis=-1)
    if weight.ndim == 1:
        return np.searchsorted(reached / reached[-1], u, side="right")
    return (reached <= u[:, None] * reached[:, -1:]).sum(-1)
