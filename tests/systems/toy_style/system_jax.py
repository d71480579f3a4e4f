"""PPO with a style reward on the point, JAX half. Twin: system_torch.py."""

from toy_point import PointParams, evaluate

from crossfade.algos.amp.compiled_jax import CompiledStyleHook
from crossfade.systems.ppo_jax import PPOSystem

from . import StyledPointConfig, reference, watch


class StyledPointSystem(PPOSystem[StyledPointConfig]):
    def __init__(self, config: StyledPointConfig):
        hook = CompiledStyleHook(config.style, config, reference(config), watch, watch)
        super().__init__(config, PointParams(config.dtype), hook=hook)

    def evaluate(self, policy, effort=None, buffer=None):
        return evaluate(self, policy, buffer)
