"""`optimizer.state` while a `bridge.Step` is open: JAX keeps the moments, torch finds them up to date when it looks."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...errors import UsageError
from ...optim.state import OptimizerState
from ..optimizers.state_torch import as_torch_keeps, count_dtype, read_torch
from .program import Program

Ahead = tuple[list[Any], list[int]]  # the leaves of `Program.moments_structure`, and the updates each group has had


class LiveMoments(defaultdict):
    """The state of a torch optimiser that a step holds; every way to look into it brings it up to date first.

    While `ahead` is set JAX has the newest moments; once torch has looked, its own tensors count, because whoever
    looks may also write. Copies and pickles are plain dicts.
    """

    def __init__(self, program: Program, parameters: dict[str, torch.Tensor], state: dict[Any, Any]):
        super().__init__(dict, state)
        self.ahead: Ahead | None = None
        self._program, self.parameters = program, parameters
        self._left: list[tuple[torch.Tensor, int]] = []  # tensors JAX has gone ahead of, and their versions then

    def leave(self) -> None:
        """Notes the tensors that the next step leaves behind."""
        held = [dict.get(self, parameter, {}).values() for parameter in self.parameters.values()]
        self._left = [(v, v._version) for values in held for v in values if isinstance(v, torch.Tensor)]

    def show(self) -> None:
        """Puts the newest moments into torch's tensors."""
        if self.ahead is None:
            return
        left, self._left = self._left, []
        if any(tensor._version != version for tensor, version in left):
            raise UsageError(
                "a tensor of optimizer.state was written to after a later step had moved it on, so the change was made "
                "to an outdated number and is lost. Look it up in optimizer.state again after every step."
            )
        leaves, steps = self.ahead
        laid = self._program.moments_structure.unflatten(leaves)
        for name, slots in self._program.moments_to_torch(laid, steps).items():
            kept = dict.setdefault(self, self.parameters[name], {})
            for slot, array in slots.items():
                if slot == "step" and self._program.kind == "SGD":
                    continue  # torch counts no steps of SGD
                held = kept.get(slot)
                value = torch.from_numpy(array) if slot != "step" else torch.tensor(float(array), dtype=count_dtype())
                value = as_torch_keeps(slot, value, count_dtype() if held is None else held.dtype)
                if isinstance(held, torch.Tensor) and (held.shape, held.dtype) == (value.shape, value.dtype):
                    held.detach().copy_(value)
                else:
                    kept[slot] = value
        self.ahead = None

    def plain(self) -> defaultdict:
        """The same as torch made it."""
        return defaultdict(dict, self.items())

    def __reduce__(self) -> Any:
        return defaultdict, (dict,), None, None, iter(self.items())

    def __copy__(self) -> Any:
        return self.plain()

    def copy(self) -> Any:
        return self.plain()

    def __or__(self, other: Any) -> Any:
        return self.plain() | other


def read_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module) -> OptimizerState:
    """The optimiser as plain data. A learning rate may be a tensor: steps read its value every time."""
    plain: Any = object.__new__(type(optimizer))
    rates = lambda group: {key: float(group[key]) for key in ("lr", "initial_lr") if key in group}
    plain.param_groups = [{**group, **rates(group)} for group in optimizer.param_groups]
    plain.state = optimizer.state
    return read_torch(plain, module)


def _looking(name: str) -> Callable[..., Any]:
    method = getattr(defaultdict, name)

    def look(self: LiveMoments, *args: Any, **kwargs: Any) -> Any:
        self.show()
        return method(self, *args, **kwargs)

    return look


for _name in (
    *("__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__reversed__", "__len__"),
    *("__eq__", "__ne__", "__ior__", "__repr__", "get", "items", "keys", "values", "pop", "popitem"),
    *("setdefault", "update", "clear"),
):
    setattr(LiveMoments, _name, _looking(_name))
