"""What JAX knows of a function: its equations, the bodies of its calls, and the user's line of each equation.

JAX has no public way to the line of an equation. The private one is used here alone; without it lines are unknown.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from .source_lines import is_search, is_users

try:
    from jax._src import source_info_util
except ImportError:
    source_info_util = None

LONG = 20_000  # equations, loops unrolled: more are left rolled up
LOOPS = ("scan", "while", "cond")


def closed_jaxpr(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The equations of `function(*args)`. Calls are traced anew, so that every equation has its own line (what `jit`
    has kept from before has the lines of the first call), and loops of known length are unrolled unless that is long.
    """
    rolled = jax.make_jaxpr(lambda *args: function(*args))(*args)
    if unrolled_length(rolled.jaxpr) > LONG:
        return rolled
    try:
        with jax.disable_jit():
            return jax.make_jaxpr(lambda *args: function(*args))(*args)
    except Exception:  # unrolled loops count by Python's integers, which the user's code may not expect
        return rolled


def unrolled_length(jaxpr: Jaxpr) -> int:
    """The number of equations with every call inlined and every scan unrolled."""
    total = 0
    for eqn in jaxpr.eqns:
        body = eqn.params["jaxpr"] if eqn.primitive.name == "scan" else inlined(eqn)
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += 1 if body is None else times * unrolled_length(body.jaxpr)
    return total


def inlined(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a plain call (`jit`, `custom_jvp`, `remat`, ...), None for every other primitive."""
    if eqn.primitive.name in LOOPS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if isinstance(body, Jaxpr):
            body = ClosedJaxpr(body, ())
        if isinstance(body, ClosedJaxpr) and len(body.jaxpr.invars) == len(eqn.invars):
            return body
    return None


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
