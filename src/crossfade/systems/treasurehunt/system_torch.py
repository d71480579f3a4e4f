"""Treasurehunt with IQN as the trainers see it, torch half. Twin: system_jax.py."""

from ...algos.iqn.batch import Replay
from ...algos.iqn.networks_torch import Policy
from ...envs.treasurehunt.one_by_one import OneByOne
from ...run.evaluation import Evaluation
from ..iqn_torch import IQNSystem
from . import baselines, evaluation
from .config import TreasurehuntConfig
from .evaluation import TreasurehuntEffort


class System(IQNSystem[TreasurehuntConfig]):
    """IQN on the map of a config."""

    def __init__(self, config: TreasurehuntConfig):
        super().__init__(config, config.env)

    def evaluate(
        self, policy: Policy, effort: TreasurehuntEffort | None = None, buffer: Replay | None = None
    ) -> Evaluation:
        """The greedy policy on games that are always the same; with an effort in every kind of turns."""
        act = self.act(policy)
        return evaluation.evaluate(self.config, lambda config, noise: baselines.play(config, act, noise), effort)

    def _one_by_one(self) -> OneByOne:
        return OneByOne(self.config.env)
