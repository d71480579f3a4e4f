"""jaxprs: how they are made, what they call, and the user's line behind each equation.

What JAX keeps private about them is used here only. Where another version of JAX has it no longer, lines are unknown
and everything else goes on.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from .source_lines import is_search, is_users

try:
    from jax._src import source_info_util
except ImportError:
    source_info_util = None

CALLS = frozenset(
    ("jit", "pjit", "closed_call", "core_closed_call", "core_call", "call", "remat", "remat2", "checkpoint")
    + ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "composite")
)
"""Primitives that do nothing but run their body."""

_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")  # names of the parameter that holds it
LONG = 20_000  # equations, loops unrolled: more are left rolled up


def closed_jaxpr(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The jaxpr of a function at arguments of these shapes: arrays, `jax.ShapeDtypeStruct`s or Python numbers."""
    return jax.make_jaxpr(function)(*args)


def unrolled_jaxpr(function: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, str]:
    """The equations of `function(*args)`. Calls are traced anew, so that every equation has its own line (what `jit`
    has kept from before has the lines of the first call), and loops of known length are unrolled.

    Where that cannot be done loops stay rolled up, and the second result says why; otherwise it is empty.
    """
    rolled = jax.make_jaxpr(lambda *args: function(*args))(*args)
    if (length := unrolled_length(rolled.jaxpr)) > LONG:
        return rolled, f"unrolled it would have {length} equations, more than {LONG}"
    try:
        with jax.disable_jit():
            return jax.make_jaxpr(lambda *args: function(*args))(*args), ""
    except Exception as error:  # unrolled loops count by Python's integers, which the user's code may not expect
        return rolled, f"without jit it raises {type(error).__name__}"


def unrolled_length(jaxpr: Jaxpr) -> int:
    """The number of equations with every call inlined, every scan unrolled and all branches side by side."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "cond":
            total += sum(unrolled_length(branch.jaxpr) for branch in eqn.params["branches"])
            continue
        inner = eqn.params["jaxpr"] if eqn.primitive.name == "scan" else body(eqn)
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += 1 if inner is None else times * unrolled_length(inner.jaxpr)
    return total


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


def source_lines(eqn: JaxprEqn) -> tuple[str, ...]:
    """The user's lines that led to an equation, "file:line" each, the innermost first; none when JAX does not tell."""
    own = takewhile(lambda frame: not is_search(frame.file_name), _frames(eqn))
    return tuple(f"{frame.file_name}:{frame.start_line}" for frame in own if is_users(frame.file_name))


def is_written_by_user(eqn: JaxprEqn) -> bool:
    """Whether the user's own line calls JAX for this, not a library of layers or optimisers."""
    frames = _frames(eqn)
    return bool(frames) and is_users(frames[0].file_name)


def _frames(eqn: JaxprEqn) -> list[Any]:
    """The frames outside of JAX, the innermost first."""
    if source_info_util is None:
        return []
    try:
        return list(source_info_util.user_frames(eqn.source_info.traceback))
    except (AttributeError, TypeError):  # it has changed in a later version
        return []


def at_line(eqn: JaxprEqn) -> AbstractContextManager[None]:
    """A context whose equations have the user's line of this one; where it has none, that of the call it is in."""
    if source_info_util is None or not source_lines(eqn):
        return nullcontext()
    try:
        return source_info_util.user_context(eqn.source_info.traceback, name_stack=eqn.source_info.name_stack)
    except (AttributeError, TypeError):  # it has changed in a later version
        return nullcontext()


def source_line(eqn: JaxprEqn) -> str | None:
    """The user's line of an equation, "file:line"."""
    return next(iter(source_lines(eqn)), None)


def compile_briefly(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Compiles with little optimisation, for a program that runs once or twice."""
    lowered = jax.jit(function).lower(*args)
    try:
        return lowered.compile({"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": True})
    except jax.errors.JaxRuntimeError:  # these options are XLA's own and come and go with its versions
        return lowered.compile()
