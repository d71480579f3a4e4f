"""What a program of `bridge.Step` is made for: the parts of a module, who trains them, and in which mode they are."""

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ...errors import MappingError, TransferError
from ..mapping import Mapping

_PARAMS, _REQUIRES_GRAD, _TRAINING = itemgetter("params"), attrgetter("requires_grad"), attrgetter("training")
_END = (object(),)


class Layout:
    """A module and its optimiser as they were. `stands` is asked before every step, so it loops in C."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer):
        parts = list(module.modules())
        homes: list[dict[str, Any]] = [home for part in parts for home in (part._parameters, part._modules)]
        self._optimizer = optimizer
        self._homes, self._empty = [home for home in homes if home], [home for home in homes if not home]
        self._held = list(self._things())
        self._sizes = self._group_sizes()
        self._owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._flags = list(map(_REQUIRES_GRAD, self._owned))
        self._moody = [part for part in parts if isinstance(part, _DropoutNd) or has_statistics(part)]
        self._modes = list(map(_TRAINING, self._moody))

    def stands(self) -> bool:
        """Whether no part was added, removed, replaced, frozen or unfrozen, and none changed between train and eval."""
        return (
            list(map(_REQUIRES_GRAD, self._owned)) == self._flags
            and all(map(is_, self._things(), self._held))
            and not any(self._empty)
            and self._group_sizes() == self._sizes
            and list(map(_TRAINING, self._moody)) == self._modes
        )

    def _things(self) -> Iterator[Any]:
        """Parameters and parts of the module, the optimiser's parameters, and an end, so that longer is not alike."""
        return chain(*map(dict.values, self._homes), *map(_PARAMS, self._optimizer.param_groups), _END)

    def _group_sizes(self) -> list[int]:
        return list(map(len, map(_PARAMS, self._optimizer.param_groups)))


def tensors(module: nn.Module, mapping: Mapping) -> dict[str, torch.Tensor]:
    """What the mapping carries, by torch name, as the live tensors."""
    held = everything(module)
    names = [n for entry in mapping.entries for n in entry.torch]
    if missing := [n for n in names if n not in held]:
        raise MappingError(f"expected the module the mapping was made for; this one has no {', '.join(missing)}.")
    if new := [n for n, _ in module.named_parameters() if n not in mapping.shapes and n not in mapping.tied]:
        raise MappingError(
            f"expected the module the mapping was made for; this one also has {', '.join(new)}. Add it to the JAX "
            f"model too, and match the two again."
        )
    if elsewhere := [f"{n} on {held[n].device}" for n in names if held[n].device.type != "cpu"]:
        raise TransferError(
            f"expected torch's parameters in CPU memory, got {', '.join(elsewhere)}. Call module.cpu(): JAX does "
            f"the training, on whichever device it has."
        )
    return {n: held[n] for n in names}


def everything(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, also the buffers that a state_dict leaves out."""
    own = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return module.state_dict(keep_vars=True) | dict(own)


def has_statistics(part: Any) -> bool:
    """Whether a layer keeps running statistics, which move in train mode."""
    return getattr(part, "running_mean", None) is not None
