"""Losses, in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .rules_activations import log_sigmoid
from .rules_pointwise import absolute
from .table import rule
from .values import Number, promoted, ranked

NONE, MEAN, SUM = 0, 1, 2
"""torch's numbers for what is done with the terms of a loss."""


def _reduced(terms: Array, reduction: int) -> Array:
    return terms if reduction == NONE else jnp.mean(terms) if reduction == MEAN else jnp.sum(terms)


@rule("mse_loss")
def mse_loss(x: Array, target: Array, reduction: int = MEAN) -> Array:
    x, target = promoted(x, target)
    return _reduced(jnp.square(x - target), reduction)


@rule("l1_loss")
def l1_loss(x: Array, target: Array, reduction: int = MEAN) -> Array:
    x, target = promoted(x, target)
    return _reduced(absolute(x - target), reduction)


@rule("huber_loss")
def huber_loss(x: Array, target: Array, reduction: int = MEAN, delta: Number = 1.0) -> Array:
    """d^2 / 2 up to delta, delta (|d| - delta / 2) beyond, with d = x - target."""
    x, target = promoted(x, target)
    size = absolute(x - target)
    return _reduced(jnp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)), reduction)


@rule("smooth_l1_loss")
def smooth_l1_loss(x: Array, target: Array, reduction: int = MEAN, beta: Number = 1.0) -> Array:
    """d^2 / (2 beta) below beta, |d| - beta / 2 beyond."""
    if beta == 0:
        return l1_loss(x, target, reduction)
    x, target = promoted(x, target)
    size = absolute(x - target)
    return _reduced(jnp.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta), reduction)


@jax.custom_jvp
def _cross_entropy(x: Array, target: Array) -> Array:
    """-t log x - (1 - t) log(1 - x), the logarithms not below -100."""
    return -target * jnp.maximum(jnp.log(x), -100) - (1 - target) * jnp.maximum(jnp.log1p(-x), -100)


@_cross_entropy.defjvp
def _cross_entropy_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """torch bounds the denominator of the derivative, not its logarithms."""
    x, target = primals
    slope = (x - target) / jnp.maximum(x * (1 - x), float(np.float32(1e-12)))
    return _cross_entropy(x, target), slope * tangents[0] + (jnp.log1p(-x) - jnp.log(x)) * tangents[1]


@rule("binary_cross_entropy")
def binary_cross_entropy(x: Array, target: Array, weight: Array | None = None, reduction: int = MEAN) -> Array:
    terms = _cross_entropy(x, target)
    return _reduced(terms if weight is None else terms * ranked(terms, weight)[1], reduction)


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Array, target: Array, weight: Array | None = None, pos_weight: Array | None = None, reduction: int = MEAN
) -> Array:
    """(1 - t) x - w log sigmoid(x), with w = 1 + (pos_weight - 1) t."""
    positive = 1.0 if pos_weight is None else (ranked(x, pos_weight)[1] - 1) * target + 1
    terms = (1 - target) * x - positive * log_sigmoid(x)[0]
    return _reduced(terms if weight is None else terms * ranked(terms, weight)[1], reduction)


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int) -> tuple[Array, Array]:
    """-w[t] x[t] over the classes (the second axis, or the only one), and the sum of the weights that count."""
    classes = 1 if x.ndim > 1 else 0
    counted = target != ignore_index
    index = jnp.where(counted, target, 0)
    chosen = jnp.take_along_axis(x, jnp.expand_dims(index, classes), axis=classes).squeeze(classes)
    weights = jnp.where(counted, 1.0 if weight is None else weight[index], 0.0).astype(x.dtype)
    terms, total = -chosen * weights, lax.stop_gradient(jnp.sum(weights))
    if reduction == NONE:
        return terms, jnp.zeros((), x.dtype)
    return (jnp.sum(terms) / total if reduction == MEAN else jnp.sum(terms)), total
