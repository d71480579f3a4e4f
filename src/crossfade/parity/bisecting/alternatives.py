"""What an equation of a world might have given instead: the usual causes where the host half has no torch calls."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .equations import Equation, Program
from .host import HostValues
from .points import Point

COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.mod,
    "and": np.logical_and,
    "or": np.logical_or,
}
Alternative = tuple[str, str, Any]


def alternatives(
    program: Program, equation: Equation, points: dict[int, Point], host: HostValues
) -> Iterator[Alternative]:
    """What the equation might have given instead, by kind and in words."""
    values = [points[n].value if n in points else np.asarray(program.constants.get(n, 0)) for n in equation.inputs]
    own = points[equation.outputs[0]].value
    values, own = [_signed(value) for value in values], _signed(own)
    name = equation.name
    if own.dtype.kind == "b" and own.size > 1:
        yield "mask", f"the result of {name} is inverted in JAX", ~own
    elif own.dtype.kind != "b":
        yield "sign", f"the result of {name} has the other sign in JAX", -own
        for by in (-1, 1):
            yield "constant", f"the result of {name} is {'one higher' if by < 0 else 'one lower'} in JAX", own + by
        yield "order", f"the result of {name} is in reversed order in JAX", own[::-1] if own.ndim else own
        for factor in (0.5, 2.0):
            yield "factor", f"the result of {name} is {1 / factor:g} times the host's in JAX", own * factor
    for family, kind in ((COMPARISONS, "comparison"), (BINARY, "operation")):
        if name in family and len(values) == 2:
            for at in (0, 1):
                for by in (-1, 1):
                    moved = [v + by if i == at and v.dtype.kind != "b" else v for i, v in enumerate(values)]
                    yield (
                        "constant",
                        f"operand {at + 1} of {name} is {'one higher' if by < 0 else 'one lower'} in JAX",
                        family[name](*moved),
                    )
            for other, function in family.items():
                if other != name:
                    yield kind, f"the {kind}: host {other}, JAX {name}", function(*values)
            for at in (0, 1):
                yield "left out", f"{name} is only in JAX", values[at]
    if name == "rem":
        x, n = values
        yield "clamp", "the host keeps it below a bound, JAX takes the remainder", np.clip(x, 0, n - 1)
    if name == "clamp":
        low, x, high = values
        for text, bounds in (
            ("lower", (low + 1, high)),
            ("lower", (low - 1, high)),
            ("upper", (low, high - 1)),
            ("upper", (low, high + 1)),
        ):
            yield "clamp", f"the {text} bound of the clamp", np.clip(x, *bounds)
    if name == "select_n" and len(values) == 3:
        yield "mask", "the condition of where is inverted in JAX", np.where(values[0], values[1], values[2])
    shape = own.shape
    for variable in host.points.values():
        for at, value in enumerate(values):
            if variable.value.shape == value.shape and name in (BINARY | COMPARISONS):
                moved = [variable.value if i == at else v for i, v in enumerate(values)]
                family = BINARY | COMPARISONS
                found = family[name](*moved)
                if found.shape == shape:
                    yield (
                        "operand",
                        f"operand {at + 1} of {name}: the host reads {variable.operation}, JAX another value",
                        found,
                    )


def _signed(value: np.ndarray) -> np.ndarray:
    """Room for a number below zero."""
    return value.astype(np.int64) if value.dtype.kind == "u" else value
