"""Playing an episode of every game within a compiled program. Twin: rollout_numpy.py."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8, Int32

from ...envs.game import Game
from .batch import Episode, Noise
from .config import IQNConfig
from .risk_jax import distort_all

Agent = int | Int32[Array, ""]


class Act(Protocol):
    """Agents at work."""

    def __call__(
        self, agent: Agent, stack: Float[Array, "worlds stacked"], fractions: Float[Array, "worlds quantiles"], /
    ) -> Int32[Array, " worlds"]:
        """The greedy action of an agent in every game, of what it sees now and saw before."""
        ...


def play(
    game: Game,
    act: Act,
    history: Int8[Array, "worlds agents gap observation"],
    noise: Noise,
    epsilon: Float[Array, " agents"],
    config: IQNConfig,
) -> tuple[Episode, Any]:
    """An episode of every game, and the states in which they end."""
