"""A continuous world as a system, in a few lines: a point that must reach 0. No mask, no data, no settings."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from crossfade.algos.ppo.config import ContinuousPPOConfig
from crossfade.envs.world import BareOutcome, Continuous
from crossfade.nn.normalizer_numpy import Statistics, normalize
from crossfade.registry import System
from crossfade.run.evaluation import Evaluation
from crossfade.systems import ppo_jax, ppo_torch


class Place(NamedTuple):
    x: Any
    t: Any


@dataclass(frozen=True)
class Point:
    """x' = x + a / 2 from somewhere in [-2, 2], reward -x'^2; terminated beyond 3, truncated after 8 steps."""

    xp: Any  # NumPy, or JAX's
    dtype: str
    observation_dim, action_space, start_numbers = 2, Continuous(1), 1

    def begin(self, data, settings, uniform):
        x = (4 * uniform[..., 0] - 2).astype(self.dtype)
        return Place(x, self.xp.zeros_like(x, dtype="int32"))

    def observe(self, data, settings, state):
        return self.xp.stack([state.x, state.t.astype(self.dtype) / 8], -1)

    def mask(self, data, settings, state):
        return None

    def step(self, data, settings, state, action):
        x, t = state.x + 0.5 * action[..., 0], state.t + 1
        out = self.xp.abs(x) > 3
        return Place(x, t), BareOutcome(-x * x - 10 * out, out, (t >= 8) & ~out)


@dataclass(frozen=True)
class PointConfig(ContinuousPPOConfig):
    pass


class TorchPoint(ppo_torch.PPOSystem[PointConfig]):
    def __init__(self, config: PointConfig):
        super().__init__(config, Point(np, config.dtype))

    def evaluate(self, policy, effort=None, buffer=None):
        return evaluate(self, policy, buffer)


class JaxPoint(ppo_jax.PPOSystem[PointConfig]):
    def __init__(self, config: PointConfig):
        super().__init__(config, Point(np, config.dtype), Point(jnp, config.dtype))

    def evaluate(self, policy, effort=None, buffer=None):
        return evaluate(self, policy, buffer)


def evaluate(system: Any, policy: Any, buffer: Any) -> Evaluation:
    """How far from 0 the greedy policy ends, from nine places."""
    world, act = system.world, system.greedy(policy)
    state = world.begin(None, None, np.linspace(0, 1, 9, dtype="float32")[:, None])
    for _ in range(8):
        seen = world.observe(None, None, state)
        seen = normalize(Statistics(*map(np.asarray, buffer.statistics)), seen) if buffer is not None else seen
        state, _ = world.step(None, None, state, act(seen, None))
    return Evaluation({"eval/distance": float(np.abs(state.x).mean())})


RECORD = System(
    name="point",
    help="a point that must reach 0",
    config="ppo_point:PointConfig",
    torch="ppo_point:TorchPoint",
    jax="ppo_point:JaxPoint",
)
