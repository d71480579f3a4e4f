"""How a torch module uses its parameters: which operation reads each one, the role of its axes, and the result.

The module runs once on the example under a dispatch mode that sees every ATen operation. A parameter is recognised in
an operation's arguments by its memory, so views (`t`, `permute`, `expand`, ...) need no bookkeeping: their strides tell
which axis is which.
"""

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .axes import Axes, Shape, factors
from .outputs import Outputs, has_keys, output_tensors, torch_outputs

aten = torch.ops.aten
CELLS = (nn.LSTMCell, nn.GRUCell, nn.LSTM, nn.GRU)  # their parameters are matched cell by cell, see recurrent.py


@dataclass(frozen=True)
class Use:
    """The first operation that reads an array: its kind, the array's axes by their role in it, and what else it reads.

    `in` are the axes summed over, `out` those of the features computed, `batch` those of an ensemble.
    """

    kind: str
    axes: dict[str, Axes] = field(default_factory=dict)
    beside: Hashable = None  # the other operand: layers that read the same one can be fused
    transposed: bool = False  # a convolution as the gradient of one, whose kernel other libraries hold flipped
    groups: int = 1


@dataclass(frozen=True)
class Point:
    """A value that torch computes from some parameters for the first time; JAX should compute the same numbers."""

    names: frozenset[str]
    value: np.ndarray
    where: str  # the operation, or the module, for messages

    @property
    def features(self) -> int:
        """The axis of the value's features."""
        return 1 if "conv" in self.where else -1


@dataclass
class TorchTrace:
    """Points in the order they were computed, first uses, and the module's outputs.

    `attached` gives, for a bias, the weight to whose product it is added; `factors` the sizes of axes that were made
    one axis, or that one axis was made into; `joined` the widths of features put side by side.
    """

    points: list[Point]
    uses: dict[str, Use]
    attached: dict[str, str]
    factors: set[Shape]
    joined: set[Shape]
    outputs: Outputs
    keyed: bool  # whether the outputs are in a dict
    numbers: set[float]  # the numbers in the code


def trace_torch(module: nn.Module, arrays: dict[str, torch.Tensor], run: Callable[[], Any]) -> TorchTrace:
    """Calls `run`, which runs the module, and records how the named `arrays` (parameters and buffers) are used."""
    watch = _Watch(arrays)
    with torch.no_grad(), watch.cells(module), watch:
        result = run()
    watch.outputs(result)
    found = watch.uses, watch.attached, watch.factors, watch.joined
    return TorchTrace(watch.points, *found, torch_outputs(result), has_keys(result), watch.numbers)


class _Strip(NamedTuple):
    """An axis of the memory of a parameter, or of a copy of it: the parameter's own axes in it, size and stride."""

    own: Axes
    size: int
    stride: int


class _Watch(TorchDispatchMode):
    def __init__(self, arrays: dict[str, torch.Tensor]):
        super().__init__()
        self.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in arrays.items()}
        self.strips = {tensor.untyped_storage().data_ptr(): _strips(tensor) for tensor in arrays.values()}
        self.points: list[Point] = []
        self.uses: dict[str, Use] = {}
        self.attached: dict[str, str] = {}
        self.factors: set[Shape] = set()
        self.joined: set[Shape] = set()
        self.numbers: set[float] = set()
        self.seen: set[str] = set()
        self.alive: list[torch.Tensor] = []  # copies of parameters, kept so that their memory is not used again
        self.inside: list[str] = []  # the recurrent cells now running

    def name(self, value: Any) -> str | None:
        return self.names.get(value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else None

    def axes(self, view: torch.Tensor, **roles: int) -> dict[str, Axes]:
        """The parameter's own axes behind the given axes of a view of it."""
        free = list(self.strips[view.untyped_storage().data_ptr()])
        found = {}
        for role, axis in roles.items():
            if run := _run(free, view.shape[axis], view.stride(axis)):
                found[role] = tuple(a for strip in run for a in strip.own)
                free = [strip for strip in free if strip not in run]
        return found

    def copied(self, view: torch.Tensor, copy: torch.Tensor) -> None:
        """A copy of a parameter is that parameter under other strides."""
        strips = []
        for axis in range(view.ndim):
            own = self.axes(view, axis=axis).get("axis", ())
            strips.append(_Strip(own, copy.shape[axis], copy.stride(axis)))
        pointer = copy.untyped_storage().data_ptr()
        self.names[pointer], self.strips[pointer] = self.name(view) or "", strips
        self.alive.append(copy)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numbers |= {value for value in tree_leaves((args, kwargs)) if isinstance(value, float)}
        result = out[0] if isinstance(out, tuple | list) and out else out
        if isinstance(result, torch.Tensor):
            self.look(func, args, kwargs or {}, result)
        return out

    def look(self, func, args: tuple, kwargs: dict, result: torch.Tensor) -> None:
        packet = func.overloadpacket
        if packet in (aten.view, aten._unsafe_view, aten.reshape):
            self.factors |= factors(tuple(args[0].shape), tuple(result.shape))
        if packet is aten.cat and all(t.ndim == 2 for t in args[0]):
            self.joined.add(tuple(t.shape[1] for t in args[0]))
        read = {name: t for t in tree_leaves((args, kwargs)) if (name := self.name(t))}
        if self.inside or not read or self.name(result):  # a cell's inner life, another operation, or a view
            return
        if packet in (aten.clone, aten._to_copy):
            self.copied(args[0], result)
            return
        bias = None
        if packet in _BIASED:
            without, bias_at = _BIASED[packet]
            bias = self.name(args[bias_at])
            if bias and len(read) > 1:
                others = {n for n in read if n != bias}
                self.attached.setdefault(bias, min(others))
                self.point(others, without(*args, **kwargs), packet)
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
            batch = {"batch": 0} if view.ndim == 3 and view.shape[0] > 1 and view.stride(0) else {}
            beside = _contents(args[-1] if left else args[-2])
            return Use("dot", self.axes(view, **{"in": inner, "out": outer}, **batch), beside)
        if packet is aten.convolution:
            spatial = {f"space{i}": i + 2 for i in range(view.ndim - 2)}
            out, inner = (1, 0) if args[6] else (0, 1)
            axes = self.axes(view, **{"out": out, "in": inner}, **spatial)
            return Use("conv", axes, _contents(args[0]), args[6], args[8])
        if packet in (aten.embedding, aten.index, aten.index_select, aten.gather):
            return Use("table", self.axes(view, **{"in": 0, "out": view.ndim - 1}))
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


def _strips(tensor: torch.Tensor) -> list[_Strip]:
    return [_Strip((i,), tensor.shape[i], tensor.stride(i)) for i in range(tensor.ndim)]


def _run(strips: list[_Strip], size: int, stride: int) -> list[_Strip]:
    """The strips that an axis of this size and stride goes along: one, several made one, or a part of one."""
    for first, last in sorted(combinations(range(len(strips) + 1), 2), key=lambda ends: ends[1] - ends[0]):
        run = strips[first:last]
        whole = all(a.stride == b.size * b.stride for a, b in pairwise(run))
        if whole and (run[-1].stride == stride or size == 1) and math.prod(strip.size for strip in run) == size:
            return run
    return [strip for strip in strips if strip.stride == stride and strip.size > size > 1][:1]


def _contents(tensor: torch.Tensor) -> bytes:
    """What tells the numbers of a tensor from those of another one."""
    return hashlib.sha1(tensor.detach().contiguous().numpy().tobytes(), usedforsecurity=False).digest()


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
    aten.baddbmm: (lambda b, x, w, **k: torch.bmm(x, w), 0),
    aten.convolution: (lambda x, w, b, *a: aten.convolution(x, w, None, *a), 2),
    aten.native_layer_norm: (lambda x, s, w, b, eps: aten.native_layer_norm(x, s, w, None, eps)[0], 3),
    aten.native_group_norm: (lambda x, w, b, *a: aten.native_group_norm(x, w, None, *a)[0], 2),
    aten.native_batch_norm: (lambda x, w, b, *a: aten.native_batch_norm(x, w, None, *a)[0], 2),
}
