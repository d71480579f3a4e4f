"""The usual causes: what the other half may have done instead of one torch call.

Each is a way to make the call give something else. The one that makes the difference vanish is the cause.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import LAYERS
from .watching import Call, Change


@dataclass(frozen=True, eq=False)
class Cause:
    """A kind for programs, words for people, and the change that stands for it."""

    kind: str
    text: str
    change: Change


Given = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 1.0),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu by its tanh approximation": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "leaky_relu with slope 0.01": lambda x: F.leaky_relu(x, 0.01),
    "leaky_relu with slope 0.2": lambda x: F.leaky_relu(x, 0.2),
    "leaky_relu with slope 0.1": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
}
FAMILIES: dict[str, dict[str, Callable[..., Any]]] = {
    "operation": {
        "add": torch.add,
        "sub": torch.sub,
        "rsub": lambda a, b: torch.sub(b, a),
        "mul": torch.mul,
        "div": torch.div,
        "minimum": torch.minimum,
        "maximum": torch.maximum,
    },
    "comparison": {
        "gt": torch.gt,
        "ge": torch.ge,
        "lt": torch.lt,
        "le": torch.le,
        "eq": torch.eq,
        "ne": torch.ne,
    },
    "function": {
        "sqrt": torch.sqrt,
        "square": torch.square,
        "abs": torch.abs,
        "exp": torch.exp,
        "expm1": torch.expm1,
        "log": torch.log,
        "log1p": torch.log1p,
        "log2": torch.log2,
        "log10": torch.log10,
        "sin": torch.sin,
        "cos": torch.cos,
        "sign": torch.sign,
        "rsqrt": torch.rsqrt,
        "reciprocal": torch.reciprocal,
    },
    "loss": {
        "mse_loss": F.mse_loss,
        "l1_loss": F.l1_loss,
        "smooth_l1_loss": F.smooth_l1_loss,
        "huber_loss": F.huber_loss,
    },
}
REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "max": torch.amax,
    "min": torch.amin,
    "logsumexp": torch.logsumexp,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
}
ALONG = ("softmax", "log_softmax", "cumsum", "flip", "argmax", "argmin", "std", "var", "sort", "max", "min")
FUNCTIONS = ("abs", "relu", "tanh", "exp", "sqrt", "square", "sigmoid", "sign")
BOUNDS = ((-1.0, 1.0), (0.0, 1.0), (0.0, math.inf), (-math.inf, 0.0), (-5.0, 5.0), (-10.0, 10.0))
EPSILONS = (0.0, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, float(np.finfo(np.float32).eps))


def usual_causes(call: Call) -> Iterator[Cause]:
    """The causes to try at a call, the likeliest first."""
    for kind, text, change in LAYERS.get(call.name, lambda call: ())(call):
        yield Cause(kind, text, change)
    if call.name.rstrip("_") in {name.split(" ")[0] for name in ACTIVATIONS}:
        yield from _left_out(call)
        yield from _activations(call)
    small = any(isinstance(a, float) and 0 < a <= 1e-2 for a in call.args)
    yield from _numbers(call) if small else ()  # an epsilon is more likely another than left out
    yield from _left_out(call)
    yield from _family(call)
    yield from _reductions(call)
    yield from _numbers(call)
    yield from _operands(call)
    yield from _result(call)


def _activations(call: Call) -> Iterator[Cause]:
    alpha = call.kwargs.get("alpha", call.args[1] if len(call.args) > 1 else None)
    for name in ("elu", "celu") if isinstance(alpha, int | float) else ():
        own = lambda f, a, k, name=name: getattr(F, name)(a[0], alpha)
        yield Cause("activation", f"the activation: torch {call.name}, JAX {name} with alpha {alpha:g}", own)
    for name, function in ACTIVATIONS.items():
        kind = "gelu" if "gelu" in call.name and "gelu" in name else "activation"
        yield Cause(kind, f"the activation: torch {call.name}, JAX {name}", lambda f, a, k, own=function: own(a[0]))


def _family(call: Call) -> Iterator[Cause]:
    name = call.name.rstrip("_")
    for what, family in FAMILIES.items():
        if name not in family:
            continue
        kinds = {"loss": "loss", "comparison": "comparison"}
        for other, function in family.items():
            if other != name:
                kind = (
                    "log base" if name.startswith("log") and other.startswith("log") else kinds.get(what, "operation")
                )
                yield Cause(kind, f"the {what}: torch {name}, JAX {other}", _instead(function))
        if what == "operation" and len(call.args) > 1:
            yield Cause("order", f"the operands of {name} exchanged", lambda f, a, k: f(a[1], a[0], *a[2:], **k))
        if what == "loss":
            for factor in (0.5, 2.0):
                yield Cause("factor", f"{name} times {factor:g} in JAX", _times(factor))
                for other in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
                    text = f"the loss: torch {name}, JAX {factor:g} times {other}"
                    yield Cause("loss", text, _of_result_of(family[other], factor))
            for other in ("mean", "sum"):
                yield Cause("reduction", f"the reduction: JAX takes the {other}", _with(reduction=other))


def _instead(function: Callable[..., Any]) -> Change:
    return lambda f, a, k: function(*a, **k)


def _of_result_of(function: Callable[..., Any], factor: float) -> Change:
    return lambda f, a, k: factor * function(*a[:2], **{n: v for n, v in k.items() if n == "reduction"})


def _with(**named: Any) -> Change:
    return lambda f, a, k: f(*a, **{**k, **named})


def _times(factor: float) -> Change:
    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        out = f(*a, **k)
        return out.mul_(factor) if out is a[0] else out * factor

    return change


def _reductions(call: Call) -> Iterator[Cause]:
    x = call.args[0] if call.args else None
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return
    if call.name in ("std", "var", "std_mean", "var_mean"):
        for ddof in (0, 1):
            yield Cause("ddof", f"the divisor of {call.name}: JAX divides by {'n - 1' if ddof else 'n'}", _ddof(ddof))
    dim = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
    if call.name in REDUCTIONS and x.ndim:
        result = call.result[0] if isinstance(call.result, tuple) else call.result
        keep = bool(call.kwargs.get("keepdim", False)) or (result.ndim == x.ndim and x.ndim > 0)
        dims = tuple(range(x.ndim)) if dim is None else dim
        for other, function in REDUCTIONS.items():
            if other != call.name:
                yield Cause(
                    "reduction",
                    f"the reduction: torch {call.name}, JAX {other}",
                    _shaped(call, lambda x, own=function, dims=dims: own(x, dim=dims), keep),
                )
        own = REDUCTIONS[call.name]
        for axis in range(x.ndim):
            if (axis,) != dims and axis != dims:
                text = f"the axis of {call.name}: torch {dim}, JAX {axis}"
                along = lambda x, own=own, axis=axis: own(x, dim=axis)
                wide = lambda x, own=own, axis=axis: own(x, dim=axis).unsqueeze(axis)
                yield Cause("axis", text, _shaped(call, wide if keep else along, keep))
    elif call.name in ALONG and isinstance(dim, int):
        for axis in range(x.ndim):
            if axis != dim % x.ndim:
                yield Cause("axis", f"the axis of {call.name}: torch {dim}, JAX {axis}", _along(axis))


def _shaped(call: Call, function: Callable[[Tensor], Tensor], keep: bool) -> Change:
    """A reduction in the shape of the one it stands for; in a pair where that gives one (`max(dim)`)."""

    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        right, found = f(*a, **k), function(a[0])
        if not isinstance(right, tuple):
            return found.reshape(right.shape) if found.numel() == right.numel() else found
        values = found.reshape(right[0].shape) if found.numel() == right[0].numel() else found
        return type(right)((values, *right[1:]))

    return change


def _ddof(ddof: int) -> Change:
    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        dim = k.get("dim", next((x for x in a[1:] if isinstance(x, int | tuple) and not isinstance(x, bool)), None))
        return f(a[0], dim=dim, correction=ddof, keepdim=bool(k.get("keepdim", False)))

    return change


def _along(axis: int) -> Change:
    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        rest = {name: value for name, value in k.items() if name != "dim"}
        return f(a[0], axis, *a[2:], **rest)

    return change


def _numbers(call: Call) -> Iterator[Cause]:
    """Other constants."""
    if call.name in ("getitem", "view", "reshape", "permute", "transpose", "expand", "select", "narrow", "setitem"):
        return
    for at, value in (*enumerate(call.args), *call.kwargs.items()):
        if isinstance(value, bool) or not isinstance(value, int | float) or at in ("dim", "keepdim", "start_dim"):
            continue
        if isinstance(value, int) and call.name not in ("add", "sub", "mul", "div", "rsub", "pow", "clamp", "lerp"):
            continue
        for kind, other in _other_numbers(float(value), call.name):
            name = at if isinstance(at, str) else "the constant"
            yield Cause(kind, f"{name} of {call.name}: torch {value:g}, JAX {other:g}", put(at, other))


def _other_numbers(value: float, name: str) -> Iterator[tuple[str, float]]:
    if 0 <= value <= 1e-2:
        yield from (("eps", eps) for eps in EPSILONS if eps != value)
    yield "sign", -value
    if 0 < abs(value) < 1:
        yield "momentum" if name.startswith(("lerp", "batch_norm")) else "constant", 1 - value
    for other in (2 * value, value / 2):
        yield "factor", other
    yield from (("constant", v) for v in (value**2, math.sqrt(abs(value)), 0.0, 1.0) if v != value)
    if value:
        yield "constant", 1 / value


def put(at: int | str, value: Any) -> Change:
    """The call with one argument replaced."""
    if isinstance(at, str):
        return _with(**{at: value})
    return lambda f, a, k: f(*a[:at], value, *a[at + 1 :], **k)


def _left_out(call: Call) -> Iterator[Cause]:
    x, out = (call.args[0] if call.args else None), call.tensor
    if isinstance(x, Tensor) and out is not None and x.shape == out.shape and x.dtype == out.dtype:
        if call.name == "linear" or call.name.startswith("conv"):
            return
        yield Cause("left out", f"{call.name} is left out in JAX", lambda f, a, k: a[0])
        second = call.args[1] if len(call.args) > 1 else None
        if isinstance(second, Tensor) and second.shape == out.shape and second.dtype == out.dtype:
            text = f"the first operand of {call.name} is left out in JAX"
            yield Cause("left out", text, lambda f, a, k: a[1])


def _operands(call: Call) -> Iterator[Cause]:
    """The same call on other operands: transposed, turned round, inverted, shifted."""
    for at, x in (*enumerate(call.args), *call.kwargs.items()):
        if not isinstance(x, Tensor):
            continue
        where = f"operand {at + 1}" if isinstance(at, int) else str(at)
        of = f"{where} of {call.name}"
        if x.ndim >= 2 and x.shape[-1] == x.shape[-2] > 1:
            yield Cause("transposed", f"{of} is transposed in JAX", _moved(at, lambda x: x.mT))
        for i, j in combinations(range(x.ndim), 2):
            if x.shape[i] != x.shape[j]:
                text = f"axes {i} and {j} of {of} are exchanged in JAX"
                yield Cause("axis", text, _moved(at, lambda x, i=i, j=j: x.transpose(i, j)))
        if _is_mask(x):
            yield Cause("mask", f"the mask {of} is inverted in JAX", _moved(at, _inverted))
        if not x.is_floating_point() and x.dtype is not torch.bool:
            for by in (-1, 1):
                text = f"the index {of} is {'one lower' if by < 0 else 'one higher'} in JAX"
                yield Cause("index", text, _moved(at, lambda x, by=by: x + by))
        for axis in range(x.ndim):
            if 1 < x.shape[axis]:
                text = f"{of} is in reversed order along axis {axis} in JAX"
                yield Cause("order", text, _moved(at, lambda x, axis=axis: x.flip(axis)))
        if x.is_floating_point():
            yield Cause("sign", f"{of} has the other sign in JAX", _moved(at, torch.neg))
            yield Cause("abs", f"JAX takes the absolute value of {of}", _moved(at, torch.abs))
            for factor in (0.5, 2.0):
                text = f"{of} times {factor:g} in JAX"
                yield Cause("factor", text, _moved(at, lambda x, factor=factor: factor * x))
            if bool((x >= 0).all()):
                text = f"{of} is taken as one in JAX wherever it is not zero"
                yield Cause("constant", text, _moved(at, torch.sign))
            for name in FUNCTIONS:
                yield Cause("only in JAX", f"JAX takes {name} of {of}", _moved(at, getattr(torch, name)))
            for low, high in BOUNDS:
                text = f"JAX keeps {of} within {low:g} and {high:g}"
                yield Cause("clamp", text, _moved(at, lambda x, low=low, high=high: x.clamp(low, high)))
            for narrow in (torch.float32, torch.bfloat16):
                text = f"{of} is rounded to {str(narrow).removeprefix('torch.')} in JAX"
                yield Cause("cast", text, _moved(at, lambda x, narrow=narrow: x.to(narrow).to(x.dtype)))


def _moved(at: int | str, move: Callable[[Tensor], Tensor]) -> Change:
    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        given = k[at] if isinstance(at, str) else a[at]
        return put(at, move(given))(f, a, k)

    return change


def _is_mask(x: Tensor) -> bool:
    return x.dtype is torch.bool or (x.numel() > 1 and bool(((x == 0) | (x == 1)).all()))


def _inverted(x: Tensor) -> Tensor:
    return ~x if x.dtype is torch.bool else 1 - x


def _result(call: Call) -> Iterator[Cause]:
    out = call.tensor
    if out is None or not out.is_floating_point():
        return
    yield Cause(
        "cast", f"the result of {call.name} is rounded to float32 in JAX", _of_result(lambda x: x.float().to(x))
    )
    yield Cause(
        "cast", f"the result of {call.name} is rounded to bfloat16 in JAX", _of_result(lambda x: x.bfloat16().to(x))
    )
    yield Cause("sign", f"the result of {call.name} has the other sign in JAX", _times(-1.0))
    for factor in (0.5, 2.0):
        yield Cause("factor", f"the result of {call.name} times {factor:g} in JAX", _times(factor))
    if out.ndim >= 2 and out.shape[-1] == out.shape[-2] > 1:
        yield Cause("transposed", f"the result of {call.name} is transposed in JAX", _of_result(lambda x: x.mT))
    for name in FUNCTIONS:
        yield Cause("only in JAX", f"JAX takes {name} of the result", _of_result(getattr(torch, name)))
    for order in permutations(range(1, out.ndim)) if 3 <= out.ndim <= 4 else ():
        if order != tuple(range(1, out.ndim)):
            text = f"the axes of the result of {call.name} are in the order {(0, *order)} in JAX"
            yield Cause("layout", text, _of_result(lambda x, order=order: x.permute(0, *order).reshape(x.shape)))


def _of_result(move: Callable[[Tensor], Tensor]) -> Change:
    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        out = f(*a, **k)
        return out.copy_(move(out.detach().clone())) if a and out is a[0] else move(out)

    return change


def substitute(value: np.ndarray, part: int = 0) -> Change:
    """The call as it is, but with its result, or one of its results, replaced by given numbers."""

    def fill(out: Tensor) -> Tensor:
        channels = value.ndim > 2 and value.shape != tuple(out.shape)  # last in JAX
        if channels and np.moveaxis(value, -1, 1).shape == tuple(out.shape):
            return torch.as_tensor(np.moveaxis(value, -1, 1).copy()).to(out.dtype)
        return torch.as_tensor(np.ascontiguousarray(value).reshape(out.shape)).to(out.dtype)

    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        out = f(*a, **k)
        if out is None:  # x[i] = y
            with torch.no_grad():
                a[0].copy_(fill(a[0]))
            return None
        if isinstance(out, Tensor):
            if a and out is a[0]:
                with torch.no_grad():
                    return out.copy_(fill(out))
            return fill(out)
        return type(out)([fill(own) if i == part else own for i, own in enumerate(out)])

    return change
