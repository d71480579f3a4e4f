"""The point that must reach 0 (toy_point), with a style: PPO with the hook of adversarial motion priors.

It is to move as a reference does that goes to 0 by a fifth of the way in each step. No physics and no robot.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from toy_point import PointConfig

from crossfade.algos.amp.batch import Reference
from crossfade.algos.amp.config import AMPConfig
from crossfade.algos.amp.reference import from_features
from crossfade.registry import Measure, System

RECORD = System(
    name="styled_point",
    help="a point that must reach 0 in the manner of a reference, by PPO with a style reward",
    config=f"{__name__}:StyledPointConfig",
    torch=f"{__name__}.system_torch:StyledPointSystem",
    jax=f"{__name__}.system_jax:StyledPointSystem",
    headline=(Measure("eval/distance", "distance", "lower"),),
    tiny=(
        *("n_envs=4", "n_steps=12", "epochs=2", "minibatches=2", "hidden=8", "layers=1", "steps=8", "chunk=4"),
        *("style.hidden=16,8", "style.updates=2", "style.batch=8", "style.memory=64", "style.lr=1e-2"),
    ),
)


@dataclass(frozen=True)
class StyledPointConfig(PointConfig):
    style: AMPConfig = AMPConfig()
    """The discriminator."""


def reference(config: StyledPointConfig) -> Reference:
    """From 2 and from -2, one motion after the other."""
    x = 2 * 0.8 ** np.arange(9.0)
    ahead = np.stack([x, np.arange(9) / 8], -1)
    return from_features(np.concatenate([ahead, ahead * (-1, 1)]), np.array([0.05, 0.05]), config.dtype)


def watch(world: Any, state: Any) -> Any:
    """Features of the point: what is observed of it."""
    return world.observe(state)
