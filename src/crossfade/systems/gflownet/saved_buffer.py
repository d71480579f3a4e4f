"""Whether the replay buffer of a checkpoint fits the config that goes on with it."""

from collections.abc import Mapping
from typing import Any

from ...errors import CheckpointError


def check_saved(expected: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """CheckpointError unless the arrays have the names, precisions and shapes of an empty buffer."""
    form = lambda buffer: {name: f"{array.dtype}{list(array.shape)}" for name, array in buffer.items()}
    if form(expected) != form(saved):
        raise CheckpointError(
            f"the replay buffer of the checkpoint does not fit this config: expected {form(expected)}, got "
            f"{form(saved)}. Keep replay_capacity, env and dtype as they were."
        )
