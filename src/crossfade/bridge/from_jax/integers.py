"""Rules of primitives that mean something else for integers: division, order and bits.

XLA divides towards zero, gives -1 for a division by zero and the dividend for its remainder, and 0 for a shift by the
width or more. uint64, which torch cannot order or divide, is left to NumPy.
"""

from collections.abc import Callable

import numpy as np
import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from ...errors import NoCounterpart
from .dtypes import bits, cut, from_bits, name_of, shape_of
from .elementwise import Rule, Run, always, cutting

WIDTHS = {f"{sign}int{width}": width for sign in ("", "u") for width in (8, 16, 32, 64)}


def _by_kind(floating: Run, integer: Run, unsigned: Callable[..., np.ndarray]) -> Rule:
    """One function for floats and booleans, one for integers, and NumPy's for uint64."""

    def rule(eqn: JaxprEqn) -> Run:
        name = name_of(eqn.invars[-1].aval)
        if name == "uint64":
            return lambda *inputs: _in_numpy(unsigned, *inputs)
        return integer if name in WIDTHS else floating

    return rule


def _in_numpy(function: Callable[..., np.ndarray], *inputs: Tensor) -> Tensor:
    with np.errstate(divide="ignore"):
        result = np.asarray(function(*(x.cpu().numpy().view(np.uint64) for x in inputs)))
    result = result.view(np.int64) if result.dtype == np.uint64 else result
    return torch.from_numpy(result).to(inputs[0].device)


def _divide(x: Tensor, y: Tensor) -> Tensor:
    safe = torch.where(y == 0, torch.ones_like(y), y)
    return torch.where(y == 0, torch.zeros_like(y) - 1, torch.div(x, safe, rounding_mode="trunc"))


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    safe = torch.where(y == 0, torch.ones_like(y), y)
    return torch.where(y == 0, x, torch.fmod(x, safe))


def _unsigned_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, np.uint64(2**64 - 1), x // np.maximum(y, np.uint64(1)))


def _unsigned_remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, x, x % np.maximum(y, np.uint64(1)))


def _division(eqn: JaxprEqn) -> Run:
    name = name_of(eqn.outvars[0].aval)
    run = _by_kind(torch.div, _divide, _unsigned_divide)(eqn)
    return lambda x, y: cut(run(x, y), name)


def _clamp(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


def _shift_left(eqn: JaxprEqn) -> Run:
    name = name_of(eqn.outvars[0].aval)
    width = WIDTHS[name]

    def run(x: Tensor, by: Tensor) -> Tensor:
        inside = (by >= 0) & (by < width)
        return torch.where(inside, cut(x << torch.where(inside, by, torch.zeros_like(by)), name), torch.zeros_like(x))

    return run


def _shift_right(eqn: JaxprEqn) -> Run:
    """With zeros from the left."""
    name = name_of(eqn.outvars[0].aval)
    width = WIDTHS[name]

    def run(x: Tensor, by: Tensor) -> Tensor:
        inside = (by >= 0) & (by < width)
        by = torch.where(inside, by, torch.zeros_like(by)).to(torch.int64)
        wide = x.to(torch.int64)
        if width == 64:
            shifted = torch.where(by == 0, wide, (wide >> by) & ~(torch.full_like(by, -1) << (64 - by).clamp(max=63)))
        else:
            shifted = (wide & (2**width - 1)) >> by
        return torch.where(inside, shifted, torch.zeros_like(shifted)).to(x.dtype)

    return run


def _shift_right_arithmetic(eqn: JaxprEqn) -> Run:
    """With copies of the sign from the left."""
    name = name_of(eqn.outvars[0].aval)
    width = WIDTHS[name]

    def run(x: Tensor, by: Tensor) -> Tensor:
        by = torch.where((by >= 0) & (by < width), by, torch.full_like(by, width - 1))
        signed = x.view(torch.int8) if name == "uint8" else bits(x, name)
        return from_bits(signed >> by.to(signed.dtype), name)

    return run


def _population_count(eqn: JaxprEqn) -> Run:
    name = name_of(eqn.outvars[0].aval)

    def run(x: Tensor) -> Tensor:
        counted = np.bitwise_count(bits(x, name).cpu().numpy().view(f"uint{WIDTHS[name]}"))
        return torch.from_numpy(np.asarray(counted)).to(x.device, x.dtype)

    return run


def _bitcast(eqn: JaxprEqn) -> Run:
    source, target = name_of(eqn.invars[0].aval), name_of(eqn.outvars[0].aval)
    if shape_of(eqn.invars[0]) != shape_of(eqn.outvars[0]):
        raise NoCounterpart(f"bitcast_convert_type: expected dtypes of one width, got {source} and {target}.")
    return lambda x: from_bits(bits(x, source), target)


RULES: dict[str, Rule] = {
    "div": _division,
    "rem": _by_kind(torch.fmod, _remainder, _unsigned_remainder),
    "max": _by_kind(torch.maximum, torch.maximum, np.maximum),
    "min": _by_kind(torch.minimum, torch.minimum, np.minimum),
    "clamp": _by_kind(_clamp, _clamp, lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "lt": _by_kind(torch.lt, torch.lt, np.less),
    "le": _by_kind(torch.le, torch.le, np.less_equal),
    "gt": _by_kind(torch.gt, torch.gt, np.greater),
    "ge": _by_kind(torch.ge, torch.ge, np.greater_equal),
    "eq": always(torch.eq),
    "ne": always(torch.ne),
    "and": always(torch.bitwise_and),
    "or": always(torch.bitwise_or),
    "xor": always(torch.bitwise_xor),
    "not": cutting(torch.bitwise_not),
    "shift_left": _shift_left,
    "shift_right_logical": _shift_right,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "population_count": _population_count,
    "bitcast_convert_type": _bitcast,
}
