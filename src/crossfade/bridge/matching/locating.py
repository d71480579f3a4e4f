"""The first operation of torch whose value JAX does not compute, with the line of the user's code that calls for it.

Two right ports differ in values on the way too: one may divide where the other multiplies. So an operation only counts
when nothing that is computed from it appears in JAX either.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

INSTALLED, HERE, PYTHON = Path(torch.__file__).parent.parent, Path(__file__).parents[1], Path(warnings.__file__).parent
OUTSIDE = (str(INSTALLED), str(HERE), str(PYTHON), "<")  # code that is not the user's


class Operation(NamedTuple):
    """What an operation is called, where it was called, what it read (by number) and its value."""

    name: str
    line: str
    inputs: tuple[int, ...]
    value: np.ndarray | None  # None where it is not floating

    def __str__(self) -> str:
        return f"{self.name} ({self.line})" if self.line else self.name


class _Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations: list[Operation] = []
        self.writer: dict[int, int] = {}  # the operation that wrote a tensor last
        self.alive: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = tuple(self.writer[id(t)] for t in tree_leaves((args, kwargs)) if id(t) in self.writer)
        result = out[0] if isinstance(out, tuple | list) and out else out
        if isinstance(result, torch.Tensor):
            value = result.detach().numpy().copy() if result.is_floating_point() else None
            self.operations.append(Operation(str(func.overloadpacket), _user_line(), inputs, value))
            for tensor in tree_leaves(out):
                self.writer[id(tensor)] = len(self.operations) - 1
            self.alive.append(out)  # so that no other tensor gets its identity
        return out


def _user_line() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OUTSIDE):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def first_differing(run: Callable[[], Any], appears: Callable[[np.ndarray], bool]) -> Operation | None:
    """The first operation of `run` whose value does not appear in JAX although all that it reads does, and after which
    nothing that comes of it appears."""
    with torch.no_grad(), _Log() as log:
        run()
    operations = log.operations
    known = [op.value is None or op.value.size < 2 or appears(op.value) for op in operations]
    for at, operation in enumerate(operations):
        if known[at] or not all(known[i] for i in operation.inputs):
            continue
        reached = {at}
        for later in range(at + 1, len(operations)):
            if not reached.isdisjoint(operations[later].inputs):
                reached.add(later)
        if not any(known[i] and operations[i].value is not None for i in reached):
            return operation
    return None
