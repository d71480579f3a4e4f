"""What an offline run remembers between updates beside its modules. NumPy and JAX share these types."""

from typing import Any, NamedTuple

from .agent import Sizes
from .batch import Batch
from .config import OfflineConfig

ROLLOUTS = ("rollout_rows", "rollout", "imagined")
"""Draws of an update that make imagined transitions and are none of the loss's."""


class Memory(NamedTuple):
    """The latent of the task and the imagined transitions, where an agent has such."""

    latent: Any
    """(latent,): as inferred when pre-training ended, zeros before; (0,) where there is none."""
    inferred: Any
    """() bool: whether it has been inferred."""
    imagined: Any
    """A `Ring` of transitions, or None."""


def latent_dim(config: OfflineConfig) -> int:
    """Numbers in the latent of a task."""
    return config.agent.latent_dim if config.agent.infers_latent else 0


def imagines(config: OfflineConfig, sizes: Sizes) -> bool:
    """Whether fine-tuning learns from imagined transitions."""
    return set(ROLLOUTS) <= set(config.agent.draws(sizes, "finetuning"))


def split_noise(batch: Batch) -> tuple[Batch, dict[str, Any]]:
    """The batch with the noise of the loss alone, and what is for imagining."""
    own = {name: array for name, array in batch.noise.items() if name not in ROLLOUTS}
    return batch._replace(noise=own), {name: batch.noise[name] for name in ROLLOUTS if name in batch.noise}
