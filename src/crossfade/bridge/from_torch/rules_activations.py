"""Activations and the softmax family, in JAX. At a kink each has the derivative that torch gives it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .rules_pointwise import with_slope
from .table import rule, rules
from .values import Number, as_float

rules(mish=lambda x: x * jnp.tanh(softplus(x)), relu=jax.nn.relu, silu=jax.nn.silu)


def _inside(x: Array, low: Number, high: Number, inner: Array) -> Array:
    """`inner` where low < x < high, and constants (its values at the ends) elsewhere."""
    return jnp.where((x > low) & (x < high), inner, lax.stop_gradient(inner))


@rule("leaky_relu")
def leaky_relu(x: Array, slope: Number = 0.01) -> Array:
    return jnp.where(x > 0, x, slope * x)


@rule("_prelu_kernel")
def prelu(x: Array, weight: Array) -> Array:
    return jnp.where(x > 0, x, weight * x)


@rule("elu")
def elu(x: Array, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0) -> Array:
    """scale x above 0, scale alpha (exp(input_scale x) - 1) up to it."""
    negative = jnp.expm1(jnp.where(x > 0, 0.0, x) * input_scale)
    return jnp.where(x > 0, scale * x, scale * alpha * negative)


@rule("celu")
def celu(x: Array, alpha: Number = 1.0) -> Array:
    """elu with input_scale 1 / alpha; torch's derivative takes alpha in 32 bits."""
    scale = 1.0 / float(np.float32(alpha))
    slope = jnp.where(x > 0, 1.0, alpha * scale * jnp.exp(jnp.where(x > 0, 0.0, x) * scale))
    return with_slope(x, elu(x, alpha, 1.0, 1.0 / alpha), slope)


@rule("gelu")
def gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@rule("hardtanh")
def hardtanh(x: Array, low: Number = -1, high: Number = 1) -> Array:
    """x between the bounds; unlike clamp's, the derivative is 0 at them."""
    return _inside(x, low, high, jnp.clip(x, low, high))


@rule("hardsigmoid")
def hardsigmoid(x: Array) -> Array:
    """x / 6 + 1 / 2 between 0 and 1; torch's derivative has 1 / 6 in 32 bits."""
    slope = jnp.where((x > -3) & (x < 3), float(np.float32(1 / 6)), 0.0)
    return with_slope(x, jnp.clip(x, -3, 3) / 6 + 0.5, slope.astype(x.dtype))


@rule("hardswish")
def hardswish(x: Array) -> Array:
    """x (x + 3) / 6 between -3 and 3, 0 below, x above."""
    return jnp.where(x <= -3, 0.0, jnp.where(x < 3, x * (x + 3) / 6, x))


@rule("softplus")
def softplus(x: Array, beta: Number = 1, threshold: Number = 20) -> Array:
    """log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    scaled = x * beta
    return jnp.where(scaled > threshold, x, jnp.log1p(jnp.exp(jnp.where(scaled > threshold, 0.0, scaled))) / beta)


@rule("log_sigmoid_forward")
def log_sigmoid(x: Array) -> tuple[Array, Array]:
    """log sigmoid(x), and the buffer that torch keeps for its backward pass."""
    small = jnp.exp(-jnp.where(x < 0, -x, x))
    return jnp.where(x < 0, x, 0.0) - jnp.log1p(small), lax.stop_gradient(small)


@rule("softshrink")
def softshrink(x: Array, bound: Number = 0.5) -> Array:
    return jnp.where(x > bound, x - bound, jnp.where(x < -bound, x + bound, 0.0))


@rule("hardshrink")
def hardshrink(x: Array, bound: Number = 0.5) -> Array:
    return jnp.where((x >= -bound) & (x <= bound), 0.0, x)


@rule("threshold")
def threshold(x: Array, bound: Number, value: Number) -> Array:
    return jnp.where(x <= bound, jnp.asarray(value, x.dtype), x)


@rule("glu")
def glu(x: Array, dim: int = -1) -> Array:
    a, b = jnp.split(x, 2, axis=dim)
    return a * jax.nn.sigmoid(b)


@rule("_softmax", "softmax")
def softmax(x: Array, dim: int, half_to_float: object = False) -> Array:
    return jax.nn.softmax(as_float(x), axis=dim)


@rule("_log_softmax", "log_softmax")
def log_softmax(x: Array, dim: int, half_to_float: object = False) -> Array:
    return jax.nn.log_softmax(as_float(x), axis=dim)


@rule("_safe_softmax")
def safe_softmax(x: Array, dim: int, dtype: object = None) -> Array:
    """The softmax, and 0 where everything is minus infinity."""
    hopeless = jnp.all(x == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(hopeless, 0.0, jax.nn.softmax(jnp.where(hopeless, 0.0, x), axis=dim))
