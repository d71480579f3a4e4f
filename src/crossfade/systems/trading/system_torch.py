"""Trading with PPO as the trainers see it, torch half. Twin: system_jax.py."""

from typing import Any

import numpy as np
import torch

from ...algos.ppo.batch import Carry
from ...algos.ppo.network_torch import ActorCritic
from ...envs.trading.market import Settings, State
from ...envs.world import BoundWorld
from ..ppo_torch import PPOSystem
from . import data, evaluation, world
from .accounts import Accounts
from .config import TradingConfig
from .growth_torch import grown
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

    def _one_by_one(self, world: BoundWorld, state: State) -> Accounts:
        return Accounts(self.config.params, world.data, world.settings, state)

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """A network of a later phase keeps the bits of those of earlier ones that it may have grown from."""
        earlier = self.config.earlier
        return grown(policy, earlier[0].observation_dim, tuple(p.n_actions for p in earlier)) if earlier else policy


def outputs(
    config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The logits and values that the network with these parameters gives normalised observations."""
    with torch.no_grad():
        logits, value = System(config).make_policy(parameters)(torch.from_numpy(observation))
        return logits.double().numpy(), value.double().numpy()
