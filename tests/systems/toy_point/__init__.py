"""A continuous world of one's own, trained by PPO: a point that must reach 0. No mask, no data, no settings.

`point_numpy.py` and `point_jax.py` are the world, `system_torch.py` and `system_jax.py` the system.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crossfade.algos.ppo.config import ContinuousPPOConfig
from crossfade.nn.normalizer_numpy import Statistics, normalize
from crossfade.registry import Measure, System
from crossfade.run.evaluation import Evaluation

RECORD = System(
    name="point",
    help="a point that must reach 0, by PPO with continuous actions",
    config=f"{__name__}:PointConfig",
    torch=f"{__name__}.system_torch:PointSystem",
    jax=f"{__name__}.system_jax:PointSystem",
    headline=(Measure("eval/distance", "distance", "lower"),),
    tiny=("n_envs=4", "n_steps=12", "epochs=2", "minibatches=2", "hidden=8", "layers=1", "steps=8", "chunk=4"),
)


@dataclass(frozen=True)
class PointParams:
    """x' = x + a / 2 from somewhere in [-2, 2], reward -x'^2; beyond 3 it ends with -10, after 8 steps it is cut."""

    numpy: ClassVar[str] = f"{__name__}.point_numpy:Point"
    jax: ClassVar[str] = f"{__name__}.point_jax:Point"
    dtype: str = "float32"


class Place(NamedTuple):
    x: Any
    t: Any


@dataclass(frozen=True)
class PointConfig(ContinuousPPOConfig):
    pass


def evaluate(system: Any, policy: Any, buffer: Any) -> Evaluation:
    """How far from 0 the greedy policy ends, from nine places."""
    world, act = system.world, system.greedy(policy)
    statistics = Statistics(*map(np.asarray, (buffer or system.start_buffer()).statistics))
    state = world.begin(None, None, np.linspace(0, 1, 9, dtype="float32")[:, None])
    for _ in range(8):
        state, _ = world.step(None, None, state, act(normalize(statistics, world.observe(None, None, state)), None))
    return Evaluation({"eval/distance": float(np.abs(state.x).mean())})
