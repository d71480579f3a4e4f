"""The JAX half as a list of equations, each with the user's line, and the value that each gave."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from ...bridge.jaxprs import body, compile_briefly, is_written_by_user, source_lines, unrolled_jaxpr, unrolled_length
from ...bridge.libraries import named_leaves
from .points import Point

LONG = 5_000  # equations: longer scans are not unrolled
LARGE = 2_000_000  # elements: values above are not written down


@dataclass(frozen=True, eq=False)
class Equation:
    """One primitive; arguments and results are numbers of values."""

    name: str
    apply: Callable[..., list[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    lines: tuple[str, ...]
    by_user: bool = False  # called from the user's own line, not from a library's layer
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Program:
    """A function of named inputs, calls inlined. Values are numbered in the order in which they are computed."""

    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    equations: list[Equation] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    literals: set[int] = field(default_factory=set)
    kinds: dict[int, str] = field(default_factory=dict)  # "f" for floating values
    count: int = 0
    notes: tuple[str, ...] = ()  # what was not looked into

    def new(self) -> int:
        """The number of the next value."""
        self.count += 1
        return self.count - 1

    def evaluate(self, args: list[Any]) -> list[Any]:
        """All values, by number."""
        values: list[Any] = [None] * self.count
        for number, constant in self.constants.items():
            values[number] = constant
        for number, arg in zip(self.inputs.values(), args, strict=True):
            values[number] = arg
        for equation in self.equations:
            found = equation.apply(*(values[i] for i in equation.inputs))
            for number, value in zip(equation.outputs, found, strict=True):
                values[number] = value
        return values


def trace(function: Callable[..., Any], *args: Any, unroll: bool = True) -> Program:
    """The equations of `function(*args)`, which returns a pytree; inputs and outputs by their names. Without `unroll`
    loops are as they are, and lines those of the first call of what is compiled: faster."""
    names: list[str] = []

    def flat(*args: Any) -> list[Any]:
        named = named_leaves(function(*args))
        names[:] = list(named)
        return list(named.values())

    closed, why = unrolled_jaxpr(flat, *args) if unroll else (jax.make_jaxpr(flat)(*args), "")
    program = Program()
    if why:
        program.notes = (f"the JAX half was searched with its loops rolled up, so lines are coarser: {why}",)
    numbers = [program.new() for _ in closed.jaxpr.invars]
    labels = ("", "batch")  # weights go by their own names
    inputs = [f"{labels[min(i, 1)]}.{name}".strip(".") for i, arg in enumerate(args) for name in named_leaves(arg)]
    program.inputs = {
        f"{name}#{n}" if inputs.count(name) > 1 else name: n for n, name in zip(numbers, inputs, strict=True)
    }
    found = _inline(program, closed, numbers, (), unroll)
    program.outputs = dict(zip(names, found, strict=True))
    _drop_unused(program)
    return program


def _drop_unused(program: Program) -> None:
    """Keeps what the outputs depend on: a value that nobody reads is no partner for one that counts."""
    needed, kept = set(program.outputs.values()), []
    for equation in reversed(program.equations):
        if needed & set(equation.outputs):
            needed |= set(equation.inputs)
            kept.append(equation)
    program.equations = kept[::-1]


def _inline(
    program: Program, closed: ClosedJaxpr, args: list[int], outer: tuple[str, ...], unroll: bool = True
) -> list[int]:
    env = dict(zip(closed.jaxpr.invars, args, strict=True))
    for variable, constant in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        env[variable] = program.new()
        program.constants[env[variable]] = constant

    def read(variable: Any) -> int:
        if not isinstance(variable, Literal):
            return env[variable]
        number = program.new()
        program.constants[number] = variable.val
        program.literals.add(number)
        return number

    for eqn in closed.jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        lines = source_lines(eqn) or outer
        inner = body(eqn)
        if inner is not None:
            outputs = _inline(program, inner, inputs, lines, unroll)
        elif unroll and eqn.primitive.name == "scan" and eqn.params["length"] * len(eqn.params["jaxpr"].eqns) <= LONG:
            outputs = _unroll(program, eqn, inputs, lines)
        elif eqn.primitive.name == "cond" and _can_choose(eqn):
            outputs = _choose(program, eqn, inputs, lines, unroll)
        else:
            outputs = _add(program, eqn.primitive.name, _bind(eqn), inputs, lines, len(eqn.outvars), eqn)
        for number, variable in (*zip(inputs, eqn.invars, strict=True), *zip(outputs, eqn.outvars, strict=True)):
            dtype = getattr(variable.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
                program.kinds[number] = "f"
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


def _add(
    program: Program,
    name: str,
    apply: Callable[..., list[Any]],
    inputs: list[int],
    lines: tuple[str, ...],
    results: int = 1,
    eqn: JaxprEqn | None = None,
    **params: Any,
) -> list[int]:
    outputs = [program.new() for _ in range(results)]
    by_user = eqn is not None and is_written_by_user(eqn)
    params = params if eqn is None else eqn.params
    program.equations.append(Equation(name, apply, tuple(inputs), tuple(outputs), lines, by_user, params))
    return outputs


def _bind(eqn: JaxprEqn) -> Callable[..., list[Any]]:
    def apply(*values: Any) -> list[Any]:
        found = eqn.primitive.bind(*values, **eqn.params)
        return list(found) if eqn.primitive.multiple_results else [found]

    return apply


def _unroll(program: Program, eqn: JaxprEqn, inputs: list[int], lines: tuple[str, ...]) -> list[int]:
    """The body of a scan, once for each step."""
    fixed, held, steps = eqn.params["num_consts"], eqn.params["num_carry"], range(eqn.params["length"])
    consts, carry, xs = inputs[:fixed], inputs[fixed : fixed + held], inputs[fixed + held :]
    rows: list[list[int]] = []
    for t in reversed(steps) if eqn.params["reverse"] else steps:
        now = [_add(program, "slice", lambda x, t=t: [x[t]], [x], lines, t=t)[0] for x in xs]
        found = _inline(program, eqn.params["jaxpr"], [*consts, *carry, *now], lines)
        carry = found[:held]
        rows.append(found[held:])
    rows = rows[::-1] if eqn.params["reverse"] else rows
    stack = lambda *parts: [jnp.stack(parts)]
    return [*carry, *(_add(program, "stack", stack, list(column), lines)[0] for column in zip(*rows, strict=True))]


def _can_choose(eqn: JaxprEqn) -> bool:
    """Whether both branches can be computed and one be taken: they are short, and give arrays."""
    plain = all(not jnp.issubdtype(getattr(v.aval, "dtype", float), jax.dtypes.prng_key) for v in eqn.outvars)
    return plain and sum(unrolled_length(branch.jaxpr) for branch in eqn.params["branches"]) <= LONG


def _choose(program: Program, eqn: JaxprEqn, inputs: list[int], lines: tuple[str, ...], unroll: bool) -> list[int]:
    """Every branch of a cond, and of their results those of one."""
    which, *given = inputs
    results = [_inline(program, branch, given, lines, unroll) for branch in eqn.params["branches"]]
    take = lambda which, *cases: [jax.lax.select_n(which, *cases)]
    return [_add(program, "cond", take, [which, *cases], lines)[0] for cases in zip(*results, strict=True)]


def record(program: Program, args: list[Any]) -> dict[int, Point]:
    """Every value of a program as a point."""
    kept: list[int] = []

    def run(*args: Any) -> list[Any]:
        values = program.evaluate(list(args))
        kept[:] = [n for n, value in enumerate(values) if n not in program.literals and _is_array(value)]
        return [values[n] for n in kept]

    values = compile_briefly(run, *args)(*args)
    named = {number: name for name, number in program.inputs.items()}
    made = {number: equation for equation in program.equations for number in equation.outputs}
    points = {}
    for number, value in zip(kept, values, strict=True):
        equation = made.get(number)
        reads = () if equation is None else tuple(n for n in equation.inputs if n not in program.literals)
        points[number] = Point(
            number,
            "input" if number in named else "constant" if equation is None else equation.name,
            np.asarray(value),
            () if equation is None else equation.lines,
            reads,
            named.get(number, ""),
        )
    present = points.keys()
    return {n: p if set(p.reads) <= present else _without(p, present) for n, p in points.items()}


def _without(point: Point, present: Any) -> Point:
    """A point whose reads that were not written down are left out."""
    reads = tuple(number for number in point.reads if number in present)
    return Point(point.number, point.operation, point.value, point.lines, reads, point.name)


def _is_array(value: Any) -> bool:
    if not hasattr(value, "dtype") or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return False
    return 0 < np.size(value) <= LARGE and not jnp.issubdtype(value.dtype, jnp.complexfloating)
