"""Operations of torch's backward passes, which appear where code calls `torch.autograd.grad` itself, in JAX."""

import jax.numpy as jnp
from jax import Array

from .table import rule
from .values import Number, promoted


@rule("threshold_backward")
def threshold_backward(grad: Array, x: Array, threshold: Number) -> Array:
    grad, x = promoted(grad, x)
    return jnp.where(x <= threshold, 0.0, grad)


@rule("tanh_backward")
def tanh_backward(grad: Array, y: Array) -> Array:
    grad, y = promoted(grad, y)
    return grad * (1 - y * y)


@rule("sigmoid_backward")
def sigmoid_backward(grad: Array, y: Array) -> Array:
    grad, y = promoted(grad, y)
    return grad * y * (1 - y)


@rule("leaky_relu_backward")
def leaky_relu_backward(grad: Array, x: Array, slope: Number, self_is_result: bool) -> Array:
    grad, x = promoted(grad, x)
    return jnp.where(x > 0, grad, slope * grad)


@rule("_softmax_backward_data")
def softmax_backward(grad: Array, y: Array, dim: int, input_dtype: object) -> Array:
    return y * (grad - jnp.sum(grad * y, axis=dim, keepdims=True))


@rule("_log_softmax_backward_data")
def log_softmax_backward(grad: Array, y: Array, dim: int, input_dtype: object) -> Array:
    return grad - jnp.exp(y) * jnp.sum(grad, axis=dim, keepdims=True)
