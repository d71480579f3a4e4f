"""Branches that a proof has not seen: clamps that never bit, conditions always true, terms too small to count.

The torch half tells by the functions it calls, the JAX half by its equations. A branch counts as seen when it was taken
once, at any of the scales of elsewhere.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from ..bridge.jaxprs import compile_briefly
from .arrays import precision
from .bisecting.equations import Equation, Program, trace
from .bisecting.watching import Watch, function_name
from .elsewhere import LOOKED, Scale, parameters, scaled_data, scaled_weights, using
from .levels import Levels, program_of

Seen = dict[tuple[str, str, str], bool]  # (operation, line, branch) -> whether it was taken
ABSORBED = 1e8  # times larger: a term beside which another is lost in a float64 comparison
MOST = 8  # notes
COMPARING = ("lt", "le", "gt", "ge")
OPERANDS = ("condition", "input", "target", "other", "mask", "value")  # what users may also give by name


class CoverageWatch(Watch):
    """Notes which branches the torch half takes."""

    def __init__(self, seen: Seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        branches = BRANCHES.get(function_name(func).rstrip("_"))
        if branches is not None:
            lines, _, _ = self._place()
            given = (*args, *(value for name, value in (kwargs or {}).items() if name in OPERANDS))
            for branch, taken in branches(given, kwargs or {}) if lines else ():
                key = (function_name(func), lines[0], branch)
                self.seen[key] = self.seen.get(key, False) or bool(taken)
        return out


Taken = Iterator[tuple[str, Any]]


def _relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    x = args[0].detach()
    yield "below zero", (x < 0).any()
    yield "above zero", (x > 0).any()


def _relu6(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    yield from _relu(args, kwargs)
    yield "above six", (args[0].detach() > 6).any()


def _clamp(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    x = args[0].detach()
    low = kwargs.get("min", args[1] if len(args) > 1 else None)
    high = kwargs.get("max", args[2] if len(args) > 2 else None)
    if low is not None:
        yield "below its lower bound", (x < low).any()
    if high is not None:
        yield "above its upper bound", (x > high).any()


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    if len(args) != 3:
        return
    method = not (isinstance(args[0], Tensor) and args[0].dtype == torch.bool)  # yes.where(condition, no)
    condition, yes, no = (args[1], args[0], args[2]) if method else args
    if condition.ndim:
        yield "with a true condition", condition.any()
        yield "with a false condition", (~condition).any()
        yield from _masked(condition, yes, True)
        yield from _masked(condition, no, False)


def _masked(condition: Tensor, fill: Any, when: bool) -> Taken:
    """A large negative constant stands for what is not allowed: what it hides in every row is not seen."""
    value = fill if not isinstance(fill, Tensor) else fill.item() if fill.numel() == 1 else None
    if isinstance(value, int | float) and value < -ABSORBED and condition.ndim > 1:
        hidden = (condition if when else ~condition).flatten(0, -2).all(0)
        for at in range(hidden.numel()):
            yield f"with column {at} unmasked", not bool(hidden[at])


def _masked_fill(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    if len(args) == 3:
        yield from _masked(args[1].expand(args[0].shape), args[2], True)


def _larger(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    if len(args) == 2 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
        yield "with the first operand larger", (args[0] > args[1]).any()
        yield "with the second operand larger", (args[0] < args[1]).any()


def _huber(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    size = (args[0] - args[1]).detach().abs()
    delta = kwargs.get("delta", kwargs.get("beta", 1.0))
    yield "with an error below its threshold", (size < delta).any()
    yield "with an error above its threshold", (size > delta).any()


def _sum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taken:
    """A term that is lost beside the other."""
    if len(args) > 1 and all(isinstance(a, Tensor) and a.is_floating_point() for a in args[:2]):
        a, b = (x.detach().abs() for x in args[:2])
        if a.numel() and b.numel() and bool(b.any()) and bool(a.any()):
            yield "with terms of like size", not bool(((a > ABSORBED * b) | (b > ABSORBED * a)).all())


BRANCHES: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Taken]] = {
    "relu": _relu,
    "leaky_relu": _relu,
    "elu": _relu,
    "celu": _relu,
    "selu": _relu,
    "relu6": _relu6,
    "clamp": _clamp,
    "clip": _clamp,
    "where": _where,
    "masked_fill": _masked_fill,
    "maximum": _larger,
    "minimum": _larger,
    "huber_loss": _huber,
    "smooth_l1_loss": _huber,
    "add": _sum,
    "sub": _sum,
}


class JaxCoverage:
    """Notes which branches the equations of a program take."""

    def __init__(self, program: Program):
        self.program = program
        self.makers = {n: e for e in program.equations for n in e.outputs}
        self.varying = set(program.inputs.values())
        for equation in program.equations:
            if self.varying & set(equation.inputs):
                self.varying |= set(equation.outputs)
        self.branches = [
            (e, branch) for e in program.equations if e.lines and e.by_user for branch in self._branches(e)
        ]
        self._run: Callable[..., Any] | None = None

    def look(self, args: list[Any], seen: Seen) -> None:
        """Runs the program and adds what it took."""
        if not self.branches:
            return
        if self._run is None:
            self._run = compile_briefly(self._taken, args)
        for (equation, branch), taken in zip(self.branches, np.asarray(self._run(args)), strict=True):
            key = (equation.name, equation.lines[0], branch)
            seen[key] = seen.get(key, False) or bool(taken)

    def _taken(self, args: list[Any]) -> jax.Array:
        values = self.program.evaluate(args)
        found = [_holds(e, branch, [values[n] for n in e.inputs]) for e, branch in self.branches]
        return jnp.stack([jnp.any(taken) for taken in found])

    def _branches(self, equation: Equation) -> tuple[str, ...]:
        inputs = equation.inputs
        if equation.name == "clamp":
            return ("below its lower bound", "above its upper bound")
        if equation.name in ("max", "min") and self._is_floating(inputs):
            return ("with the first operand larger", "with the second operand larger")
        if equation.name == "select_n" and len(inputs) == 3 and self._is_comparison(inputs[0]):
            return ("with a true condition", "with a false condition")
        return ()

    def _is_comparison(self, number: int) -> bool:
        """Whether a condition compares floating numbers; what handles NaN or negative indices does not count."""
        maker = self.makers.get(number)
        while maker is not None and maker.name in ("broadcast_in_dim", "convert_element_type", "reshape"):
            maker = self.makers.get(maker.inputs[0])
        return maker is not None and maker.name in COMPARING and self._is_floating(maker.inputs)

    def _is_floating(self, inputs: tuple[int, ...]) -> bool:
        return any(self.program.kinds.get(n) == "f" and n in self.varying for n in inputs)


def _holds(equation: Equation, branch: str, values: list[Any]) -> Any:
    match equation.name:
        case "clamp":
            return values[1] < values[0] if branch.startswith("below") else values[1] > values[2]
        case "select_n":
            return values[0] if branch == "with a true condition" else ~values[0]
    return values[0] > values[1] if "first" in branch else values[0] < values[1]


def never_taken(seen: Seen, side: str) -> list[str]:
    """A line for each branch that was never taken, several of one line together."""
    by_line: dict[tuple[str, str], list[str]] = {}
    for (operation, line, branch), taken in seen.items():
        if not taken:
            by_line.setdefault((operation, line), []).append(branch)
    return [f"not covered: {op} at {line} ({side}) was never run {', '.join(b)}" for (op, line), b in by_line.items()]


class Coverage:
    """The branches of both halves at one level, over several runs."""

    def __init__(self, levels: Levels, level: str):
        self.levels, self.level = levels, level
        self.torch: Seen = {}
        self.jax: Seen = {}
        self._jax: JaxCoverage | None = None
        self.looked = (
            levels.twin.scales and level in LOOKED and not (level == "forward" and levels.twin.loss is not None)
        )
        if self.looked:
            with precision(levels.dtype), self.around():
                levels.call("torch", level, dict(levels.weights))
            self.look(None)

    @contextmanager
    def around(self) -> Iterator[None]:
        """A context in which the torch half runs."""
        if not self.looked:
            yield
            return
        with CoverageWatch(self.torch):
            yield

    def look(self, scale: Scale | None) -> None:
        """The JAX half with the weights and inputs of a scale."""
        if not self.looked:
            return
        levels = self.levels
        weights, data = levels.weights, levels.twin
        if scale is not None:
            weights, data = scaled_weights(levels.mapping, weights, parameters(data), scale), scaled_data(data, scale)
        with precision(levels.dtype), using(levels, data):
            function, args = program_of(levels, self.level, weights)
            if self._jax is None:
                self._jax = JaxCoverage(trace(function, *args, unroll=False))
            self._jax.look(jax.tree.leaves(args), self.jax)

    def notes(self) -> list[str]:
        """What was never taken."""
        notes = [*never_taken(self.torch, "torch"), *never_taken(self.jax, "JAX")]
        more = [f"not covered: {len(notes) - MOST} more branches"] if len(notes) > MOST else []
        return [*notes[:MOST], *more]
