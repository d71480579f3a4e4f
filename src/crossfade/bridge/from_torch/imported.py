"""`import_torch`: unmodified torch code as a JAX function."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ...errors import NoCounterpart, UsageError, nearest
from ..transfer import key_to_jax, narrowed, to_jax
from ..transfer_torch import tensor_to_numpy
from .capture import Recorder, record
from .graph import Graph, Ref
from .modules import modes, named_tensors, replaced, tensor_at
from .play import play
from .tree import beside, leaves, mapped
from .values import DTYPES, TORCH_DTYPES

State = dict[str, Array]


def import_torch(function: Any, *example: Any, closed_over: Any = None, **example_kwargs: Any) -> "ImportedFunction":
    """The JAX function that computes what a torch function does, with torch's derivatives.

    function: any code of tensors (losses, `torch.distributions`, in-place operations, indexing, layers), or an
        nn.Module, which is the same as `lambda module, *args: module(*args)` with the module as the first argument.
    example: its arguments: tensors, numbers and modules, and dicts, lists, tuples, NamedTuples and dataclasses of them.
        Only shapes and dtypes are read; nothing is run on the values. All else, a Python number too, is a constant.
    closed_over: a module, a parameter or a tree of them that the function reads without taking it as an argument; the
        JAX function takes it as its first. Other tensors from outside are constants, and a parameter is refused.

    An nn.Module becomes, in JAX, a flat dict of its parameters by torch's names and in torch's layout, which
    `imported.params(module)` makes. Buffers may be in it (`imported.state(module)`); left out they keep the values they
    had at import. A tensor with several names has the first only; one that several modules share is read from the
    first of them.

    The result has torch's structure, and is pure: it can be jitted, differentiated and vmapped. Writes to buffers come
    back from `with_buffers`. Random operations need `key=`, a JAX key or a `crossfade.random` one; the i-th of them
    draws from `fold_in(key, i)`, and torch draws the same numbers under `bridge.random_stream(key)`.

    Arguments of other shapes, dtypes or constants are recorded anew (`imported.traces` counts), as are modules in
    another mode. Python's own state (attributes, closures) is read when recorded. Integers that torch has in 64 bits
    are 32 bits unless JAX's x64 is on. An index out of range, an error in torch, is clamped by JAX.
    """
    if isinstance(function, nn.Module):
        example, function = (function, *example), _call
    if not callable(function):
        raise UsageError(f"import_torch: expected a function or an nn.Module, got {type(function).__name__}.")
    if "key" in example_kwargs:
        raise UsageError("import_torch: expected no argument called key, which names the random key. Rename it.")
    return ImportedFunction(function, example, example_kwargs, closed_over)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


@dataclass(frozen=True)
class Slot:
    """One array that the record takes: an argument, or a tensor of a module; `array` is what it was given."""

    path: str
    example: Tensor
    dtype: torch.dtype
    array: Any


@dataclass(frozen=True)
class Trace:
    """A record for arguments of given shapes, dtypes and constants."""

    run: Callable[..., tuple[list[Array], list[Array]]]
    result: Any  # torch's, with a Ref in place of each tensor
    results: list[Ref]
    changed: list[str]  # names of the buffers that were written to
    random: str | None  # where the first random number is drawn
    outside: list[Tensor]  # read as constants


class ImportedFunction:
    """A torch function in JAX; see `import_torch`."""

    def __init__(self, function: Callable[..., Any], example: tuple, example_kwargs: dict[str, Any], closed_over: Any):
        self.function = function
        self._has_closed_over = closed_over is not None
        self._example = ((closed_over, *example) if self._has_closed_over else example, example_kwargs)
        self._modules = [(path, leaf) for path, leaf in self._leaves() if isinstance(leaf, nn.Module)]
        self._buffers = {
            f"{path}.{name}": tensor_to_numpy(buffer)
            for path, module in self._modules
            for name, buffer in module.named_buffers()
        }
        self._traces: dict[Hashable, Trace] = {}
        slots, constants = self._read(self._as_given())
        self._trace(slots, constants)

    @property
    def traces(self) -> int:
        """How often the function was recorded: once for each set of shapes, dtypes and constants."""
        return len(self._traces)

    @property
    def is_random(self) -> bool:
        """Whether some record draws random numbers, and so needs a key."""
        return any(trace.random is not None for trace in self._traces.values())

    @property
    def outside(self) -> list[Tensor]:
        """Tensors that the function reads without taking them as arguments: their values at the time are constants."""
        found = {id(tensor): tensor for trace in self._traces.values() for tensor in trace.outside}
        return list(found.values())

    def __call__(self, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        return self._run(args, kwargs, key)[0]

    def with_buffers(self, *args: Any, key: Any = None, **kwargs: Any) -> tuple[Any, State]:
        """The result, and the buffers (or parameters) that the function wrote to, by name, with their new values.

        With several modules among the arguments a name begins with its argument's: `1.norm.running_mean`.
        """
        return self._run(args, kwargs, key)

    def state(self, module: nn.Module | None = None) -> State:
        """Parameters and buffers as JAX arrays by name; of the example's module, if it has just one."""
        return to_jax(named_tensors(self._module(module)), narrow=True)

    def params(self, module: nn.Module | None = None) -> State:
        """Parameters alone: what `jax.grad` differentiates."""
        return to_jax(dict(self._module(module).named_parameters()), narrow=True)

    def _module(self, module: nn.Module | None) -> nn.Module:
        if module is None and len(self._modules) == 1:
            return self._modules[0][1]
        if module is None:
            raise UsageError(f"expected a module, since the example has {len(self._modules)}. Name one.")
        return module

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        args, kwargs = self._example
        yield from leaves(args)
        yield from leaves(kwargs)

    def _as_given(self) -> tuple:
        """The example as JAX would give it."""
        as_state = lambda path, leaf: named_tensors(leaf) if isinstance(leaf, nn.Module) else leaf
        args, kwargs = self._example
        return mapped(as_state, args), mapped(as_state, kwargs)

    def _run(self, args: tuple, kwargs: dict[str, Any], key: Any) -> tuple[Any, State]:
        slots, constants = self._read((args, kwargs))
        trace = self._trace(slots, constants)
        if trace.random is not None and key is None:
            raise UsageError(
                f"expected key=, because the function draws random numbers at {trace.random}; got none. "
                f"Pass key=jax.random.key(seed), another one at each call."
            )
        arrays = [_array(slot) for slot in slots]
        found, changed = trace.run(arrays, None if trace.random is None else _key(key))
        by_ref = dict(zip([ref.index for ref in trace.results], found, strict=True))
        filled = lambda path, leaf: by_ref[leaf.index] if isinstance(leaf, Ref) else leaf
        return mapped(filled, trace.result), dict(zip(trace.changed, changed, strict=True))

    def _read(self, given: tuple) -> tuple[list[Slot], list[tuple[str, Any]]]:
        """What was given, beside the example: arrays, and constants with their paths."""
        slots: list[Slot] = []
        constants: list[tuple[str, Any]] = []
        seen: set[int] = set()
        args, kwargs = self._example
        if len(args) != len(given[0]):
            raise UsageError(f"expected {len(args)} arguments as in the example, got {len(given[0])}.")
        for path, example, value in (*beside(args, given[0]), *beside(kwargs, given[1])):
            if isinstance(example, nn.Module):
                slots += self._module_slots(path, example, value, seen)
                constants.append((path, modes(example)))
            elif isinstance(value, Array | np.ndarray | np.generic | Tensor):
                like = example if isinstance(example, Tensor) else _single(value)
                slots.append(Slot(path, like, _capture_dtype(value, like), value))
            elif isinstance(example, Tensor) and isinstance(value, bool | int | float):
                slots.append(Slot(path, example, example.dtype, np.asarray(value, DTYPES[example.dtype])))
            else:
                constants.append((path, value))
        return slots, constants

    def _module_slots(self, path: str, module: nn.Module, given: Any, seen: set[int]) -> Iterator[Slot]:
        tensors = named_tensors(module)
        if not isinstance(given, dict):
            raise UsageError(
                f"argument {path}: expected a dict of parameters by torch's names, got {type(given).__name__}. "
                f"Make it with params(module) or state(module) of the imported function."
            )
        if unknown := [name for name in given if name not in tensors]:
            raise UsageError(f"argument {path}: {unknown[0]!r} is no parameter.{nearest(unknown[0], tensors)}")
        for name, tensor in tensors.items():
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if tensor._backward_hooks:
                raise NoCounterpart(
                    f"argument {path}: expected a parameter without hooks, got {name!r} with one that changes its "
                    f"gradient. Remove it, and change the gradient in JAX."
                )
            array = given.get(name, self._buffers.get(f"{path}.{name}"))
            if array is None:
                raise UsageError(f"argument {path}: expected the parameter {name!r}, got none. Use params(module).")
            if tuple(array.shape) != tuple(tensor.shape):
                raise UsageError(
                    f"argument {path}: expected {name!r} of shape {tuple(tensor.shape)}, got {tuple(array.shape)}."
                )
            yield Slot(f"{path}.{name}", tensor, _capture_dtype(array, tensor), array)

    def _trace(self, slots: list[Slot], constants: list[tuple[str, Any]]) -> Trace:
        signature = (
            tuple((slot.path, tuple(slot.array.shape), slot.dtype) for slot in slots),
            tuple(
                (path, type(value), value if isinstance(value, Hashable) else id(value)) for path, value in constants
            ),
        )
        if signature not in self._traces:
            self._traces[signature] = self._record(slots, dict(constants))
        return self._traces[signature]

    def _record(self, slots: list[Slot], constants: dict[str, Any]) -> Trace:
        recorder = Recorder(FakeTensorMode(allow_non_fake_inputs=True))
        tensors = {s.path: recorder.input(tuple(s.array.shape), s.example, s.dtype) for s in slots}
        stand_ins = {id(slot.example): tensors[slot.path] for slot in slots}
        put = lambda path, leaf: leaf if isinstance(leaf, nn.Module) else tensors.get(path, constants.get(path, leaf))
        args, kwargs = mapped(put, self._example[0]), mapped(put, self._example[1])
        if self._has_closed_over:
            args = args[1:]
            for path, leaf in leaves(self._example[0][0], "0"):
                if isinstance(leaf, Tensor):
                    recorder.stands_for(leaf, tensors[path])
        with ExitStack() as stack:
            stack.enter_context(replaced([module for _, module in self._modules], stand_ins))
            result = record(recorder, lambda: self.function(*args, **kwargs))
            as_ref = lambda path, leaf: recorder.read(leaf) if isinstance(leaf, Tensor) else leaf
            result = mapped(as_ref, result)
            buffers = self._changed(recorder, tensors)
        return _traced(recorder.graph, result, buffers, recorder)

    def _changed(self, recorder: Recorder, tensors: dict[str, Tensor]) -> dict[str, Ref]:
        """Tensors of modules that are no longer what was put in."""
        changed = {}
        for path, module in self._modules:
            for name in named_tensors(module):
                now, before = tensor_at(module, name), tensors.get(f"{path}.{name}")
                if now is not None and before is not None:
                    value = recorder.read(now)
                    if value not in recorder.graph.inputs:
                        changed[name if len(self._modules) == 1 else f"{path}.{name}"] = value
        return changed


def _traced(graph: Graph, result: Any, buffers: dict[str, Ref], recorder: Recorder) -> Trace:
    results = list({leaf.index: leaf for _, leaf in leaves(result) if isinstance(leaf, Ref)}.values())
    graph = graph.needed([*results, *buffers.values()])
    random = next((str(node.place) for node in graph.nodes if node.random is not None), None)

    def run(arrays: list[Array], key: Array | None) -> tuple[list[Array], list[Array]]:
        found = play(graph, [*results, *buffers.values()], arrays, key)
        return found[: len(results)], found[len(results) :]

    return Trace(jax.jit(run, inline=True), result, results, list(buffers), random, recorder.outside)


def _single(value: Any) -> Tensor:
    """The tensor that stands for a number that was given as an array."""
    dtype = np.dtype(getattr(value, "dtype", type(value)))
    if dtype not in TORCH_DTYPES:
        raise NoCounterpart(f"torch has no dtype for {dtype}. Cast it to one torch knows.")
    return torch.empty((), dtype=TORCH_DTYPES[dtype])


def _capture_dtype(value: Any, example: Tensor) -> torch.dtype:
    """The given dtype, except that integers which JAX keeps in 32 bits are torch's 64 again."""
    if isinstance(value, Tensor):
        return value.dtype
    dtype = np.dtype(value.dtype)
    wide = DTYPES.get(example.dtype)
    if wide is not None and wide.kind == dtype.kind and wide.kind in "iu" and wide.itemsize >= dtype.itemsize:
        return example.dtype
    if dtype not in TORCH_DTYPES:
        raise NoCounterpart(f"torch has no dtype for {dtype}. Cast it to one torch knows.")
    return TORCH_DTYPES[dtype]


def _array(slot: Slot) -> Array:
    if isinstance(slot.array, Array):
        return slot.array
    array = tensor_to_numpy(slot.array) if isinstance(slot.array, Tensor) else np.array(slot.array)
    return jnp.asarray(narrowed(array, slot.path))


def _key(key: Any) -> Array:
    """A typed JAX key, of one or of a `crossfade.random` key's words."""
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if isinstance(key, Array):
        return jax.random.wrap_key_data(key.astype(jnp.uint32), impl="threefry2x32")
    return key_to_jax(key)
