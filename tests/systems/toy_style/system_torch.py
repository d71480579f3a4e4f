"""PPO with a style reward on the point, torch half. Twin: system_jax.py."""

from toy_point import PointParams, evaluate

from crossfade.algos.amp.hook_torch import StyleHook
from crossfade.systems.ppo_torch import PPOSystem

from . import StyledPointConfig, reference, watch


class StyledPointSystem(PPOSystem[StyledPointConfig]):
    def __init__(self, config: StyledPointConfig):
        hook = StyleHook(config.style, config, reference(config), watch)
        super().__init__(config, PointParams(config.dtype), hook=hook)

    def evaluate(self, policy, effort=None, buffer=None):
        return evaluate(self, policy, buffer)
