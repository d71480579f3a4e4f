"""What an open `bridge.Step` holds: both sides' memory, the compiled functions, and how they are made."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from torch import nn

from ..errors import MappingError, TransferError, UsageError
from .mapping import Mapping
from .optimizers_torch import OptimizerState, read_torch, slots
from .step_batch import Intake, Rates
from .step_memory import FixedMemory, FlatMemory
from .step_program import Group, Named, Program, State, idle
from .step_proof import Row, prove
from .transfer import numpy_to_jax, tensor_to_numpy

VARIABLE = ("names", "frozen", "lr", "initial_lr")  # in a group of OptimizerState, what is no constant of the program


@dataclass
class Live:
    """The state of an open step. JAX's side leads; torch's is `ahead` updates behind it."""

    program: Program
    flats: list[FlatMemory]  # torch's parameters, by group
    fixed: FixedMemory  # torch's other tensors
    state: State  # JAX's parameters and moments, by group
    steps: list[int]  # updates so far, by group, as torch counts them
    indices: list[int]  # the optimiser's groups that train something
    names: list[str]  # of the hyper-parameters compiled in
    constants: Callable[[dict[str, Any]], tuple]  # their values in a group of the optimiser
    intake: Intake
    rates: Rates
    norms: list[Any]  # layers that count their batches
    ahead: int = 0  # updates torch has not seen
    compiled: dict[str, Callable] = field(default_factory=dict)  # "step" and "epoch"
    compiled_for: list[tuple] = field(default_factory=list)  # values of the constants, by group
    shapes: set[tuple] = field(default_factory=set)  # of batches already compiled for

    def compile(self, constants: list[tuple]) -> None:
        """Makes the compiled functions anew, with the hyper-parameters the optimiser's groups have now."""
        program = self.program
        hypers = [
            {**group.hyper, **dict(zip(self.names, values, strict=True))}
            for group, values in zip(program.groups, constants, strict=True)
        ]
        if [slots(program.kind, hyper) for hyper in hypers] != [slots(program.kind, g.hyper) for g in program.groups]:
            raise UsageError(
                "a hyper-parameter that adds or removes a moment (momentum, amsgrad, centered) was changed while the "
                "step is open. Close the step, change it, and open a new one."
            )
        self.program = program.with_hyper(hypers)
        self.compiled = {"step": self._jitted(self.program.step), "epoch": self._jitted(self.program.epoch)}
        self.compiled_for = constants
        self.shapes = set()

    def _jitted(self, function: Callable) -> Callable:
        unflatten = self.intake.structure.unflatten
        on_arrays = lambda state, fixed, rates, arrays: function(state, fixed, rates, unflatten(arrays))
        return jax.jit(on_arrays, donate_argnums=0)

    def is_fresh(self, shapes: tuple) -> bool:
        """True the first time these shapes are seen: the call compiled."""
        fresh = shapes not in self.shapes
        self.shapes.add(shapes)
        return fresh

    def advance(self, updates: int, buffers: Named) -> None:
        """Counts updates just made; `buffers` are those that moved."""
        if buffers:
            self.fixed.arrays.update(buffers)
        self.steps = [steps + updates for steps in self.steps]
        self.ahead += updates

    def take_over(self) -> bool:
        """Uploads what torch has written meanwhile; what it wrote over outdated numbers cannot be merged."""
        for memory in self.flats:
            if memory.seen != memory.array:
                break
        else:
            if not self.fixed.named or not self.fixed.changed():
                return False
        flats = [i for i, memory in enumerate(self.flats) if memory.seen != memory.array]
        fixed = self.fixed.changed()
        if self.ahead and (flats or self.program.buffers.intersection(fixed)):
            raise UsageError(
                "torch's parameters were written to while JAX was ahead of them, so the change was made to outdated "
                "numbers. Call step.sync() before editing parameters in place."
            )
        state = list(self.state)
        for i in flats:
            state[i] = (jnp.array(self.flats[i].accept()), state[i][1])
        self.state = tuple(state)
        self.fixed.accept(fixed)
        return True

    def sync(self) -> bool:
        """Brings torch up to date; False when it was."""
        if not self.ahead:
            return False
        for memory in self.flats:
            memory.check_in_place()
        for memory, (flat, _) in zip(self.flats, self.state, strict=True):
            memory.write(np.asarray(flat))
        self.fixed.write(self.program.buffers)
        for norm in self.norms:
            norm.num_batches_tracked += self.ahead
        self.ahead = 0
        return True

    def replace_moments(self, optimizer: OptimizerState) -> None:
        """Goes on with the same parameters and other moments."""
        named = jax.tree.map(np.asarray, self.program.cut(self.state))
        self.state, self.steps = self.program.state(named, optimizer), self.program.steps(optimizer)


def open_live(
    module: nn.Module,
    torch_optimizer: torch.optim.Optimizer,
    jax_loss: Callable[[Any, Any], Any],
    mapping: Mapping,
    clip_norm: float | None,
    torch_loss: Callable[[nn.Module, Any], Any] | None,
    kind: str,
    batch: PyTree,
) -> tuple[Live, tuple[Row, ...]]:
    """Finds out what is trained, proves it with `torch_loss` if given, and only then moves torch's parameters."""
    intake = Intake(batch)
    example = intake.structure.unflatten([a[0] if kind == "epoch" else a for a in intake(batch)])
    optimizer, tensors = read_torch(torch_optimizer, module), _tensors(module, mapping)
    buffers = frozenset(n for n, _ in module.named_buffers() if n in tensors)
    trained = {n: numpy_to_jax(tensor_to_numpy(tensors[n]), n) for n in optimizer.trained if n in tensors}
    fixed = FixedMemory({n: t for n, t in tensors.items() if n not in trained})

    program = Program(mapping, jax_loss, optimizer.kind, _groups(optimizer, tensors, ()), buffers, clip_norm)
    unused = idle(program, trained, fixed.arrays, example)
    program = replace(program, groups=_groups(optimizer, tensors, unused))
    fixed = FixedMemory({n: t for n, t in tensors.items() if n not in trained or n in unused})
    trained = {n: leaf for n, leaf in trained.items() if n not in unused}
    _, (_, updated) = jax.eval_shape(program.loss, trained, fixed.arrays, example)
    program = replace(program, buffers=frozenset(updated))
    norms = _counting_norms(module, returned=bool(updated))
    proof = prove(program, module, torch_optimizer, torch_loss, example) if torch_loss is not None else ()

    names = [key for key in optimizer.groups[0] if key not in VARIABLE]
    live = Live(
        program=program,
        flats=[FlatMemory({n: tensors[n] for n in group.shapes}) for group in program.groups],
        fixed=fixed,
        state=program.state(trained, optimizer),
        steps=program.steps(optimizer),
        indices=[i for i, group in enumerate(optimizer.groups) if not trained.keys().isdisjoint(group["names"])],
        names=names,
        constants=itemgetter(*names),
        intake=intake,
        rates=Rates(np.dtype(next(iter(trained.values())).dtype)),
        norms=norms,
    )
    return live, proof


def _tensors(module: nn.Module, mapping: Mapping) -> dict[str, torch.Tensor]:
    """What the mapping carries, by torch name, as the live tensors."""
    tensors = module.state_dict(keep_vars=True)
    names = [n for entry in mapping.entries for n in entry.torch]
    if missing := [n for n in names if n not in tensors]:
        raise MappingError(f"expected the module the mapping was made for; this one has no {', '.join(missing)}.")
    if elsewhere := [f"{n} on {tensors[n].device}" for n in names if tensors[n].device.type != "cpu"]:
        raise TransferError(
            f"expected torch's parameters in CPU memory, got {', '.join(elsewhere)}. Call module.cpu(): JAX does "
            f"the training, on whichever device it has."
        )
    return {n: tensors[n] for n in names}


def _groups(optimizer: OptimizerState, tensors: dict[str, torch.Tensor], unused: Collection[str]) -> tuple[Group, ...]:
    """The optimiser's groups without what is frozen or unused; groups left empty are dropped."""
    groups = []
    for group in optimizer.groups:
        names = [n for n in group["names"] if n in optimizer.trained and n not in unused]
        if unmapped := [n for n in names if n not in tensors]:
            raise MappingError(f"expected every trained parameter in the mapping, missing {', '.join(unmapped)}.")
        if names:
            groups.append(Group({n: tuple(tensors[n].shape) for n in names}, group))
    dtypes = {str(tensors[n].dtype) for group in groups for n in group.shapes}
    if dtypes not in ({"torch.float32"}, {"torch.float64"}):
        raise UsageError(
            f"expected trained parameters all in float32 or all in float64, got {sorted(dtypes) or 'none at all'}."
        )
    return tuple(groups)


def _counting_norms(module: nn.Module, returned: bool) -> list[Any]:
    """Layers that count their batches. Their statistics move in train mode, so the JAX loss must return them."""
    norms = {n: m for n, m in module.named_modules() if m.training and getattr(m, "running_mean", None) is not None}
    if norms and not returned:
        raise UsageError(
            f"{', '.join(norms)}: running statistics move in train mode, but jax_loss does not return them. "
            f"Return (loss, info, model) with the updated model, or call .eval() on these layers."
        )
    return [norm for norm in norms.values() if getattr(norm, "num_batches_tracked", None) is not None]
