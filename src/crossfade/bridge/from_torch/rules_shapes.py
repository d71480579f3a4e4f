"""Views, joins, cuts and paddings, in JAX."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...errors import NoCounterpart
from .table import rule, rules
from .values import Number, promoted

rules(
    _reshape_alias=lambda x, size, stride: x.reshape(size),
    _unsafe_view=lambda x, size: x.reshape(size),
    alias=lambda x: x,
    clone=lambda x, *, memory_format=None: x,
    contiguous=lambda x, *, memory_format=None: x,
    flip=lambda x, dims: jnp.flip(x, dims),
    lift_fresh=lambda x: x,
    lift_fresh_copy=lambda x: x,
    movedim=lambda x, source, target: jnp.moveaxis(x, source, target),
    permute=lambda x, dims: jnp.transpose(x, [d % x.ndim for d in dims]),
    resolve_conj=lambda x: x,
    resolve_neg=lambda x: x,
    reshape=lambda x, size: x.reshape(size),
    t=lambda x: x.T,
    transpose=lambda x, a, b: jnp.swapaxes(x, a, b) if x.ndim else x,
    unsqueeze=lambda x, dim: jnp.expand_dims(x, dim),
)


@rule("view.default")
def view(x: Array, size: Sequence[int]) -> Array:
    return x.reshape(size)


@rule("_to_copy", "to")
def to_copy(x: Array, *args: object, **kwargs: object) -> Array:
    """The same values: the player casts them to the dtype that torch gave."""
    return x


@rule("expand")
def expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    """Broadcast; -1 keeps an axis."""
    missing = len(size) - x.ndim
    return jnp.broadcast_to(x, [x.shape[i - missing] if n == -1 else n for i, n in enumerate(size)])


@rule("squeeze")
def squeeze(x: Array, dim: int | Sequence[int] | None = None) -> Array:
    """Without axes of size one: all, or those of the given ones that are."""
    given = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return x.squeeze(tuple({d % x.ndim for d in given if x.shape[d] == 1}) if x.ndim else ())


@rule("slice")
def slice_(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


@rule("select")
def select(x: Array, dim: int, index: int) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


@rule("slice_scatter")
def slice_scatter(
    x: Array, source: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    return x.at[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)].set(source)


@rule("select_scatter")
def select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


@rule("split", "unsafe_split")
def split(x: Array, size: int | Sequence[int], dim: int = 0) -> list[Array]:
    cuts = range(size, x.shape[dim], size) if isinstance(size, int) else np.cumsum(size)[:-1].tolist()
    return jnp.split(x, list(cuts), axis=dim)


@rule("split_with_sizes", "unsafe_split_with_sizes")
def split_with_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    return split(x, sizes, dim)


@rule("unbind")
def unbind(x: Array, dim: int = 0) -> list[Array]:
    return [lax.index_in_dim(x, i, axis=dim, keepdims=False) for i in range(x.shape[dim])]


@rule("cat", "concat")
def cat(arrays: Sequence[Array], dim: int = 0) -> Array:
    """Joined along an axis; empty tensors of one axis, which torch passes over, are passed over."""
    arrays = [x for x in arrays if x.shape != (0,)] or list(arrays)
    return jnp.concatenate(arrays, axis=dim)


@rule("stack")
def stack(arrays: Sequence[Array], dim: int = 0) -> Array:
    return jnp.stack(list(arrays), axis=dim)


@rule("roll")
def roll(x: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


@rule("repeat")
def repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x, tuple(repeats))


@rule("repeat_interleave.Tensor")
def repeated_places(repeats: Array, *, output_size: int | None = None) -> Array:
    """Each index as often as `repeats` says; the total must be known."""
    if output_size is None:
        raise NoCounterpart("repeat_interleave: expected output_size=, without which the shape depends on values.")
    return jnp.repeat(jnp.arange(len(repeats)), repeats, total_repeat_length=output_size)


@rule("unfold")
def unfold(x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along an axis, laid on a new last one."""
    dim = dim % x.ndim
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis=dim)
    return jnp.moveaxis(windows, dim + 1, -1)


@rule("diagonal")
def diagonal(x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return jnp.diagonal(x, offset, dim1, dim2)


@rule("diag_embed")
def diag_embed(x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices with the last axis on a diagonal."""
    n = x.shape[-1] + abs(offset)
    rows, columns = np.arange(x.shape[-1]) + max(-offset, 0), np.arange(x.shape[-1]) + max(offset, 0)
    matrices = jnp.zeros((*x.shape[:-1], n, n), x.dtype).at[..., rows, columns].set(x)
    return jnp.moveaxis(matrices, (-2, -1), (dim1, dim2))


@rule("tril")
def tril(x: Array, diagonal: int = 0) -> Array:
    return jnp.tril(x, diagonal)


@rule("triu")
def triu(x: Array, diagonal: int = 0) -> Array:
    return jnp.triu(x, diagonal)


def _pairs(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """torch's padding, which begins at the last axis, as (before, after) of each axis."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


@rule("constant_pad_nd")
def constant_pad(x: Array, padding: Sequence[int], value: Number = 0) -> Array:
    config = [(before, after, 0) for before, after in _pairs(padding, x.ndim)]
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Array, padding: Sequence[int]) -> Array:
    return jnp.pad(x, _pairs(padding, x.ndim), mode="reflect")


@rule("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Array, padding: Sequence[int]) -> Array:
    return jnp.pad(x, _pairs(padding, x.ndim), mode="edge")


@rule("pixel_shuffle")
def pixel_shuffle(x: Array, factor: int) -> Array:
    """(*, C r^2, H, W) as (*, C, H r, W r)."""
    *batch, c, h, w = x.shape
    x = x.reshape(*batch, c // factor**2, factor, factor, h, w)
    n = len(batch)
    x = x.transpose(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*batch, c // factor**2, h * factor, w * factor)


@rule("pixel_unshuffle")
def pixel_unshuffle(x: Array, factor: int) -> Array:
    """(*, C, H r, W r) as (*, C r^2, H, W)."""
    *batch, c, h, w = x.shape
    n = len(batch)
    x = x.reshape(*batch, c, h // factor, factor, w // factor, factor)
    x = x.transpose(*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*batch, c * factor**2, h // factor, w // factor)


@rule("copy")
def copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    """The source in the shape of what it is copied to."""
    return jnp.broadcast_to(promoted(x, source)[1], x.shape)
