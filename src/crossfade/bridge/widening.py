"""Code computed in float64 although it says float32: `Wide` for torch, `widened` for JAX.

Many layers keep the type they were made with (`nnx.Embed`, `dtype=jnp.float32` in a config, `.float()` in a forward
pass), so that a float64 run leaks float32 and proves little. Two halves that both run in float32 do not differ by that.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .jaxprs import at_line, body
from .transfer import numpy_to_tensor, tensor_to_numpy

Number = Callable[[np.ndarray], np.ndarray]


class Wide(TorchDispatchMode):
    """Casts to float32 become casts to float64, and float32 tensors that the code holds are widened by `meant`.

    `narrow` says whether there was any of either, `casts` whether of the former. Casts to bfloat16 and float16 stay.
    """

    def __init__(self, meant: Number):
        super().__init__()
        self.meant, self.narrow, self.casts = meant, False, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if found := [value for value in tree_leaves((args, kwargs)) if _is_single(value)]:
            self.narrow, self.casts = True, self.casts or torch.float32 in found
            if not func._schema.is_mutable:  # what is written to must stay the same tensor
                args, kwargs = tree_map(self._wide, (args, kwargs))
        return func(*args, **kwargs)

    def _wide(self, value: Any) -> Any:
        if not _is_single(value):
            return value
        return torch.float64 if value is torch.float32 else numpy_to_tensor(self.meant(tensor_to_numpy(value)))


def _is_single(value: Any) -> bool:
    return value is torch.float32 or (isinstance(value, torch.Tensor) and value.dtype == torch.float32)


def widen_hidden_buffers(module: torch.nn.Module, meant: Number) -> None:
    """Gives buffers that no state_dict has, of a module that was made float64, the numbers that are meant."""
    kept = module.state_dict(keep_vars=True)
    for name, buffer in module.named_buffers():
        if name not in kept and buffer.dtype == torch.float64:
            narrow = buffer.float()
            if torch.equal(narrow.double(), buffer):
                buffer.data = numpy_to_tensor(meant(tensor_to_numpy(narrow)))


# JAX

WIDE = {np.dtype(np.float32): np.dtype(np.float64), np.dtype(np.complex64): np.dtype(np.complex128)}
BITS = ("bitcast_convert_type", "random_bits", "random_unwrap", "random_wrap")  # the type is what they are about


def widened(function: Callable[..., Any], meant: Number) -> Callable[..., Any]:
    """`function` with float64 in place of float32 throughout, its float32 constants widened by `meant`.

    For values, not for gradients: rules of `custom_jvp` and `custom_vjp` are lost. Casts to bfloat16 and float16 stay.
    """

    def wide(*args: Any) -> Any:
        closed, shapes = traced(function, *args)
        results = _play(closed, jax.tree.leaves(args), meant)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return wide


def traced(function: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, Any]:
    """The jaxpr of a function at float64 arguments, and the shapes of its results. Where it does not take float64, such
    as a scan that starts from float32 zeros, the jaxpr at float32 ones: `_play` makes the same of both."""
    try:
        return jax.make_jaxpr(function, return_shape=True)(*args)
    except TypeError as error:
        narrow = {wide: single for single, wide in WIDE.items()}
        single = lambda a: jax.ShapeDtypeStruct(a.shape, narrow[a.dtype]) if getattr(a, "dtype", None) in narrow else a
        try:
            return jax.make_jaxpr(function, return_shape=True)(*jax.tree.map(single, args))
        except TypeError:
            raise error from None


def is_narrow(jaxpr: Jaxpr) -> bool:
    """Whether anything in a jaxpr is float32."""
    atoms = [*jaxpr.constvars, *(v for eqn in jaxpr.eqns for v in (*eqn.invars, *eqn.outvars))]
    if any(getattr(v.aval, "dtype", None) in WIDE for v in atoms):
        return True
    inner = (part for eqn in jaxpr.eqns for part in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr))
    return any(is_narrow(part.jaxpr if isinstance(part, ClosedJaxpr) else part) for part in inner if _is_jaxpr(part))


def _play(closed: ClosedJaxpr, args: list[Any], meant: Number) -> list[Any]:
    env = dict(zip(closed.jaxpr.constvars, (_constant(value, meant) for value in closed.consts), strict=True))
    env |= dict(zip(closed.jaxpr.invars, map(_wide, args), strict=True))
    read = lambda v: (
        _constant(np.asarray(v.val, getattr(v.aval, "dtype", None)), meant) if isinstance(v, Literal) else env[v]
    )
    for eqn in closed.jaxpr.eqns:
        with at_line(eqn):
            results = _run(eqn, [read(v) for v in eqn.invars], meant)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


def _run(eqn: JaxprEqn, inputs: list[Any], meant: Number) -> list[Any]:
    params, play = eqn.params, lambda inner, args: _play(_closed(inner), args, meant)
    if (inner := body(eqn)) is not None:
        return play(inner, inputs)
    match eqn.primitive.name:
        case "scan":
            fixed, carried = params["num_consts"], params["num_carry"]
            first = inputs[fixed : fixed + carried]

            def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
                results = play(params["jaxpr"], [*inputs[:fixed], *carry, *x])
                return results[:carried], results[carried:]

            last, stacked = lax.scan(
                step, first, inputs[fixed + carried :], length=params["length"], reverse=params["reverse"]
            )
            return [*last, *stacked]
        case "while":
            n, m = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            holds = lambda carry: play(params["cond_jaxpr"], [*inputs[:n], *carry])[0]
            return list(lax.while_loop(holds, lambda c: play(params["body_jaxpr"], [*inputs[n:m], *c]), inputs[m:]))
        case "cond":
            branches = [lambda *args, branch=branch: play(branch, list(args)) for branch in params["branches"]]
            return list(lax.switch(inputs[0], branches, *inputs[1:]))
        case name if name in BITS:
            kinds = [getattr(v.aval, "dtype", None) for v in eqn.invars]
            inputs = [_as(kind, x) for kind, x in zip(kinds, inputs, strict=True)]
        case _:
            params = {name: _parameter(value, meant) for name, value in params.items()}
    results = eqn.primitive.bind(*inputs, **params)
    return [_wide(result) for result in (results if eqn.primitive.multiple_results else [results])]


def _parameter(value: Any, meant: Number) -> Any:
    """A parameter of a primitive: a type, or the body of a scatter or reduction."""
    if _is_jaxpr(value):
        closed = _closed(value)
        shapes = [jax.ShapeDtypeStruct(a.shape, WIDE.get(a.dtype, a.dtype)) for a in closed.in_avals]
        wide = jax.make_jaxpr(lambda *args: _play(closed, list(args), meant))(*shapes)
        return wide if isinstance(value, ClosedJaxpr) else wide.jaxpr
    try:
        return WIDE.get(np.dtype(value), value) if isinstance(value, np.dtype | type) else value
    except TypeError:
        return value


def _constant(value: Any, meant: Number) -> Any:
    if getattr(value, "dtype", None) in (np.float32, np.float64) and not isinstance(value, Tracer):
        return jnp.asarray(meant(np.asarray(value)))
    return _wide(value)


def _wide(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return lax.convert_element_type(value, WIDE[dtype]) if dtype in WIDE else value


def _as(kind: Any, value: Any) -> Any:
    return lax.convert_element_type(value, kind) if kind in WIDE else value


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _closed(value: Any) -> ClosedJaxpr:
    return ClosedJaxpr(value, ()) if isinstance(value, Jaxpr) else value
