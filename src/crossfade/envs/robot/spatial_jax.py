"""Vectors and matrices of rigid bodies, in JAX, axes of robots last. Twin: spatial_numpy.py.

A spatial vector has six numbers: angular, then linear, in the axes of the world, about one origin.
"""

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .chunks_jax import kept

Constant = Array | np.ndarray
TINY = 1e-12
"""What is added to squares under a root, so that it can be divided by."""


def total(parts: Float[Array, "n ..."], axis: int = 0) -> Float[Array, "..."]:
    """The sum over an axis of few numbers."""
    return reduce(add, (jax.lax.index_in_dim(parts, i, axis, keepdims=False) for i in range(parts.shape[axis])))


def dot(a: Float[Array, "n ..."], b: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """a b."""
    return total(a * b)


def cross(a: Float[Array, "3 ..."], b: Float[Array, "3 ..."]) -> Float[Array, "3 ..."]:
    """a x b."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def skew(a: Float[Array, "3 ..."]) -> Float[Array, "3 3 ..."]:
    """The matrix [a] with [a] b = a x b."""
    o = jnp.zeros_like(a[0])
    rows = [o, -a[2], a[1]], [a[2], o, -a[0]], [-a[1], a[0], o]
    return jnp.stack([jnp.stack(row) for row in rows])


def apply(matrix: Float[Array, "n m ..."], vector: Float[Constant, "m ..."]) -> Float[Array, "n ..."]:
    """matrix vector."""
    return reduce(add, (matrix[:, i] * vector[i][None] for i in range(matrix.shape[1])))


def matmul(a: Float[Array, "n m ..."], b: Float[Constant, "m k ..."]) -> Float[Array, "n k ..."]:
    """a b."""
    return reduce(add, (a[:, i][:, None] * b[i][None] for i in range(a.shape[1])))


def transpose(matrix: Float[Array, "n m ..."]) -> Float[Array, "m n ..."]:
    """matrix^T."""
    return jnp.swapaxes(matrix, 0, 1)


def blocks(
    a: Float[Array, "3 3 ..."],
    b: Float[Array, "3 3 ..."],
    c: Float[Array, "3 3 ..."],
    d: Float[Array, "3 3 ..."],
) -> Float[Array, "6 6 ..."]:
    """((a, b), (c, d))."""
    return jnp.concatenate([jnp.concatenate([a, b], 1), jnp.concatenate([c, d], 1)], 0)


def motion_cross(v: Float[Array, "6 ..."], m: Float[Array, "6 ..."]) -> Float[Array, "6 ..."]:
    """v x m of two motions: (w x m_w, w x m_l + l x m_w)."""
    return jnp.concatenate([cross(v[:3], m[:3]), cross(v[:3], m[3:]) + cross(v[3:], m[:3])])


def force_cross(v: Float[Array, "6 ..."], f: Float[Array, "6 ..."]) -> Float[Array, "6 ..."]:
    """v x* f of a motion and a force: (w x f_w + l x f_l, w x f_l)."""
    return jnp.concatenate([cross(v[:3], f[:3]) + cross(v[3:], f[3:]), cross(v[:3], f[3:])])


def spatial_inertia(
    rotation: Float[Array, "3 3 ..."],
    centre: Float[Array, "3 ..."],
    mass: Float[Array, "..."],
    inertia: Float[Array, "3 3 ..."],
) -> Float[Array, "6 6 ..."]:
    """((R I R^T + m (c c 1 - c c^T), m [c]), (-m [c], m 1)), of a mass centre c and an inertia about it in axes R."""
    moment = kept(mass[None, None] * skew(centre))
    one = jnp.eye(3, dtype=centre.dtype).reshape(3, 3, *[1] * mass.ndim)
    apart = one * dot(centre, centre)[None, None] - centre[:, None] * centre[None]
    turned = matmul(kept(matmul(rotation, inertia)), transpose(rotation)) + mass[None, None] * apart
    return kept(blocks(kept(turned), moment, -moment, one * mass[None, None]))


def rotation_of(quaternion: Float[Array, "4 ..."]) -> Float[Array, "3 3 ..."]:
    """The rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion
    rows = (
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    )
    return jnp.stack([jnp.stack(row) for row in rows])


def turned(quaternion: Float[Array, "4 ..."], angular: Float[Array, "3 ..."], time: float) -> Float[Array, "4 ..."]:
    """A unit quaternion after turning with a velocity in its own axes: q (cos(t |w| / 2), w / |w| sin(t |w| / 2))."""
    half = jnp.sqrt(dot(angular, angular) + TINY) * (time / 2)
    s, (x, y, z) = jnp.cos(half), angular * (jnp.sin(half) / half * (time / 2))[None]
    a, b, c, d = quaternion
    product = jnp.stack(
        [
            a * s - b * x - c * y - d * z,
            a * x + b * s + c * z - d * y,
            a * y - b * z + c * s + d * x,
            a * z + b * y - c * x + d * s,
        ]
    )
    return product / jnp.sqrt(dot(product, product))[None]


def solve(matrix: Float[Array, "n n ..."], right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """x of matrix x = right for a positive definite matrix, by Gauss and Jordan: its columns become those of 1."""
    n = matrix.shape[0]
    rows = jnp.concatenate([matrix, right[:, None]], 1)
    for k in range(n):
        pivot = rows[k] / rows[k, k][None]
        own = (np.arange(n) == k).reshape(-1, *[1] * (rows.ndim - 1))
        rows = kept(jnp.where(own, pivot[None], rows - rows[:, k][:, None] * pivot[None]))
    return rows[:, n]
