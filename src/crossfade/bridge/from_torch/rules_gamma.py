"""Gamma numbers and their derivative, in JAX: Gamma, Chi2, StudentT and what else torch draws by `_standard_gamma`.

torch's derivative of a sample x by its shape a is an approximation good to three or four digits, JAX's own is exact.
This is torch's, so that an imported function is the same function.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma

from .table import rule

RATIONAL = (
    (0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084),
    (0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
    (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 8.5092367e-4, -1.5247877e-7),
)
"""Coefficients by powers of log(x / a), then of log a, numerator and denominator."""


@rule("_standard_gamma")
def standard_gamma(key: Array, shape: tuple[int, ...], kind: np.dtype, a: Array, generator: object = None) -> Array:
    return _sample(a, key)


@jax.custom_jvp
def _sample(a: Array, key: Array) -> Array:
    return jax.random.gamma(key, a, dtype=a.dtype)


@_sample.defjvp
def _sample_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    x = _sample(*primals)
    return x, standard_gamma_grad(primals[0], x) * tangents[0]


@rule("_standard_gamma_grad")
def standard_gamma_grad(a: Array, x: Array) -> Array:
    """dx/da of a sample x: a series for small x, a saddle point for large a, rational functions between."""
    small, large = x < 0.8, a > 8.0
    near = (0.9 * a <= x) & (x <= 1.1 * a)
    return jnp.where(
        small,
        _series(a, jnp.where(small, x, 0.5)),
        jnp.where(
            large,
            jnp.where(
                near,
                _at_saddle(jnp.where(large, a, 10.0), x),
                _saddle(jnp.where(large & ~near, a, 10.0), jnp.where(large & ~near, x, 20.0)),
            ),
            _rational(jnp.where(large, 1.0, a), jnp.where(small, 1.0, x)),
        ),
    )


def _series(a: Array, x: Array) -> Array:
    numerator, first, second = jnp.ones_like(x), 1 / a, 1 / a**2
    for i in range(1, 6):
        numerator = numerator * -x / i
        first, second = first + numerator / (a + i), second + numerator / (a + i) ** 2
    cdf = x**a * first
    cdf_by_a = (jnp.log(x) - digamma(a)) * cdf - x**a * second
    grad = -cdf_by_a / (x ** (a - 1) * jnp.exp(-x))
    return jnp.where(jnp.isnan(grad), 0.0, grad)


def _at_saddle(a: Array, x: Array) -> Array:
    first = 1 + 24 * a * (1 + 12 * a)
    second = 1440 * a**2 + 6 * x * (53 - 120 * x) - 65 * x**2 / a + a * (107 + 3600 * x)
    return first * second / (1244160 * a**4)


def _saddle(a: Array, x: Array) -> Array:
    root = jnp.sqrt(8 * a)
    second, third = root / (a - x), (x - a - a * jnp.log(x / a)) ** -1.5
    both = jnp.where(x < a, second - third, second + third)
    first = jnp.log(x / a) * both - jnp.sqrt(2 / a) * (a + x) / (a - x) ** 2
    stirling = 1 + 1 / (12 * a) * (1 + 1 / (24 * a))
    return -stirling * x * first / root


def _rational(a: Array, x: Array) -> Array:
    u, v = jnp.log(x / a), jnp.log(a)
    c = [one + u * (two + u * three) for one, two, three in zip(*RATIONAL, strict=True)]
    return jnp.exp((c[0] + v * (c[1] + v * (c[2] + v * c[3]))) / (c[4] + v * (c[5] + v * (c[6] + v * c[7]))))
