"""Planes through a distribution over the cells of a grid or hypergrid, and a picture in characters."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

SHADES = " .:-=+*#%@"
Plane = Float[np.ndarray, "rows columns"]


def pairs(params: Any, most: int = 3) -> list[tuple[int, int]]:
    """Dimensions to look at two by two: (0, 1), (2, 3) and so on; an odd last one goes with the first."""
    down = range(0, params.n_dim, 2)
    return [(d, (d + 1) % params.n_dim) for d in down][:most]


def plane(p: Float[np.ndarray, " states"], params: Any, pair: tuple[int, int] = (0, 1)) -> Plane:
    """The marginal of two dimensions, the first downwards; a single row when there is only one."""
    picture = np.asarray(p).reshape((params.length,) * params.n_dim)
    if params.n_dim == 1:
        return picture[None, :]
    others = tuple(d for d in range(params.n_dim) if d not in pair)
    picture = picture.sum(axis=others)
    return picture if pair[0] < pair[1] else picture.T


def sampled_plane(x: Int[np.ndarray, "n d"], params: Any, pair: tuple[int, int] = (0, 1)) -> Plane:
    """The same of objects that were sampled."""
    cell = x[:, pair[0]] * params.length + x[:, pair[1]]
    return np.bincount(cell, minlength=params.length**2).reshape(params.length, params.length) / len(x)


def ascii_picture(p: Float[np.ndarray, " states"], params: Any) -> str:
    """Dark cells are likely: one character per cell, dimension 0 downwards, the scale from 0 to the largest cell."""
    picture = plane(p, params)
    shade = np.ceil(picture / picture.max() * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(SHADES[s] for s in row) for row in shade)
