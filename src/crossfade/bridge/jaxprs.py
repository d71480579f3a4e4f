"""jaxprs: how they are made, what they call, and the user's line behind each equation.

What JAX keeps private about them is used here only. Where another version of JAX has it no longer, lines are unknown
and everything else goes on.
"""

import sysconfig
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

try:
    from jax._src.source_info_util import user_frames
except ImportError:
    user_frames = None

CALLS = frozenset(
    ("jit", "pjit", "closed_call", "core_closed_call", "core_call", "call", "remat", "remat2", "checkpoint")
    + ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "composite")
)
"""Primitives that do nothing but run their body."""

_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")  # names of the parameter that holds it
_LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")})


def closed_jaxpr(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The jaxpr of a function at arguments of these shapes: arrays, `jax.ShapeDtypeStruct`s or Python numbers."""
    return jax.make_jaxpr(function)(*args)


def body(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """What an equation of a plain call (`jit`, `custom_jvp`, `remat`, ...) runs; None for every other equation."""
    if eqn.primitive.name not in CALLS:
        return None
    found = next(eqn.params[name] for name in _BODIES if name in eqn.params)
    return ClosedJaxpr(found, ()) if isinstance(found, Jaxpr) else found


def inlined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function without plain calls: their equations stand where the calls stood."""
    constvars, consts = list(closed.jaxpr.constvars), list(closed.consts)
    eqns: list[JaxprEqn] = []

    def place(jaxpr: Jaxpr, names: dict[Var, Any]) -> list[Any]:
        read = lambda v: v if isinstance(v, Literal) else names.get(v, v)
        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            inner = body(eqn)
            if inner is None:
                fresh = {v: Var(v.aval) for v in eqn.outvars}
                names.update(fresh)
                eqns.append(eqn.replace(invars=inputs, outvars=list(fresh.values())))
                continue
            copies = {v: Var(v.aval) for v in inner.jaxpr.constvars}
            constvars.extend(copies.values())
            consts.extend(inner.consts)
            outputs = place(inner.jaxpr, {**copies, **dict(zip(inner.jaxpr.invars, inputs, strict=True))})
            names.update(zip(eqn.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    outvars = place(closed.jaxpr, {})
    return ClosedJaxpr(closed.jaxpr.replace(constvars=constvars, eqns=eqns, outvars=outvars), consts)


def source_line(eqn: JaxprEqn) -> str | None:
    """`file:line` of the user's code that an equation comes from: the innermost frame outside installed libraries."""
    traceback = getattr(eqn.source_info, "traceback", None)
    if user_frames is None or traceback is None:
        return None
    frames = [(frame.file_name, frame.start_line) for frame in user_frames(traceback)]
    own = [frame for frame in frames if not frame[0].startswith(_LIBRARIES)]
    return "{}:{}".format(*(own or frames)[0]) if frames else None
