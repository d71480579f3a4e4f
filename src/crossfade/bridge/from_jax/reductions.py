"""Rules of reductions, cumulative operations and sorting."""

from collections.abc import Callable

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from ...errors import NoCounterpart
from .dtypes import carrier, cut, name_of
from .elementwise import Rule, Run


def _ordered(eqn: JaxprEqn) -> None:
    if name_of(eqn.invars[0].aval) == "uint64":
        raise NoCounterpart(f"{eqn.primitive.name}: torch cannot order uint64. Cast to int64 first.")


def _sum(eqn: JaxprEqn) -> Run:
    axes, dtype, name = eqn.params["axes"], carrier(eqn.outvars[0].aval), name_of(eqn.outvars[0].aval)
    return lambda x: cut(x.sum(axes, dtype=dtype), name) if axes else x


def _product(eqn: JaxprEqn) -> Run:
    axes, dtype, name = eqn.params["axes"], carrier(eqn.outvars[0].aval), name_of(eqn.outvars[0].aval)

    def run(x: Tensor) -> Tensor:
        for axis in sorted(axes, reverse=True):
            x = cut(x.prod(axis, dtype=dtype), name)
        return x

    return run


def _extreme(reduce: Callable[..., Tensor]) -> Rule:
    def rule(eqn: JaxprEqn) -> Run:
        _ordered(eqn)
        axes = eqn.params["axes"]
        return lambda x: reduce(x, axes) if axes else x

    return rule


def _logical(combine: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """Bits or booleans combined along the axes."""

    def rule(eqn: JaxprEqn) -> Run:
        axes = eqn.params["axes"]

        def run(x: Tensor) -> Tensor:
            for axis in sorted(axes, reverse=True):
                x = _folded(combine, x, axis)
            return x

        return run

    return rule


def _folded(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    if x.dtype == torch.bool and combine is torch.bitwise_and:
        return x.all(axis)
    if x.dtype == torch.bool and combine is torch.bitwise_or:
        return x.any(axis)
    parts = list(x.unbind(axis))
    if not parts:
        whole = torch.zeros_like(x.sum(axis, dtype=x.dtype) if x.dtype != torch.bool else x.any(axis))
        return ~whole if combine is torch.bitwise_and else whole
    result = parts[0]
    for part in parts[1:]:
        result = combine(result, part)
    return result


def _index(choose: Callable[..., Tensor]) -> Rule:
    """argmax or argmin: the first of equal elements."""

    def rule(eqn: JaxprEqn) -> Run:
        _ordered(eqn)
        (axis,), dtype = eqn.params["axes"], carrier(eqn.outvars[0].aval)
        return lambda x: choose(x.to(torch.uint8) if x.dtype == torch.bool else x, axis).to(dtype)

    return rule


def _cumulative(accumulate: Callable[[Tensor, int], Tensor]) -> Rule:
    def rule(eqn: JaxprEqn) -> Run:
        axis, name = eqn.params["axis"], name_of(eqn.outvars[0].aval)
        if eqn.params["reverse"]:
            return lambda x: cut(accumulate(x.flip(axis), axis), name).flip(axis)
        return lambda x: cut(accumulate(x, axis), name)

    return rule


def _sort(eqn: JaxprEqn) -> Run:
    """By the first operand, equal elements of it by the second, and so on for `num_keys` operands; stable."""
    for v in eqn.invars[: eqn.params["num_keys"]]:
        if name_of(v.aval) == "uint64":
            raise NoCounterpart("sort: torch cannot order uint64. Cast to int64 first.")
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]

    def run(*operands: Tensor) -> list[Tensor]:
        if len(operands) == 1:
            return [torch.sort(operands[0], dim=axis, stable=True)[0]]
        order = torch.argsort(operands[keys - 1], dim=axis, stable=True)
        for key in reversed(operands[: keys - 1]):
            order = order.gather(axis, torch.argsort(key.gather(axis, order), dim=axis, stable=True))
        return [x.gather(axis, order) for x in operands]

    return run


def _top_k(eqn: JaxprEqn) -> Run:
    """The largest elements, those with the lower index first."""
    _ordered(eqn)
    k, axis = eqn.params["k"], eqn.params.get("axis", -1)
    dtype = carrier(eqn.outvars[1].aval)

    def run(x: Tensor) -> list[Tensor]:
        values, indices = torch.sort(x, dim=axis, descending=True, stable=True)
        return [values.narrow(axis, 0, k), indices.narrow(axis, 0, k).to(dtype)]

    return run


RULES: dict[str, Rule] = {
    "reduce_sum": _sum,
    "reduce_prod": _product,
    "reduce_max": _extreme(torch.amax),
    "reduce_min": _extreme(torch.amin),
    "reduce_and": _logical(torch.bitwise_and),
    "reduce_or": _logical(torch.bitwise_or),
    "reduce_xor": _logical(torch.bitwise_xor),
    "argmax": _index(torch.argmax),
    "argmin": _index(torch.argmin),
    "cumsum": _cumulative(lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype)),
    "cumprod": _cumulative(lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype)),
    "cummax": _cumulative(lambda x, axis: torch.cummax(x, axis)[0]),
    "cummin": _cumulative(lambda x, axis: torch.cummin(x, axis)[0]),
    "cumlogsumexp": _cumulative(torch.logcumsumexp),
    "sort": _sort,
    "top_k": _top_k,
}
