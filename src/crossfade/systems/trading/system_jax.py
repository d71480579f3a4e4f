"""Trading with PPO as the trainers see it, JAX half. Twin: system_torch.py."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algos.ppo.batch import Carry
from ...algos.ppo.network_jax import ActorCritic
from ...envs.trading.market import Settings
from ..ppo_jax import PPOSystem
from . import data, evaluation, world
from .config import TradingConfig
from .growth_jax import grown
from .judging.stage import StudyEffort


class System(PPOSystem[TradingConfig]):
    """PPO on accounts in the market of a config."""

    def __init__(self, config: TradingConfig):
        super().__init__(config, config.params, data.market(config))

    def settings(self, step: int) -> Settings:
        return world.settings(self.config, step)

    def evaluate(
        self, policy: ActorCritic, effort: StudyEffort | None = None, buffer: Carry | None = None
    ) -> evaluation.TradingEvaluation:
        """The greedy policy on the days held out; with an effort, all that evaluation.py can say of it."""
        return evaluation.evaluate(self.config, self.trader(policy, (buffer or self.start_buffer()).statistics), effort)

    def trader(self, policy: ActorCritic, statistics: Any) -> evaluation.Trader:
        """The greedy policy, which sees observations normalised by `statistics`."""
        return evaluation.greedy(self.config, self.greedy(policy), statistics)

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """A network of a later phase keeps the bits of those of earlier ones that it may have grown from."""
        earlier = self.config.earlier
        return grown(policy, earlier[0].observation_dim, tuple(p.n_actions for p in earlier)) if earlier else policy


def outputs(
    config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The logits and values that the network with these parameters gives normalised observations."""
    with jax.enable_x64(config.dtype == "float64"):
        policy = System(replace(config, mode="jax_policy", devices=1)).make_policy(parameters)
        logits, value = jax.jit(lambda policy, seen: policy(seen))(policy, jnp.asarray(observation))
        return np.asarray(logits, np.float64), np.asarray(value, np.float64)
