"""What the other half may have done instead of a normalisation: epsilon, divisor, statistics, groups."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .watching import Call, Change

Found = Iterator[tuple[str, str, Change]]  # kind, text, change
EPSILONS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12, float(np.finfo(np.float32).eps))


def given(call: Call, at: int, name: str, default: Any = None) -> Any:
    """An argument of a call, by place or by name."""
    return call.args[at] if len(call.args) > at else call.kwargs.get(name, default)


def _named(function: Callable[..., Any], *names: str) -> Callable[..., Change]:
    """A change that calls `function` with the call's arguments by name, some of them replaced."""

    def make(**others: Any) -> Change:
        return lambda f, a, k: function(**{**dict(zip(names, a, strict=False)), **k, **others})

    return make


def _epsilons(call: Call, at: int, change: Callable[..., Change]) -> Found:
    own = given(call, at, "eps", 1e-5)
    for eps in EPSILONS:
        if eps != own:
            yield "eps", f"eps of {call.name}: torch {own or 0:g}, JAX {eps:g}", change(eps=eps)


def _layer_norm(call: Call) -> Found:
    change = _named(F.layer_norm, "input", "normalized_shape", "weight", "bias", "eps")
    yield from _epsilons(call, 4, change)
    yield "ddof", "the variance of layer_norm: JAX divides by n - 1", _named(_norm_ddof, *_NORM)()
    yield "ddof", "layer_norm: JAX does not subtract the mean", _named(_rms, *_NORM)()
    weight = given(call, 2, "weight")
    if weight is not None:
        yield "left out", "layer_norm without its scale in JAX", change(weight=None)
        yield "left out", "layer_norm without its bias in JAX", change(bias=None)
        yield "abs", "JAX takes the absolute value of layer_norm's scale", _absolute(2, "weight")
        yield "constant", "layer_norm: JAX scales by 1 + weight", _plus_one(2, "weight")


_NORM = ("input", "normalized_shape", "weight", "bias", "eps")


def _norm_ddof(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(axes, keepdim=True)
    return _affine(centred / (input.var(axes, correction=1, keepdim=True) + eps).sqrt(), weight, bias)


def _rms(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    return _affine(input / (input.square().mean(axes, keepdim=True) + eps).sqrt(), weight, bias)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _absolute(at: int, name: str) -> Change:
    return argument(at, name, torch.abs)


def _plus_one(at: int, name: str) -> Change:
    return argument(at, name, lambda weight: 1 + weight)


def argument(at: int, name: str, move: Callable[[Tensor], Tensor]) -> Change:
    """The call with one argument changed, given by place or by name."""

    def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
        if name in k:
            return f(*a, **{**k, name: move(k[name])})
        return f(*a[:at], move(a[at]), *a[at + 1 :], **k)

    return change


def _rms_norm(call: Call) -> Found:
    change = _named(F.rms_norm, "input", "normalized_shape", "weight", "eps")
    yield from _epsilons(call, 3, change)


def _group_norm(call: Call) -> Found:
    change = _named(F.group_norm, "input", "num_groups", "weight", "bias", "eps")
    yield from _epsilons(call, 4, change)
    x, groups = call.args[0], given(call, 1, "num_groups")
    channels = x.shape[1]
    order = torch.arange(channels).reshape(groups, -1).T.reshape(-1)
    if channels % groups == 0:
        text = "the channels of group_norm are interleaved among the groups in JAX"
        yield "layout", text, _named(_interleaved, "input", "num_groups", "weight", "bias", "eps")(order=order)
    for n in range(1, channels + 1):
        if channels % n == 0 and n != groups:
            yield "constant", f"groups of group_norm: torch {groups}, JAX {n}", change(num_groups=n)
    yield (
        "axis",
        "JAX normalises over the batch",
        lambda f, a, k: F.batch_norm(a[0], None, None, *a[2:4], training=True, eps=_eps(a, k)),
    )
    yield (
        "layout",
        "channels of group_norm last in JAX",
        lambda f, a, k: f(a[0].movedim(1, -1), *a[1:], **k).movedim(-1, 1),
    )


def _eps(a: tuple[Any, ...], k: dict[str, Any]) -> float:
    return k.get("eps", a[4] if len(a) > 4 else 1e-5)


def _interleaved(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, order: Tensor
) -> Tensor:
    mixed = input.index_select(1, torch.argsort(order))
    normal = F.group_norm(mixed, num_groups, None, None, eps).index_select(1, order)
    shape = (1, -1, *(1,) * (input.ndim - 2))
    return _affine(normal, None if weight is None else weight.view(shape), None if bias is None else bias.view(shape))


def _batch_norm(call: Call) -> Found:
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    change = _named(F.batch_norm, *names)
    yield from _epsilons(call, 7, change)
    momentum = given(call, 6, "momentum", 0.1)
    for other in (1 - momentum, 0.01, 0.1):
        if other != momentum:
            text = f"momentum of batch_norm, the share of the new value: torch {momentum:g}, JAX {other:g}"
            yield "momentum", text, change(momentum=other)
    yield "ddof", "the running variance of batch_norm: JAX divides by n", _named(_biased_statistics, *names)()
    training = given(call, 5, "training", False)
    if training:
        text = "JAX normalises by the running statistics, torch by those of the batch"
        yield "statistics", text, _named(_by_running, *names)()
        for groups in (n for n in (1, 2, 4, 8, 16, 32) if call.args[0].shape[1] % n == 0):
            text = f"torch normalises over the batch, JAX each row in {groups} groups of channels"
            yield "statistics", text, _named(_by_groups, *names)(groups=groups)
        yield "ddof", "batch_norm: the variance of the batch is divided by n - 1 in JAX", _named(_batch_ddof, *names)()
    elif given(call, 1, "running_mean") is not None:
        text = "JAX normalises by the statistics of the batch, torch by the running ones"
        yield "statistics", text, change(training=True, running_mean=None, running_var=None)


def _by_groups(input: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any) -> Tensor:
    return F.group_norm(input, groups, weight, bias, eps)


def _by_running(running_mean: Tensor, running_var: Tensor, training: bool = True, **rest: Any) -> Tensor:
    mean, var = running_mean.clone(), running_var.clone()
    F.batch_norm(running_mean=running_mean, running_var=running_var, training=True, **rest)
    return F.batch_norm(running_mean=mean, running_var=var, training=False, **rest)


def _biased_statistics(
    input: Tensor, running_mean: Tensor, running_var: Tensor, training: bool = True, momentum: float = 0.1, **rest: Any
) -> Tensor:
    before = running_var.clone()
    out = F.batch_norm(
        input, running_mean=running_mean, running_var=running_var, training=training, momentum=momentum, **rest
    )
    axes = [i for i in range(input.ndim) if i != 1]
    running_var.data.copy_((1 - momentum) * before + momentum * input.detach().var(axes, correction=0))
    return out


def _batch_ddof(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, **rest: Any
) -> Tensor:
    eps = rest.get("eps", 1e-5)
    F.batch_norm(input, running_mean, running_var, weight, bias, **rest)
    axes, shape = [i for i in range(input.ndim) if i != 1], (1, -1, *(1,) * (input.ndim - 2))
    normal = (input - input.mean(axes, keepdim=True)) / (input.var(axes, correction=1, keepdim=True) + eps).sqrt()
    return _affine(normal, None if weight is None else weight.view(shape), None if bias is None else bias.view(shape))


NORMS: dict[str, Callable[[Call], Found]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
