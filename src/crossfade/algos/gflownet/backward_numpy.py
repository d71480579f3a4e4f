"""The way back from objects to the source, in NumPy: parents, the number of ways, and sampled trajectories."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...envs.dag.base_numpy import State
from ...errors import UsageError
from . import exact_numpy
from .batch import Trajectories
from .known import graph_of

MASKED = -1e30  # log P_B of a backward action that is not valid


def parents(
    env: Any, x: Int[np.ndarray, "*batch d"]
) -> tuple[Int[np.ndarray, "*batch p d"], Int[np.ndarray, "*batch p"]]:
    """The object before each backward action (the source where that is not valid), and the action that redoes it."""
    here = State(x, np.zeros(x.shape[:-1], bool))
    valid = env.backward_mask(here)
    slots = np.broadcast_to(np.arange(env.n_parents), valid.shape)
    state = State(np.broadcast_to(x[..., None, :], (*slots.shape, x.shape[-1])), np.zeros(slots.shape, bool))
    before = np.where(valid[..., None], env.unstep(state, slots).x, env.reset().x)
    return before, np.where(valid, env.action_of(state, slots), 0)


def log_path_counts(env: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The function log n(x), where n counts the ways from the source to an object x.

    A closed form if the params of the environment offer one, `log_paths(x, numpy)`, else a table over all objects.
    """
    closed_form = getattr(env.params, "log_paths", None)
    if closed_form is not None:
        return lambda x: closed_form(x, np)
    graph = graph_of(env.params)
    if graph is None:
        raise UsageError(
            f"backward=maxent counts the ways to every object, so {env} must have few enough states to list or params "
            "with `log_paths(x, xp)`. Use a smaller instance, or backward=shared, learned, uniform or fixed."
        )
    log_n = exact_numpy.log_path_counts(graph)
    return lambda x: log_n[env.index(State(x, np.zeros(x.shape[:-1], bool)))]


def max_entropy(
    env: Any, x: Int[np.ndarray, "*batch d"], log_paths: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "*batch p"]:
    """log P_B(s | x) = log n(s) - log n(x): all ways from the source to an object alike."""
    valid = env.backward_mask(State(x, np.zeros(x.shape[:-1], bool)))
    return np.where(valid, log_paths(parents(env, x)[0]) - log_paths(x)[..., None], MASKED)


def sample_back(
    choose: Callable[[State, np.ndarray], np.ndarray],
    env: Any,
    x: Int[np.ndarray, "batch d"],
    gumbel: Float[np.ndarray, "steps batch p"],
) -> Trajectories:
    """Trajectories that end with the objects x, in forward order; `choose(state, gumbel)` gives backward actions.

    Undoing stop is certain; `gumbel[k]` is the noise of the k-th move back. Padded as those sampled forward.
    """
    steps, batch = len(gumbel), len(x)
    source, rows = env.reset().x, np.arange(batch)
    state = State(x, np.zeros(batch, bool))
    visited, redone = [x], []
    length = np.zeros(batch, np.int64)  # of the moves back to the source
    while (moves := (state.x != source).any(-1)).any():
        if len(redone) == steps - 1:
            lost = x[int(np.argmax(moves))].tolist()
            raise UsageError(f"expected a way back to the source of at most {steps - 1} moves, found none from {lost}.")
        parent = choose(state, gumbel[len(redone)])
        redone.append(env.action_of(state, parent))
        state = env.unstep(state, parent)
        visited.append(state.x)
        length += moves
    moved = np.stack([*redone, np.full(batch, env.n_actions - 1)])  # a last row to point to where nothing was redone
    back = length - np.arange(steps + 1)[:, None]  # state t of a trajectory is `back` moves before its object
    action = np.where(back[:-1] > 0, moved[np.maximum(back[:-1] - 1, 0), rows], env.n_actions - 1)
    path = np.stack(visited)[np.maximum(back, 0), rows]
    parent = env.parent_of(State(path[:-1], np.zeros(action.shape, bool)), action)
    return Trajectories(path, action, parent, back[:-1] >= 0)
