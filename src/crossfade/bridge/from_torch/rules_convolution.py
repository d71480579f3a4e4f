"""Convolutions, also transposed, and their gradients, in JAX."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from .table import rule

Sizes = Sequence[int]


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    *flags: bool,
) -> Array:
    """Over any number of axes of space, channels first.

    The kernel is (out, in / groups, ...) or, transposed, (in, out / groups, ...).
    """
    space = weight.ndim - 2
    every = lambda sizes: tuple(sizes) * (space if len(sizes) == 1 else 1)
    stride, padding, dilation, output_padding = map(every, (stride, padding, dilation, output_padding))
    unbatched = x.ndim == space + 1
    x = x[None] if unbatched else x
    if transposed:
        y = _transposed(x, weight, stride, padding, dilation, output_padding, groups)
    else:
        pads = [(p, p) for p in padding]
        y = lax.conv_general_dilated(x, weight, stride, pads, rhs_dilation=dilation, feature_group_count=groups)
    y = y if bias is None else y + bias.reshape((1, -1) + (1,) * space)
    return y[0] if unbatched else y


def _transposed(
    x: Array, weight: Array, stride: Sizes, padding: Sizes, dilation: Sizes, output_padding: Sizes, groups: int
) -> Array:
    """A convolution with the kernel flipped and its axes swapped, of x with zeros between its elements."""
    space = tuple(range(2, weight.ndim))
    inputs, outputs = weight.shape[:2]
    kernel = jnp.flip(weight, space).reshape(groups, inputs // groups, outputs, *weight.shape[2:])
    kernel = jnp.swapaxes(kernel, 1, 2).reshape(groups * outputs, inputs // groups, *weight.shape[2:])
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
    return lax.conv_general_dilated(
        x,
        kernel,
        (1,) * len(space),
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


@rule("convolution_backward")
def convolution_backward(
    grad: Array,
    x: Array,
    weight: Array,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Array, Array, Array]:
    """Gradients of the input, the kernel and the bias."""
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    _, pull = jax.vjp(lambda x, w: convolution(x, w, None, *settings), x, weight)
    return *pull(grad), grad.sum((0, *range(2, grad.ndim)))
