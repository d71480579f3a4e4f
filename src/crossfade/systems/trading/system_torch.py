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
        """One of phase 2 keeps the bits of the one of phase 1 that it may have grown from."""
        return policy if self.config.base is None else grown(policy, *self.config.base)


def logits(config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """The logits that the network with these parameters gives normalised observations."""
    with torch.no_grad():
        return System(config).make_policy(parameters)(torch.from_numpy(observation))[0].double().numpy()
