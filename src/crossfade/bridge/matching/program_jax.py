"""A JAX model as one flat list of equations, evaluated as far as the leaves known so far allow.

`Program.begin` computes what the inputs alone give, `Program.advance` what some more leaves add to it. A search that
finds the leaves in the order of their use so evaluates each equation about once, however deep the model is.
"""

from collections.abc import Callable, Iterable, Mapping as Named
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from .primitives_numpy import PRIMITIVES

Values = list[np.ndarray]

FEW = 12  # leaves that one step of the search finds together


@dataclass(frozen=True)
class Equation:
    """One primitive with the numbers of the slots that it reads and writes, and the leaves it depends on, as bits."""

    eqn: JaxprEqn
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    needs: int

    @property
    def name(self) -> str:
        return self.eqn.primitive.name


@dataclass(frozen=True)
class Wave:
    """What has been computed: the leaves known, as bits, and the values by slot."""

    known: int
    slots: dict[int, Any]

    def values(self) -> Values:
        """Every floating value so far."""
        return [np.asarray(value) for value in self.slots.values() if _is_float(value)]


class Program:
    """The equations of a jaxpr whose arguments are the leaves, by path, then the inputs. Plain calls are inlined."""

    def __init__(self, closed: ClosedJaxpr, paths: list[str]):
        self.bits = {path: 1 << at for at, path in enumerate(paths)}
        self.slots = {path: at for at, path in enumerate(paths)}
        self.equations: list[Equation] = []
        self._needs = [1 << at for at in range(len(paths))]  # for each slot
        self._constants: dict[int, Any] = {}
        self.inputs = [self._slot(0) for _ in closed.jaxpr.invars[len(paths) :]]
        self.outputs = self._inline(closed, [*self.slots.values(), *self.inputs])

    def _slot(self, needs: int) -> int:
        self._needs.append(needs)
        return len(self._needs) - 1

    def _constant(self, value: Any) -> int:
        slot = self._slot(0)
        self._constants[slot] = value
        return slot

    def _inline(self, closed: ClosedJaxpr, arguments: list[int]) -> list[int]:
        env = dict(zip(closed.jaxpr.invars, arguments, strict=True))
        env |= {var: self._constant(value) for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)}
        read = lambda v: self._constant(_literal(v)) if isinstance(v, Literal) else env[v]
        for eqn in closed.jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            body = called(eqn)
            if body is not None and len(body.jaxpr.invars) == len(inputs):
                outputs = self._inline(body, inputs)
            else:
                needs = 0
                for slot in inputs:
                    needs |= self._needs[slot]
                outputs = [self._slot(needs) for _ in eqn.outvars]
                self.equations.append(Equation(eqn, tuple(inputs), tuple(outputs), needs))
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(v) for v in closed.jaxpr.outvars]

    def begin(self, inputs: list) -> Wave:
        """What can be computed without any leaf."""
        slots = self._constants | dict(zip(self.inputs, map(np.asarray, inputs), strict=True))
        self._evaluate((equation for equation in self.equations if not equation.needs), slots)
        return Wave(0, slots)

    def holds(self, test: Callable[[np.ndarray], bool]) -> bool:
        """Whether a float64 number or array of the code passes a test."""
        held = (value for value in self._constants.values() if getattr(value, "dtype", None) == np.float64)
        return any(test(np.asarray(value)) for value in held)

    def constants(self, inputs: list) -> dict[int, Any]:
        """By slot, what depends on no leaf and on no input."""
        moving = set(self.inputs)
        for equation in self.equations:
            if not moving.isdisjoint(equation.inputs):
                moving.update(equation.outputs)
        return {slot: value for slot, value in self.begin(inputs).slots.items() if slot not in moving}

    def advance(self, wave: Wave, leaves: Named[str, np.ndarray]) -> tuple[Wave, Values]:
        """The wave with some more leaves known, and the floating values that this adds, the leaves among them."""
        new = 0
        for path in leaves:
            new |= self.bits[path]
        known = wave.known | new
        slots = wave.slots | {self.slots[path]: np.asarray(array) for path, array in leaves.items()}
        ready = (equation for equation in self.equations if equation.needs & new and not equation.needs & ~known)
        values = self._evaluate(ready, slots)
        return Wave(known, slots), [*values, *(np.asarray(array) for array in leaves.values())]

    def awaited(self, wave: Wave) -> list[int]:
        """The leaves that equations still wait for, as bits, where they are few."""
        missing = {equation.needs & ~wave.known for equation in self.equations}
        return [bits for bits in missing if 0 < bits.bit_count() <= FEW]

    def _evaluate(self, equations: Iterable[Equation], slots: dict[int, Any]) -> Values:
        values: Values = []
        with np.errstate(all="ignore"):
            for equation in equations:
                results = _run(equation.eqn, [slots[slot] for slot in equation.inputs])
                slots.update(zip(equation.outputs, results, strict=True))
                values += [np.asarray(result) for result in results if _is_float(result)]
        return values


def _run(eqn: JaxprEqn, operands: list) -> list:
    name, kinds = eqn.primitive.name, [getattr(v.aval, "dtype", None) for v in eqn.outvars]
    plain = all(isinstance(operand, np.ndarray) for operand in operands) and all(map(_is_plain, kinds))
    if plain and name == "convert_element_type":
        return [operands[0].astype(kinds[0])]
    if plain and name in PRIMITIVES:
        result = PRIMITIVES[name](eqn.params, *operands)
        results = result if isinstance(result, list) else [result]
        return [np.asarray(array, kind) for array, kind in zip(results, kinds, strict=True)]
    result = eqn.primitive.bind(*operands, **eqn.params)
    results = result if eqn.primitive.multiple_results else [result]
    return [np.asarray(array) if _is_plain(array.dtype) else array for array in results]


def shape_of(atom: Any) -> tuple[int, ...]:
    """The shape of a variable or literal of a jaxpr."""
    return tuple(atom.aval.shape)


def _literal(atom: Any) -> np.ndarray:
    return np.asarray(atom.val, atom.aval.dtype)


def _is_plain(dtype: Any) -> bool:
    """Whether NumPy has the type itself; random keys and small floats it has not."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)


def called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a plain call (`jit`, `custom_jvp`, `remat`, ...), which is inlined."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if isinstance(body, ClosedJaxpr):
            return body
        if isinstance(body, Jaxpr):
            return ClosedJaxpr(body, ())
    return None
