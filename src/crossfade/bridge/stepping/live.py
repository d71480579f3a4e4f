"""What an open `bridge.Step` holds: both sides' memory, the compiled functions, and how they are made."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import prod
from operator import itemgetter, setitem
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from torch import nn
from torch.autograd.graph import increment_version

from ...errors import MappingError, UsageError
from ...optim.state import OptimizerState, slots
from ..mapping import Mapping
from ..optimizers.state_torch import OWN
from ..transfer import numpy_to_jax, tensor_to_numpy
from .batch import Intake, Numbers, x64
from .layout import Layout, has_statistics, tensors
from .memory import FixedMemory, TrainedMemory, cores
from .moments import LiveMoments, read_optimizer
from .program import Group, Named, Program, idle
from .proof import Row, prove
from .reads import Reads

LARGE = 4096  # elements of a parameter, on average, from which the program has each apart
VARIABLE = (*OWN, "lr", "initial_lr")  # in a group of OptimizerState, what is no constant of the program


@dataclass(frozen=True)
class Source:
    """What a program is made from."""

    jax_loss: Callable[[Any, Any], Any]
    mapping: Mapping
    torch_loss: Callable[[nn.Module, Any], Any] | None  # for the proof
    reads: Reads  # what the loss reads beside its arguments
    imported: bool = False  # from torch code, which moves buffers by itself
    by_name: bool = False  # `torch_loss` reads tensors by their names alone


@dataclass
class Live:
    """The state of an open step: parameters in torch's memory, moments in JAX's until torch looks."""

    program: Program
    optimizer: torch.optim.Optimizer
    module: nn.Module
    layout: Layout
    reads: Reads  # what the loss reads beside its arguments
    trained: TrainedMemory  # torch's parameters, by group
    fixed: FixedMemory  # torch's other tensors
    moments: LiveMoments  # optimizer.state
    indices: list[int]  # the optimiser's groups that train something
    names: list[str]  # of the hyper-parameters compiled in
    constants: Callable[[dict[str, Any]], tuple]  # their values in a group of the optimiser
    intake: Intake
    numbers: Numbers
    norms: list[Any]  # layers that count their batches
    wide: bool  # float64
    steps: list[int] = field(default_factory=list)  # updates so far, by group, as torch counts them
    started_from: list[Any] = field(default_factory=list)  # the moments that the last step was given
    spares: int = 0  # how many arrays the next step may write to
    spare: list[Any] | None = None  # these: what nobody needs any more
    compiled: dict[str, Callable] = field(default_factory=dict)  # "step" and "epoch"
    compiled_for: list[tuple] = field(default_factory=list)  # values of the constants, by group
    shapes: set[tuple] = field(default_factory=set)  # of batches already compiled for

    def stands(self, jax_loss: Callable, clip: tuple[float | None, float | None]) -> bool:
        """Whether the program still fits the step, the module and the optimiser."""
        same = self.program.jax_loss is jax_loss and (self.program.clip_norm, self.program.clip_value) == clip
        return same and self.layout.stands() and self.trained.stands()

    def compile(self, constants: list[tuple]) -> None:
        """Makes the compiled functions anew, with the hyper-parameters the optimiser's groups have now."""
        program = self.program
        hypers = [
            {**group.hyper, **dict(zip(self.names, values, strict=True))}
            for group, values in zip(program.groups, constants, strict=True)
        ]
        if tensors := [key for hyper in hypers for key, value in hyper.items() if _has_tensor(value)]:
            raise UsageError(
                f"expected Python numbers for the optimiser's hyper-parameters, got a tensor for {', '.join(tensors)}, "
                f"which a compiled program would keep as it is now. Only lr may be a tensor."
            )
        if [slots(program.kind, hyper) for hyper in hypers] != [slots(program.kind, g.hyper) for g in program.groups]:
            raise UsageError(
                "a hyper-parameter that adds or removes a moment (momentum, amsgrad, centered) was changed while the "
                "step is open. Close the step, change it, and open a new one."
            )
        self.program = program.with_hyper(hypers)
        self.spares = self.program.spares
        # Nothing is donated but what nobody needs: a program that fails or is interrupted leaves everything as it was.
        self.compiled = {
            kind: jax.jit(
                self.program.on_arrays(method, self.intake.structure.unflatten, self.fixed.names),
                donate_argnums=tuple(range(self.spares)),
                keep_unused=True,
            )
            for kind, method in (("step", self.program.step), ("epoch", self.program.epoch))
        }
        self.shapes = set()
        self.compiled_for = constants

    def is_fresh(self, shapes: tuple) -> bool:
        """True the first time these shapes are seen: the call compiled."""
        fresh = shapes not in self.shapes
        self.shapes.add(shapes)
        return fresh

    def arguments(self, groups: list[dict[str, Any]], batch: PyTree) -> list[Any]:
        """What the next step starts from: what torch holds now, the newest moments, and memory for the next ones."""
        arrays = self.intake(batch)
        if self.wide and not x64():
            raise UsageError(
                "expected JAX's 64-bit types on, as when the step was opened: the parameters are float64. Call it "
                "inside `with jax.enable_x64(True):`."
            )
        if self.optimizer.state is not self.moments:  # another state_dict was loaded, or another step has opened
            self.moments = LiveMoments(self.program, self.moments.parameters, self.optimizer.state)
            self.optimizer.state = self.moments
        ahead = self.moments.ahead
        if ahead is None:
            optimizer = read_optimizer(self.optimizer, self.module)
            self.moments.leave()
            ahead = self._bound(self.program.moments_to_jax(optimizer)), self.program.steps(optimizer)
        moments, self.steps = ahead
        spare, self.spare, self.started_from = self.spare, None, moments
        trained = self.trained.read()
        if spare is None:
            spare = self._bound(list(map(jnp.zeros_like, (*moments, *trained)))) if self.spares else []
        numbers = self.numbers(groups, self.steps)
        return [*spare, *moments, *trained, *self.fixed.read().values(), numbers, *arrays]

    def _bound(self, arrays: PyTree) -> list[Any]:
        """Where the results of programs are: from elsewhere, the next call would compile the program once more."""
        return jax.device_put(jax.tree.leaves(arrays), self.trained.device)

    def commit(self, moments: list[Any], flats: list[Any], buffers: Named, updates: int) -> None:
        """Writes the results of `updates` updates: parameters, moments and buffers at once."""
        put: Any = setitem
        ahead = moments, [steps + updates for steps in self.steps]
        writing = chain(self.trained.writing(flats), map(put, (vars(self.moments),), ("ahead",), (ahead,)))
        if buffers or self.norms:
            counters = [norm.num_batches_tracked.numpy() for norm in self.norms]
            targets = [*self.fixed.targets(buffers), *counters]
            values = [*map(np.asarray, buffers.values()), *(counter + updates for counter in counters)]
            writing = chain(writing, map(put, targets, repeat(...), values))
        # Ctrl-C cannot come in between: Python handles signals between bytecodes, and this is one call that runs none.
        deque(writing, maxlen=0)
        self.spare = [*self.started_from, *flats] if self.spares else []
        increment_version(self.trained.tensors)  # so that autograd refuses graphs from before, as it does in torch


def open_live(
    module: nn.Module,
    torch_optimizer: torch.optim.Optimizer,
    source: Source,
    clip: tuple[float | None, float | None],
    set_to_none: bool,
    kind: str,
    batch: PyTree,
    before: Live | None = None,
) -> tuple[Live, tuple[Row, ...]]:
    """Finds out what is trained, and proves it with the torch loss if there is one."""
    layout, intake, mapping = Layout(module, torch_optimizer), Intake(batch), source.mapping
    example = jax.tree.map(lambda leaf: leaf[0] if kind == "epoch" else leaf, intake.copies(batch))
    optimizer, held = read_optimizer(torch_optimizer, module), tensors(module, mapping)
    buffers = frozenset(n for n, _ in module.named_buffers() if n in held)
    trained = {n: numpy_to_jax(tensor_to_numpy(held[n]), n) for n in optimizer.trained if n in held}
    fixed = FixedMemory(module, {n: t for n, t in held.items() if n not in trained})

    groups = _groups(optimizer, held, ())
    program = Program(mapping, source.jax_loss, optimizer.kind, groups, buffers, *clip, set_to_none)
    unused = idle(program, trained, fixed.read(), example) if set_to_none else []
    program = replace(program, groups=_groups(optimizer, held, unused))
    fixed = FixedMemory(module, {n: t for n, t in held.items() if n not in trained or n in unused})
    trained = {n: leaf for n, leaf in trained.items() if n not in unused}
    _, (_, updated) = jax.eval_shape(program.loss, trained, fixed.read(), example)
    program = replace(program, buffers=frozenset(updated))
    norms = [] if source.imported else _counting_norms(module, returned=bool(updated))
    in_torch = source.torch_loss
    proof = prove(program, module, torch_optimizer, in_torch, example, source.by_name) if in_torch is not None else ()

    names = [key for key in optimizer.groups[0] if key not in VARIABLE]
    dtype = np.dtype(next(iter(trained.values())).dtype)
    moments = LiveMoments(program, {n: held[n] for n in trained}, torch_optimizer.state)
    live = Live(
        program=program,
        optimizer=torch_optimizer,
        module=module,
        layout=layout,
        reads=source.reads,
        trained=TrainedMemory(program.groups, held, before.trained if before else None),
        fixed=fixed,
        moments=moments,
        indices=[i for i, group in enumerate(optimizer.groups) if not trained.keys().isdisjoint(group["names"])],
        names=names,
        constants=itemgetter(*names),
        intake=intake,
        numbers=Numbers(len(program.groups), dtype),
        norms=norms,
        wide=dtype == np.float64,
    )
    torch_optimizer.state = moments
    source.reads.remember()  # a loss may note its own traces
    return live, proof


def _groups(optimizer: OptimizerState, held: dict[str, torch.Tensor], unused: Collection[str]) -> tuple[Group, ...]:
    """The optimiser's groups without what is frozen or unused; groups left empty are dropped."""
    groups = []
    for group in optimizer.groups:
        names = [n for n in group["names"] if n in optimizer.trained and n not in unused]
        if unmapped := [n for n in names if n not in held]:
            raise MappingError(f"expected every trained parameter in the mapping, missing {', '.join(unmapped)}.")
        if names:
            shapes = {n: tuple(held[n].shape) for n in names}
            large = sum(map(prod, shapes.values())) >= LARGE * len(shapes)
            groups.append(Group(shapes, group, apart=large and cores() > 1))
    dtypes = {str(held[n].dtype)[6:]: n for group in groups for n in group.shapes}
    if dtypes.keys() not in ({"float32"}, {"float64"}):
        found = " and ".join(f"{dtype} ({name})" for dtype, name in sorted(dtypes.items()))
        raise UsageError(
            f"expected trained parameters all in float32 or all in float64, got {found or 'none at all'}. Cast the "
            f"module before the optimiser is made: module.float()."
        )
    return tuple(groups)


def _counting_norms(module: nn.Module, returned: bool) -> list[Any]:
    """Layers that count their batches. Their statistics move in train mode, so the JAX loss must return them."""
    norms = {n: m for n, m in module.named_modules() if m.training and has_statistics(m)}
    if norms and not returned:
        raise UsageError(
            f"{', '.join(norms)}: running statistics move in train mode, but jax_loss does not return them. "
            f"Return (loss, info, model) with the updated model, or call .eval() on these layers."
        )
    return [norm for norm in norms.values() if getattr(norm, "num_batches_tracked", None) is not None]


def _has_tensor(value: Any) -> bool:
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) for v in values)
