"""How a torch module uses its parameters: which operation reads each one, the role of its axes, and the result.

The module runs once on the example under a dispatch mode that sees every ATen operation. A parameter is recognised in
an operation's arguments by its memory, so views (`t`, `permute`, `expand`, ...) need no bookkeeping: their strides tell
which axis is which.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .outputs import Outputs, has_keys, output_tensors, torch_outputs

aten = torch.ops.aten
CELLS = (nn.LSTMCell, nn.GRUCell, nn.LSTM, nn.GRU)  # their parameters are matched cell by cell, see recurrent.py


@dataclass(frozen=True)
class Use:
    """The first operation that reads an array: its kind, and the array's axes by their role in it."""

    kind: str
    axes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """A value that torch computes from some parameters for the first time; JAX should compute the same numbers."""

    names: frozenset[str]
    value: np.ndarray
    where: str  # the operation, or the module, for messages


@dataclass
class TorchTrace:
    """Points in the order they were computed, first uses, and the module's outputs.

    `flattened` holds the shapes that were flattened on the way, `joined` the widths of features put side by side.
    """

    points: list[Point]
    uses: dict[str, Use]
    flattened: set[tuple[int, ...]]
    joined: set[tuple[int, ...]]
    outputs: Outputs
    keyed: bool  # whether the outputs are in a dict


def trace_torch(module: nn.Module, arrays: dict[str, torch.Tensor], args: tuple) -> TorchTrace:
    """Runs `module(*args)` and records how the named `arrays` (parameters and buffers, by storage) are used."""
    watch = _Watch(arrays)
    with torch.no_grad(), watch.cells(module), watch:
        result = module(*args)
    watch.outputs(result)
    return TorchTrace(watch.points, watch.uses, watch.flattened, watch.joined, torch_outputs(result), has_keys(result))


class _Watch(TorchDispatchMode):
    def __init__(self, arrays: dict[str, torch.Tensor]):
        super().__init__()
        self.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in arrays.items()}
        self.shapes = {name: tensor.shape for name, tensor in arrays.items()}
        self.strides = {name: tensor.stride() for name, tensor in arrays.items()}
        self.points: list[Point] = []
        self.uses: dict[str, Use] = {}
        self.flattened: set[tuple[int, ...]] = set()
        self.joined: set[tuple[int, ...]] = set()
        self.seen: set[str] = set()
        self.alive: list[torch.Tensor] = []  # copies of parameters, kept so that their memory is not used again
        self.inside: list[str] = []  # the recurrent cells now running

    def name(self, value: Any) -> str | None:
        return self.names.get(value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else None

    def axes(self, view: torch.Tensor, name: str, **roles: int) -> dict[str, int]:
        """The parameter's own axes behind the given axes of a view of it: same stride, same size."""
        free = list(enumerate(zip(self.shapes[name], self.strides[name], strict=True)))
        found = {}
        for role, axis in roles.items():
            size, stride = view.shape[axis], view.stride(axis)
            for own in free:
                if own[1] == (size, stride) or size == own[1][0] == 1:
                    found[role] = own[0]
                    free.remove(own)
                    break
        return found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        result = out[0] if isinstance(out, tuple | list) and out else out
        if isinstance(result, torch.Tensor):
            self.look(func, args, kwargs or {}, result)
        return out

    def look(self, func, args: tuple, kwargs: dict, result: torch.Tensor) -> None:
        packet = func.overloadpacket
        if packet in (aten.view, aten._unsafe_view, aten.reshape) and args[0].ndim > result.ndim:
            self.flattened.add(tuple(args[0].shape))
        if packet is aten.cat and all(t.ndim == 2 for t in args[0]):
            self.joined.add(tuple(t.shape[1] for t in args[0]))
        read = {name: t for t in tree_leaves((args, kwargs)) if (name := self.name(t))}
        if self.inside or not read or self.name(result):  # a cell's inner life, another operation, or a view
            return
        if packet in (aten.clone, aten._to_copy) and result.stride() == args[0].stride():
            self.names[result.untyped_storage().data_ptr()] = self.name(args[0]) or ""
            self.alive.append(result)
            return
        bias = None
        if packet in _BIASED:
            without, bias_at = _BIASED[packet]
            bias = self.name(args[bias_at])
            if bias and len(read) > 1:
                self.point({n for n in read if n != bias}, without(*args, **kwargs), packet)
        self.point(set(read), result, packet)
        for name, view in read.items():
            self.uses.setdefault(name, self.use(packet, args, view, name, bias))

    def point(self, names: set[str], value: torch.Tensor, where: Any) -> None:
        if not names <= self.seen:
            self.seen |= names
            self.points.append(Point(frozenset(names), value.detach().numpy().copy(), str(where)))

    def outputs(self, result: Any) -> None:
        """A parameter that is returned, itself or a view of it, is used there."""
        for tensor in output_tensors(result).values():
            if name := self.name(tensor):
                self.point({name}, tensor, "its output")
                self.uses.setdefault(name, Use("output"))

    def use(self, packet, args: tuple, view: torch.Tensor, name: str, bias: str | None) -> Use:
        if name == bias:
            return Use("add")
        if packet in (aten.addmm, aten.mm, aten.bmm, aten.baddbmm):
            left = view is args[-2] or view is args[0]
            inner, outer = (view.ndim - 1, view.ndim - 2) if left else (view.ndim - 2, view.ndim - 1)
            batch = {"batch": 0} if view.ndim == 3 else {}
            return Use("dot", self.axes(view, name, **{"in": inner, "out": outer}, **batch))
        if packet is aten.convolution:
            spatial = {f"space{i}": i + 2 for i in range(view.ndim - 2)}
            out, inner = (1, 0) if args[6] else (0, 1)
            return Use("conv", self.axes(view, name, **{"out": out, "in": inner}, **spatial))
        if packet in (aten.embedding, aten.index, aten.index_select, aten.gather):
            return Use("table", self.axes(view, name, **{"in": 0, "out": view.ndim - 1}))
        if packet is aten.native_batch_norm:
            return Use({1: "mul", 3: "sub", 4: "offset"}[next(i for i, a in enumerate(args) if a is view)])
        return Use(_KINDS.get(packet, str(packet)))

    @contextmanager
    def cells(self, module: nn.Module) -> Iterator[None]:
        """While a recurrent layer runs, its operations are not recorded; its output is the one point of the layer."""
        handles = []
        for path, child in module.named_modules():
            if isinstance(child, CELLS):
                handles.append(child.register_forward_pre_hook(self.enter(path)))
                handles.append(child.register_forward_hook(self.leave(path)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def enter(self, path: str) -> Callable:
        return lambda module, args: self.inside.append(path)

    def leave(self, path: str) -> Callable:
        def hook(module, args, output):
            self.inside.pop()
            names = {f"{path}.{n}" if path else n for n, _ in module.named_parameters()}
            self.point(names, tree_leaves(output)[0], type(module).__name__)
            for name in names:
                self.uses.setdefault(name, Use("cell"))

        return hook


_KINDS = {
    aten.add: "add",
    aten.add_: "add",
    aten.sub: "sub",
    aten.mul: "mul",
    aten.mul_: "mul",
    aten.native_layer_norm: "mul",
    aten.native_group_norm: "mul",
}

# Operations that add a bias at the end: the same without it, and where the bias stands.
_BIASED = {
    aten.addmm: (lambda b, x, w, **k: torch.mm(x, w), 0),
    aten.convolution: (lambda x, w, b, *a: aten.convolution(x, w, None, *a), 2),
    aten.native_layer_norm: (lambda x, s, w, b, eps: aten.native_layer_norm(x, s, w, None, eps)[0], 3),
    aten.native_group_norm: (lambda x, w, b, *a: aten.native_group_norm(x, w, None, *a)[0], 2),
    aten.native_batch_norm: (lambda x, w, b, *a: aten.native_batch_norm(x, w, None, *a)[0], 2),
}
