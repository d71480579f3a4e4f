"""Normalisations, in JAX."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from .table import rule
from .values import Number, ranked


def _standardised(x: Array, over: tuple[int, ...], eps: Number) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(var + eps) over some axes, the mean, and the reciprocal of the root."""
    mean = jnp.mean(x, over, keepdims=True)
    scale = lax.rsqrt(jnp.mean(jnp.square(x - mean), over, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        x = x * ranked(x, weight)[1]
    return x if bias is None else x + ranked(x, bias)[1]


@rule("native_layer_norm")
def layer_norm(
    x: Array, shape: Sequence[int], weight: Array | None, bias: Array | None, eps: Number
) -> tuple[Array, Array, Array]:
    y, mean, scale = _standardised(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    return _affine(y, weight, bias), mean, scale


@rule("_fused_rms_norm")
def rms_norm(x: Array, shape: Sequence[int], weight: Array | None, eps: Number | None) -> tuple[Array, Array]:
    """x / sqrt(mean(x^2) + eps); eps is that of the dtype if none is given."""
    over = tuple(range(x.ndim - len(shape), x.ndim))
    scale = lax.rsqrt(jnp.mean(jnp.square(x), over, keepdims=True) + (jnp.finfo(x.dtype).eps if eps is None else eps))
    return _affine(x * scale, weight, None), scale


@rule("native_group_norm")
def group_norm(
    x: Array, weight: Array | None, bias: Array | None, n: int, channels: int, space: int, groups: int, eps: Number
) -> tuple[Array, Array, Array]:
    y, mean, scale = _standardised(x.reshape(n, groups, -1), (2,), eps)
    trailing = (1,) * (x.ndim - 2)
    shaped = lambda v: None if v is None else v.reshape(channels, *trailing)
    return _affine(y.reshape(x.shape), shaped(weight), shaped(bias)), mean[..., 0], scale[..., 0]


@rule("native_batch_norm")
def batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[Array, ...]:
    """Over all axes but the channels. In training the statistics of the batch are used, and the running ones follow:
    new = (1 - momentum) old + momentum batch, with n - 1 in the denominator of the variance."""
    over = (0, *range(2, x.ndim))
    channels = lambda v: ranked(x, v.reshape(-1, *(1,) * (x.ndim - 2)))[1]
    per_channel = lambda v: None if v is None else channels(v)
    if not training:
        assert running_mean is not None and running_var is not None
        scale = lax.rsqrt(running_var + eps)
        y = (x - channels(running_mean)) * channels(scale)
        nothing = jnp.zeros((0,), x.dtype)
        return _affine(y, per_channel(weight), per_channel(bias)), nothing, nothing
    y, mean, scale = _standardised(x, over, eps)
    y, mean, scale = _affine(y, per_channel(weight), per_channel(bias)), mean.reshape(-1), scale.reshape(-1)
    if running_mean is None or running_var is None:
        return y, mean, scale
    n = x.size // x.shape[1]
    var = jnp.mean(jnp.square(x - jnp.mean(x, over, keepdims=True)), over) * n / max(n - 1, 1)
    follow = lambda old, new: lax.stop_gradient((1 - momentum) * old + momentum * new)
    return y, mean, scale, follow(running_mean, mean), follow(running_var, var)


@rule("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[Array, ...]:
    return batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Array, weight: Array | None, bias: Array | None, training: bool, momentum: Number, eps: Number
) -> tuple[Array, ...]:
    return batch_norm(x, weight, bias, None, None, training, momentum, eps)
