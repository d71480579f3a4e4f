"""A `torch.autograd.Function` recorded: its forward pass as it runs, and the backward pass that it says.

Both passes run once on tensors without values. The forward pass has no gradient, as in torch; one operation after it,
`own_derivative`, gives its results the derivative of the other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import Function
from torch.utils._python_dispatch import _disable_current_modes

from .graph import Graph, Node, Ref, refs
from .memory import Memory
from .places import Place, user_place

TORCHS: dict[str, str | None] = {
    "_NoopSaveInputs": None,  # of checkpoint, in some versions; no gradient comes to it
    "CheckpointFunction": "its backward pass runs autograd. Use checkpoint(..., use_reentrant=False).",
    "BackwardHookFunction": "a module has a backward hook. Remove it, and change the gradient in JAX.",
}
"""Functions of torch itself: None for those without an effect, or why they are refused."""


@dataclass(frozen=True)
class Backward:
    """The backward pass of a function, as operations of cotangents and of values that the forward pass has."""

    graph: Graph
    cotangents: tuple[Ref, ...]
    captured: tuple[Ref, ...]
    grads: tuple[Ref | None, ...]

    def saved(self, outputs: tuple[Ref, ...]) -> tuple[int | None, ...]:
        """For each value that is captured, which output it is, if it is one."""
        return tuple(outputs.index(ref) if ref in outputs else None for ref in self.captured)


class Context:
    """What `forward` and `backward` are given as ctx."""

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        pass  # for forward-mode derivatives

    def mark_dirty(self, *tensors: Tensor) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        pass  # no gradient comes to them

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


@runtime_checkable
class Recording(Protocol):
    """Who writes operations down."""

    graph: Graph
    memory: Memory
    fake: FakeTensorMode
    place: Place | None

    def read(self, tensor: Tensor) -> Ref: ...


def derived(recording: Recording, function: type[Function], args: tuple, result: Any) -> str | None:
    """Gives the result of a function the derivative that it says; or says why that cannot be."""
    if function.__module__.partition(".")[0] == "torch" and function.__name__ in TORCHS:
        return TORCHS[function.__name__]
    context, again = _forward(function, args)
    if context.dirty:
        return "it writes to its arguments (mark_dirty). Let it make a new tensor."
    graph, memory = recording.graph, recording.memory
    outs = [out for out in (result if isinstance(result, tuple) else (result,)) if isinstance(out, Tensor)]
    inputs = tuple(recording.read(arg) for arg in args if isinstance(arg, Tensor))
    outputs = tuple(recording.read(out) for out in again if isinstance(out, Tensor))
    backward = _backward(recording, function, context, outs, args)
    new = tuple(graph.value(tuple(out.shape), out.dtype) for out in outs)
    read = (inputs, outputs, backward.captured, backward.saved(outputs), backward)
    graph.nodes.append(Node("own_derivative", read, {}, new, recording.place or user_place()))
    for out, value in zip(outs, new, strict=True):
        memory.renew(out, value)
    return None


def _forward(function: type[Function], args: tuple) -> tuple[Context, tuple[Any, ...]]:
    """The forward pass with a context of our own."""
    context = Context(tuple(isinstance(x, Tensor) and x.is_floating_point() for x in args))
    own: Any = function
    with torch.no_grad():
        if function.setup_context is Function.setup_context:
            outs = own.forward(context, *args)
        else:
            outs = own.forward(*args)
            own.setup_context(context, args, outs)
    return context, outs if isinstance(outs, tuple) else (outs,)


def _backward(
    recording: Recording, function: type[Function], context: Context, outs: list[Tensor], args: tuple
) -> Backward:
    """Records what the function's `backward` does, apart from the rest."""
    graph, memory = recording.graph, recording.memory
    nodes, graph.nodes, before = graph.nodes, [], memory.state()
    try:
        with _disable_current_modes(), recording.fake:
            cotangents = [torch.empty(out.shape, dtype=out.dtype) for out in outs]
        values = [graph.value(tuple(out.shape), out.dtype) for out in outs]
        for cotangent, value in zip(cotangents, values, strict=True):
            memory.add(cotangent, value)
        found = _gradients(function, context, cotangents, args)
        grads = [None if grad is None else recording.read(grad) for grad in found]
        return _cut(graph, graph.nodes, values, grads)
    finally:
        graph.nodes = nodes
        memory.go_back(before)


def _gradients(
    function: type[Function], context: Context, cotangents: list[Tensor], args: tuple
) -> list[Tensor | None]:
    """What the backward pass gives for each argument that is a tensor."""
    own: Any = function
    second_order = not hasattr(own.backward, "__wrapped__")  # once_differentiable
    with torch.set_grad_enabled(second_order):
        grads = own.backward(context, *cotangents)
    grads = grads if isinstance(grads, tuple) else (grads,)
    pairs = zip(args, (*grads, *(None,) * len(args)), strict=False)
    return [_fitting(grad, arg) for arg, grad in pairs if isinstance(arg, Tensor)]


def _cut(graph: Graph, nodes: list[Node], cotangents: list[Ref], grads: list[Ref | None]) -> Backward:
    """The operations that the gradients need, and what they read from before."""
    found = [ref for ref in grads if ref is not None]
    own = Graph([], {}, nodes, graph.specs).needed(found)
    made = {out.index for node in own.nodes for out in node.outputs if out is not None}
    inside = made | {ref.index for ref in cotangents}
    read = [ref for node in own.nodes for ref in refs((node.args, node.kwargs))]
    captured = {ref.index: ref for ref in (*read, *found) if ref.index not in inside}
    return Backward(own, tuple(cotangents), tuple(captured.values()), tuple(grads))


@contextmanager
def apply_replaced(replacement: Callable[[type[Function], Callable[..., Any], tuple], Any]) -> Iterator[None]:
    """`Function.apply(*args)` is `replacement(function, apply, args)` for a while; `apply` is what it was.

    It is replaced below `Function`, so that one that was taken before (`reverse = Reverse.apply`) comes here too.
    """
    below: Any = Function.__mro__[1]
    before = below.__dict__.get("apply")

    def apply(cls: type[Function], *args: Any) -> Any:
        was = super(below, cls).apply if before is None else before.__get__(None, cls)
        return replacement(cls, was, args)

    below.apply = classmethod(apply)
    try:
        yield
    finally:
        if before is None:
            del below.apply
        else:
            below.apply = before


def _fitting(grad: Tensor | None, arg: Tensor) -> Tensor | None:
    """torch sums a gradient that is broadcast, and ignores that of an integer."""
    if grad is None or not arg.is_floating_point():
        return None
    return grad if grad.shape == arg.shape else grad.sum_to_size(arg.shape)
