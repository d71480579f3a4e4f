"""PPO on the point, torch half. Twin: system_jax.py."""

from crossfade.systems.ppo_torch import PPOSystem

from . import PointConfig, PointParams, evaluate


class PointSystem(PPOSystem[PointConfig]):
    def __init__(self, config: PointConfig):
        super().__init__(config, PointParams(config.dtype))

    def evaluate(self, policy, effort=None, buffer=None):
        return evaluate(self, policy, buffer)
