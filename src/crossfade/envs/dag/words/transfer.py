"""Spins on a torus row by row: a transfer matrix gives log Z and exact draws, though there are 2^(side^2) objects."""

import itertools

import numpy as np
from jaxtyping import Float64

from ....random import random_numpy as random
from ....random.random_numpy import Key
from ..target import Target, choose

WIDEST = 10
"""The matrix has 2^side rows and as many columns."""


def spins(side: int, coupling: float, field: float) -> Target:
    """The target of `IsingParams`: log R is a sum over rows, each alone and with the next, around the torus.

    With M(r, r') = exp(half of what rows r and r' have alone + what is between them), Z = tr M^side. The first row is
    drawn from the diagonal of M^side, and row k + 1 from M(row k, r) M^(side - k - 1)(r, first row).
    """
    row = np.array(list(itertools.product((-1, 1), repeat=side)))
    bond = 2 * coupling if side > 2 else coupling  # every bond counts twice; on two sites both ways round are one bond
    alone = bond * (row * np.roll(row, 1, axis=1)).sum(-1) + field * row.sum(-1)
    between = alone[:, None] / 2 + alone / 2 + bond * row @ row.T
    scale = np.logaddexp.reduce(between, axis=-1).max()  # no power of the scaled matrix overflows
    matrix = np.exp(between - scale)
    power: list[Float64[np.ndarray, "rows rows"]] = [np.eye(len(row))]
    for _ in range(side):
        power.append(power[-1] @ matrix)
    log_z = float(side * scale + np.log(np.trace(power[side])))

    def draw(key: Key, n: int) -> np.ndarray:
        u = random.uniform(key, (side, n), np.float64)
        first = choose(np.diag(power[side]).copy(), u[0])
        chosen = [first]
        for k in range(1, side):
            chosen.append(choose(matrix[chosen[-1]] * power[side - k][first], u[k]))
        return (row[np.stack(chosen, axis=1)].reshape(n, side**2) > 0).astype(np.int32)

    return Target(draw, log_z)
