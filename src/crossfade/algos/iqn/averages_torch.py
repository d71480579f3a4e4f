"""What an update tells, as means over agents or models, in torch; in JAX they are means over an axis."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def averaged(infos: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each quantity."""
    return {name: torch.stack([info[name] for info in infos]).mean() for name in infos[0]}


def learned(infos: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What an update tells, given what each model's loss told; zeros where no model has learned."""
    if not infos:
        return {name: torch.zeros(()) for name in ("loss", "q", "error", "learned")}
    return {**averaged(infos), "learned": torch.ones(())}
