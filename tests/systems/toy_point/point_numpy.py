"""The world of `PointParams`, in NumPy. Twin: point_jax.py."""

from dataclasses import dataclass

import numpy as np

from crossfade.envs.world import BareOutcome, Continuous

from . import Place, PointParams


@dataclass(frozen=True)
class Point:
    params: PointParams
    observation_dim, action_space, start_numbers = 2, Continuous(1), 1

    def begin(self, data, settings, uniform):
        x = (4 * uniform[..., 0] - 2).astype(self.params.dtype)
        return Place(x, np.zeros(x.shape, "int32"))

    def observe(self, data, settings, state):
        return np.stack([state.x, (state.t / 8).astype(self.params.dtype)], -1)

    def mask(self, data, settings, state):
        return None

    def step(self, data, settings, state, action):
        x, t = state.x + 0.5 * action[..., 0], state.t + np.int32(1)
        out = np.abs(x) > 3
        return Place(x, t), BareOutcome(-x * x - 10 * out, out, (t >= 8) & ~out)
