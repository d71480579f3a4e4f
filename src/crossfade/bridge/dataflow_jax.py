"""How a JAX model uses its leaves: the first primitive that reads each one, the role of its axes, and every
intermediate value.

The model is traced to a jaxpr once. `_follow` follows each leaf through transposes, broadcasts and reshapes to the
primitive that consumes it; `JaxTrace.run` evaluates the model with given leaves and inputs and returns its outputs
together with every floating intermediate value, so that values can be compared with torch's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .dataflow_torch import Use
from .outputs import has_keys, jax_outputs

# A leaf under another shape: its path, and for each axis of the view the leaf's own axis (None for a new one).
View = tuple[str, tuple[int | None, ...]]


@dataclass(frozen=True)
class JaxTrace:
    """First uses in order, and the compiled model: `run(leaves, inputs)` -> outputs by name, intermediate values."""

    uses: dict[str, Use]
    outputs: dict[str, tuple[int, ...]]  # their shapes
    keyed: bool  # whether the outputs are in a dict
    evaluate: Callable[[dict[str, Any], list], tuple[list, list]]
    single: bool  # something is computed in 32 bits or fewer although everything given is float64

    def run(self, leaves: dict[str, Any], inputs: list) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        outputs, values = self.evaluate(leaves, inputs)
        return dict(zip(self.outputs, map(np.asarray, outputs), strict=True)), [np.asarray(v) for v in values]


def trace_jax(function: Callable[[dict[str, Any], list], Any], leaves: dict[str, Any], inputs: list) -> JaxTrace:
    """Traces `function(leaves, inputs)`, the model's forward pass; `inputs` are the floating arrays of the example."""
    names: list[str] = []
    keyed: list[bool] = []

    def flat(leaves, inputs):
        result = function(leaves, inputs)
        named = jax_outputs(result)
        names[:], keyed[:] = list(named), [has_keys(result)]
        return list(named.values())

    closed = jax.make_jaxpr(flat)(leaves, inputs)
    paths = sorted(leaves)  # the order in which JAX flattens a dict
    views: list[View | None] = [(p, tuple(range(np.ndim(leaves[p])))) for p in paths]
    views += [None] * len(inputs)
    uses: dict[str, Use] = {}
    for view in _follow(closed.jaxpr, views, uses):
        if view is not None:
            uses.setdefault(view[0], Use("output"))

    def evaluate(leaves, inputs):
        values: list = []
        outputs = _evaluate(closed, [*(leaves[p] for p in paths), *inputs], values)
        return outputs, values + outputs  # an output may be a leaf, which no operation computed

    shapes = {name: v.aval.shape for name, v in zip(names, closed.jaxpr.outvars, strict=True)}
    return JaxTrace(uses, shapes, keyed[0], _compile(evaluate, leaves, inputs), _narrows(closed.jaxpr))


def _compile(function: Callable, *args: Any) -> Callable:
    """Compiles with little optimisation: the function runs a few times on a small example."""
    lowered = jax.jit(function).lower(*args)
    try:
        return lowered.compile({"xla_backend_optimization_level": "1", "xla_cpu_use_fusion_emitters": False})
    except jax.errors.JaxRuntimeError:  # these options are XLA's own and come and go with its versions
        return lowered.compile()


def _inner(eqn) -> ClosedJaxpr | None:
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


def _evaluate(closed: ClosedJaxpr, args: list, values: list) -> list:
    env: dict = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))
    read = lambda v: v.val if isinstance(v, Literal) else env[v]
    for eqn in closed.jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        body = _inner(eqn)
        if body is not None and len(body.jaxpr.invars) == len(inputs):
            results = _evaluate(body, inputs, values)
        else:
            results = eqn.primitive.bind(*inputs, **eqn.params)
            results = results if eqn.primitive.multiple_results else [results]
            values += [r for r in results if jnp.issubdtype(r.dtype, jnp.floating)]
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


MOVES = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "concatenate", "iota")  # a float32 zero is exact


def _narrows(jaxpr: Jaxpr) -> bool:
    for eqn in jaxpr.eqns:
        if (body := _inner(eqn)) is not None:
            if _narrows(body.jaxpr):
                return True
            continue
        for v in eqn.outvars if eqn.primitive.name not in MOVES else ():
            dtype = getattr(v.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 64:
                return True
    return False


def _follow(jaxpr: Jaxpr, views: list[View | None], uses: dict[str, Use]) -> list[View | None]:
    env = dict(zip(jaxpr.invars, views, strict=True))
    read = lambda v: None if isinstance(v, Literal) else env.get(v)
    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        outputs: list[View | None] = [None] * len(eqn.outvars)
        body = _inner(eqn) if eqn.primitive.name != "scan" else eqn.params["jaxpr"]
        if body is not None and len(body.jaxpr.invars) == len(inputs):
            if eqn.primitive.name == "scan":  # only what stays the same in every step keeps its axes
                inputs = [v if i < eqn.params["num_consts"] else None for i, v in enumerate(inputs)]
                _follow(body.jaxpr, inputs, uses)
            else:
                outputs = _follow(body.jaxpr, inputs, uses)
        elif any(inputs):
            moved = _view(eqn, inputs[0]) if inputs[0] else None
            if moved is not None:
                outputs[0] = moved
            else:
                for at, view in enumerate(inputs):
                    if view is not None and view[0] not in uses:
                        uses[view[0]] = _use(eqn, at, view)
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _view(eqn, view: View) -> View | None:
    """The leaf behind a primitive that only rearranges it, or None when the primitive computes something."""
    path, axes = view
    match eqn.primitive.name:
        case "transpose":
            return path, tuple(axes[i] for i in eqn.params["permutation"])
        case "convert_element_type" | "copy" | "copy_p" | "stop_gradient":
            return view
        case "broadcast_in_dim":
            where = {int(to): axes[i] for i, to in enumerate(eqn.params["broadcast_dimensions"])}
            return path, tuple(where.get(i) for i in range(eqn.outvars[0].aval.ndim))
        case "squeeze":
            gone = {int(i) for i in eqn.params["dimensions"]}
            return path, tuple(a for i, a in enumerate(axes) if i not in gone)
        case "reshape":
            old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
            if [n for n in old if n != 1] != [n for n in new if n != 1]:
                return path, (None,) * len(new)
            long = iter([a for a, n in zip(axes, old, strict=True) if n != 1])
            return path, tuple(next(long) if n != 1 else None for n in new)
    return None


def _use(eqn, at: int, view: View) -> Use:
    """The role of a leaf's axes in the primitive that reads it as operand number `at`."""
    axes = view[1]
    name = eqn.primitive.name
    roles: dict[str, int] = {}
    if name == "dot_general":
        contract, batch = (side[at] for side in eqn.params["dimension_numbers"])
        free = [i for i in range(len(axes)) if i not in (*contract, *batch)]
        roles = dict(zip(("in", "out", "batch"), (*contract[:1], *free[:1], *batch[:1]), strict=False))
        if len(contract) != 1 or len(free) != 1:
            roles = {}
    elif name == "conv_general_dilated" and at == 1:
        out, inner, *space = eqn.params["dimension_numbers"].rhs_spec
        roles = {"out": out, "in": inner, **{f"space{i}": s for i, s in enumerate(space)}}
    elif name in ("gather", "dynamic_slice", "take"):
        roles = {"in": 0, "out": len(axes) - 1}
    elif name == "add" and eqn.invars[1 - at].aval.ndim == 0:
        return Use("offset")
    kind = {"dot_general": "dot", "conv_general_dilated": "conv", "gather": "table", "dynamic_slice": "table"}
    found = {role: axes[i] for role, i in roles.items()}
    return Use(kind.get(name, name), {role: axis for role, axis in found.items() if axis is not None})
