"""A GFlowNet environment of one's own: a walk along a line, written once for NumPy and once for JAX.

    crossfade doctor my_env:LineParams
    crossfade train gflownet env=my_env:LineParams env.length=9 mode=torch

run in this folder. docs/own_environment.md explains what is asked of each part.
"""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from crossfade.envs.dag import base_jax, base_numpy
from crossfade.envs.dag.params import Params
from crossfade.ranges import Range

Size = Annotated[int, Range(2, 1000)]


@dataclass(frozen=True)
class LineParams(Params):
    """Cells 0 .. length-1 on a line; good ones are near one of the two ends, and one end is better.

    State: x = (cell,); the source is cell 0.
    Actions: one cell to the right, `leap` cells to the right, stop. Each can be undone.
    Reward: R = 0.1 + exp(-cell) + 2 exp(-(length - 1 - cell)). Every cell may stop.
    """

    length: Size = 9
    """Cells of the line."""
    leap: Size = 3
    """Cells of a long step."""

    numpy = "my_env:LineNumpy"
    jax = "my_env:LineJax"

    @property
    def n_actions(self) -> int:
        return 3

    @property
    def n_parents(self) -> int:
        return 2

    @property
    def max_steps(self) -> int:
        return self.length  # every cell on the way, then stop

    @property
    def observation_dim(self) -> int:
        return self.length

    @property
    def source(self):
        return np.zeros(1, np.int32)

    @property
    def n_states(self) -> int:
        return self.length

    @property
    def strides(self):
        """Cells that each action moves."""
        return np.array([1, self.leap], np.int32)


class LineNumpy(base_numpy.Env[LineParams]):
    """x is (..., 1), an action is (...): any number of leading axes."""

    def grow(self, x, action):
        return x + self.params.strides[np.minimum(action, 1)][..., None]  # action 2 is stop: any object will do

    def shrink(self, x, parent):
        return x - self.params.strides[parent][..., None]

    def can_grow(self, x):
        return x + self.params.strides < self.params.length

    def can_shrink(self, x):
        return x - self.params.strides >= 0

    def features(self, x):
        return x == np.arange(self.params.length)

    def log_r(self, x):
        cell = x[..., 0].astype(np.float64)
        return np.log(0.1 + np.exp(-cell) + 2 * np.exp(cell - (self.params.length - 1)))

    def encode(self, x):
        return x[..., 0]

    def decode(self, index):
        return np.asarray(index, np.int32)[..., None]


class LineJax(base_jax.Env[LineParams]):
    """x is (1,), an action is a scalar: ONE object; crossfade maps over the batch."""

    def grow(self, x, action):
        return x + jnp.asarray(self.params.strides)[jnp.minimum(action, 1)]

    def shrink(self, x, parent):
        return x - jnp.asarray(self.params.strides)[parent]

    def can_grow(self, x):
        return x[0] + self.params.strides < self.params.length

    def can_shrink(self, x):
        return x[0] - self.params.strides >= 0

    def features(self, x):
        return x[0] == jnp.arange(self.params.length)

    def log_r(self, x):
        cell = x[0].astype(float)
        return jnp.log(0.1 + jnp.exp(-cell) + 2 * jnp.exp(cell - (self.params.length - 1)))

    def encode(self, x):
        return x[0]

    def decode(self, index):
        return index.astype(jnp.int32)[None]
