"""A jaxpr as a list of torch calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from torch import Tensor

from ...errors import NoCounterpart
from ..jaxprs import body, source_line
from . import (
    draws,
    elementwise,
    indexing,
    integers,
    linear_algebra,
    loops,
    products,
    reductions,
    shapes,
    spectra,
    windows,
)
from .dtypes import carrier, constant, shape_of
from .elementwise import Rule, Run

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **integers.RULES,
    **reductions.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **products.RULES,
    **windows.RULES,
    **linear_algebra.RULES,
    **spectra.RULES,
    **draws.RULES,
}

FOLDED = 1 << 16  # elements: what is computed from constants alone and is no larger is computed once
CPU = torch.device("cpu")
UNKNOWN = "an unknown line"


@dataclass(frozen=True)
class Call:
    """One call: where its inputs are read and its outputs written, and which values nobody reads after it."""

    run: Run
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    several: bool
    dead: tuple[int, ...] = ()


class Program:
    """`program(*tensors)`: the outputs of a jaxpr, in the dtypes of dtypes.py.

    Values live in numbered slots, arguments first. Plain calls are inlined, what depends on constants alone is
    computed while the program is made, and what no output needs is left out. `outvars` are other variables of the
    jaxpr to return.
    """

    def __init__(self, closed: ClosedJaxpr, outvars: Sequence[Var | Literal] | None = None) -> None:
        self._calls: list[Call] = []
        self._known: dict[int, Tensor] = {}  # constants by slot
        self._callers: list[JaxprEqn] = []  # of what is being inlined
        self._size = len(closed.jaxpr.invars)
        outputs = self._place(closed.jaxpr, closed.consts, list(range(self._size)), outvars)
        self._arguments = len(closed.jaxpr.invars)
        self._outputs = outputs
        self._calls = _needed(self._calls, outputs)
        read = {slot for call in self._calls for slot in call.inputs} | set(outputs)
        self._constants = {CPU: {slot: value for slot, value in self._known.items() if slot in read}}
        self._known = {}

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        device = tensors[0].device if tensors else CPU
        values: list[Any] = [None] * self._size
        values[: self._arguments] = tensors
        for slot, value in self._constants_on(device).items():
            values[slot] = value
        if device.type == "cpu":
            return self._run(values)
        with device:  # where rules make new tensors
            return self._run(values)

    def _run(self, values: list[Any]) -> list[Tensor]:
        for call in self._calls:
            result = call.run(*[values[i] for i in call.inputs])
            if call.several:
                for slot, value in zip(call.outputs, result, strict=True):
                    values[slot] = value
            else:
                values[call.outputs[0]] = result
            for slot in call.dead:
                values[slot] = None
        return [values[slot] for slot in self._outputs]

    def _constants_on(self, device: torch.device) -> dict[int, Tensor]:
        if device not in self._constants:
            self._constants[device] = {slot: value.to(device) for slot, value in self._constants[CPU].items()}
        return self._constants[device]

    def _place(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Any],
        arguments: list[int],
        outvars: Sequence[Var | Literal] | None = None,
    ) -> list[int]:
        """Adds the calls of a jaxpr whose arguments are in the given slots; the slots of its outputs."""
        slots = dict(zip(jaxpr.invars, arguments, strict=True))
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            slots[var] = self._constant(value, var.aval)
        read = lambda v: self._constant(v.val, v.aval) if isinstance(v, Literal) else slots[v]
        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            inner = body(eqn)
            if inner is None:
                outputs = self._add(eqn, inputs)
            else:
                self._callers.append(eqn)
                outputs = self._place(inner.jaxpr, inner.consts, inputs)
                self._callers.pop()
            slots.update(zip(eqn.outvars, outputs, strict=True))
        return [read(v) for v in (jaxpr.outvars if outvars is None else outvars)]

    def _constant(self, value: Any, aval: Any) -> int:
        self._size += 1
        self._known[self._size - 1] = constant(value, aval)
        return self._size - 1

    def _add(self, eqn: JaxprEqn, inputs: list[int]) -> list[int]:
        run, several = _rule(eqn, self._callers), eqn.primitive.multiple_results
        outputs = list(range(self._size, self._size + len(eqn.outvars)))
        self._size += len(outputs)
        if all(i in self._known for i in inputs) and sum(prod(shape_of(v)) for v in eqn.outvars) <= FOLDED:
            result = run(*(self._known[i] for i in inputs))
            self._known.update(zip(outputs, result if several else [result], strict=True))
        else:
            self._calls.append(Call(run, tuple(inputs), tuple(outputs), several))
        return outputs


def _rule(eqn: JaxprEqn, callers: Sequence[JaxprEqn]) -> Run:
    """The function that computes an equation; an error names the user's line."""
    name = eqn.primitive.name
    try:
        for v in eqn.outvars:
            carrier(v.aval)
        if name in loops.RULES:
            return loops.RULES[name](eqn, Program)
        if name in RULES:
            return RULES[name](eqn)
    except NoCounterpart as error:
        known = "\n" in str(error) and UNKNOWN not in str(error)
        raise error if known else NoCounterpart(f"{str(error).splitlines()[0]}\n{_where(eqn, callers)}") from None
    raise NoCounterpart(
        f"{name}: expected primitives of JAX that have a rule in torch, got this one. Write that line with others, or "
        f"compute its result outside and pass it in as an argument.\n{_where(eqn, callers)}"
    )


def _where(eqn: JaxprEqn, callers: Sequence[JaxprEqn]) -> str:
    """The line of an equation, or of what called it: JAX forgets the lines of functions it has traced before."""
    lines = (source_line(each) for each in (eqn, *reversed(callers)))
    shapes = ", ".join(str(v.aval) for v in eqn.invars)
    return f"It is used at {next((line for line in lines if line), UNKNOWN)}: {eqn.primitive.name} of {shapes}"


def _needed(calls: list[Call], outputs: list[int]) -> list[Call]:
    """The calls that the outputs depend on, each with the values that nobody reads after it."""
    wanted, kept = set(outputs), []
    for call in reversed(calls):
        if wanted.isdisjoint(call.outputs):
            continue
        dead = tuple(slot for slot in {*call.inputs, *call.outputs} if slot not in wanted)
        wanted.update(call.inputs)
        kept.append(Call(call.run, call.inputs, call.outputs, call.several, dead))
    return kept[::-1]
