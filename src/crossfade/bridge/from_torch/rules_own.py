"""Operations that ATen does not have: memory read and written through strides, gradients kept, stopped and said."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .own_derivatives import Backward
from .play import follow
from .table import rule, rules

Arrays = tuple[Array, ...]

rules(detach=lax.stop_gradient, detach_copy=lax.stop_gradient)


@jax.custom_jvp
def keep_gradient(before: Array, after: Array) -> Array:
    """The value of `after` with the derivative of `before`: what an in-place operation under no_grad leaves behind."""
    return after


@keep_gradient.defjvp
def _keep_gradient_jvp(primals: tuple, tangents: tuple) -> tuple:
    return primals[1], tangents[0]


rules(keep_gradient=keep_gradient)


@rule("own_derivative")
def own_derivative(
    inputs: Arrays, outputs: Arrays, captured: Arrays, saved: tuple[int | None, ...], backward: Backward
) -> Arrays:
    """The outputs of an autograd.Function, which carry no gradient, with the one that its backward pass says.

    saved: which of the captured values are outputs; a second derivative goes through those too.
    """

    @jax.custom_vjp
    def function(inputs: Arrays, outputs: Arrays, captured: Arrays) -> Arrays:
        return outputs

    def forth(inputs: Arrays, outputs: Arrays, captured: Arrays) -> tuple[Arrays, Arrays]:
        outs = function(inputs, outputs, captured)
        return outs, tuple(x if i is None else outs[i] for i, x in zip(saved, captured, strict=True))

    def back(captured: Arrays, cotangents: Arrays) -> tuple[Any, None, None]:
        values = {ref.index: array for ref, array in zip(backward.captured, captured, strict=True)}
        for ref, cotangent, out in zip(backward.cotangents, cotangents, outputs, strict=True):
            none = cotangent.dtype == jax.dtypes.float0  # of an integer
            values[ref.index] = jnp.zeros(out.shape, out.dtype) if none else cotangent
        follow(backward.graph, values, None)
        grad = lambda ref, x: None if ref is None else values[ref.index].astype(x.dtype)
        return tuple(map(grad, backward.grads, inputs)), None, None

    function.defvjp(forth, back)
    return function(inputs, outputs, captured)


@rule("strided_flat")
def strided_flat(x: Array, strides: tuple[int, ...], offset: int, size: int) -> Array:
    """The storage behind a tensor as one axis of `size` elements; those the tensor does not reach are 0."""
    if strides == contiguous(x.shape) and offset == 0 and x.size == size:
        return x.reshape(size)
    return jnp.zeros(size, x.dtype).at[places(x.shape, strides, offset)].set(x)


@rule("strided_read")
def strided_read(flat: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """The tensor that is a view of the storage."""
    size = int(np.prod(shape))
    if strides == contiguous(shape):
        return flat[offset : offset + size].reshape(shape)
    return flat[places(shape, strides, offset)]


@rule("strided_write")
def strided_write(flat: Array, x: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """The storage after a write through a view of it."""
    if strides == contiguous(shape):
        return flat.at[offset : offset + x.size].set(x.reshape(x.size))
    return flat.at[places(shape, strides, offset)].set(x)


@rule("as_strided")
def as_strided(x: Array, size: list[int], stride: list[int], storage_offset: int | None = None) -> Array:
    """A view by strides, of a tensor that is contiguous."""
    return strided_read(x.reshape(x.size), tuple(size), tuple(stride), storage_offset or 0)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor in row-major order."""
    return tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))


def places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
    """The index in the storage of each element."""
    index = np.full(shape, offset)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        index += (np.arange(size) * stride).reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return index
