"""Do the hooks of an environment answer with arrays of the right shape and type? In words, hook by hook.

The first thing to ask of an environment that someone has just written: a mask one entry short would otherwise show as
an error deep inside a sampler.
"""

from typing import Any

import numpy as np

from .. import user_code

BATCHES = ((), (3,), (2, 3))
"""Leading axes that NumPy hooks are tried with."""


def numpy_problems(env: Any) -> list[str]:
    """What is wrong with the sizes that the params state, and with the answers of the NumPy hooks."""
    from .base_numpy import Env

    if not isinstance(env, Env):
        return [f"{type(env).__name__} extends crossfade.envs.dag.base_numpy.Env: not so"]
    if problems := _sizes(env):
        return problems
    problems = []
    for hook, (arguments, shape, kinds) in expected(env).items():
        for batch in BATCHES:
            x = np.broadcast_to(env.params.source, (*batch, len(env.params.source)))
            number = np.zeros(batch, np.int64)
            given = ({"x": x, "number": number}[name] for name in arguments)
            got, error = user_code.attempt(getattr(env, hook), *given)
            if error is not None:
                problems.append(raised(env, error, hook, batch))
                break
            if sentence := _misfit(hook, got, (*batch, *shape), kinds):
                problems.append(sentence)
                break
    return problems


def jax_problems(env: Any) -> list[str]:
    """The same of the JAX hooks, each traced for one object."""
    import jax

    from .base_jax import Env

    if not isinstance(env, Env):
        return [f"{type(env).__name__} extends crossfade.envs.dag.base_jax.Env: not so"]
    problems = []
    x = jax.ShapeDtypeStruct(env.params.source.shape, np.int32)
    number = jax.ShapeDtypeStruct((), np.int32)
    for hook, (arguments, shape, kinds) in expected(env).items():
        given = ({"x": x, "number": number}[name] for name in arguments)
        got, error = user_code.attempt(jax.eval_shape, getattr(env, hook), *given)
        if error is not None:
            problems.append(raised(env, error, hook))
            continue
        if sentence := _misfit(hook, got, shape, kinds):
            problems.append(sentence)
    return problems


def expected(env: Any) -> dict[str, tuple[tuple[str, ...], tuple[int, ...], str]]:
    """For each hook its arguments, the shape of its answer after the batch axes, and the answer's kinds of dtype."""
    d = len(env.params.source)
    hooks = {
        "grow": (("x", "number"), (d,), "i"),
        "shrink": (("x", "number"), (d,), "i"),
        "can_grow": (("x",), (env.n_actions - 1,), "b"),
        "can_shrink": (("x",), (env.n_parents,), "b"),
        "can_stop": (("x",), (), "b"),
        "undo": (("x", "number"), (), "iu"),
        "redo": (("x", "number"), (), "iu"),
        "features": (("x",), (env.observation_dim,), "biuf"),
        "log_r": (("x",), (), "f"),
    }
    if env.n_states is not None:
        hooks |= {"encode": (("x",), (), "iu"), "decode": (("number",), (d,), "i")}
    return hooks


def raised(env: Any, error: Exception, hook: str = "", batch: tuple[int, ...] | None = None) -> str:
    """An error out of a user's hook, with the line it came from."""
    batched = "" if batch is None else f" with batch axes {batch}"
    return (
        f"{hook or 'a hook'} answers{batched}, for actions that are not valid there too: not so, "
        f"{user_code.raised(env, error)}"
    )


def _sizes(env: Any) -> list[str]:
    """What is wrong with the params themselves."""
    problems = []
    for name, least in (("n_actions", 2), ("n_parents", 1), ("max_steps", 1), ("observation_dim", 1)):
        value = getattr(env, name)
        if not isinstance(value, int) or value < least:
            problems.append(f"{name} is an integer of at least {least}: not so, it is {value!r}")
    source = env.params.source
    if not (isinstance(source, np.ndarray) and source.dtype == np.int32 and source.ndim == 1 and source.size):
        problems.append(f"source is a NumPy array of int32 with one axis: not so, it is {source!r}")
    return problems + _value_problems(env.params)


def _value_problems(params: Any) -> list[str]:
    """JAX compiles a program per value of the params, and so must be able to tell equal ones."""
    try:
        hash(params)
    except TypeError as error:
        return [f"params can be hashed: not so, {error}; use tuples for lists, and @dataclass(frozen=True)"]
    return []


def _misfit(hook: str, got: Any, shape: tuple[int, ...], kinds: str) -> str:
    if not (hasattr(got, "dtype") and hasattr(got, "shape")):
        came = f"a {type(got).__name__}"
    elif tuple(got.shape) != shape or np.dtype(got.dtype).kind not in kinds or (kinds == "i" and got.dtype != np.int32):
        came = f"{got.dtype} of shape {tuple(got.shape)}"
    else:
        return ""
    wanted = {"b": "bool", "i": "int32", "iu": "integers", "f": "floats", "biuf": "numbers"}[kinds]
    return f"{hook} gives {wanted} of shape {shape}: not so, it gives {came}"
