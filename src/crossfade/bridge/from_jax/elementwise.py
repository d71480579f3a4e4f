"""Rules of elementwise primitives on floating-point numbers, and of those that take numbers of any kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from ...errors import NoCounterpart
from ...random import xla_math
from .dtypes import CARRIERS, carrier, cut, name_of

Run = Callable[..., Any]
Rule = Callable[[JaxprEqn], Run]


def always(run: Run) -> Rule:
    """The rule of a primitive whose parameters (accuracy, sharding) have no effect on values."""
    return lambda eqn: run


def cutting(run: Run) -> Rule:
    """The same with integers modulo their width."""

    def rule(eqn: JaxprEqn) -> Run:
        name = name_of(eqn.outvars[0].aval)
        return lambda *inputs: cut(run(*inputs), name)

    return lambda eqn: rule(eqn) if name_of(eqn.outvars[0].aval) in ("uint16", "uint32") else run


def _sign(eqn: JaxprEqn) -> Run:
    if name_of(eqn.invars[0].aval).startswith("uint"):
        return lambda x: (x != 0).to(x.dtype)
    return lambda x: torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sgn(x)


def _abs(eqn: JaxprEqn) -> Run:
    return (lambda x: x) if name_of(eqn.invars[0].aval).startswith("uint") else torch.abs


def _cbrt(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.abs(x) ** (1 / 3)


def _erf_inv(x: Tensor) -> Tensor:
    """XLA's own polynomials where the random numbers need them, torch's function outside its domain."""
    if x.dtype not in (torch.float32, torch.float64):
        return torch.erfinv(x)
    return torch.where(x.abs() < 1, xla_math.erf_inv(x.contiguous()), torch.erfinv(x))


def _polygamma(order: Tensor, x: Tensor) -> Tensor:
    """(-1)^(m+1) m! zeta(m+1, x), and digamma for m = 0."""
    sign = 1 - 2 * ((order + 1) % 2)
    higher = sign * torch.exp(torch.lgamma(order + 1)) * torch.special.zeta(order + 1, x)
    return torch.where(order == 0, torch.digamma(x), higher)


def _integer_pow(eqn: JaxprEqn) -> Run:
    power, name = eqn.params["y"], name_of(eqn.outvars[0].aval)
    return lambda x: cut(x**power, name)


def _round(eqn: JaxprEqn) -> Run:
    if int(eqn.params["rounding_method"]) == 1:  # to the nearest even number
        return torch.round
    return lambda x: torch.trunc(x + torch.copysign(torch.full_like(x, 0.5), x))  # away from zero


def _convert(eqn: JaxprEqn) -> Run:
    source, target = name_of(eqn.invars[0].aval), name_of(eqn.outvars[0].aval)
    dtype = carrier(eqn.outvars[0].aval)
    if source == "uint64" and dtype.is_floating_point:
        width = np.float64 if dtype == torch.float64 else np.float32
        return lambda x: torch.from_numpy(np.asarray(x.cpu().numpy().view(np.uint64), width)).to(x.device, dtype)
    if source.startswith("complex") and not dtype.is_complex:
        return lambda x: cut(torch.real(x).to(dtype), target)
    return lambda x: cut(x.to(dtype), target)


def _reduce_precision(eqn: JaxprEqn) -> Run:
    widths = (eqn.params["exponent_bits"], eqn.params["mantissa_bits"])
    known = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    if widths not in known:
        raise NoCounterpart(
            f"reduce_precision: torch has no type of {widths[0]} exponent and {widths[1]} mantissa bits."
        )
    return lambda x: x.to(CARRIERS[known[widths]]).to(x.dtype)


def _select(which: Tensor, *cases: Tensor) -> Tensor:
    if which.dtype == torch.bool:
        return torch.where(which, cases[1], cases[0]) if len(cases) == 2 else cases[0]
    chosen = cases[0]
    for i, case in enumerate(cases[1:], 1):
        chosen = torch.where(which == i, case, chosen)
    return chosen


def _pow(x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, y.to(x.dtype) if y.ndim > x.ndim else y)


SAME_NAME = (
    ("exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh")
    + ("acosh", "atanh", "tanh", "sqrt", "rsqrt", "erf", "erfc", "lgamma", "digamma", "floor", "ceil", "atan2")
    + ("nextafter", "real", "imag", "complex")
)

RULES: dict[str, Rule] = {
    **{name: always(getattr(torch, name)) for name in SAME_NAME},
    "logistic": always(torch.sigmoid),
    "cbrt": always(_cbrt),
    "erf_inv": always(_erf_inv),
    "igamma": always(torch.special.gammainc),
    "igammac": always(torch.special.gammaincc),
    "polygamma": always(_polygamma),
    "zeta": always(torch.special.zeta),
    "bessel_i0e": always(torch.special.i0e),
    "bessel_i1e": always(torch.special.i1e),
    "conj": always(lambda x: torch.conj(x).resolve_conj()),
    "is_finite": always(torch.isfinite),
    "sign": _sign,
    "abs": _abs,
    "pow": always(_pow),
    "round": _round,
    "integer_pow": _integer_pow,
    "square": cutting(torch.square),
    "neg": cutting(torch.neg),
    "add": cutting(torch.add),
    "add_any": cutting(torch.add),
    "sub": cutting(torch.sub),
    "mul": cutting(torch.mul),
    "convert_element_type": _convert,
    "reduce_precision": _reduce_precision,
    "select_n": always(_select),
}
