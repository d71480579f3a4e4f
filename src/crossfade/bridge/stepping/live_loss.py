"""A torch loss as a function of all that it reads: tensors, batch, and the numbers it draws from torch's generator.

What it reads is found in two ways. Its code names modules (`reads`); and run once on a batch, it shows every
tensor it uses (`stand_ins`), whichever way it came by it. All of these are arguments, so that none is compiled in.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, count
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UsageError
from ..from_torch.surroundings import said_to_compile
from .boxes import Boxes
from .layout import everything
from .random_draws import Draw, Drawing, Drawn, no_other_draws, unchanged_generators
from .reads import Reads
from .scratch import Homes, Left, Scratch
from .stand_ins import StandIns, Watching

Part = nn.Module | Tensor
Parts = Part | Sequence[Part] | Mapping[str, Part]


class Returned(NamedTuple):
    """What a loss gives: the loss, what is to be logged, and the buffers it has moved on."""

    loss: Tensor
    info: Any
    buffers: dict[str, Tensor]


class Roof(nn.Module):
    """Modules and bare tensors under one roof. They stay where they are: it only gives them names."""

    def __init__(self, parts: Mapping[str, Part]):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self._modules[name or "module"] = part
            else:
                home: dict[str, Any] = self._parameters if part.requires_grad else self._buffers
                home[name] = part


class LiveLoss:
    """`loss(module, batch)` or `loss(batch)`, and everything it reads.

    `roof` names the modules and tensors: those given, those the loss's code names, those the optimiser trains and those
    it was seen to use. A single module that is all of them is its own roof. `tensors` are all they hold.
    """

    def __init__(self, loss: Callable[..., Any], given: Parts, optimizer: torch.optim.Optimizer):
        self._loss = as_function(loss)
        self._takes_module = takes_module(self._loss)
        self._given, self._optimizer = given, optimizer
        self.boxes: Boxes | None = None  # if its batches come in containers that JAX does not know
        self.random = False  # whether it draws from torch's generator
        self.spread = False  # whether it gives (loss, more, and more) in place of (loss, info)
        self.moved: set[str] = set()  # buffers it moves on
        self.scratch = Scratch()  # what it leaves behind in attributes
        self._plans: dict[tuple, list[Draw]] = {}  # what it draws, by the shapes of the batch
        self._bring({})

    # Finding out what it reads

    def look(self, batch: Any) -> None:
        """Finds out what the loss reads, draws and moves on, by running it a few times on a batch of tensors."""
        self.reads = Reads(partial(self._loss, self._given) if self._takes_module else self._loss, live=True)
        self._bring(self.reads.modules)
        before = self._homes()
        state, watching, drawing, returned = self._watch(batch)
        if everything(self.roof).keys() - self.tensors.keys():  # it has registered buffers
            self._bring(self.reads.modules)
            state, watching, drawing, returned = self._watch(batch)
        first_state = state
        left = self._homes().changes(before)
        if self.reads.changed() or left:  # it may have made something that it keeps
            self._run_live(batch, left)
            first = self._homes()
            self.reads.remember()
            state, watching, drawing, returned = self._watch(batch)
            self.scratch = Scratch.found(before, first, self._homes())
            self._reject_memory(batch, returned.loss)
            self.scratch.put_back()
        if watching.outside:  # and if it is there again: some functions, vmap among them, make tensors unseen
            again = {id(tensor) for tensor in self._watch(batch)[1].outside}
            self._reject_views(tensor for tensor in watching.outside if id(tensor) not in again)
            self._reject_kept(first_state, watching.outside)
            seen = [_leaf(tensor) for tensor in watching.outside if id(tensor) in again]
            self._bring(self.reads.modules | {f"closed_over_{i}": tensor for i, tensor in enumerate(seen)})
            state, watching, drawing, returned = self._watch(batch)
        if not returned.loss.requires_grad:
            raise UsageError(
                "expected a loss that depends on a parameter, got one without a gradient: it was detached, computed "
                "under no_grad or taken by item()."
            )
        # torch does not count every write: the statistics of a normalisation change without a new version
        written = {
            n for n, t in state.items() if t._version or not torch.equal(t.nan_to_num(), self.tensors[n].nan_to_num())
        }
        moved = written | returned.buffers.keys()
        if parameters := moved & dict(self.roof.named_parameters()).keys():
            raise UsageError(
                f"the loss writes into {', '.join(sorted(parameters))}, which an optimiser trains. Do that between the "
                f"steps."
            )
        self._reject_other_draws(batch, drawing.draws, returned.loss)
        self.moved, self.random = moved, bool(drawing.draws)
        self._plans = {_shapes(batch): drawing.draws}
        self.reads.watch(self.roof)

    def _bring(self, more: Mapping[str, Part]) -> None:
        """Brings what was given, more parts and what the optimiser trains under one roof."""
        parts = _named(self._given)
        held = {id(m) for part in parts.values() if isinstance(part, nn.Module) for m in part.modules()}
        for name, part in more.items():
            if id(part) not in held and not _is_skeleton(part):
                parts[_word(name, parts)] = part
        known = {id(tensor) for part in parts.values() for tensor in _parameters(part)}
        loose = [p for group in self._optimizer.param_groups for p in group["params"] if id(p) not in known]
        parts |= {_word(f"optimizer_{i}", parts): parameter for i, parameter in enumerate(loose)}
        only = next(iter(parts.values())) if len(parts) == 1 else None
        self.roof = only if isinstance(only, nn.Module) and _names_all(only) else Roof(parts)
        self.tensors = dict((*self.roof.named_parameters(), *self.roof.named_buffers()))

    def _watch(self, batch: Any) -> tuple[dict[str, Tensor], Watching, Drawing, Returned]:
        state = {name: private(tensor) for name, tensor in self.tensors.items()}
        watching, drawing = Watching(self._pairs(state), _tensors(batch)), Drawing()
        versions = [(tensor, tensor._version) for tensor in _tensors(batch)]
        with unchanged_generators(), no_other_draws(self.reads.names_random), drawing, watching, said_to_compile():
            returned = self._call(state, batch)
        if written := [tuple(tensor.shape) for tensor, version in versions if tensor._version != version]:
            raise UsageError(
                f"the loss writes into its batch (a tensor of shape {written[0]}), where a compiled step cannot write. "
                f"Work on a new tensor: x = x - x.mean(), or x.clone() first."
            )
        return state, watching, drawing, returned

    def _run_live(self, batch: Any, left: Iterable[Left]) -> None:
        """Runs the loss as it is, so that what it keeps of its first run is made of the live tensors: `detach()` of one
        has its memory. What was left behind by a run on stand-ins is put back before."""
        for one in left:
            one.put_back()
        before = [(tensor, tensor.detach().clone()) for tensor in self.tensors.values()]
        try:
            with unchanged_generators():
                self._call(self.tensors, batch)
        finally:
            with torch.no_grad():
                for tensor, values in before:
                    if not torch.equal(tensor.nan_to_num(), values.nan_to_num()):
                        tensor.copy_(values)

    def _reject_views(self, tensors: Iterable[Tensor]) -> None:
        """A view of a parameter that is another tensor at every run cannot be read anew: it would be compiled in."""
        storages = {memory: name for name, tensor in self.tensors.items() if (memory := _storage(tensor))}
        for tensor in tensors:
            if (name := storages.get(_storage(tensor))) is not None:
                raise UsageError(
                    f"the loss reads a view of {name} of shape {tuple(tensor.shape)} that is made out of torch's "
                    f"sight, anew at every run, and would be compiled in. Read the parameter itself."
                )

    def _reject_kept(self, first: Mapping[str, Tensor], tensors: Iterable[Tensor]) -> None:
        """What a run on stand-ins has kept of them, where `_run_live` did not find it, follows no parameter."""
        storages = {memory: name for name, tensor in first.items() if (memory := _storage(tensor))}
        for tensor in tensors:
            if (name := storages.get(_storage(tensor))) is not None:
                raise UsageError(
                    f"the loss keeps a view of {name} from its first run, in a global or a closure. Run the loss once "
                    f"before the first step, or keep it in an attribute of its module."
                )

    def _reject_memory(self, batch: Any, loss: Tensor) -> None:
        """A loss that writes down something at every run would do so when it is compiled, and then no more."""
        self.reads.forget(self.scratch.holds)
        place = self.reads.changed() or self.scratch.noted(self.reads.is_library)
        if place is None and self._depends_on_scratch(batch, loss):
            place = self.scratch.left[0]
        if place is not None:
            raise UsageError(
                f"the loss changes {place} each time that it runs, which a compiled step does not repeat. Return what "
                f"is to be logged as info, make a tensor that moves on a buffer of its module, count outside of the "
                f"loss, and draw random numbers by torch."
            )

    def _depends_on_scratch(self, batch: Any, loss: Tensor) -> bool:
        """Whether the loss reads what it leaves behind before it writes it."""
        if not self.scratch.left:
            return False
        try:
            with self.scratch.removed():
                return not torch.equal(self._watch(batch)[3].loss.nan_to_num(), loss.nan_to_num())
        except (AttributeError, LookupError, TypeError):
            return True

    def _homes(self) -> Homes:
        return Homes((*self.roof.modules(), getattr(self._loss, "__self__", None)))

    def _reject_other_draws(self, batch: Any, draws: list[Draw], drawn: Tensor) -> None:
        """What the draws give must be what torch itself draws: the proof, which shares the numbers, cannot tell."""
        if not draws:
            return
        state = {name: private(tensor) for name, tensor in self.tensors.items()}
        with unchanged_generators(draws), StandIns(self._pairs(state)):
            own = self._call(state, batch).loss
        if not torch.allclose(own, drawn, rtol=1e-4, equal_nan=True):
            raise UsageError(
                f"the random numbers of the loss cannot be drawn ahead: it is {own.item()} with torch's own and "
                f"{drawn.item()} with {', '.join(draw.operation for draw in draws)}. Draw them outside of the loss and "
                f"pass them in the batch."
            )

    # Running it

    def __call__(self, state: Mapping[str, Tensor], batch: Any, numbers: Iterable[Tensor] = ()) -> Returned:
        """The loss of other tensors than the live ones, by their names under the roof."""
        lead = self._optimizer.param_groups[0]["params"][0]
        dtype = next(state[name].dtype for name, tensor in self.tensors.items() if tensor is lead)
        wide = dtype == torch.float64 != lead.dtype
        with _default_dtype(dtype if wide else torch.get_default_dtype()), Drawn(numbers):
            with StandIns(self._pairs(state), wide):
                return self._call(state, batch)

    def _pairs(self, state: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        live = everything(self.roof)  # a module may have replaced a buffer
        return [(live[name], state[name]) for name in self.tensors]

    def _call(self, state: Mapping[str, Tensor], batch: Any) -> Returned:
        stand_ins = {id(tensor): state[name] for name, tensor in self.tensors.items()}
        batch = batch if self.boxes is None else self.boxes.close(batch)
        given = (_replace(self._given, stand_ins), batch) if self._takes_module else (batch,)
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            if "torch._dynamo" in sys.modules:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_arrays_as_tensors())
            replaced = stack.enter_context(_restoring(self.roof))
            stack.enter_context(self.scratch.kept())
            returned: Any = self._loss(*given)
            several: tuple[Any, ...] = returned if type(returned) is tuple else ()
            self.spread = len(several) > 2
            loss, info = _loss_and_info((several[0], several[1:]) if self.spread else returned)
            return Returned(loss, info, replaced())

    def in_torch(self, module: nn.Module, whole: Any) -> tuple[Tensor, Any]:
        """`torch_loss(module, batch)` of a copy of the roof, for the proof."""
        batch, numbers = whole if self.random else (whole, ())
        state = everything(module)
        returned = self(state, batch, numbers)
        with torch.no_grad():
            for name, value in returned.buffers.items():
                state[name].copy_(value)
        return returned.loss, returned.info

    def pure(self, state: Mapping[str, Tensor], whole: Any) -> tuple[Tensor, Any, dict[str, Tensor]]:
        """The same as a pure function, to be imported: buffers that move on are results."""
        batch, numbers = whole if self.random else (whole, ())
        state = {name: tensor.clone() if name in self.moved else tensor for name, tensor in state.items()}
        returned = self(state, batch, numbers)
        return returned.loss, returned.info, {n: returned.buffers.get(n, state[n]) for n in sorted(self.moved)}

    def drawn(self, kind: str, batch: Any) -> list[Tensor]:
        """What `draw` would give, with the generators left as they are."""
        with unchanged_generators(draw for plan in self._plans.values() for draw in plan):
            return self.draw(kind, batch)

    def draw(self, kind: str, batch: Any) -> list[Tensor]:
        """New numbers for a batch, or for the minibatches of an epoch, along a leading axis."""
        shapes = _shapes(batch)
        minibatch = tuple(shape[1:] for shape in shapes) if kind == "epoch" else shapes
        if minibatch not in self._plans:
            one = jax.tree.map(lambda leaf: leaf[0], batch) if kind == "epoch" else batch
            self._plans[minibatch] = self._watch(jax.tree.map(torch.as_tensor, one))[2].draws
        plan = self._plans[minibatch]
        if kind == "step":
            return [draw() for draw in plan]
        updates = [[draw() for draw in plan] for _ in range(shapes[0][0])]
        return [torch.stack(column) for column in zip(*updates, strict=True)]


def as_function(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The function of the user's behind a compiled one, or that a module without hooks calls."""
    loss = getattr(loss, "_orig_mod", None) or getattr(loss, "_torchdynamo_orig_callable", loss)
    if isinstance(loss, nn.Module) and not (loss._forward_hooks or loss._forward_pre_hooks):
        return loss.forward
    return loss


def takes_module(loss: Callable[..., Any]) -> bool:
    """Whether a loss is given its module: `loss(module, batch)`; else it is `loss(batch)`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(as_function(loss)).parameters.values()
    required = [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    if len(required) not in (1, 2):
        raise UsageError(
            f"expected loss(module, batch), or loss(batch) that reads its module from around it; got one that takes "
            f"({', '.join(required)}). Put what belongs to a batch into one tuple or dict."
        )
    return len(required) == 2


def _named(given: Parts) -> dict[str, Part]:
    """The parts that were given, by name; a sole module has none."""
    parts = {"tensor": given} if isinstance(given, Tensor) else {"": given} if isinstance(given, nn.Module) else given
    named = dict(parts.items() if isinstance(parts, Mapping) else ((str(i), p) for i, p in enumerate(parts)))
    for name, part in named.items():
        if not isinstance(part, nn.Module | Tensor) or "." in name:
            raise UsageError(
                f"module: expected a module, or a list or dict of modules and tensors without dots in its names; got "
                f"{type(part).__name__} under {name!r}."
            )
    return named


def _names_all(module: nn.Module) -> bool:
    """Whether its class names parameters as torch does: some leave out those of targets."""
    return type(module).named_parameters is nn.Module.named_parameters


def _parameters(part: Part) -> Iterable[Tensor]:
    """All parameters of a module, or the tensor itself."""
    return (p for _, p in nn.Module.named_parameters(part)) if isinstance(part, nn.Module) else (part,)


def _is_skeleton(part: Part) -> bool:
    """Whether it is a module without numbers, on the device `meta`: `functional_call` gives it those of others."""
    tensors = everything(part).values() if isinstance(part, nn.Module) else ()
    return bool(tensors) and all(tensor.is_meta for tensor in tensors)


def _word(name: str, taken: Mapping[str, Any]) -> str:
    """A name for a part that was found by the code that reads it: `self.target` is `self_target`."""
    word = re.sub(r"\W+", "_", name).strip("_") or "part"
    return next(w for w in chain((word,), (f"{word}_{i}" for i in count(2))) if w not in taken)


def _replace(given: Parts, stand_ins: Mapping[int, Tensor]) -> Any:
    """What was given, bare tensors replaced: some functions of torch look past a stand-in."""
    other = lambda part: stand_ins.get(id(part), part) if isinstance(part, Tensor) else part
    if isinstance(given, Mapping):
        return {name: other(part) for name, part in given.items()}
    return other(given) if isinstance(given, nn.Module | Tensor) else [other(part) for part in given]


def _loss_and_info(returned: Any) -> tuple[Tensor, Any]:
    loss, info = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UsageError(f"expected the loss to return one number in a tensor, or (loss, info); got {kind}.")
    return loss.reshape(()), info


def private(tensor: Tensor) -> Tensor:
    """A copy that nobody else holds, with or without gradient as the tensor itself."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _leaf(tensor: Tensor) -> Tensor:
    if tensor.requires_grad and not tensor.is_leaf:
        raise UsageError(
            f"the loss reads a tensor of shape {tuple(tensor.shape)} that was computed outside of it and still has its "
            f"gradient. Compute it inside the loss, or detach it."
        )
    return tensor


def _storage(tensor: Tensor) -> int:
    """Where the numbers of a tensor lie; 0 where they are not in memory of its own."""
    internals: Any = torch._C
    wrapped = internals._functorch.is_functorch_wrapped_tensor(tensor)
    return 0 if wrapped or tensor.layout != torch.strided else tensor.untyped_storage().data_ptr()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tensor)]


def _shapes(batch: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(map(np.shape, jax.tree.leaves(batch)))


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _arrays_as_tensors() -> Iterator[None]:
    """Lets `torch.from_numpy` take the arrays of a batch, which are tensors when the loss is recorded."""
    before = torch.from_numpy
    torch.from_numpy = lambda array: array if isinstance(array, Tensor) else before(array)
    try:
        yield
    finally:
        torch.from_numpy = before


@contextmanager
def _restoring(roof: nn.Module) -> Iterator[Callable[[], dict[str, Any]]]:
    """Puts back buffers that a module replaces while it runs; the function gives the new ones by name. One that was
    None and is filled stays so."""
    homes = [
        (f"{prefix}.{key}".lstrip("."), part._buffers, key, tensor)
        for prefix, part in roof.named_modules()
        for key, tensor in part._buffers.items()
        if tensor is not None
    ]
    try:
        yield lambda: {name: home[key] for name, home, key, tensor in homes if home[key] is not tensor}
    finally:
        for _, home, key, tensor in homes:
            home[key] = tensor
