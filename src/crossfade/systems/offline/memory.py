"""What both halves of an offline system do with NumPy arrays between updates. Framework-free."""

import numpy as np

from ...algos.offline.agent import Sizes
from ...algos.offline.batch import Batch
from ...algos.offline.data import ring_numpy
from ...algos.offline.data.ring import Ring
from ...algos.offline.memory import Memory, imagines, latent_dim
from .config import OfflineDataConfig

INFERENCE, VALIDATION = 1, 2**31 - 1
"""Numbers of the streams from which transitions for inference and for validation are drawn."""


def begin(config: OfflineDataConfig, sizes: Sizes) -> Memory:
    """The memory at the start of a run."""
    ring = None
    if imagines(config, sizes):
        row = lambda *shape: np.zeros((1, *shape), config.dtype)
        rows = Batch(
            row(*sizes.observation), row(sizes.action), row(*sizes.observation), row(), row(), row(sizes.action)
        )
        ring = ring_numpy.start(rows, config.agent.model_buffer)
    return Memory(np.zeros(latent_dim(config), config.dtype), np.array(False), ring)


def completed(batch: Batch, memory: Memory, step: int, config: OfflineDataConfig) -> Batch:
    """The batch of update `step` with what depends on it: whether the actor learns, whether the phase ends, the
    latent."""
    if config.phase(step) == "pretraining":
        return batch._replace(ends=np.array(step + 1 == config.pretrain))
    latent = memory.latent if config.agent.infers_latent else None
    return batch._replace(full=np.array(config.full(step)), latent=latent)


def imagined_of(batch: Batch, ring: Ring, rows: Batch) -> Batch:
    """The batch with imagined transitions, or with its own until there are more than a batch of them."""
    enough = ring.size > len(batch.actions)
    own = Batch(*(None if x is None else getattr(batch, name) for name, x in rows._asdict().items()))
    pick = lambda imagined, real: None if imagined is None else np.where(enough, imagined, real)
    return batch._replace(imagined=Batch(*map(pick, rows, own)))
