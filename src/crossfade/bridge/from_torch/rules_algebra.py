"""Products and factorisations of matrices, in JAX."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from .rules_reductions import safe_sqrt
from .table import rule, rules
from .values import Number, ranked

rules(
    bmm=jnp.matmul,
    dot=jnp.dot,
    mm=jnp.matmul,
    mv=jnp.matmul,
    trace=jnp.trace,
    vdot=jnp.vdot,
)


def _plus(bias: Array, product: Array, beta: Number, alpha: Number) -> Array:
    """beta bias + alpha product; with beta 0 the bias is not read."""
    product = product if alpha == 1 else alpha * product
    if beta == 0:
        return product
    bias, product = ranked(bias, product)
    return (bias if beta == 1 else beta * bias) + product


@rule("addmm")
def addmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus(bias, x @ y, beta, alpha)


@rule("addmv")
def addmv(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus(bias, x @ y, beta, alpha)


@rule("baddbmm")
def baddbmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus(bias, x @ y, beta, alpha)


@rule("addbmm")
def addbmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus(bias, jnp.einsum("bij,bjk->ik", x, y), beta, alpha)


@rule("addr")
def addr(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _plus(bias, x[:, None] * y[None], beta, alpha)


@rule("linear")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = x @ weight.T
    return product if bias is None else _plus(bias, product, 1, 1)


@rule("_trilinear")
def trilinear(
    x: Array,
    y: Array,
    z: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    over: Sequence[int],
    unroll: int = 1,
) -> Array:
    """The sum over some axes of the product of three tensors, each with new axes of size one."""
    new = ((x, expand1), (y, expand2), (z, expand3))
    x, y, z = (jnp.expand_dims(a, tuple(dims)) for a, dims in new)
    return jnp.sum(x * y * z, axis=tuple(over))


@rule("linalg_cross")
def cross(x: Array, y: Array, *, dim: int = -1) -> Array:
    return jnp.cross(x, y, axis=dim)


@rule("linalg_cholesky_ex")
def cholesky(x: Array, *, upper: bool = False, check_errors: bool = False) -> tuple[Array, Array]:
    factor = jnp.linalg.cholesky(x, symmetrize_input=False)
    return (jnp.swapaxes(factor, -1, -2) if upper else factor), jnp.zeros(x.shape[:-2], int)


@rule("linalg_inv_ex")
def inverse(x: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    return jnp.linalg.inv(x), jnp.zeros(x.shape[:-2], int)


@rule("linalg_solve_triangular")
def solve_triangular(x: Array, y: Array, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Array:
    """The solution z of x z = y, or of z x = y where not `left`."""
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = jnp.broadcast_to(x, batch + x.shape[-2:]), jnp.broadcast_to(y, batch + y.shape[-2:])
    return jax.lax.linalg.triangular_solve(x, y, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@rule("triangular_solve")
def old_triangular_solve(
    y: Array, x: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    x = jnp.swapaxes(x, -1, -2) if transpose else x
    return solve_triangular(x, y, upper=upper != transpose, unitriangular=unitriangular), x


@rule("_linalg_det")
def det(x: Array) -> tuple[Array, Array, Array]:
    return jnp.linalg.det(x), x, jnp.zeros(x.shape[:-1], int)


@rule("_linalg_slogdet")
def slogdet(x: Array) -> tuple[Array, Array, Array, Array]:
    sign, logarithm = jnp.linalg.slogdet(x)
    return sign, logarithm, x, jnp.zeros(x.shape[:-1], int)


@rule("_linalg_solve_ex")
def solve(x: Array, y: Array, *, left: bool = True, check_errors: bool = False) -> tuple[Array, ...]:
    flip = lambda a: a if left else jnp.swapaxes(a, -1, -2)
    vector = y.ndim == x.ndim - 1
    result = jnp.linalg.solve(flip(x), y[..., None] if vector else flip(y))
    return (result[..., 0] if vector else flip(result)), x, jnp.zeros(x.shape[:-1], int), jnp.zeros(x.shape[:-2], int)


@rule("_linalg_eigh")
def eigh(x: Array, uplo: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(x, UPLO=uplo, symmetrize_input=False)
    return values, (vectors if compute_v else jnp.zeros((0,), x.dtype))


@rule("_linalg_svd")
def svd(x: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: object = None) -> tuple:
    if compute_uv:
        return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))
    none = jnp.zeros((0,), x.dtype)
    return none, jnp.linalg.svd(x, compute_uv=False), none


@rule("linalg_qr")
def qr(x: Array, mode: str = "reduced") -> tuple[Array, Array]:
    q, r = jnp.linalg.qr(x, "complete" if mode == "complete" else "reduced")
    return q, r


@rule("linalg_matrix_exp")
def matrix_exp(x: Array) -> Array:
    return jax.scipy.linalg.expm(x)


@rule("_cdist_forward", "cdist")
def cdist(x: Array, y: Array, p: Number = 2.0, compute_mode: int | None = None) -> Array:
    """Distances between each row of x and each of y; 0 has the derivative 0."""
    apart = x[..., :, None, :] - y[..., None, :, :]
    if p == 2:
        return safe_sqrt(jnp.sum(jnp.square(apart), -1))
    return jnp.sum(jnp.abs(apart) ** p, -1) ** (1 / p)


@rule("_euclidean_dist")
def euclidean_dist(x: Array, y: Array) -> Array:
    return cdist(x, y)
