"""Sampling on the host: a NumPy environment driven by a policy in either framework."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ....envs.dag.base_numpy import State
from ....errors import UsageError
from ....random import random_numpy as random
from ..batch import Batch, Noise, Trajectories
from ..config import GFlowNetConfig
from . import nodes_numpy, noise_numpy, replay_numpy
from .replay_numpy import Replay

Act = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
Undo = Callable[[Any, np.ndarray], np.ndarray]


def sample(choose: Act, env: Any, noise: Noise) -> Trajectories:
    """Trajectories from the source until every one has stopped; the rest, to `env.max_steps`, is padding.

    `choose(state, gumbel, explore)` gives the actions of one time step.
    """
    steps, batch = noise.explore.shape
    state = env.reset((batch,))
    x = np.empty((steps + 1, *state.x.shape), state.x.dtype)
    action = np.full((steps, batch), env.n_actions - 1)
    valid = np.zeros((steps, batch), bool)
    x[0] = state.x
    for t in range(steps):
        if state.done.all():
            x[t + 1 :] = state.x
            break
        valid[t] = ~state.done
        chosen = choose(state, noise.gumbel[t], noise.explore[t])
        action[t] = np.where(state.done, env.n_actions - 1, chosen)
        state = env.step(state, action[t])
        x[t + 1] = state.x
    parent = env.parent_of(State(x[:-1], np.zeros(action.shape, bool)), action)
    return Trajectories(x, action, parent, valid)


def mix(
    undo: Undo,
    env: Any,
    forward: Trajectories,
    buffer: Replay | None,
    objects: np.ndarray | None,
    key: np.ndarray,
    config: GFlowNetConfig,
    dtype: str,
) -> tuple[Trajectories, Replay | None]:
    """The trajectories of an iteration: those sampled forward, then from given objects, then from the best ones found.

    The buffer sees the new objects first, so it is never empty. `undo(state, gumbel)` gives backward actions, and `key`
    is that of the iteration.
    """
    if buffer is not None:
        found = forward.x[-1]
        buffer = replay_numpy.add(buffer, found, env.log_reward(State(found, np.ones(len(found), bool))))
    if buffer is None and objects is None:
        return forward, buffer
    weighted = config.replay_sampling == "weighted"
    noise = noise_numpy.draw_back(
        random.fold_in(key, 2),  # forward noise comes from split(key), which is fold_in by 0 and by 1
        env.max_steps,
        config.data_batch,
        config.replay_batch,
        config.replay_capacity if weighted else 0,
        env.n_parents,
        dtype,
    )
    ends = []
    if objects is not None:
        row = np.floor(noise.data * noise.data.dtype.type(len(objects))).astype(np.int64)
        ends.append(objects[np.minimum(row, len(objects) - 1)])
    if buffer is not None:
        ends.append(replay_numpy.pick(buffer, noise.pick, noise.pick_gumbel, weighted))
    return concatenate(forward, sample_back(undo, env, np.concatenate(ends), noise.gumbel)), buffer


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


def concatenate(*parts: Trajectories) -> Trajectories:
    """Trajectories side by side, padded to the longest: an object stays, the last action is repeated, none is valid."""
    steps = max(len(part.valid) for part in parts)

    def padded(array: np.ndarray, length: int) -> np.ndarray:
        return np.concatenate([array, np.repeat(array[-1:], length - len(array), axis=0)])

    return Trajectories(
        x=np.concatenate([padded(part.x, steps + 1) for part in parts], axis=1),
        action=np.concatenate([padded(part.action, steps) for part in parts], axis=1),
        parent=np.concatenate([padded(part.parent, steps) for part in parts], axis=1),
        valid=np.concatenate([np.pad(part.valid, ((0, steps - len(part.valid)), (0, 0))) for part in parts], axis=1),
    )


def without_padding(trajectories: Trajectories) -> Trajectories:
    """Without the steps at the end that are padding in every trajectory."""
    steps = int(trajectories.valid.any(1).sum())
    return Trajectories(trajectories.x[: steps + 1], *(array[:steps] for array in trajectories[1:]))


def to_batch(
    trajectories: Trajectories,
    env: Any,
    execution: str,
    table: Batch | None,
    parents: bool,
    log_paths: nodes_numpy.LogPaths | None = None,
) -> Batch:
    """Trajectories over the nodes that the execution asks for; their number is the same for every batch."""
    if table is not None:
        return nodes_numpy.at_table(trajectories, env, table)
    if execution == "unique":
        return nodes_numpy.unique(trajectories, env, trajectories.x[..., 0].size, parents, log_paths)
    return nodes_numpy.dense(trajectories, env, parents, log_paths)
