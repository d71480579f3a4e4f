"""Training compiled: episodes, replay and gradient steps, many epochs in one program."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ...envs.game import Game
from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE
from ...random import streams_jax as streams
from . import replay_jax
from .acting_jax import values
from .architecture import Architecture
from .batch import Batch, Episode, Noise, Replay
from .config import IQNConfig
from .losses_jax import Info
from .networks_jax import Network, Policy
from .noise_jax import draw
from .rollout_jax import Act, Agent, play, returns
from .stacked_jax import Stacked, local_networks, own_runs, runs_of, stack, unstack, update_own, whole

LEAST = 64
"""Rows of a forward pass on each device, from which on the devices share the fractions that agents act by."""
Runs = list[Stacked]
Trained = tuple[Policy, dict[str, PyTree], Replay, dict[str, Float[Array, " n"]]]


@partial(jax.jit, static_argnames=("game", "sizes", "config"), donate_argnames=("policy", "opt_states", "replay"))
def train(
    policy: Policy,
    opt_states: dict[str, PyTree],
    replay: Replay,
    game: Game,
    sizes: Architecture,
    epsilon: Float[Array, "n agents"],
    copy: Bool[Array, " n"],
    key: PRNGKeyArray,
    first_step: int | Array,
    config: IQNConfig,
) -> Trained:
    """`n` epochs, each an episode of every game and one gradient step of every model; metrics hold a value for each.

    Epoch i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of `policy`,
    `opt_states` and `replay` is given away: go on with the returned ones.
    """

    def several(
        policy: Policy,
        opt_states: dict[str, PyTree],
        replay: Replay,
        epsilon: Float[Array, "n agents"],
        copy: Bool[Array, " n"],
        key: PRNGKeyArray,
        first_step: int | Array,
    ) -> Trained:
        def one(now: tuple[Runs, Replay], given: tuple[Array, Array, Array]) -> tuple[tuple[Runs, Replay], Info]:
            runs, replay = now
            step, epsilon, copy = given
            drawn = jax.random.fold_in(key, step)
            noise = draw(drawn, game, sizes.noise_dim, config)
            replay, history = replay_jax.open_episode(replay, config)
            episode, _ = play(game, actor(local_networks(runs, config), config), history, noise, epsilon, config)
            replay = replay_jax.store(replay, episode, config)
            batch = own_batch(replay, noise, drawn, copy, game, sizes, config)
            runs, info = update_own(runs, batch, config)
            return (runs, replay), {**info, **_floats(returns(episode), config)}

        steps = first_step + jnp.arange(len(copy), dtype=jnp.int32)
        start = own_runs(stack(policy, opt_states, config), config), replay
        (runs, replay), metrics = jax.lax.scan(one, start, (steps, epsilon, copy))
        return *unstack(whole(runs, config), policy, opt_states), replay, metrics

    inputs = policy, opt_states, replay, epsilon, copy, key, first_step
    return sharing.spread(several, config.devices, (EVERYWHERE,) * 7, (EVERYWHERE,) * 4)(*inputs)


def actor(networks: Sequence[Network], config: IQNConfig) -> Act:
    """The agents at work, by the networks of the models."""
    # A branch for each model: to cut its parameters out of a stack for every action takes longer than the action.
    model_of = jnp.array(config.model_of, jnp.int32)
    shared = config.worlds * config.acting_quantiles >= LEAST * config.devices
    devices = config.devices if shared and config.acting_quantiles % config.devices == 0 else 1

    def act(agent: Agent, stack: Array, fractions: Array) -> Array:
        given = stack, sharing.part(fractions, devices, 1)
        found = jax.lax.switch(model_of[agent], [partial(values, network) for network in networks], *given)
        return jnp.argmax(sharing.mean(found, devices), -1).astype(jnp.int32)

    return act


def batch_of(replay: Replay, noise: Noise, copy: Bool[Array, ""], game: Game, config: IQNConfig) -> Batch:
    """What the update of an epoch learns from, drawn from replay."""
    transitions, ready = replay_jax.sample(replay, noise.choice, game.turns, config)
    own = _floats({"fractions": noise.fractions, "noise": noise.noise}, config)
    return Batch(transitions._replace(**own), ready, copy, {})


def own_batch(
    replay: Replay,
    noise: Noise,
    key: PRNGKeyArray,
    copy: Bool[Array, ""],
    game: Game,
    sizes: Architecture,
    config: IQNConfig,
) -> Batch:
    """`batch_of` as `update_own` takes it: this device draws what it trains by, and no more of the networks' noise."""
    if config.own_agents in (0, config.agents):
        batch = batch_of(replay, noise, copy, game, config)
        return batch._replace(transitions=[batch.transitions])
    key, size = jax.random.fold_in(key, Noise._fields.index("noise")), 3 * sizes.noise_dim
    each = zip(runs_of(config), own_runs(noise.choice, config), own_runs(noise.fractions, config), strict=True)
    runs, ready = [], jnp.ones((), bool)
    for (first, n), choice, fractions in each:
        transitions, ready = replay_jax.sample(replay, choice, game.turns, config, first)
        places = jnp.asarray(first * size, jnp.uint32) + jnp.arange(n * size, dtype=jnp.uint32)
        own = {"fractions": fractions, "noise": streams.normal(key, (n, 3, sizes.noise_dim), "float32", places)}
        runs.append(transitions._replace(**_floats(own, config)))
    return Batch(runs, ready, copy, {})


@partial(jax.jit, static_argnames=("game", "config"))
def play_greedily(policy: Policy, noise: Noise, game: Game, config: IQNConfig) -> Episode:
    """The games of `noise`, without random actions and with an empty history."""
    networks = [model.local for model in policy.models]
    history = jnp.zeros((config.worlds, game.agents, config.frames - 1, game.observation_dim), jnp.int8)
    return play(game, actor(networks, config), history, noise, jnp.zeros(game.agents, config.dtype), config)[0]


def _floats(named: dict[str, Array], config: IQNConfig) -> dict[str, Array]:
    return {name: array.astype(config.dtype) for name, array in named.items()}
