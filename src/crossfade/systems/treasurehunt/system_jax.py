"""Treasurehunt with IQN as the trainers see it, JAX half. Twin: system_torch.py."""

from ...algos.iqn.batch import Replay
from ...algos.iqn.networks_jax import Policy
from ...algos.iqn.train_jax import play_greedily
from ...run.evaluation import Evaluation
from ..iqn_jax import IQNSystem
from . import evaluation
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
        player = lambda config, noise: play_greedily(policy, noise, self.compiled, config)
        return evaluation.evaluate(self.config, player, effort)
