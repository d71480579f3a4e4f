"""Sampling on the host: a continuous NumPy environment driven by a policy in either framework."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....envs.dag.continuous_numpy import Moves, State
from .batch import NO_MOVE, Batch, Noise, Options, Trajectories

Act = Callable[[State, Moves, Noise], tuple[np.ndarray, np.ndarray]]
"""Ratios and jumps of one time step, given the states, what is possible there, and the noise."""


def sample(act: Act, env: Any, noise: Noise) -> Trajectories:
    """Trajectories from the source until every one has stopped; the rest, to `env.params.max_steps`, is padding."""
    steps, batch = noise.explore.shape
    states = [env.reset((batch,), noise.jump.dtype)]
    ratio = np.full(noise.ratio.shape, NO_MOVE, noise.ratio.dtype)
    jump = np.ones((steps, batch), bool)
    for k in range(steps):
        state = states[-1]
        if not state.done.all():
            ratio[k], chosen = act(state, env.forward(state), noise.at(k))
            jump[k] = chosen | state.done
            state = env.step(state, ratio[k], jump[k])
        states.append(state)
    return _forwards(env, _stack(states), ratio, jump)


def sample_one_by_one(act: Act, env: Any, noise: Noise) -> Trajectories:
    """The same from a list of environments, each stepped on its own, as PyTorch code does it today.

    No longer than the longest trajectory.
    """
    steps, batch = noise.explore.shape
    paths = [[env.reset((), noise.jump.dtype)] for _ in range(batch)]
    ratio = np.full(noise.ratio.shape, NO_MOVE, noise.ratio.dtype)
    jump = np.ones((steps, batch), bool)
    for k in range(steps):
        rows = [b for b, path in enumerate(paths) if not path[-1].done]
        if not rows:
            break
        together = _stack([paths[b][-1] for b in rows])
        ratio[k, rows], jump[k, rows] = act(together, env.forward(together), noise.at(k, rows))
        for b in rows:
            paths[b].append(env.step(paths[b][-1], ratio[k, b], jump[k, b]))
    longest = max(map(len, paths))
    states = [_stack([path[min(k, len(path) - 1)] for path in paths]) for k in range(longest)]
    return _forwards(env, _stack(states), ratio[: longest - 1], jump[: longest - 1])


def sample_back(act: Act, env: Any, x: np.ndarray, noise: Noise) -> Trajectories:
    """Trajectories that end with the points `x`, built backwards to the source and returned in forward order.

    Undoing stop is certain; row k of the noise makes the k-th step back after it.
    """
    steps, batch = noise.explore.shape
    ended = env.ended(x.astype(noise.jump.dtype))
    states = [ended, ended._replace(done=np.zeros(batch, bool))]
    drawn = [np.full(noise.ratio.shape[1:], NO_MOVE, noise.ratio.dtype)]
    for k in range(steps - 1):
        ratio, jump = act(states[-1], env.backward(states[-1]), noise.at(k))
        drawn.append(ratio)
        states.append(env.unstep(states[-1], ratio, jump))
    back = _stack(states)
    length = (back.t > 0).sum(0)  # transitions: as many as states that are not the source
    time = np.arange(steps + 1)[:, None]
    rows = np.arange(batch)
    state = State(*(part[np.maximum(length - time, 0), rows] for part in back))
    ratio_back = np.stack(drawn)[np.maximum(length - 1 - time[:-1], 0), rows]
    valid = time[:-1] < length
    jump = time[:-1] >= length - 1
    before, after = _ends(state)
    return Trajectories(
        x=state.x,
        t=state.t,
        ratio=_where(~jump, env.ratio(before, after)),
        ratio_back=_where(~jump & (before.t > 0), ratio_back),
        jump=jump,
        valid=valid,
    )


def to_batch(trajectories: Trajectories, env: Any) -> Batch:
    """Trajectories with all that the learner reads of the environment."""
    jump, valid = trajectories.jump, trajectories.valid
    done = np.concatenate([np.zeros_like(jump[:1]), jump])
    state = State(trajectories.x, trajectories.t, done)
    return Batch(
        observation=env.observe(state),
        log_reward=env.log_reward(state),
        forward=_options(env.forward(state)),
        backward=_options(env.backward(state)),
        ratio=trajectories.ratio,
        ratio_back=trajectories.ratio_back,
        jump=jump,
        first=valid & (trajectories.t[:-1] == 0),
        valid=valid,
    )


def _forwards(env: Any, state: State, ratio: np.ndarray, jump: np.ndarray) -> Trajectories:
    """Trajectories from what was drawn forwards: the way back is found from the states."""
    before, after = _ends(state)
    return Trajectories(
        x=state.x,
        t=state.t,
        ratio=_where(~jump, ratio),
        ratio_back=_where(~jump & (before.t > 0), env.ratio_back(after, before)),
        jump=jump,
        valid=~before.done,
    )


def _ends(state: State) -> tuple[State, State]:
    """The states before and after each transition."""
    return State(*(part[:-1] for part in state)), State(*(part[1:] for part in state))


def _where(moved: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    return np.where(moved[..., None], ratio, ratio.dtype.type(NO_MOVE))


def _options(moves: Moves) -> Options:
    width = np.where(moves.can_move[..., None], moves.width, 1)
    return Options(np.log(width).sum(-1), moves.can_move, moves.can_jump)


def _stack(states: list[State]) -> State:
    return State(*map(np.stack, zip(*states, strict=True)))
