"""What the other half may have done instead of a layer: padding, bounds, order of gates, layout."""

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .norms import NORMS, Found, argument, given
from .watching import Call, Change

GATES = "ifgo"


def _gelu(call: Call) -> Found:
    own = call.kwargs.get("approximate", "none")
    other = "tanh" if own == "none" else "none"
    words = {"none": "exactly", "tanh": "by its tanh approximation"}
    yield (
        "gelu",
        f"gelu: torch {words[own]}, JAX {words[other]}",
        lambda f, a, k: f(a[0], approximate=other),
    )


def _leaky_relu(call: Call) -> Found:
    own = given(call, 1, "negative_slope", 0.01)
    for slope in (0.0, 0.01, 0.1, 0.2, 0.3):
        if slope != own:
            text = f"the slope of leaky_relu: torch {own:g}, JAX {slope:g}"
            yield "activation", text, lambda f, a, k, slope=slope: F.leaky_relu(a[0], slope)


def _clamp(call: Call) -> Found:
    low, high = given(call, 1, "min"), given(call, 2, "max")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return
    bounds = (None, 0.0, 1.0, -1.0, -2.0, 2.0, -5.0, 5.0, -10.0, 10.0, -20.0, 20.0)
    for other in bounds:
        if other != low and (other is None or high is None or other < high):
            yield "clamp", f"the lower bound of {call.name}: torch {low}, JAX {other}", _bounded(other, high)
        if other != high and (other is None or low is None or other > low):
            yield "clamp", f"the upper bound of {call.name}: torch {high}, JAX {other}", _bounded(low, other)
    yield "clamp", f"{call.name} is left out in JAX", lambda f, a, k: a[0]


def _bounded(low: int | float | None, high: int | float | None) -> Change:
    return lambda f, a, k: a[0] if low is None and high is None else torch.clamp(a[0], low, high)


def _conv(call: Call) -> Found:
    x, weight = call.args[0], call.args[1]
    n = weight.ndim - 2
    stride, dilation = _tuple(given(call, 3, "stride", 1), n), _tuple(given(call, 5, "dilation", 1), n)
    bias, groups = given(call, 2, "bias"), given(call, 6, "groups", 1)
    pads = _same(x.shape[2:], weight.shape[2:], stride, dilation)
    for words, padding in (("SAME", pads), ("VALID", (0,) * 2 * n)):

        def change(f, a, k, padding=padding):
            return f(F.pad(a[0], padding), a[1], bias, stride, 0, dilation, groups)

        yield "padding", f"the padding of {call.name}: JAX {words}", change
    flipped = lambda w: w.flip(tuple(range(2, w.ndim)))
    yield "order", f"the kernel of {call.name} is flipped in JAX", argument(1, "weight", flipped)
    if weight.shape[-1] == weight.shape[-2] if n > 1 else False:
        text = f"height and width of {call.name}'s kernel are exchanged in JAX"
        yield "transposed", text, argument(1, "weight", lambda w: w.mT)
    if weight.shape[0] == weight.shape[1]:
        text = f"input and output channels of {call.name}'s kernel are exchanged in JAX"
        yield "transposed", text, argument(1, "weight", lambda w: w.transpose(0, 1))


def _same(shape: Any, kernel: Any, stride: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """The padding that TensorFlow and JAX call SAME, as `F.pad` takes it."""
    pads: list[int] = []
    for size, k, s, d in zip(shape, kernel, stride, dilation, strict=True):
        total = max((math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size, 0)
        pads = [total // 2, total - total // 2, *pads]
    return tuple(pads)


def _tuple(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value) if value else (1,) * n


def _pool(call: Call) -> Found:
    x, n = call.args[0], int(call.name[-2])
    kernel = _tuple(given(call, 1, "kernel_size"), n)
    stride = _tuple(given(call, 2, "stride") or kernel, n)
    fill = -math.inf if call.name.startswith("max") else 0.0
    pads = _same(x.shape[2:], kernel, stride, (1,) * n)
    function = getattr(F, call.name if call.name.startswith("avg") else f"max_pool{n}d")
    for words, padding in (("SAME", pads), ("VALID", (0,) * 2 * n), ("of torch's size on both sides", None)):

        def change(f, a, k, padding=padding):
            if padding is None:
                return function(a[0], kernel, stride, tuple(k // 2 for k in kernel))
            return function(F.pad(a[0], padding, value=fill), kernel, stride)

        yield "padding", f"the padding of {call.name}: JAX {words}", change
    other = F.max_pool2d if call.name.startswith("avg") else F.avg_pool2d
    if n == 2:
        padding = given(call, 3, "padding", 0)
        yield (
            "reduction",
            f"torch {call.name}, JAX {other.__name__}",
            lambda f, a, k: other(a[0], kernel, stride, padding),
        )
        if call.name.startswith("avg"):
            text = "avg_pool: JAX does not count the padding"
            yield (
                "padding",
                text,
                lambda f, a, k: F.avg_pool2d(a[0], kernel, stride, padding, count_include_pad=False),
            )


def _flatten(call: Call) -> Found:
    x = call.args[0]
    if isinstance(x, Tensor) and x.ndim >= 3:
        for order in permutations(range(1, x.ndim)):
            if order != tuple(range(1, x.ndim)):
                words = " (NHWC for NCHW)" if order == (2, 3, 1) else " (NCHW for NHWC)" if order == (3, 1, 2) else ""
                text = f"{call.name} reads the axes in the order {(0, *order)} in JAX{words}"
                yield "layout", text, lambda f, a, k, order=order: f(a[0].permute(0, *order).contiguous(), *a[1:], **k)


def _view_shape(call: Call) -> Found:
    yield from _flatten(call)
    out, x = call.tensor, call.args[0]
    if out is not None and isinstance(x, Tensor) and out.ndim > x.ndim and out.ndim >= 3:
        for order in permutations(range(1, out.ndim)):
            shape = tuple(out.shape[i] for i in (0, *order))
            if order != tuple(range(1, out.ndim)):
                back = tuple(np.argsort((0, *order)))
                text = f"{call.name} makes the axes in the order {(0, *order)} in JAX"
                yield "layout", text, lambda f, a, k, s=shape, back=back: a[0].reshape(s).permute(back)


def _lstm_cell(call: Call) -> Found:
    def gates(order: tuple[int, ...]) -> Change:
        mix = lambda w: None if w is None else torch.cat([w.chunk(4)[i] for i in order])
        return lambda f, a, k: f(a[0], a[1], *(mix(w) for w in a[2:]))

    yield "order", "the carry of lstm_cell is (c, h) in JAX", lambda f, a, k: f(a[0], (a[1][1], a[1][0]), *a[2:])
    for order in permutations(range(4)):
        if order != (0, 1, 2, 3):
            text = f"the gates of lstm_cell: torch i, f, g, o; JAX {', '.join(GATES[i] for i in order)}"
            yield "order", text, gates(order)


def _gru_cell(call: Call) -> Found:
    def cell(reset_first: bool = False, inverted: bool = False) -> Change:
        def change(f: Any, a: tuple[Any, ...], k: dict[str, Any]) -> Tensor:
            x, h, w_ih, w_hh, b_ih, b_hh = a
            r_x, z_x, n_x = F.linear(x, w_ih, b_ih).chunk(3, -1)
            r_h, z_h, n_h = F.linear(h, w_hh, b_hh).chunk(3, -1)
            r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
            if reset_first:
                n = torch.tanh(n_x + F.linear(r * h, w_hh, b_hh).chunk(3, -1)[2])
            else:
                n = torch.tanh(n_x + r * n_h)
            return z * n + (1 - z) * h if inverted else (1 - z) * n + z * h

        return change

    def gates(order: tuple[int, ...]) -> Change:
        mix = lambda w: None if w is None else torch.cat([w.chunk(3)[i] for i in order])
        return lambda f, a, k: f(a[0], a[1], *(mix(w) for w in a[2:]))

    yield "order", "gru_cell: JAX resets the state before the product", cell(reset_first=True)
    yield "sign", "gru_cell: the update gate is inverted in JAX", cell(inverted=True)
    yield "order", "gru_cell: reset before the product and update inverted in JAX", cell(True, True)
    for order in permutations(range(3)):
        if order != (0, 1, 2):
            text = f"the gates of gru_cell: torch r, z, n; JAX {', '.join('rzn'[i] for i in order)}"
            yield "order", text, gates(order)


def _embedding(call: Call) -> Found:
    for by in (-1, 1):
        text = f"the index of embedding is {'one lower' if by < 0 else 'one higher'} in JAX"
        yield "index", text, lambda f, a, k, by=by: a[1][a[0] + by]


def _gather(call: Call) -> Found:
    x = call.args[0]
    dim = given(call, 1, "dim")
    index = given(call, 2, "index")
    if isinstance(dim, int) and isinstance(index, Tensor):
        for axis in range(x.ndim):
            if axis != dim % x.ndim:

                def change(f, a, k, axis=axis):
                    given = index if index.ndim == x.ndim else index
                    turned = given.transpose(axis, dim)
                    return torch.gather(a[0], axis, turned).transpose(axis, dim)

                yield "axis", f"the axis of gather: torch {dim}, JAX {axis}", change


def _getitem(call: Call) -> Found:
    """Another window of the same length along the first axis."""
    x, index = call.args[0], call.args[1]
    if not isinstance(index, slice) or index.step not in (None, 1) or x.ndim == 0:
        return
    start, stop, _ = index.indices(len(x))
    for other in range(len(x) - (stop - start) + 1):
        if other != start:
            text = f"the window: torch [{start}:{stop}], JAX [{other}:{other + stop - start}]"
            yield "index", text, lambda f, a, k, i=other, n=stop - start: f(a[0], slice(i, i + n))


def _arange(call: Call) -> Found:
    for by in (-1, 1):
        text = f"arange begins one {'lower' if by < 0 else 'higher'} in JAX"
        yield "index", text, lambda f, a, k, by=by: f(*a, **k) + by


def _lerp(call: Call) -> Found:
    def move(weight: float) -> Change:
        return lambda f, a, k: f(a[0], a[1], weight)

    own = given(call, 2, "weight")
    if isinstance(own, float):
        yield "momentum", f"the share of the new value: torch {own:g}, JAX {1 - own:g}", move(1 - own)
        yield "left out", "the average is not moved in JAX", lambda f, a, k: a[0]


def _cross_entropy(call: Call) -> Found:
    for reduction in ("mean", "sum"):
        yield (
            "reduction",
            f"the reduction of {call.name}: JAX {reduction}",
            lambda f, a, k, r=reduction: f(*a, **{**k, "reduction": r}),
        )


def _sort_like(call: Call) -> Found:
    yield "order", f"{call.name} runs the other way in JAX", lambda f, a, k: f(*a, **{**k, "descending": True})


def _where(call: Call) -> Found:
    if len(call.args) == 3:
        yield "mask", "the condition of where is inverted in JAX", lambda f, a, k: f(a[0], a[2], a[1])


def _outer(call: Call) -> Found:
    yield "transposed", "the outer product is transposed in JAX", lambda f, a, k: f(*a, **k).mT


def _scaled_dot_product(call: Call) -> Found:
    def attend(q: float = 1.0, **other: Any) -> Change:
        named = ("attn_mask", "dropout_p", "is_causal", "scale")
        return lambda f, a, k: f(a[0] * q, *a[1:3], **{**dict(zip(named, a[3:], strict=False)), **k, **other})

    query, mask, causal = call.args[0], given(call, 3, "attn_mask"), bool(given(call, 5, "is_causal"))
    if causal:
        yield "mask", "JAX attends to later places too: it has no causal mask", attend(is_causal=False)
    elif mask is None:
        yield "mask", "JAX has a causal mask, torch has none", attend(is_causal=True)
    else:
        yield "mask", "JAX has no mask", attend(attn_mask=None)
        if mask.dtype == torch.bool:
            yield "mask", "the mask is inverted in JAX", attend(attn_mask=~mask)
    width, heads = query.shape[-1], query.shape[-3] if query.ndim > 3 else 1
    yield "factor", "attention without its scale in JAX", attend(math.sqrt(width))
    if heads > 1:
        text = f"attention is scaled by the width of all {heads} heads in JAX, in torch by that of one"
        yield "factor", text, attend(1 / math.sqrt(heads))


LAYERS: dict[str, Callable[[Call], Found]] = {
    **NORMS,
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "clamp": _clamp,
    "clamp_": _clamp,
    "clip": _clamp,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "max_pool1d": _pool,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "flatten": _flatten,
    "reshape": _view_shape,
    "view": _view_shape,
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    "embedding": _embedding,
    "gather": _gather,
    "getitem": _getitem,
    "arange": _arange,
    "lerp": _lerp,
    "lerp_": _lerp,
    "cross_entropy": _cross_entropy,
    "sort": _sort_like,
    "argsort": _sort_like,
    "where": _where,
    "outer": _outer,
    "scaled_dot_product_attention": _scaled_dot_product,
}
"""By the name of the torch function."""
