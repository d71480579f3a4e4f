"""Playing an episode of every game within a compiled program. Twin: rollout_numpy.py."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8, Int32, Shaped

from ...envs.game import Game
from .batch import Episode, Noise
from .config import IQNConfig
from .risk_jax import distort_all

Agent = int | Int32[Array, ""]


@runtime_checkable
class Act(Protocol):
    """Agents at work."""

    def __call__(
        self, agent: Agent, stack: Float[Array, "worlds stacked"], fractions: Float[Array, "worlds quantiles"], /
    ) -> Int32[Array, " worlds"]:
        """The greedy action of an agent in every game, (worlds,) int32.

        `stack`, (worlds, frames * observation), is what it saw before and sees now, oldest first; `fractions`, (worlds,
        acting_quantiles), are distorted already. Both are in the dtype of the networks.
        """
        ...


def play(
    game: Game,
    act: Act,
    history: Int8[Array, "worlds agents gap observation"],
    noise: Noise,
    epsilon: Float[Array, " agents"],
    config: IQNConfig,
) -> tuple[Episode, Any]:
    """An episode of every game, and the states in which they end.

    `history` is what agents saw before the episode. An agent acts at random where `noise.explore` is below its epsilon,
    and greedily elsewhere: `act` is not asked if it explores in every game, and is given the observations that the
    agent has seen, oldest first, and fractions distorted as `risk` says.
    """
    # What agents see goes into one array that the loops carry: on a CPU, an episode of one game that all explore takes
    # 0.7 times as long as with a history handed on. The loop over agents written out is no faster and compiles longer.
    worlds, agents, before = history.shape[:3]
    numbers, none = jnp.arange(agents, dtype=jnp.int32), jnp.zeros((), jnp.int32)
    epsilon = epsilon.astype(jnp.float32)
    following = jnp.zeros((worlds, agents, game.turns, game.observation_dim), jnp.int8)

    def turn(carry: tuple[Any, Array], now: tuple[Array, Noise]) -> tuple[tuple[Any, Array], tuple[Array, Array]]:
        (state, frames), (t, drawn) = carry, now
        state = game.start_turn(state, drawn.turn)
        fractions = distort_all(drawn.acting.astype(config.dtype), config)

        def decide(agent: Int32[Array, ""], stack: Int8[Array, "worlds frames observation"]) -> Int32[Array, " worlds"]:
            random, explores = _own(drawn.action, agent), _own(drawn.explore, agent) < epsilon[agent]
            seen = stack.reshape(worlds, -1).astype(config.dtype)
            greedy = lambda: act(agent, seen, _own(fractions, agent))
            # Where all explore, the network is not run.
            return jnp.where(explores, random, jax.lax.cond(explores.all(), lambda: random, greedy))

        def in_turn(carry: tuple[Any, Array, Array, Array], agent: Int32[Array, ""]) -> tuple[Any, None]:
            """One agent moves, and before it, in sequential turns, observes and decides."""
            state, frames, action, reward = carry
            if config.moves == "sequential":
                seen = game.observe(state, agent)[:, None, None]
                frames = jax.lax.dynamic_update_slice(frames, seen, (none, agent, t + before, none))
                stack = jax.lax.dynamic_slice(frames, (none, agent, t, none), (worlds, 1, before + 1, seen.shape[-1]))
                action = jax.lax.dynamic_update_index_in_dim(action, decide(agent, stack[:, 0]), agent, 1)
            state, gain = game.move(state, agent, _own(action, agent), _own(drawn.reward, agent))
            return (state, frames, action, jax.lax.dynamic_update_index_in_dim(reward, gain, agent, 1)), None

        action = jnp.zeros((worlds, agents), jnp.int32)
        if config.moves != "sequential":
            seen = _observe_all(game, state)[:, :, None]
            frames = jax.lax.dynamic_update_slice_in_dim(frames, seen, t + before, 2)
            stacks = jax.lax.dynamic_slice_in_dim(frames, t, before + 1, 2)
            action = jax.lax.map(lambda agent: decide(agent, _own(stacks, agent)), numbers).T
        if config.moves == "simultaneous":
            order = jnp.broadcast_to(drawn.order[None], action.shape)
            state, reward = game.move_together(state, action, order, drawn.reward)
        else:
            start = state, frames, action, jnp.zeros((worlds, agents), jnp.float32)
            (state, frames, action, reward), _ = jax.lax.scan(in_turn, start, drawn.order)
        return (state, frames), (action, reward)

    turns = jnp.arange(game.turns, dtype=jnp.int32), noise._replace(start=None, choice=None, fractions=None, noise=None)
    start = game.begin(noise.start), jnp.concatenate([history, following], axis=2)
    (state, frames), (action, reward) = jax.lax.scan(turn, start, turns)
    seen = jnp.moveaxis(frames[:, :, before:], 2, 0)
    return Episode(seen, action, reward, _observe_all(game, state)), state


def returns(episode: Episode) -> dict[str, Float[Array, ""]]:
    """To be logged: the sum of rewards over the turns, of all agents and of each, as means over the games."""
    each = episode.reward.sum(0).mean(0)
    return {"return": each.sum()} | {f"return_{agent}": each[agent] for agent in range(len(each))}


def _observe_all(game: Game, state: Any) -> Int8[Array, "worlds agents observation"]:
    """What every agent sees."""
    numbers = jnp.arange(game.agents, dtype=jnp.int32)
    return jax.vmap(game.observe, in_axes=(None, 0), out_axes=1)(state, numbers)


def _own(column: Shaped[Array, "worlds agents ..."], agent: Int32[Array, ""]) -> Shaped[Array, "worlds ..."]:
    """What is one agent's."""
    return jax.lax.dynamic_index_in_dim(column, agent, 1, keepdims=False)
