"""Robots with PPO as the trainers see it, JAX half. Twin: system_torch.py."""

from ...algos.ppo.batch import Carry
from ...algos.ppo.network_jax import ActorCritic
from ...envs.robot.params import Settings
from ...run.evaluation import Evaluation
from ..ppo_jax import PPOSystem
from . import evaluation
from .config import RobotConfig
from .evaluation import RobotEffort


class System(PPOSystem[RobotConfig]):
    """PPO on the robot of a config."""

    def __init__(self, config: RobotConfig):
        super().__init__(config, config.env)

    def settings(self, step: int) -> Settings:
        return self.config.settings(step)

    def evaluate(
        self, policy: ActorCritic, effort: RobotEffort | None = None, buffer: Carry | None = None
    ) -> Evaluation:
        """The greedy policy on episodes that are always the same; with an effort, all that evaluation.py can say."""
        statistics = (buffer or self.start_buffer()).statistics
        return evaluation.evaluate(self.config, evaluation.walker(self.config, self.greedy(policy), statistics), effort)
