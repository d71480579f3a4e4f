"""The random numbers of an update, drawn in NumPy; choice.py says how. Twin: draws_jax.py, bit for bit.

Many small arrays cost calls, not numbers: keys are made together, and arrays of a kind drawn together, one per key.
"""

import numpy as np
from jaxtyping import Int32, Shaped, UInt32

from ....random import random_numpy as random, shuffling_numpy as shuffling
from ..agent import Draw, Sizes
from ..batch import Phase
from ..config import OfflineConfig
from .choice import PAD, Choice, GoalNumbers, augmentation
from .normals_numpy import NORMALS

Keys = UInt32[np.ndarray, "... 2"]


def draw(key: UInt32[np.ndarray, "2"], steps: int, sizes: Sizes, phase: Phase, config: OfflineConfig) -> Choice:
    """The random numbers of an update, from its key, for data of so many steps."""
    agent, n = config.agent, sizes.batch_size
    keys = Choice(*_folded(key, len(Choice._fields)))
    augmented = augmentation(sizes.observation, phase, config)
    in_place = augmented is not None and augmented.views == 0
    goals = [name for name in ("value_goals", "actor_goals") if getattr(agent, name) is not None]
    shape = (n, 2) if augmented is None or in_place else (augmented.views, n, 2)
    crop = lambda key: random.randint(key, shape, 0, 2 * PAD + 1)
    declared = agent.draws(sizes, phase)
    noise_keys = _folded(keys.noise, len(declared)) if declared else ()

    inner = _folded(np.stack([keys.rows, *(getattr(keys, name) for name in goals)]), len(GoalNumbers._fields))
    rows = draw_rows(np.concatenate([keys.rows[None], inner[1:, 0]]), steps, (n,))
    uniform = random.uniform(inner[1:, 1:], (n,))
    numbers = {name: GoalNumbers(rows[1 + i], *uniform[i]) for i, name in enumerate(goals)}
    return Choice(
        rows=rows[0],
        value_goals=numbers.get("value_goals"),
        actor_goals=numbers.get("actor_goals"),
        coin=random.uniform(keys.coin) if in_place else None,
        crops=None if augmented is None else crop(keys.crops),
        goal_coin=random.uniform(keys.goal_coin) if in_place and goals else None,
        goal_crops=crop(keys.goal_crops) if in_place and goals else None,
        noise={name: _noise(k, declared[name], steps, config) for k, name in zip(noise_keys, declared, strict=True)},
    )


def draw_rows(key: Keys, steps: int, shape: tuple[int, ...]) -> Int32[np.ndarray, "..."]:
    """Steps of the data with replacement, each as likely as the others, as jax.random.randint draws them."""
    return random.randint(key, shape, 0, steps)


def _folded(key: Keys, n: int) -> Keys:
    """fold_in(key, 0) .. fold_in(key, n - 1), in the last axis but one."""
    return random.fold_in(key[..., None, :], np.arange(n))


def _noise(key: UInt32[np.ndarray, "2"], draw: Draw, steps: int, config: OfflineConfig) -> Shaped[np.ndarray, "..."]:
    match draw.kind:
        case "normal":
            return NORMALS.draw(key, draw.shape).astype(config.dtype, copy=False)
        case "uniform":
            return random.uniform(key, draw.shape).astype(config.dtype, copy=False)
        case "permutation":
            return shuffling.shuffled(key, draw.shape[0]).astype(np.int32)
        case "rows":
            return draw_rows(key, steps, draw.shape)
        case "words":
            return random.bits(key, draw.shape)
