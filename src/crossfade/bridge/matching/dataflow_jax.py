"""How a JAX model uses its leaves: the first primitive that reads each one, the role of its axes, and what it computes.

The model is traced to a jaxpr once, and made one flat list of equations (program_jax.py). `_Reader` follows each leaf
through transposes, broadcasts and reshapes to the primitive that consumes it. `JaxTrace.run` is the compiled model,
with which mappings are proved.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from ..meant_numbers import MANY, Meant
from ..widening import is_narrow, traced, widened as widened_function
from .axes import Axes, Shape, axis_groups, factors
from .dataflow_torch import Use
from .outputs import has_keys, jax_outputs
from .program_jax import Equation, Program, shape_of

# A leaf under another shape: its path, and for each axis of the view the leaf's own axes (None for a new or cut one).
View = tuple[str, tuple[Axes | None, ...]]


@dataclass(frozen=True)
class JaxTrace:
    """First uses in order, and the model itself: compiled, and as equations that can be evaluated one by one.

    `attached` gives, for a bias, the kernel to whose product it is added; `factors` the sizes of axes that the model
    made one axis of, or one axis into.
    """

    uses: dict[str, Use]
    attached: dict[str, str]
    factors: set[Shape]
    outputs: dict[str, Shape]
    keyed: bool  # whether the outputs are in a dict
    program: Program
    evaluate: Callable[[dict[str, Any], list], list]
    single: bool  # something is computed in 32 bits or fewer although everything given is float64
    widened: bool  # the code says float32, and was made to compute in float64
    numbers: set[float]  # the constants of the code

    def run(self, leaves: dict[str, Any], inputs: list) -> dict[str, np.ndarray]:
        """The outputs by name."""
        return dict(zip(self.outputs, map(np.asarray, self.evaluate(leaves, inputs)), strict=True))


def trace_jax(
    function: Callable[[dict[str, Any], list], Any], leaves: dict[str, Any], inputs: list, meant: Meant
) -> JaxTrace:
    """Traces `function(leaves, inputs)`, the model's forward pass; `inputs` are the floating arrays of the example.

    Where everything given is float64, all is computed in float64 (widening.py), constants by `meant`.
    """
    names: list[str] = []
    keyed: list[bool] = []

    def flat(leaves, inputs):
        result = function(leaves, inputs)
        named = jax_outputs(result)
        names[:], keyed[:] = list(named), [has_keys(result)]
        return list(named.values())

    wide = all(np.asarray(array).dtype != np.float32 for array in (*leaves.values(), *inputs))
    closed, _ = traced(flat, leaves, inputs) if wide else jax.make_jaxpr(flat, return_shape=True)(leaves, inputs)
    paths = sorted(leaves)  # the order in which JAX flattens a dict
    program, widened = Program(closed, paths), False
    if wide and (is_narrow(closed.jaxpr) or program.holds(lambda a: not np.array_equal(meant(a), a, equal_nan=True))):
        try:
            narrow = _narrows(program, inputs)
            closed = jax.make_jaxpr(widened_function(flat, meant))(leaves, inputs)
            program, widened = Program(closed, paths), narrow
        except Exception as error:  # whatever an operation raises that cannot be had in float64
            if any(v.aval.dtype == np.float32 for v in closed.jaxpr.invars):
                raise TypeError(str(error)) from error
            warnings.warn(
                f"the JAX model computes in float32 in part, and could not be run in float64 throughout: "
                f"{type(error).__name__}: {str(error).partition(chr(10))[0]} Its values are compared as they are.",
                stacklevel=2,
            )
    reader = _Reader()
    views: dict[int, View] = {program.slots[p]: (p, tuple((i,) for i in range(np.ndim(leaves[p])))) for p in paths}
    reader.read(program, views)
    for slot in program.outputs:
        if slot in views:
            reader.uses.setdefault(views[slot][0], Use("output"))
    shapes = {name: v.aval.shape for name, v in zip(names, closed.jaxpr.outvars, strict=True)}
    evaluate = _compile(jaxpr_as_fun(closed), paths, leaves, inputs)
    found = reader.uses, reader.attached, reader.factors, shapes, keyed[0], program, evaluate
    constants = [np.asarray(value) for value in program.constants(inputs).values() if _is_float64(value)]
    numbers = {float(n) for array in constants if array.size <= MANY for n in np.unique(array)}
    return JaxTrace(*found, _narrows(program, inputs), widened, numbers)


def _is_float64(value: Any) -> bool:
    return getattr(value, "dtype", None) == np.float64


def _compile(function: Callable, paths: list[str], leaves: dict[str, Any], inputs: list) -> Callable:
    """Compiles with little optimisation: the function runs a few times on a small example."""
    whole = lambda leaves, inputs: function(*(leaves[p] for p in paths), *inputs)
    lowered = jax.jit(whole).lower(leaves, inputs)
    try:
        return lowered.compile({"xla_backend_optimization_level": "1", "xla_cpu_use_fusion_emitters": False})
    except jax.errors.JaxRuntimeError:  # these options are XLA's own and come and go with its versions
        return lowered.compile()


MOVES = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "concatenate", "iota")  # a float32 zero is exact


def _narrows(program: Program, inputs: list) -> bool:
    """Whether something is rounded to 32 bits or fewer: all but masks and counts, whose whole numbers are exact."""
    constant = program.constants(inputs)
    for equation in program.equations:
        for v, slot in zip(equation.eqn.outvars, equation.outputs, strict=True):
            dtype = getattr(v.aval, "dtype", None)
            if equation.name in MOVES or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
                continue
            whole = slot in constant and _is_whole(constant[slot])
            if jnp.finfo(dtype).bits < 64 and not whole:
                return True
    return False


def _is_whole(array: Any) -> bool:
    array = np.asarray(array, np.float64)
    return bool(np.all((array == np.round(array)) | ~np.isfinite(array)))


@dataclass
class _Reader:
    """Goes through the equations in order and notes the first use of each leaf."""

    uses: dict[str, Use] = field(default_factory=dict)
    attached: dict[str, str] = field(default_factory=dict)
    factors: set[Shape] = field(default_factory=set)

    def read(self, program: Program, views: dict[int, View]) -> None:
        """Adds to `views` those made on the way."""
        products: dict[int, str] = {}  # slots that hold the product of an input with a leaf, or a view of it
        origin: dict[int, int] = {}  # the slot that a slot is a view of
        for equation in program.equations:
            eqn, source = equation.eqn, equation.inputs[0] if equation.inputs else -1
            if equation.name == "reshape":
                self.factors |= factors(shape_of(eqn.invars[0]), shape_of(eqn.outvars[0]))
            if equation.name == "scan":
                self._read_scan(equation, views)
            elif equation.name in _VIEWS:
                origin[equation.outputs[0]] = origin.get(source, source)
                if source in products:
                    products[equation.outputs[0]] = products[source]
                if source in views:
                    views[equation.outputs[0]] = _view(eqn, views[source])
            else:
                for at, slot in enumerate(equation.inputs):
                    if slot in views:
                        others = [origin.get(s, s) for s in equation.inputs if s != slot]
                        self._note(equation, at, views[slot], (id(program), others[0]) if others else None)
                        self._attach(equation, views[slot][0], products)

    def _note(self, equation: Equation, at: int, view: View, beside: Any) -> None:
        path = view[0]
        if path not in self.uses:
            self.uses[path] = _use(equation.eqn, at, view, beside)

    def _attach(self, equation: Equation, path: str, products: dict[int, str]) -> None:
        if equation.name in ("dot_general", "conv_general_dilated"):
            products.setdefault(equation.outputs[0], path)
        elif equation.name == "add":
            for slot in equation.inputs:
                if slot in products:
                    self.attached.setdefault(path, products[slot])

    def _read_scan(self, equation: Equation, views: dict[int, View]) -> None:
        """Only what stays the same in every step keeps its axes."""
        body = Program(equation.eqn.params["jaxpr"], [])
        constants = equation.inputs[: equation.eqn.params["num_consts"]]
        inner = {ours: views[slot] for ours, slot in zip(body.inputs, constants, strict=False) if slot in views}
        self.read(body, inner)


_VIEWS = {"transpose", "reshape", "squeeze", "broadcast_in_dim", "rev", "convert_element_type", "copy", "copy_p"}


def _view(eqn: JaxprEqn, view: View) -> View:
    """The leaf behind a primitive that only rearranges it."""
    path, axes = view
    old, new = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    match eqn.primitive.name:
        case "transpose":
            return path, tuple(axes[i] for i in eqn.params["permutation"])
        case "broadcast_in_dim":
            where = {int(to): axes[i] for i, to in enumerate(eqn.params["broadcast_dimensions"]) if old[i] == new[to]}
            return path, tuple(where.get(i) for i in range(len(new)))
        case "squeeze":
            gone = {int(i) for i in eqn.params["dimensions"]}
            return path, tuple(a for i, a in enumerate(axes) if i not in gone)
        case "reshape":
            found: dict[int, Axes] = {}
            for ours, theirs in axis_groups(old, new):
                own = [axes[i] for i in ours]
                if len(theirs) == 1 and None not in own:
                    found[theirs[0]] = tuple(a for run in own for a in run or ())
            return path, tuple(found.get(i) for i in range(len(new)))
    return view


def _use(eqn: JaxprEqn, at: int, view: View, beside: Any) -> Use:
    """The role of a leaf's axes in the primitive that reads it as operand number `at`."""
    axes = view[1]
    name = eqn.primitive.name
    roles: dict[str, tuple[int, ...]] = {}
    if name == "dot_general":
        contract, batch = (tuple(side[at]) for side in eqn.params["dimension_numbers"])
        free = tuple(i for i in range(len(axes)) if i not in (*contract, *batch))
        roles = {"in": contract, "out": free, "batch": batch}
    elif name == "conv_general_dilated" and at == 1:
        out, inner, *space = eqn.params["dimension_numbers"].rhs_spec
        roles = {"out": (out,), "in": (inner,), **{f"space{i}": (s,) for i, s in enumerate(space)}}
    elif name in ("gather", "dynamic_slice", "take"):
        roles = {"in": (0,), "out": (len(axes) - 1,)}
    elif name == "add" and shape_of(eqn.invars[1 - at]) == ():
        return Use("offset")
    kind = {"dot_general": "dot", "conv_general_dilated": "conv", "gather": "table", "dynamic_slice": "table"}
    own = {role: [axes[i] for i in seen] for role, seen in roles.items() if seen}
    known = {role: tuple(a for run in runs for a in run or ()) for role, runs in own.items() if None not in runs}
    return Use(kind.get(name, name), known, beside)
