"""Sampling compiled: the policy and the environment in one program. On the host, vectorized.py does the same.

Both samplers stop when the last trajectory has arrived, so neither can be differentiated in reverse; nor need it be.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ....envs.dag.continuous_jax import ContinuousEnv, Moves, State
from .acting_jax import Number, choose
from .batch import NO_MOVE, Batch, Noise, Options, Trajectories
from .policy_jax import Policy

Written = tuple[Array, ...]
Walk = tuple[Array, State, Written]  # steps done, where everybody is, what was written down on the way


def sample(policy: Policy, env: ContinuousEnv, noise: Noise, epsilon: Number) -> Trajectories:
    """Trajectories from the source to stop, for which there is noise enough."""
    steps, batch = noise.explore.shape
    start = env.reset((batch,), noise.explore.dtype)

    def step(state: State, noise: Noise) -> tuple[State, Written]:
        moves, choice = env.forward(state), policy.forward_choice(env.observe(state))
        ratio, jump = choose(policy.kind, choice, moves.can_move, moves.can_jump, noise, epsilon)
        return env.step(state, ratio, jump), (state.x, state.t, ratio, jump)

    end, (x, t, ratio, jump) = _walk(step, start, noise, steps)
    valid, move = _valid(jump), ~jump
    visited = jnp.concatenate([valid, jnp.zeros((1, batch), bool)])  # an unfinished state; what follows is the end
    x = jnp.where(visited[..., None], jnp.concatenate([x, end.x[None]]), end.x[None])
    t = jnp.where(visited, jnp.concatenate([t, end.t[None]]), end.t[None])
    back = env.ratio_back(_state(x[1:], t[1:]), _state(x[:-1], t[:-1]))
    return Trajectories(x, t, _ratio(ratio, move), _ratio(back, move & (t[:-1] > 0)), jump, valid)


def sample_back(policy: Policy, env: ContinuousEnv, x: Float[Array, "batch d"], noise: Noise) -> Trajectories:
    """Trajectories to the points x, drawn from their ends by P_B and returned from their starts, as by `sample`."""
    steps, batch = noise.explore.shape
    start = env.ended(x)._replace(done=jnp.zeros(batch, bool))  # undoing stop is certain

    def step(state: State, noise: Noise) -> tuple[State, Written]:
        moves, choice = env.backward(state), policy.backward_choice(env.observe(state))
        ratio, jump = choose(policy.kind, choice, moves.can_move, moves.can_jump, noise, 0.0)
        before = env.unstep(state, ratio, jump)
        return before._replace(done=before.t == 0), (state.x, state.t, ratio, state.done)

    end, (points, t, back, arrived) = _walk(step, start, noise, steps)
    points, t = jnp.where(arrived[..., None], end.x[None], points), jnp.where(arrived, end.t[None], t)
    length = (~arrived).sum(0)[None]  # moves of each trajectory
    k = jnp.arange(steps + 1)[:, None]
    x, t = _take(points, jnp.maximum(length - k, 0)), _take(t, jnp.maximum(length - k, 0))
    move = k[:-1] < length
    ratio = env.ratio(_state(x[:-1], t[:-1]), _state(x[1:], t[1:]))
    back = _take(back, jnp.maximum(length - 1 - k[:-1], 0))
    return Trajectories(x, t, _ratio(ratio, move), _ratio(back, move & (t[:-1] > 0)), ~move, k[:-1] <= length)


def to_batch(trajectories: Trajectories, env: ContinuousEnv) -> Batch:
    """What the learner is told about trajectories."""
    x, t, ratio, ratio_back, jump, valid = trajectories
    state = State(x, t, jnp.concatenate([jnp.zeros_like(jump[:1]), jump]))
    return Batch(
        observation=env.observe(state),
        log_reward=env.log_reward(state),
        forward=_options(env.forward(state)),
        backward=_options(env.backward(state)),
        ratio=ratio,
        ratio_back=ratio_back,
        jump=jump,
        first=~jump & (t[:-1] == 0),
        valid=valid,
    )


def _walk(step: Callable[[State, Noise], tuple[State, Written]], start: State, noise: Noise, steps: int) -> Any:
    """Steps until all are done: the last state, and what each step wrote down; ones (True) for steps not taken."""
    rows = jax.eval_shape(step, start, noise.at(0))[1]
    blank = tuple(jnp.ones((steps, *row.shape), row.dtype) for row in rows)

    def going(walk: Walk) -> Bool[Array, ""]:
        return (walk[0] < steps) & ~walk[1].done.all()

    def advance(walk: Walk) -> Walk:
        k, state, written = walk
        after, row = step(state, noise.at(k))
        return k + 1, after, tuple(column.at[k].set(entry) for column, entry in zip(written, row, strict=True))

    _, end, written = jax.lax.while_loop(going, advance, (jnp.array(0), start, blank))
    return end, written


def _valid(jump: Bool[Array, "steps batch"]) -> Bool[Array, "steps batch"]:
    """A transition is valid unless the one before it was stop."""
    return jnp.concatenate([jnp.ones_like(jump[:1]), ~jump[:-1]])


def _state(x: Float[Array, "steps batch d"], t: Int[Array, "steps batch"]) -> State:
    return State(x, t, jnp.zeros(t.shape, bool))


def _ratio(ratio: Float[Array, "steps batch d"], moved: Bool[Array, "steps batch"]) -> Float[Array, "steps batch d"]:
    return jnp.where(moved[..., None], ratio, NO_MOVE)


def _options(moves: Moves) -> Options:
    width = jnp.where(moves.can_move[..., None], moves.width, 1)
    return Options(jnp.log(width).sum(-1), moves.can_move, moves.can_jump)


def _take(rows: Array, index: Int[Array, "n batch"]) -> Array:
    """Row `index[i, j]` of column j, for each i and j."""
    return rows[index, jnp.arange(rows.shape[1])[None]]
