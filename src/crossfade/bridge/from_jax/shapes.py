"""Rules of primitives that move elements without computing with them."""

from collections.abc import Sequence

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from .dtypes import carrier, shape_of
from .elementwise import Rule, Run, always


def _broadcast(eqn: JaxprEqn) -> Run:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for place, size in zip(places, shape_of(eqn.invars[0]), strict=True):
        sizes[place] = size
    return lambda x, *_: x.reshape(sizes).expand(shape)


def _reshape(eqn: JaxprEqn) -> Run:
    shape, order = shape_of(eqn.outvars[0]), eqn.params["dimensions"]
    return lambda x, *_: x.reshape(shape) if order is None else x.permute(order).reshape(shape)


def _squeeze(eqn: JaxprEqn) -> Run:
    shape = shape_of(eqn.outvars[0])
    return lambda x: x.reshape(shape)


def _slice(eqn: JaxprEqn) -> Run:
    start, stop = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(start)
    index = tuple(slice(*bounds) for bounds in zip(start, stop, strides, strict=True))
    return lambda x: x[index]


def _transpose(eqn: JaxprEqn) -> Run:
    order = eqn.params["permutation"]
    return lambda x: x.permute(order)


def _reverse(eqn: JaxprEqn) -> Run:
    axes = eqn.params["dimensions"]
    return lambda x: x.flip(axes)


def _concatenate(eqn: JaxprEqn) -> Run:
    axis = eqn.params["dimension"]
    return lambda *xs: torch.cat(xs, axis)


def _stack(eqn: JaxprEqn) -> Run:
    axis = eqn.params["axis"]
    return lambda *xs: torch.stack(xs, axis)


def _unstack(eqn: JaxprEqn) -> Run:
    axis = eqn.params["axis"]
    return lambda x: list(x.unbind(axis))


def _split(eqn: JaxprEqn) -> Run:
    sizes, axis = list(eqn.params["sizes"]), eqn.params["axis"]
    return lambda x: list(torch.split(x, sizes, axis))


def _tile(eqn: JaxprEqn) -> Run:
    repeats = eqn.params["reps"]
    return lambda x: torch.tile(x, repeats)


def _iota(eqn: JaxprEqn) -> Run:
    shape, axis, dtype = eqn.params["shape"], eqn.params["dimension"], carrier(eqn.outvars[0].aval)
    sizes = [n if i == axis else 1 for i, n in enumerate(shape)]
    return lambda *_: torch.arange(shape[axis], dtype=dtype).reshape(sizes).expand(shape)


def _empty(eqn: JaxprEqn) -> Run:
    shape, dtype = shape_of(eqn.outvars[0]), carrier(eqn.outvars[0].aval)
    return lambda: torch.zeros(shape, dtype=dtype)


def _platform(eqn: JaxprEqn) -> Run:
    """Which branch is the one of a CPU, or of any platform."""
    given = list(eqn.params["platforms"])
    found = next(i for i, platforms in enumerate(given) if platforms is None or "cpu" in platforms)
    return lambda: torch.tensor(found, dtype=torch.int32)


def _pad(eqn: JaxprEqn) -> Run:
    config = [(int(low), int(high), int(between)) for low, high, between in eqn.params["padding_config"]]
    return lambda x, value: padded(x, value, config)


def padded(x: Tensor, value: Tensor, config: Sequence[tuple[int, int, int]]) -> Tensor:
    """XLA's Pad: for each axis what is added before, after and between elements; what is below 0 is cut off."""
    lengths = [n + max(n - 1, 0) * between for n, (_, _, between) in zip(x.shape, config, strict=True)]
    sizes = [max(low, 0) + n + max(high, 0) for n, (low, high, _) in zip(lengths, config, strict=True)]
    out = value.expand(sizes).clone()
    inside = [
        slice(max(low, 0), max(low, 0) + n, between + 1) for n, (low, _, between) in zip(lengths, config, strict=True)
    ]
    out[tuple(inside)] = x
    kept = [slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(sizes, config, strict=True)]
    return out[tuple(kept)]


RULES: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "slice": _slice,
    "transpose": _transpose,
    "rev": _reverse,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "tile": _tile,
    "iota": _iota,
    "pad": _pad,
    "empty": _empty,
    "empty2": _empty,
    "platform_index": _platform,
    **{
        name: always(lambda x: x)
        for name in ("copy", "copy_p", "stop_gradient", "name", "sharding_constraint", "layout_constraint", "reshard")
        + ("pvary", "random_clone")
    },
    **{name: always(lambda *xs: list(xs)) for name in ("optimization_barrier", "device_put")},
    "zeros_like": always(torch.zeros_like),
}
