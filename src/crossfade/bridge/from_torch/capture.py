"""How torch code is recorded: it runs once on tensors without values, under a mode that sees every ATen operation.

The mode stands below autograd, where `no_grad` shows only in a flag and `detach` as an operation; both are written
down, because JAX will differentiate the record.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.autograd import Function
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import CrossfadeError, NoCounterpart, UsageError, UserCodeError
from ..transfer_torch import tensor_to_numpy
from .above import AboveATen
from .graph import Graph, Node, Ref
from .memory import Memory, storage_of
from .own_derivatives import apply_replaced, derived
from .places import Place, answer_that_passes, error_place, user_place
from .random_ops import RANDOM
from .surroundings import no_hooks, plain_kernels, said_to_compile
from .table import find

WRITES = {"native_batch_norm.default": (3, 4)}
"""Operations that write to arguments which their schema does not mark, by position; their rules give these last."""

CHECKS = ("sym_", "_assert", "_linalg_check_errors")
"""Operations without results: questions of sizes, and checks of values, which nobody knows when it is recorded."""

OTHER_OP = "Write it with operations that are known, or keep this part in torch."
STATIC = (
    "JAX compiles one program for all values. Use torch.where or a mask in place of the branch, or give the number as "
    "a Python constant."
)


class Recorder(TorchDispatchMode):
    """Writes down each operation with the values it reads and makes."""

    def __init__(self, fake: FakeTensorMode):
        super().__init__()
        self.fake = fake
        self.graph = Graph()
        self.memory = Memory(self.emit)
        self.constants: set[int] = set()
        self.outside: list[Tensor] = []
        self.stand_ins: dict[int, Tensor] = {}
        self.randoms = 0
        self.place: Place | None = None
        self.refusal: CrossfadeError | None = None
        self.decompositions = {**decomposition_table, **core_aten_decompositions()}

    def input(self, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor without values that stands for an argument."""
        with self.fake:
            tensor = torch.empty(shape, dtype=dtype, device=like.device)
            if isinstance(like, torch.nn.Parameter):
                tensor = torch.nn.Parameter(tensor, requires_grad=like.requires_grad)
            elif like.requires_grad and like.is_leaf:
                tensor.requires_grad_()
        value = self.graph.value(shape, dtype)
        self.graph.inputs.append(value)
        self.memory.add(tensor, value)
        return tensor

    def stands_for(self, tensor: Tensor, stand_in: Tensor) -> None:
        """`tensor`, which the function closes over, is read as `stand_in`."""
        self.stand_ins[id(tensor)] = stand_in

    def emit(self, op: str, args: tuple, shape: tuple[int, ...], dtype: torch.dtype) -> Ref:
        """Records an operation of our own."""
        out = self.graph.value(shape, dtype)
        self.graph.nodes.append(Node(op, args, {}, (out,), self.place or user_place()))
        return out

    def read(self, tensor: Tensor) -> Ref:
        """The value of a tensor at this point of the program."""
        return self.memory.read(self.known(tensor))

    def known(self, tensor: Tensor) -> Tensor:
        """The tensor without values that stands for a tensor; one from outside becomes a constant."""
        tensor = self.stand_ins.get(id(tensor), tensor)
        if self.memory.holds(tensor):
            return tensor
        if isinstance(tensor, FakeTensor):
            raise self.refuse(
                NoCounterpart,
                f"a tensor of shape {tuple(tensor.shape)} has no known origin: it was made inside a recurrent layer, "
                f"for its gradient, or by an extension of torch. {OTHER_OP}",
            )
        if tensor.requires_grad:
            raise self.refuse(
                UsageError,
                f"expected parameters as arguments, got one of shape {tuple(tensor.shape)} from outside. "
                f"Pass the module (or the tensor) that it belongs to as an argument, or name it in closed_over=.",
            )
        value = self.graph.value(tuple(tensor.shape), tensor.dtype)
        with _disable_current_modes():
            self.graph.constants[value.index] = tensor_to_numpy(tensor)
            stand_in = self.fake.from_tensor(tensor)
        self.memory.add(stand_in, value)
        self.memory.alive.append(tensor)
        self.stand_ins[id(tensor)] = stand_in
        self.constants.add(storage_of(stand_in))
        self.outside.append(tensor)
        return stand_in

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.place = user_place()
        return self.look(func, args, kwargs or {})

    def look(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        op = _name(func)
        if func is torch.ops.aten._local_scalar_dense.default:
            return self.number(func, args)
        if func.namespace in ("prim", "profiler") or op.startswith(CHECKS):
            return func(*args, **kwargs)
        write = _written(func, args, kwargs)
        base = functional_name(func)
        if base.partition(".")[0] in REFUSED:
            raise self.refuse(*REFUSED[base.partition(".")[0]])
        if find(base) is None:
            return self.in_parts(func, base, args, kwargs, write)
        if write is not None and storage_of(self.known(write)) in self.constants:
            raise self.refuse(
                UsageError,
                f"expected no write to a tensor from outside the function, got aten.{op} on one of shape "
                f"{tuple(write.shape)}. Pass it as an argument.",
            )
        read = lambda x: self.read(x) if isinstance(x, Tensor) else x
        known_args, known_kwargs = tree_map(read, args), tree_map(read, kwargs)
        known_kwargs.pop("out", None)
        if func in FakeTensorMode.lift_fns:
            self.outside = [tensor for tensor in self.outside if tensor is not args[0]]  # it was made just now
        results = self.run(func, args, kwargs)
        tensors, unmarked = _tensors(results), [args[i] for i in WRITES.get(op, ()) if args[5] and args[i] is not None]
        outs = [self.graph.value(tuple(t.shape), t.dtype) if isinstance(t, Tensor) else None for t in tensors]
        new = [self.graph.value(tuple(t.shape), t.dtype) for t in unmarked]
        stopped = not torch.is_grad_enabled()
        random = None
        if base.partition(".")[0] in RANDOM:
            random, self.randoms = self.randoms, self.randoms + 1
        place = self.place or user_place()
        self.graph.nodes.append(Node(base, tuple(known_args), known_kwargs, (*outs, *new), place, stopped, random))
        if write is not None and outs[0] is not None:
            self.write(write, outs[0], stopped)
        else:
            self.keep(op, args, tensors, outs)
        for tensor, out in zip(unmarked, new, strict=True):
            self.memory.write(tensor, out)
        return results

    def whole(self, name: str, func: Any, args: tuple) -> Any:
        """A layer that torch makes of many operations, as one; what happens inside it is not recorded."""
        self.place = user_place()
        read = lambda x: self.read(x) if isinstance(x, Tensor) else x
        known_args = tree_map(read, args)
        live = tree_map(self.live, args)
        with _disable_current_modes(), self.fake:
            results = func(*live)
        outs = [self.graph.value(tuple(t.shape), t.dtype) for t in results]
        node = Node(f"{name}.input", tuple(known_args), {}, tuple(outs), self.place, not torch.is_grad_enabled())
        self.graph.nodes.append(node)
        for tensor, out in zip(results, outs, strict=True):
            self.memory.add(tensor, out)
        return results

    def own_function(self, function: type[Function], apply: Callable[..., Any], args: tuple) -> Any:
        """A `torch.autograd.Function`: what it gives, with the derivative that it says."""
        self.place = user_place()
        randoms, name = self.randoms, function.__name__
        result = apply(*args)
        if not torch.is_grad_enabled():
            return result
        if what := derived(self, function, args, result):
            raise self.refuse(NoCounterpart, f"expected an autograd.Function that only computes, got {name}: {what}")
        if self.randoms != randoms:
            raise self.refuse(NoCounterpart, f"{name} draws random numbers. Draw them outside, as an argument of it.")
        return result

    def hooked(self) -> NoReturn:
        self.place = user_place()
        raise self.refuse(
            NoCounterpart,
            "expected derivatives that torch's operations have, got Tensor.register_hook. "
            "Write it with torch operations and detach(), or as a torch.autograd.Function.",
        )

    def detached(self, tensor: Tensor) -> None:
        """`detach_`, which only autograd sees."""
        self.place = user_place()
        tensor = self.known(tensor)
        value = self.emit("detach", (self.read(tensor),), tuple(tensor.shape), tensor.dtype)
        self.memory.detach(tensor, value, tensor)

    def new_data(self) -> None:
        self.place = user_place()
        raise self.refuse(
            NoCounterpart, "expected tensors that keep their memory, got `x.data = y`. Use x.data.copy_(y)."
        )

    def went_backward(self) -> None:
        self.place = user_place()
        raise self.refuse(
            NoCounterpart,
            "expected a function that gives results, got backward(), which writes x.grad. Use jax.grad.",
        )

    def is_open(self, tensor: Tensor) -> bool:
        """Whether `item()` of a tensor waits for the arguments; it is the tensor then, without its gradient."""
        self.place = user_place()
        known = self._is_constant(tensor) or getattr(tensor, "constant", None) is not None
        return not known and answer_that_passes() is None

    def _is_constant(self, tensor: Tensor) -> bool:
        """Whether it is a tensor from outside, whose value is known."""
        stand_in = self.stand_ins.get(id(tensor))
        return not isinstance(tensor, FakeTensor) and (stand_in is None or storage_of(stand_in) in self.constants)

    def number(self, func: Any, args: tuple) -> bool | int | float:
        """`item()`, `bool(tensor)`, `float(tensor)`: possible for constants only."""
        if self._is_constant(args[0]):
            self.known(args[0])
            with _disable_current_modes():
                return args[0].item()
        try:
            return self.run(func, args, {})
        except DataDependentOutputException as error:
            passing = answer_that_passes()
            if passing is not None:
                return passing
            raise self.refuse(
                UsageError,
                f"expected code whose course does not depend on values, got bool(), item(), float() or an `if` on a "
                f"tensor. {STATIC}",
            ) from error

    def run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The operation on tensors without values."""
        if func in FakeTensorMode.lift_fns:
            return func(*args, **kwargs)
        args, kwargs = tree_map(self.live, args), tree_map(self.live, kwargs)
        try:
            return func(*args, **kwargs)
        except DynamicOutputShapeException as error:
            raise self.refuse(
                UsageError,
                f"expected results whose shape does not depend on values, got aten.{_name(func)} (a boolean mask as an "
                f"index, nonzero, unique). {STATIC}",
            ) from error

    def live(self, value: Any) -> Any:
        return self.known(value) if isinstance(value, Tensor) else value

    def in_parts(self, func: Any, base: str, args: tuple, kwargs: dict[str, Any], write: Tensor | None) -> Any:
        """An operation without a rule, by those that torch makes it of."""
        if write is not None and base != _name(func):
            packet, _, overload = base.partition(".")
            functional = getattr(getattr(torch.ops.aten, packet, None), overload, None)
            if functional is not None:
                with self:
                    result = functional(*args, **kwargs)
                self.run(func, args, kwargs)
                self.write(write, self.read(result), not torch.is_grad_enabled())
                return write
        with self:
            result = func.decompose(*args, **kwargs)
            if result is NotImplemented and func in self.decompositions:
                result = self.decompositions[func](*args, **kwargs)
        if result is NotImplemented:
            raise self.refuse(NoCounterpart, f"{func.namespace}.{_name(func)} has no rule in JAX. {OTHER_OP}")
        return result

    def write(self, tensor: Tensor, value: Ref, stopped: bool) -> None:
        tensor = self.known(tensor)
        if stopped:  # torch keeps the gradient of what was there
            spec = self.graph.specs[value.index]
            value = self.emit("keep_gradient", (self.memory.read(tensor), value), spec.shape, spec.dtype)
        self.memory.write(tensor, value)

    def keep(self, op: str, args: tuple, tensors: tuple, outs: list[Ref | None]) -> None:
        """Notes the tensors that an operation made."""
        for tensor, out in zip(tensors, outs, strict=False):
            if out is None:
                continue
            if op.startswith("detach."):
                self.memory.detach(tensor, out, self.known(args[0]))
            else:
                self.memory.add(tensor, out, self.known(args[0]) if args and isinstance(args[0], Tensor) else None)

    def refuse(self, kind: type[CrossfadeError], words: str) -> CrossfadeError:
        """An error that names the user's line; it holds even if the user's code catches it."""
        self.refusal = kind(f"{self.place or user_place()}: {words}")
        return self.refusal


def record(recorder: Recorder, function: Callable[[], Any]) -> Any:
    """Runs the function under the recorder."""
    try:
        with ExitStack() as stack:
            above = AboveATen(recorder)
            for context in (
                plain_kernels(),
                said_to_compile(),
                apply_replaced(recorder.own_function),
                no_hooks(recorder.hooked),
                recorder.fake,
                recorder,
                above,
            ):
                stack.enter_context(context)
            result = function()
    except CrossfadeError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError) as error:
        if recorder.refusal is not None:
            raise recorder.refusal from error
        raise _failed(error) from error
    if recorder.refusal is not None:
        raise recorder.refusal
    return result


REFUSED: dict[str, tuple[type[CrossfadeError], str]] = {
    "_sample_dirichlet": (
        NoCounterpart,
        "Beta and Dirichlet: torch draws them and derives them by numbers of its own, which JAX has not. Draw "
        "x = Gamma(a, torch.ones_like(a)).rsample() and divide: x / x.sum(-1, keepdim=True).",
    ),
    "set": (NoCounterpart, "expected tensors that keep their memory, got set_(). Assign the new tensor instead."),
    "resize": (NoCounterpart, "expected tensors that keep their size, got resize_(). Make a new tensor of that size."),
    "allclose": (UsageError, f"expected code whose course does not depend on values, got torch.allclose. {STATIC}"),
    "equal": (UsageError, f"expected code whose course does not depend on values, got torch.equal. {STATIC}"),
    "masked_select": (UsageError, f"expected results whose shape is known, got masked_select. {STATIC}"),
    "nonzero": (UsageError, f"expected results whose shape does not depend on values, got nonzero(). {STATIC}"),
}


def _failed(error: Exception) -> UserCodeError:
    lines = str(error).strip().splitlines()
    return UserCodeError(
        f"{error_place(error)}: {type(error).__name__}: {lines[0] if lines else ''}. "
        f"The function failed on tensors of the example's shapes; see that it runs in torch."
    )


def _name(func: Any) -> str:
    return f"{func._schema.name.partition('::')[2]}.{func._overloadname}"


def functional_name(func: Any) -> str:
    """`add.Tensor` for `add_.Tensor` too."""
    name = _name(func)
    return name.replace("_.", ".", 1) if func._schema.name.endswith("_") and not name.startswith("__") else name


def _tensors(results: Any) -> tuple[Any, ...]:
    if isinstance(results, tuple | list):
        flat = [part for result in results for part in (result if isinstance(result, list | tuple) else (result,))]
        return tuple(flat)
    return (results,)


def _written(func: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor that an operation writes to, by its schema."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            return next((x for x in tree_leaves(value) if isinstance(x, Tensor)), None)
    return None
