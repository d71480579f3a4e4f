"""Adversarial motion priors as a hook of PPO: what both frameworks share. Framework-free; `hook_*` compute the rest.

r = task_weight r_world + style_weight r_style(D(x)) for each transition x = (Phi(s), Phi(s')), with the discriminator D
as it was before the update (Peng et al. 2021).
"""

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Float

from ...envs.world import BoundWorld
from ...nn.initial import constant, draw, orthogonal
from ...optim.state import OptimizerState, adam_group
from ..ppo.config import PPOConfig
from ..ppo.hook import Watched
from . import features_numpy, replay_numpy
from .batch import Reference, Replay, Transitions
from .config import AMPConfig

NAME = "discriminator"
Watch = Callable[[BoundWorld, Any], Any]
"""`(world, state) -> (envs, f)`: the features Phi of states, as they are."""


class Style:
    """The style of a reference motion."""

    name = NAME

    def __init__(self, config: AMPConfig, ppo: PPOConfig, reference: Reference, watch: Watch):
        config.check_fits(ppo.n_envs * ppo.n_steps, ppo.devices)
        self.config, self.dtype, self.reference, self._watch = config, ppo.dtype, reference, watch
        self.inputs = reference.transition.shape[1]

    def parameters(self, key: np.ndarray) -> dict[str, np.ndarray]:
        """Orthogonal weights of gain sqrt(2), 0.01 for the output; biases are 0."""
        laws, widths = {}, (self.inputs, *self.config.hidden, 1)
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            law = orthogonal(0.01 if i == len(widths) - 2 else sqrt(2))
            laws[f"{NAME}.layers.{i}.weight"] = law, (fan_out, fan_in)
            laws[f"{NAME}.layers.{i}.bias"] = constant(0.0), (fan_out,)
        return draw(laws, key, self.dtype)

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        layers = range(len(self.config.hidden) + 1)
        return [f"{NAME}.layers.{i}.{kind}" for i in layers for kind in ("weight", "bias")]

    def optimizer_record(self) -> OptimizerState:
        return OptimizerState("Adam", (adam_group(self.names, self.config.lr),), {})

    def start_memory(self) -> Replay:
        return replay_numpy.start(self.config.memory, self.inputs, self.dtype)

    def watch(self, world: BoundWorld, state: Any) -> Float[np.ndarray, "envs f"]:
        return self._watch(world, state)

    def gather(self, memory: Replay, watched: Watched, key: np.ndarray) -> tuple[Transitions, Replay]:
        rows = self.transitions(watched)
        memory = replay_numpy.store(memory, rows.reshape(-1, rows.shape[-1]))
        noise = replay_numpy.draw(key, self.config)
        return replay_numpy.batches(self.reference.transition, memory, noise), memory

    def transitions(self, watched: Watched) -> Float[np.ndarray, "steps envs x"]:
        """What was watched, as the discriminator sees it."""
        return features_numpy.transitions(*watched, self.reference.mean, self.reference.deviation)
