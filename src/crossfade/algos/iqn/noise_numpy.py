"""The randomness of an epoch, drawn in NumPy. Twin: noise_jax.py, bit for bit."""

import numpy as np
from jaxtyping import Int32, UInt32

from ...envs.game import Game
from ...random import random_numpy as random
from .batch import Noise
from .config import IQNConfig


def draw(key: UInt32[np.ndarray, "2"], game: Game, noise_dim: int, config: IQNConfig) -> Noise:
    """The randomness of an epoch, from its key: the i-th field of `Noise` is drawn from fold_in(key, i)."""
    each = (game.turns, config.worlds, game.agents)
    keys = Noise(*(random.fold_in(key, i) for i in range(len(Noise._fields))))
    return Noise(
        start=random.uniform(keys.start, (config.worlds, game.start_numbers)),
        turn=random.uniform(keys.turn, (game.turns, config.worlds, game.turn_numbers)),
        order=_order(keys.order, game, config),
        explore=random.uniform(keys.explore, each),
        action=np.floor(random.uniform(keys.action, each) * np.float32(game.n_actions)).astype(np.int32),
        reward=random.uniform(keys.reward, each),
        acting=random.uniform(keys.acting, (*each, config.acting_quantiles)),
        choice=random.uniform(keys.choice, (game.agents, config.worlds * config.memory)),
        fractions=random.uniform(keys.fractions, (game.agents, 3, config.batch_size, config.quantiles)),
        noise=random.normal(keys.noise, (game.agents, 3, noise_dim)),
    )


def _order(key: UInt32[np.ndarray, "2"], game: Game, config: IQNConfig) -> Int32[np.ndarray, "turns agents"]:
    """The agents in the order in which they act, in every turn; all games share it."""
    if config.order == "shuffled":
        return np.argsort(random.uniform(key, (game.turns, game.agents)), axis=-1, kind="stable").astype(np.int32)
    first = np.arange(game.turns, dtype=np.int32) * (config.order == "rotated")
    return (np.arange(game.agents, dtype=np.int32)[None] + first[:, None]) % np.int32(game.agents)
