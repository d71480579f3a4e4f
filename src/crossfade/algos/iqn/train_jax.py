"""Training compiled: episodes, replay and gradient steps, many epochs in one program."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ...envs.game import Game
from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE
from . import replay_jax
from .acting_jax import values
from .architecture import Architecture
from .batch import Batch, Episode, Noise, Replay
from .config import IQNConfig
from .losses_jax import Info
from .networks_jax import Network, Policy
from .noise_jax import draw
from .rollout_jax import Act, Agent, play, returns
from .stacked_jax import Stacked, stack, unstack, update_stacked

LEAST = 64
"""Rows of a forward pass on each device, from which on the devices share the fractions that agents act by."""
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
        def one(now: tuple[Stacked, Replay], given: tuple[Array, Array, Array]) -> tuple[tuple[Stacked, Replay], Info]:
            stacked, replay = now
            step, epsilon, copy = given
            noise = draw(jax.random.fold_in(key, step), game, sizes.noise_dim, config)
            replay, history = replay_jax.open_episode(replay, config)
            episode, _ = play(game, actor(stacked.models.local, config), history, noise, epsilon, config)
            replay = replay_jax.store(replay, episode, config)
            stacked, info = update_stacked(stacked, batch_of(replay, noise, copy, game, config), config)
            return (stacked, replay), {**info, **_floats(returns(episode), config)}

        steps = first_step + jnp.arange(len(copy), dtype=jnp.int32)
        start = stack(policy, opt_states, config), replay
        (stacked, replay), metrics = jax.lax.scan(one, start, (steps, epsilon, copy))
        return *unstack(stacked, policy, opt_states), replay, metrics

    inputs = policy, opt_states, replay, epsilon, copy, key, first_step
    return sharing.spread(several, config.devices, (EVERYWHERE,) * 7, (EVERYWHERE,) * 4)(*inputs)


def actor(local: Network, config: IQNConfig) -> Act:
    """The agents at work, by networks with an axis of models in front."""
    # A branch for each model: to cut its parameters out of the stack for every action takes longer than the action.
    networks = [jax.tree.map(lambda array, k=k: array[k], local) for k in range(config.n_models)]
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


@partial(jax.jit, static_argnames=("game", "config"))
def play_greedily(policy: Policy, noise: Noise, game: Game, config: IQNConfig) -> Episode:
    """The games of `noise`, without random actions and with an empty history."""
    local = jax.tree.map(lambda *arrays: jnp.stack(arrays), *(model.local for model in policy.models))
    history = jnp.zeros((config.worlds, game.agents, config.frames - 1, game.observation_dim), jnp.int8)
    return play(game, actor(local, config), history, noise, jnp.zeros(game.agents, config.dtype), config)[0]


def _floats(named: dict[str, Array], config: IQNConfig) -> dict[str, Array]:
    return {name: array.astype(config.dtype) for name, array in named.items()}
