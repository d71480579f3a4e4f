"""The randomness of an epoch, drawn in JAX. Twin: noise_numpy.py, bit for bit."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32, PRNGKeyArray

from ...envs.game import Game
from ...random import streams_jax as streams
from .batch import Noise
from .config import IQNConfig


def draw(key: PRNGKeyArray, game: Game, noise_dim: int, config: IQNConfig) -> Noise:
    """The randomness of an epoch, from its key: the i-th field of `Noise` is drawn from fold_in(key, i)."""
    keys = Noise(*(jax.random.fold_in(key, i) for i in range(len(Noise._fields))))
    uniform = lambda key, *shape: streams.uniform(key, shape, "float32")
    agents, steps = game.agents, (game.turns, config.worlds, game.agents)
    return Noise(
        start=uniform(keys.start, config.worlds, game.start_numbers),
        turn=uniform(keys.turn, game.turns, config.worlds, game.turn_numbers),
        order=_order(uniform(keys.order, game.turns, agents), config),
        explore=uniform(keys.explore, *steps),
        action=jnp.floor(uniform(keys.action, *steps) * jnp.float32(game.n_actions)).astype(jnp.int32),
        reward=uniform(keys.reward, *steps),
        acting=uniform(keys.acting, *steps, config.acting_quantiles),
        choice=uniform(keys.choice, agents, config.worlds * config.memory),
        fractions=uniform(keys.fractions, agents, 3, config.batch_size, config.quantiles),
        noise=streams.normal(keys.noise, (agents, 3, noise_dim), "float32"),
    )


def _order(uniform: Float32[Array, "turns agents"], config: IQNConfig) -> Int32[Array, "turns agents"]:
    """The agents in the order in which they act, in every turn; all games share it."""
    if config.order == "shuffled":
        return jnp.argsort(uniform, axis=-1, stable=True).astype(jnp.int32)
    turn, agent = (jax.lax.broadcasted_iota(jnp.int32, uniform.shape, axis) for axis in (0, 1))
    return (agent + turn) % jnp.int32(uniform.shape[1]) if config.order == "rotated" else agent
