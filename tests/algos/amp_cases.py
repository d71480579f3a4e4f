"""Discriminators, transitions and motions for the tests of adversarial motion priors."""

import jax.numpy as jnp
import numpy as np
import torch

from crossfade.algos.amp.batch import Transitions
from crossfade.algos.amp.config import AMPConfig
from crossfade.algos.amp.discriminator_jax import Discriminator as JaxDiscriminator
from crossfade.algos.amp.discriminator_torch import Discriminator as TorchDiscriminator
from crossfade.algos.amp.gaits import Gait, Leg, generate
from crossfade.algos.amp.skeleton import Skeleton
from crossfade.nn import layers_jax, parameters_torch

CONVENTIONS = ("lsgan_pm1", "lsgan_01", "bce")
INPUTS, ROWS = 6, 32
BIPED = Skeleton(("hip_l", "knee_l", "ankle_l", "hip_r", "knee_r", "ankle_r"), ("foot_l", "foot_r"), "planar")
FLOATING = Skeleton(BIPED.joints, BIPED.feet)
LEGS = (Leg(0, 1, 2, 0.17, 0.16), Leg(3, 4, 5, 0.17, 0.16, phase=0.5))
SOLE = 0.03
"""Metres from an ankle down to the ground under it."""


def small(**changes) -> AMPConfig:
    return AMPConfig(**{"hidden": (16, 8), "updates": 3, "batch": ROWS, "memory": 64, **changes})


def discriminators(config: AMPConfig, seed: int = 0) -> tuple[TorchDiscriminator, JaxDiscriminator]:
    """The same one in both frameworks, in float64."""
    rng, ours = np.random.default_rng(seed), TorchDiscriminator(INPUTS, config.hidden)
    arrays = {name: rng.normal(size=t.shape) / np.sqrt(t.shape[-1]) for name, t in ours.state_dict().items()}
    theirs = layers_jax.filled(JaxDiscriminator(INPUTS, config.hidden), arrays, "float64")
    return parameters_torch.filled(ours, arrays, "float64"), theirs


def batch(seed: int = 1, rows: int = ROWS) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions(rng.normal(size=(rows, INPUTS)), rng.normal(1.0, 2.0, size=(rows, INPUTS)))


def tensors(given: Transitions) -> Transitions:
    return Transitions(*map(torch.from_numpy, given))


def arrays(given: Transitions) -> Transitions:
    return Transitions(*map(jnp.asarray, given))


def ankles(qpos: np.ndarray, base: int, up: int) -> np.ndarray:
    """How high the ankles of LEGS are, by the forward kinematics of the legs: (n, 2)."""
    found = []
    for leg in LEGS:
        hip, knee = qpos[:, base + leg.hip], qpos[:, base + leg.knee]
        found.append(qpos[:, up] - leg.thigh * np.cos(hip) - leg.shank * np.cos(hip + knee))
    return np.stack(found, -1)


def heights(skeleton: Skeleton):
    """Of the soles above the ground."""
    base, up = (3, 1) if skeleton.base == "planar" else (7, 2)
    return lambda qpos: ankles(qpos, base, up) - SOLE


def home(skeleton: Skeleton) -> np.ndarray:
    base = (0.0, 0.34) if skeleton.base == "planar" else (0.0, 0.0, 0.34, 1.0, 0.0, 0.0)
    return np.array([*base, 0.0, *(-0.35, 0.7, -0.35) * 2])


def walk(skeleton: Skeleton = BIPED, gait: Gait | None = None, fps: float = 50.0):
    return generate(gait or Gait(), LEGS, home(skeleton), 0.31, skeleton, heights(skeleton), fps)
