"""The world of `PointParams`, in JAX. Twin: point_numpy.py."""

from dataclasses import dataclass

import jax.numpy as jnp

from crossfade.envs.world import BareOutcome, Continuous

from . import Place, PointParams


@dataclass(frozen=True)
class Point:
    params: PointParams
    observation_dim, action_space, start_numbers = 2, Continuous(1), 1

    def begin(self, data, settings, uniform):
        x = (4 * uniform[..., 0] - 2).astype(self.params.dtype)
        return Place(x, jnp.zeros(x.shape, "int32"))

    def observe(self, data, settings, state):
        return jnp.stack([state.x, (state.t / 8).astype(self.params.dtype)], -1)

    def mask(self, data, settings, state):
        return None

    def step(self, data, settings, state, action):
        x, t = state.x + 0.5 * action[..., 0], state.t + 1
        out = jnp.abs(x) > 3
        return Place(x, t), BareOutcome(-x * x - 10 * out, out, (t >= 8) & ~out)
