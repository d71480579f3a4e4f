"""Does an environment keep the protocol, and is its JAX twin equal to it? For our environments and for the user's own.

`check(env, jax_env)` answers with a list of sentences, empty when all is well. It first asks every hook for the shape
and type of its answer (hooks.py), then the environments about all their states, or, where there are too many, about
those that random walks visit; a single wrong mask bit is noticed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import user_code
from . import hooks
from .rewards import MOST_STATES

FAST_COMPILE = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": "True"}


def check(env: Any, jax_env: Any = None, seed: int = 0) -> list[str]:
    """What is wrong with a (NumPy) environment and with its JAX twin, in words."""
    problems = hooks.numpy_problems(env)
    if jax_env is not None:
        problems += [f"jax: {problem}" for problem in hooks.jax_problems(jax_env)]
    if problems:
        return problems  # what else is wrong would be told in riddles
    ours, error = user_code.attempt(_all_facts, env, seed)
    if error is not None:
        return [hooks.raised(env, error) + _first_to_raise(env)]
    problems = failures(env, ours)
    if jax_env is not None:
        theirs = jax_facts(jax_env, ours["states"])
        problems += [f"jax: {problem}" for problem in failures(jax_env, theirs)] + differences(ours, theirs)
    return problems or walks(env, seed)


def walks(env: Any, seed: int) -> list[str]:
    """Whether random walks, half of which stop only when they must, end and find back in time."""
    visited, back = walk(env, *noise(env, seed))
    problems = []
    if not visited[-1].done.all():
        problems.append(f"walks end within max_steps={env.max_steps}: not so")
    if not (back[-1].x == env.params.source).all():
        problems.append(f"walks back reach the source within max_steps={env.max_steps}: not so")
    return problems


def _few(env: Any) -> bool:
    return env.n_states is not None and env.n_states <= MOST_STATES


def _first_to_raise(env: Any) -> str:
    """The first state about which the environment cannot be asked."""
    for index in range(env.n_states if _few(env) else 0):
        _, error = user_code.attempt(lambda index: facts(env, env.state(index), np), np.array([index]))
        if error is not None:
            return f"; the first state it happens at is number {index}"
    return ""


def _all_facts(env: Any, seed: int) -> dict[str, Any]:
    visited = [] if _few(env) else walk(env, *noise(env, seed))[0]
    return facts(env, states_of(env, visited), np)


def walk(env: Any, noise: Any, backward_noise: Any) -> tuple[list[Any], list[Any]]:
    """States visited on the way there and back, choosing the valid action with the most noise; either framework.

    `noise` is (steps, batch, n_actions), `backward_noise` (steps, batch, n_parents).
    """
    there, back = [env.reset(noise.shape[1:2])], []
    for row in noise:
        there.append(env.step(there[-1], (env.forward_mask(there[-1]) * row).argmax(-1)))
    back.append(there[-1])
    for row in backward_noise:
        back.append(env.unstep(back[-1], (env.backward_mask(back[-1]) * row).argmax(-1)))
    return there, back


def states_of(env: Any, visited: list[Any]) -> Any:
    """All states, not done, if there are not too many; else the visited ones."""
    if _few(env):
        return env.state(np.arange(env.n_states))
    x = np.unique(np.concatenate([state.x for state in visited]), axis=0)
    return type(visited[0])(x, np.zeros(len(x), bool))


def facts(env: Any, states: Any, xp: Any) -> dict[str, Any]:
    """All that an environment says about these states, their children and their parents; `xp` is NumPy or jax.numpy.

    What follows from an invalid action is nobody's promise: the state itself stands in its place.
    """
    n = states.done.shape[0]
    ended = states._replace(done=~states.done)
    actions = xp.broadcast_to(xp.arange(env.n_actions), (n, env.n_actions))
    parents = xp.broadcast_to(xp.arange(env.n_parents), (n, env.n_parents))
    here, there = _repeat(states, env.n_actions), _repeat(states, env.n_parents)
    forward_mask, backward_mask = env.forward_mask(states), env.backward_mask(states)
    child = _where(xp, forward_mask, env.step(here, actions), here)
    undo = xp.where(forward_mask, env.parent_of(here, actions), 0)
    parent = _where(xp, backward_mask, env.unstep(there, parents), there)
    redo = xp.where(backward_mask, env.action_of(there, parents), 0)
    found = {
        "states": states,
        "forward_mask": forward_mask,
        "backward_mask": backward_mask,
        "observation": env.observe(states),
        "observation64": env.observe(states, xp.float64),
        "log_reward": _log_reward(env, states, xp),
        "child": child,
        "undo": undo,
        "child_backward_mask": env.backward_mask(child),
        "child_undone": env.unstep(child, undo),
        "child_redo": env.action_of(child, undo),
        "parent": parent,
        "redo": redo,
        "parent_forward_mask": env.forward_mask(parent),
        "parent_redone": env.step(parent, redo),
        "parent_undo": env.parent_of(parent, redo),
        "done_forward_mask": env.forward_mask(ended),
        "done_backward_mask": env.backward_mask(ended),
        "done_stepped": env.step(_repeat(ended, env.n_actions), actions),
        "done_undone": env.unstep(ended, undo[:, -1]),
        "done_redo": env.action_of(ended, undo[:, -1]),
        "done_log_reward": _log_reward(env, ended, xp),
        "source_undone": env.unstep(env.reset((env.n_parents,)), parents[0]),
    }
    if env.n_states is not None:
        found["index"] = env.index(states)
        found["decoded"] = env.state(found["index"])
        for way, state in (("child", child), ("parent", parent)):
            found[f"{way}_index"] = env.index(state)
            found[f"{way}_decoded"] = env.state(found[f"{way}_index"])
    return found


def jax_facts(env: Any, states: Any) -> dict[str, Any]:
    """`facts` of a JAX environment in float64, in one compiled program, as NumPy arrays."""
    import jax
    import jax.numpy as jnp

    from .base_jax import State

    with jax.enable_x64(True):
        program = jax.jit(lambda states: facts(env, states, jnp), compiler_options=FAST_COMPILE)
        found = program(State(jnp.asarray(states.x), jnp.asarray(states.done)))
    return jax.tree.map(np.asarray, found)


def claims(env: Any, f: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """What must hold, and for which of the states it does."""
    states, n = f["states"], len(f["states"].done)
    everywhere = np.ones(n, bool)
    is_source = (states.x == env.params.source).all(-1)
    forward, backward, stop = f["forward_mask"][:, :-1], f["backward_mask"], f["forward_mask"][:, -1]
    here, there = _repeat(states, env.n_actions), _repeat(states, env.n_parents)
    ended = states._replace(done=everywhere)

    undoable = _pick(f["child_backward_mask"], f["undo"]) & _same(f["child_undone"], here)
    redone = f["child_redo"] == np.arange(env.n_actions)
    yield "every valid action can be undone", (undoable[:, :-1] | ~forward).all(-1)
    yield "action_of finds the action that led here", (redone[:, :-1] | ~forward).all(-1)
    changed = (f["child"].x != states.x[:, None]).any(-1) & ~f["child"].done
    yield "every valid action but stop makes another object, not done", (changed[:, :-1] | ~forward).all(-1)

    redoable = _pick(f["parent_forward_mask"], f["redo"]) & _same(f["parent_redone"], there)
    yield "every valid backward action can be redone", (redoable | ~backward).all(-1)
    found_again = f["parent_undo"] == np.arange(env.n_parents)
    yield "parent_of finds the backward action that undoes", (found_again | ~backward).all(-1)

    stopped = (
        (f["child"].x[:, -1] == states.x).all(-1)
        & f["child"].done[:, -1]
        & (redone & _same(f["child_undone"], here))[:, -1]
    )
    yield "stop ends with the same object and can be undone", stopped | ~stop
    yield "no action is valid once done", ~f["done_forward_mask"].any(-1) & ~f["done_backward_mask"].any(-1)
    yield "a done state stays as it is", _same(f["done_stepped"], _repeat(ended, env.n_actions)).all(-1)
    yield "undoing stop leads to the same object, not done", _same(f["done_undone"], states)
    yield "action_of a done state is stop", f["done_redo"] == env.n_actions - 1
    yield "the reward is the same before and after stop", f["done_log_reward"] == f["log_reward"]

    yield "only the source has no parents", backward.any(-1) == ~is_source
    yield (
        "the source is among the states and stays under unstep",
        everywhere & is_source.any() & (f["source_undone"].x == env.params.source).all(),
    )
    yield "no state is a dead end", f["forward_mask"].any(-1)
    yield "`terminating` says whether every state may stop", stop | (not env.terminating)
    yield "`terminating` is False only if some state may not stop", everywhere & (env.terminating or not stop.all())
    ways = np.concatenate([f["parent"].x, f["redo"][..., None]], axis=-1)
    yield (
        "no two backward actions undo the same action of the same parent",
        np.array(
            [len(np.unique(way[valid], axis=0)) == valid.sum() for way, valid in zip(ways, backward, strict=True)]
        ),
    )

    yield "log-rewards are finite", np.isfinite(f["log_reward"])
    yield "objects are int32", everywhere & (f["child"].x.dtype == f["parent"].x.dtype == np.int32)
    fits = f["observation"].shape == (n, env.observation_dim) and f["observation"].dtype == np.float32
    yield "observations are float32 of width observation_dim", everywhere & fits
    distinct = len(np.unique(f["observation"], axis=0)) == len(np.unique(states.x, axis=0))
    yield "observations tell states apart", everywhere & distinct
    if env.n_states is not None:
        yield "indices are below n_states", (f["index"] >= 0) & (f["index"] < env.n_states)
        yield "indices are distinct", everywhere & (len(np.unique(f["index"])) == n)
        yield "state(index(s)) is s", (f["decoded"].x == states.x).all(-1)
        for way, mask in (("child", f["forward_mask"]), ("parent", backward)):
            known = (f[f"{way}_index"] >= 0) & (f[f"{way}_index"] < env.n_states)
            same = (f[f"{way}_decoded"].x == f[way].x).all(-1)
            yield f"every {way} has an index", ((known & same) | ~mask).all(-1)
        if n == env.n_states:
            yield from _ways(env, f, is_source)


def _ways(env: Any, f: dict[str, Any], is_source: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Where all ways from the source lead, for environments asked about every state."""
    moves, standing, seen = f["forward_mask"][:, :-1], is_source, is_source
    for _ in range(env.max_steps):
        children = f["child_index"][:, :-1][standing[:, None] & moves]
        standing = np.isin(np.arange(env.n_states), children)
        seen = seen | standing
    yield f"no way is longer than max_steps={env.max_steps}, stop included", ~standing
    yield "every state can be reached from the source", seen | standing.any()


def failures(env: Any, found: dict[str, Any]) -> list[str]:
    """The claims that do not hold, each with the first state it fails for."""
    return [
        f"{claim}: not so for {(~holds).sum()} states, the first x = {found['states'].x[np.argmin(holds)].tolist()}"
        for claim, holds in claims(env, found)
        if not holds.all()
    ]


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Where two collections of facts differ: rewards beyond 1e-12, everything else at all."""
    found = []
    for name in ours:
        pairs = zip(*(f if isinstance(f, tuple) else (f,) for f in (ours[name], theirs[name])), strict=True)
        for a, b in pairs:
            near = np.isclose(b, a, rtol=1e-12, atol=1e-12) if "log_reward" in name else np.equal(a, b)
            if not near.all():
                where = tuple(np.argwhere(~near)[0].tolist())
                x = ours["states"].x[where[0]].tolist()
                found.append(f"the twins differ in {name} at {where}, x = {x}: NumPy {a[where]}, JAX {b[where]}")
    return found


def noise(env: Any, seed: int, walks: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """For `walk`; every other walk stops only when nothing else is left to do."""
    rng = np.random.default_rng(seed)
    shape = (env.max_steps, walks)
    forward, backward = rng.uniform(size=(*shape, env.n_actions)), rng.uniform(size=(*shape, env.n_parents))
    forward[:, ::2, -1] *= 1e-9
    return forward, backward


def _log_reward(env: Any, states: Any, xp: Any) -> Any:
    """The reward that the hook returns, unchecked: the NumPy environment raises where it is not finite."""
    return env.log_r(states.x) if xp is np else env.log_reward(states)


def _repeat(state: Any, k: int) -> Any:
    """Each state k times, on a new axis."""
    return state._replace(x=state.x[:, None].repeat(k, axis=1), done=state.done[:, None].repeat(k, axis=1))


def _where(xp: Any, mask: Any, state: Any, other: Any) -> Any:
    return state._replace(x=xp.where(mask[..., None], state.x, other.x), done=xp.where(mask, state.done, other.done))


def _same(a: Any, b: Any) -> Any:
    return (a.x == b.x).all(-1) & (a.done == b.done)


def _pick(mask: np.ndarray, at: np.ndarray) -> np.ndarray:
    """mask[..., at], `at` running over all axes but the last."""
    return np.take_along_axis(mask, at[..., None], axis=-1)[..., 0]
