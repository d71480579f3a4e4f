"""Sampling compiled: the policy and the environment in one program. On the host, vectorized.py does the same.

Three samplers, one result: `sample` runs every step there may be; `sample_until_done` stops with the last trajectory,
which pays where trajectories are shorter than the longest one possible; `sample_table` looks the logits up in a table
of all states, which pays where there are fewer states than visits. `sample_back` and `sample_back_table` walk from
finished objects to the source by P_B; what they return is told forwards, like any other trajectories.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ....envs.dag.base_jax import Env, State
from ..batch import MASKED, Noise, Trajectories
from ..policy_jax import Policy
from .acting_jax import Number, act, choose
from .parents_jax import LogPaths, max_entropy, parents_of, unfinished

Step = Callable[[State, tuple[Array, Array]], tuple[State, Array]]


def sample(policy: Policy, env: Env, noise: Noise, epsilon: Number, temperature: Number) -> Trajectories:
    """Trajectories from the source, as many steps as there is noise for."""
    start = env.reset(noise.explore.shape[1:])
    advance = _advance(policy, env, epsilon, temperature)

    def step(state: State, draws: tuple[Array, Array]) -> tuple[State, tuple[Array, Array]]:
        after, action = advance(state, draws)
        return after, (state.x, action)

    end, (x, action) = jax.lax.scan(step, start, (noise.gumbel, noise.explore))
    return _trajectories(env, jnp.concatenate([x, end.x[None]]), action)


def sample_until_done(policy: Policy, env: Env, noise: Noise, epsilon: Number, temperature: Number) -> Trajectories:
    """The same trajectories as `sample`, for the price of their own length. Not for reverse differentiation.

    Trajectories run in lanes. Whenever no more than half of the lanes are still going, those go on in half as many.
    """
    steps, batch = noise.explore.shape
    advance = _advance(policy, env, epsilon, temperature)
    state = env.reset((batch,))
    x = jnp.zeros((steps + 1, *state.x.shape), state.x.dtype)
    action = jnp.full((steps, batch), env.n_actions - 1)
    t = jnp.array(0)
    lanes = [batch >> k for k in range(4) if batch >> k]
    for width, enough in zip(lanes, [*lanes[1:], 0], strict=True):
        lane = jnp.nonzero(~state.done, size=width, fill_value=batch)[0]  # `batch` is nobody: an idle lane

        def step(carry, lane=lane):
            t, running, x, action = carry
            after, chosen = advance(running, (noise.gumbel[t, lane], noise.explore[t, lane]))
            return t + 1, after, x.at[t, lane].set(running.x, mode="drop"), action.at[t, lane].set(chosen, mode="drop")

        def crowded(carry, enough=enough):
            t, running, _, _ = carry
            return (t < steps) & ((~running.done).sum() > enough)

        running = State(state.x[lane], state.done.at[lane].get(mode="fill", fill_value=True))
        t, running, x, action = jax.lax.while_loop(crowded, step, (t, running, x, action))
        state = State(state.x.at[lane].set(running.x, mode="drop"), state.done.at[lane].set(running.done, mode="drop"))
    visited = jnp.pad(_valid(env, action), ((0, 1), (0, 0)))[..., None]
    return _trajectories(env, jnp.where(visited, x, state.x[None]), action)


def sample_table(
    logits: Float[Array, "states actions"], env: Env, noise: Noise, epsilon: Number, temperature: Number
) -> Trajectories:
    """The same trajectories as `sample` of the policy whose logits are given for every state, by `env.index`."""
    n_states, n_actions = logits.shape
    states = env.state(jnp.arange(n_states))
    mask = env.forward_mask(states)
    every = jnp.broadcast_to(jnp.arange(n_actions), logits.shape)
    here = State(jnp.repeat(states.x[:, None], n_actions, axis=1), jnp.zeros(logits.shape, bool))
    child = env.index(env.step(here, every))
    start = env.reset(noise.explore.shape[1:])

    def step(carry: tuple[Array, Array], draws: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        index, done = carry
        action = choose(logits[index], mask[index], *draws, epsilon, temperature)
        action = jnp.where(done, n_actions - 1, action)
        return (child[index, action], action == n_actions - 1), (index, action)

    end, (index, action) = jax.lax.scan(step, (env.index(start), start.done), (noise.gumbel, noise.explore), unroll=2)
    return _trajectories(env, env.state(jnp.concatenate([index, end[0][None]])).x, action)


def sample_back(
    policy: Policy,
    env: Env,
    x: Int[Array, "batch d"],
    gumbel: Float[Array, "steps batch parents"],
    log_paths: LogPaths | None = None,
) -> Trajectories:
    """Trajectories that end in the objects x, by the policy's P_B, or by the one of `log_paths` where that is given.

    Undoing stop is certain; row k of the noise is for the k-th step after that.
    """

    def step(x: Array, gumbel: Array) -> tuple[Array, tuple[Array, Array]]:
        state = unfinished(x)
        mask = env.backward_mask(state)
        if log_paths is None:
            log_pb = policy.log_pb(env.observe(state), mask)
        else:
            log_pb = max_entropy(env, x, log_paths)
        parent = choose_back(log_pb, mask, gumbel)
        action = jnp.where(mask.any(-1), env.action_of(state, parent), env.n_actions - 1)
        return env.unstep(state, parent).x, (x, action)

    return _forwards(env, *jax.lax.scan(step, x, gumbel)[1])


def sample_back_table(
    log_pb: Float[Array, "states parents"],
    env: Env,
    x: Int[Array, "batch d"],
    gumbel: Float[Array, "steps batch parents"],
) -> Trajectories:
    """The same trajectories as `sample_back` of the policy whose log P_B is given for every state, by `env.index`."""
    states = env.state(jnp.arange(len(log_pb)))
    mask = env.backward_mask(states)
    before, action = parents_of(env, states.x)
    before, action = env.index(unfinished(before)), jnp.where(mask, action, env.n_actions - 1)

    def step(index: Array, gumbel: Array) -> tuple[Array, tuple[Array, Array]]:
        parent = choose_back(log_pb[index], mask[index], gumbel)
        return before[index, parent], (index, action[index, parent])

    _, (index, action_back) = jax.lax.scan(step, env.index(unfinished(x)), gumbel, unroll=2)
    return _forwards(env, env.state(index).x, action_back)


def choose_back(
    log_pb: Float[Array, "batch parents"], mask: Bool[Array, "batch parents"], gumbel: Float[Array, "batch parents"]
) -> Int[Array, " batch"]:
    """A draw from P_B; anything at the source."""
    return jnp.argmax(jnp.where(mask, log_pb, MASKED) + gumbel, axis=-1)


def concatenate(*parts: Trajectories) -> Trajectories:
    """One batch of several."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays, axis=1), *parts)


def _forwards(env: Env, x: Int[Array, "steps batch d"], action: Int[Array, "steps batch"]) -> Trajectories:
    """Walks told from their end. Row k holds the state after k steps back and the action that leads to it from the
    next one, or stop once the source is reached."""
    moves = (action != env.n_actions - 1).sum(0)
    left = moves[None] - jnp.arange(len(action) + 1)[:, None]  # steps from a state of the result to the object
    x = jnp.take_along_axis(x, jnp.maximum(left, 0)[..., None], axis=0)
    action = jnp.take_along_axis(action, jnp.maximum(left[:-1] - 1, 0), axis=0)
    return _trajectories(env, x, jnp.where(left[:-1] > 0, action, env.n_actions - 1))


def _advance(policy: Policy, env: Env, epsilon: Number, temperature: Number) -> Step:
    """One step of every trajectory: the state after, and the action; a trajectory that is done says stop."""

    def advance(state: State, draws: tuple[Array, Array]) -> tuple[State, Array]:
        action = act(policy, env.observe(state), env.forward_mask(state), *draws, epsilon, temperature)
        action = jnp.where(state.done, env.n_actions - 1, action)
        return env.step(state, action), action

    return advance


def _valid(env: Env, action: Int[Array, "steps batch"]) -> Bool[Array, "steps batch"]:
    """A transition is valid unless the one before it was stop."""
    return jnp.concatenate([jnp.ones((1, action.shape[1]), bool), action[:-1] != env.n_actions - 1])


def _trajectories(env: Env, x: Int[Array, "states batch d"], action: Int[Array, "steps batch"]) -> Trajectories:
    """What follows from objects and actions."""
    before = State(x[:-1], jnp.zeros(action.shape, bool))
    return Trajectories(x, action, env.parent_of(before, action), _valid(env, action))
