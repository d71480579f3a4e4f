"""Random operations, in JAX: each takes its own key and the shape and dtype (`kind`) of its result first.

stream.py draws the same numbers in torch.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .table import rule
from .values import Number, Value, ranked

Shape = tuple[int, ...]


def _noise(key: Array, shape: Shape, kind: np.dtype) -> Array:
    return jax.random.normal(key, shape, kind)


@rule("normal.default")
def normal_(
    key: Array, shape: Shape, kind: np.dtype, x: Array, mean: Number = 0, std: Number = 1, *, generator: object = None
) -> Array:
    return mean + std * _noise(key, shape, kind)


@rule("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal(
    key: Array, shape: Shape, kind: np.dtype, mean: Value, std: Value = 1.0, *, generator: object = None
) -> Array:
    noise, mean, std = ranked(_noise(key, shape, kind), jnp.asarray(mean), jnp.asarray(std))
    return jax.lax.stop_gradient(mean + std * noise)


@rule("normal.float_float")
def normal_numbers(
    key: Array, shape: Shape, kind: np.dtype, mean: Number, std: Number, size: Sequence[int], **_: object
) -> Array:
    return mean + std * _noise(key, shape, kind)


@rule("randn", "randn_like")
def randn(key: Array, shape: Shape, kind: np.dtype, like: object, **_: object) -> Array:
    return _noise(key, shape, kind)


@rule("log_normal")
def log_normal(
    key: Array, shape: Shape, kind: np.dtype, x: Array, mean: Number = 1, std: Number = 2, *, generator: object = None
) -> Array:
    return jnp.exp(mean + std * _noise(key, shape, kind))


@rule("rand", "rand_like")
def rand(key: Array, shape: Shape, kind: np.dtype, like: object, **_: object) -> Array:
    return jax.random.uniform(key, shape, kind)


@rule("uniform")
def uniform(
    key: Array, shape: Shape, kind: np.dtype, x: Array, low: Number = 0, high: Number = 1, *, generator: object = None
) -> Array:
    return jax.random.uniform(key, shape, kind, low, high)


@rule("exponential")
def exponential(
    key: Array, shape: Shape, kind: np.dtype, x: Array, rate: Number = 1, *, generator: object = None
) -> Array:
    """Above 0, as torch's are: their logarithm is finite."""
    return jnp.maximum(jax.random.exponential(key, shape, kind), jnp.finfo(kind).tiny) / rate


def _hits(key: Array, shape: Shape, p: Number) -> Array:
    """True with probability p, from uniforms of 32 bits whatever the dtype."""
    return jax.random.uniform(key, shape, jnp.float32) < jnp.float32(p)


@rule("bernoulli.default")
def bernoulli(key: Array, shape: Shape, kind: np.dtype, p: Array, *, generator: object = None) -> Array:
    return jax.random.uniform(key, shape, p.dtype) < p


@rule("bernoulli.Tensor")
def bernoulli_tensor(
    key: Array, shape: Shape, kind: np.dtype, x: Array, p: Array, *, generator: object = None
) -> Array:
    noise, p = ranked(jax.random.uniform(key, shape, p.dtype), p)
    return noise < p


@rule("bernoulli.float", "bernoulli.p")
def bernoulli_number(
    key: Array, shape: Shape, kind: np.dtype, x: Array, p: Number = 0.5, *, generator: object = None
) -> Array:
    return _hits(key, shape, p)


@rule("native_dropout")
def dropout(key: Array, shape: Shape, kind: np.dtype, x: Array, p: Number, train: bool | None) -> tuple[Array, Array]:
    kept = _hits(key, shape, 1 - p) if train is not False else jnp.ones(shape, bool)
    return jnp.where(kept, x / (1 - p) if p < 1 else 0.0, 0.0), kept


@rule("randint.default")
def randint(key: Array, shape: Shape, kind: np.dtype, high: int, size: Sequence[int], **_: object) -> Array:
    return jax.random.randint(key, shape, 0, high, jnp.int32)


@rule("randint.low")
def randint_low(
    key: Array, shape: Shape, kind: np.dtype, low: int, high: int, size: Sequence[int], **_: object
) -> Array:
    return jax.random.randint(key, shape, low, high, jnp.int32)


@rule("randint_like.default", "random.to")
def randint_like(key: Array, shape: Shape, kind: np.dtype, x: Array, high: int, **_: object) -> Array:
    return jax.random.randint(key, shape, 0, high, jnp.int32)


@rule("randint_like.low_dtype", "random.from")
def randint_like_low(key: Array, shape: Shape, kind: np.dtype, x: Array, low: int, high: int, **_: object) -> Array:
    return jax.random.randint(key, shape, low, high, jnp.int32)


@rule("randperm")
def randperm(key: Array, shape: Shape, kind: np.dtype, n: int, **_: object) -> Array:
    return jax.random.permutation(key, n)


@rule("multinomial")
def multinomial(
    key: Array,
    shape: Shape,
    kind: np.dtype,
    weights: Array,
    samples: Number,
    replacement: bool = False,
    *,
    generator: object = None,
) -> Array:
    """Indices with probability proportional to the weights w: where log w + g is largest, with Gumbel noise g."""
    logits = jnp.log(weights)
    if replacement or samples == 1:
        drawn = jax.random.categorical(key, logits, shape=(shape[-1], *shape[:-1]))
        return jnp.moveaxis(drawn, 0, -1)
    scores = logits + jax.random.gumbel(key, logits.shape, logits.dtype)
    return jnp.argsort(scores, axis=-1, descending=True)[..., : shape[-1]]
