"""Rules of control flow: scan, while, cond, linear systems given by functions, and draws that are repeated.

torch runs the bodies one after another; a condition is looked at on the host.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import numpy as np
import torch
from jax.extend.core import ClosedJaxpr, JaxprEqn
from torch import Tensor

from ..jaxprs import closed_jaxpr
from .dtypes import carrier
from .elementwise import Run

Build = Callable[[ClosedJaxpr], Callable[..., list[Tensor]]]


def scan(eqn: JaxprEqn, build: Build) -> Run:
    p = eqn.params
    step, consts, carried, length = build(p["jaxpr"]), p["num_consts"], p["num_carry"], p["length"]
    order = range(length - 1, -1, -1) if p["reverse"] else range(length)
    stacked = [v.aval for v in p["jaxpr"].jaxpr.outvars[carried:]]

    def run(*inputs: Tensor) -> list[Tensor]:
        fixed, carry = inputs[:consts], list(inputs[consts : consts + carried])
        slices = [x.unbind(0) for x in inputs[consts + carried :]]
        collected: list[list[Any]] = [[None] * length for _ in stacked]
        for i in order:
            results = step(*fixed, *carry, *(x[i] for x in slices))
            carry = results[:carried]
            for column, y in zip(collected, results[carried:], strict=True):
                column[i] = y
        if not length:
            return carry + [torch.empty((0, *aval.shape), dtype=carrier(aval)) for aval in stacked]
        return carry + [torch.stack(column) for column in collected]

    return run


def repeat(eqn: JaxprEqn, build: Build) -> Run:
    """`while_loop`; a condition for each of a batch, as `vmap` makes it, holds those that have ended."""
    p = eqn.params
    condition, step = build(p["cond_jaxpr"]), build(p["body_jaxpr"])
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def run(*inputs: Tensor) -> list[Tensor]:
        carry = list(inputs[second:])
        while bool((goes_on := condition(*inputs[:first], *carry)[0]).any()):
            after = step(*inputs[first:second], *carry)
            held = [goes_on.reshape((*goes_on.shape, *[1] * (x.ndim - goes_on.ndim))) for x in after]
            carry = [torch.where(on, new, old) for on, new, old in zip(held, after, carry, strict=True)]
        return carry

    return run


def branch(eqn: JaxprEqn, build: Build) -> Run:
    """`cond` and `switch`: an index outside its range takes the nearest branch."""
    branches = [build(closed) for closed in eqn.params["branches"]]
    return lambda index, *inputs: branches[min(max(int(index), 0), len(branches) - 1)](*inputs)


def solve(eqn: JaxprEqn, build: Build) -> Run:
    """`custom_linear_solve`: the solution that the user's own function gives."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    ends = list(accumulate((lengths.matvec, lengths.vecmat, lengths.solve, lengths.transpose_solve)))
    solver = build(jaxprs.solve)
    return lambda *inputs: solver(*inputs[ends[1] : ends[2]], *inputs[ends[3] :])


def gamma(eqn: JaxprEqn, build: Build) -> Run:
    """Gamma numbers by the rejections that JAX itself makes, of all elements side by side."""
    own: Any = eqn.primitive.impl
    avals: list[Any] = [v.aval for v in eqn.invars]
    types = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    with jax.enable_x64(types[1].dtype == np.float64):
        draw = build(closed_jaxpr(lambda key, a: own(key, a, **eqn.params, use_vmap=True), *types))
    return lambda *inputs: draw(*inputs)[0]


RULES: dict[str, Callable[[JaxprEqn, Build], Run]] = {
    "scan": scan,
    "while": repeat,
    "cond": branch,
    "custom_linear_solve": solve,
    "random_gamma": gamma,
}
