"""`bridge.Step`: a torch training step executed by JAX, the core of mode `jax_minimal`.

    before                                              after
    optimizer.zero_grad()                               step = Step(module, optimizer, jax_loss, mapping, ...)
    loss = torch_loss(module, batch)                    loss = step(batch)
    loss.backward()                                     scheduler.step()
    clip_grad_norm_(module.parameters(), 0.5)
    optimizer.step()
    scheduler.step()

JAX owns the parameters while the step is open. torch's are views of one flat tensor per parameter group, brought up to
date by one memory copy when torch next looks: before a forward pass, a `state_dict()` or a `load_state_dict()`, or by
`step.sync()`. Whatever torch writes into them in between is noticed and taken over.
"""

import os
import time
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
from .optimizers_torch import OptimizerState, read_torch, slots, write_torch
from .step_batch import Intake, Rates, stack
from .step_memory import FixedMemory, FlatMemory, Watch
from .step_program import Group, Program, State, idle
from .step_proof import Row, prove
from .transfer import numpy_to_jax, numpy_to_tensor, tensor_to_numpy

SPIN_SECONDS = 200e-6  # a program shorter than this is awaited awake: waking a thread takes as long as the program
VARIABLE = ("names", "frozen", "lr", "initial_lr")  # in a group of OptimizerState, what is no constant of the program


@dataclass
class Stats:
    """What a step has done so far. Times leave out the calls that compiled."""

    calls: int = 0  # of step(...) and step.epoch(...)
    updates: int = 0  # minibatches learnt from
    compiles: int = 0  # one for each new batch shape or hyper-parameter (learning rates apart), step and epoch apart
    syncs: int = 0  # copies of the parameters into torch
    uploads: int = 0  # times torch had written into its parameters or buffers
    bridge_seconds: float = 0.0  # checks, copies of the batch, wrapping of the results
    step_seconds: float = 0.0  # inside the compiled program

    @property
    def bridge_us(self) -> float:
        """Microseconds per call outside the compiled program."""
        return 1e6 * self.bridge_seconds / max(self.calls - self.compiles, 1)

    @property
    def step_us(self) -> float:
        """Microseconds per call inside the compiled program."""
        return 1e6 * self.step_seconds / max(self.calls - self.compiles, 1)


class Step:
    """Trains `module` by compiled JAX steps that do what `optimizer` would do.

    module, optimizer: the torch module, and one of torch.optim's SGD, Adam, AdamW, RMSprop and Adagrad built on its
        parameters. Learning rates are read at every call, so torch's schedulers keep working.
    jax_loss: `jax_loss(model, batch)` -> loss, (loss, info), or (loss, info, model) where the model's state (the
        statistics of a BatchNorm) has moved on.
    mapping: from `bridge.match`; `model` is of the kind it was made for.
    torch_loss: `torch_loss(module, batch)` -> loss or (loss, info), for the proof on the first call.
    clip_norm: as `clip_grad_norm_` over the optimiser's parameters before each step.
    lazy: False brings torch's parameters up to date after every call, for code that reads them directly.
    verify: False leaves the proof out.

    Parameters that do not require gradients, that the optimiser does not hold or that the loss does not use stay as
    they are, as in torch.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        jax_loss: Callable[[Any, Any], Any],
        mapping: Mapping,
        *,
        torch_loss: Callable[[nn.Module, Any], Any] | None = None,
        clip_norm: float | None = None,
        lazy: bool = True,
        verify: bool = True,
    ):
        if verify and torch_loss is None:
            raise UsageError(
                "expected torch_loss, because the first call proves itself against a torch step. "
                "Pass torch_loss=..., or verify=False to go without the proof."
            )
        _reject_hooks(module)
        self.module, self.optimizer, self.mapping = module, optimizer, mapping
        self.jax_loss, self.torch_loss = jax_loss, torch_loss
        self.clip_norm, self.lazy, self.verify = clip_norm, lazy, verify
        self.stats = Stats()
        self.proof: tuple[Row, ...] = ()
        self._closed = False
        self._live: _Live | None = None  # made on the first call, when a batch tells which parameters the loss uses
        self._writing = False  # our own writes into the optimiser
        self._quick = True  # the last program was short enough to be awaited awake
        self._cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    # Training

    def __call__(self, batch: PyTree) -> Any:
        """One update. Gives the loss as a tensor, or (loss, info) when the JAX loss has info."""
        return self._run("step", batch, 1)

    def epoch(self, batches: PyTree) -> Any:
        """One update for each minibatch, in one compiled loop: the losses, or (losses, infos), along a leading axis.

        `batches` is a list of batches, or one tree whose arrays have the minibatches along their leading axis.
        """
        if isinstance(batches, list):
            batches = stack(batches)
        counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batches)}
        if len(counts) != 1 or counts <= {(), (0,)}:
            raise UsageError(
                f"expected every array of an epoch to have the same leading axis of minibatches, got sizes "
                f"{sorted(counts)}. Pass a list of batches, or arrays stacked along a new first axis."
            )
        return self._run("epoch", batches, counts.pop()[0])

    def _run(self, kind: str, tree: PyTree, updates: int) -> Any:
        began = time.perf_counter()
        if self._closed:
            raise UsageError("the step is closed: torch has its parameters back. Open a new Step to go on in JAX.")
        live = self._live = self._live or self._open(kind, tree)
        groups = [self.optimizer.param_groups[i] for i in live.indices]
        constants = [live.constants(group) for group in groups]
        if constants != live.compiled_for:
            self._compile(constants)
        arrays = live.intake(tree)
        self._take_over()
        rates = live.rates([group["lr"] for group in groups])

        entered = time.perf_counter()
        live.state, buffers, loss, info = live.compiled[kind](live.state, live.fixed.arrays, rates, arrays)
        self._await(loss, entered)
        left = time.perf_counter()

        if buffers:
            live.fixed.arrays.update(buffers)
        live.steps = [steps + updates for steps in live.steps]
        live.ahead += updates
        if not self.lazy:
            self.sync()
        result = torch.from_numpy(np.array(loss))
        if info is not None:
            result = (result, jax.tree.map(numpy_to_tensor, info))
        stats, shapes = self.stats, (kind, *[array.shape for array in arrays])
        fresh = shapes not in live.shapes
        live.shapes.add(shapes)
        stats.calls += 1
        stats.updates += updates
        stats.compiles += fresh
        if not fresh:
            stats.step_seconds += left - entered
            stats.bridge_seconds += time.perf_counter() - began - (left - entered)
        return result

    def _await(self, loss: jax.Array, entered: float) -> None:
        """Waits for the program, so that errors surface here and a call takes the time it takes."""
        if self._quick and self._cpus > 1:
            while not loss.is_ready() and time.perf_counter() - entered < SPIN_SECONDS:  # pyright: ignore
                pass
        loss.block_until_ready()
        self._quick = time.perf_counter() - entered < SPIN_SECONDS

    # Looking and closing

    def sync(self) -> None:
        """Brings torch's parameters and buffers up to date: one memory copy per parameter group."""
        live = self._live
        if live is None or not live.ahead:
            return
        ahead, live.ahead = live.ahead, 0
        for memory, (flat, _) in zip(live.flats, live.state, strict=True):
            memory.check_in_place()
            memory.write(np.asarray(flat))
        live.fixed.write(live.program.buffers)
        for norm in live.norms:
            norm.num_batches_tracked += ahead
        self.stats.syncs += 1

    def close(self) -> None:
        """Hands parameters and optimiser state back to torch, which can go on from there. Closing twice is fine."""
        if self._live is not None and not self._closed:
            self._take_over()
            self.sync()
            self._write_optimizer()
            for handle in self._live.handles:
                handle.remove()
        self._closed = True

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _take_over(self) -> None:
        """Uploads what torch has written meanwhile; what it wrote over numbers already outdated cannot be merged."""
        live = self._live
        assert live is not None
        flats = [i for i, memory in enumerate(live.flats) if memory.changed()]
        fixed = live.fixed.changed()
        if not flats and not fixed:
            return
        if live.ahead and (flats or live.program.buffers.intersection(fixed)):
            raise UsageError(
                "torch's parameters were written to while JAX was ahead of them, so the change was made to outdated "
                "numbers. Call step.sync() before editing parameters in place."
            )
        for i in flats:
            live.state = (*live.state[:i], (jnp.array(live.flats[i].accept()), live.state[i][1]), *live.state[i + 1 :])
        live.fixed.accept(fixed)
        self.stats.uploads += 1

    # The optimiser

    def _read_optimizer(self) -> None:
        """Takes the torch optimiser's moments over, after it has loaded others."""
        live = self._live
        if live is None or self._writing:
            return
        optimizer = read_torch(self.optimizer, self.module)
        live.state = live.program.state(jax.tree.map(np.asarray, live.program.cut(live.state)), optimizer)
        live.steps = live.program.steps(optimizer)

    def _write_optimizer(self) -> None:
        """Puts the live moments into the torch optimiser."""
        live = self._live
        if live is None or self._writing:
            return
        self._writing = True
        try:
            before = read_torch(self.optimizer, self.module)
            moments = before.moments | live.program.moments(live.state, live.steps)
            write_torch(replace(before, moments=moments), self.optimizer, self.module)
        finally:
            self._writing = False

    def _refuse_step(self) -> None:
        raise UsageError("optimizer.step() while a Step is open: JAX does the updates. Call step.close() first.")

    # Opening

    def _open(self, kind: str, batch: PyTree) -> "_Live":
        intake = Intake(batch)
        example = intake.structure.unflatten([a[0] if kind == "epoch" else a for a in intake(batch)])
        optimizer = read_torch(self.optimizer, self.module)
        tensors = self._tensors()
        trained = {n: numpy_to_jax(tensor_to_numpy(tensors[n]), n) for n in optimizer.trained if n in tensors}
        fixed = FixedMemory({n: t for n, t in tensors.items() if n not in trained})

        program = self._plan(optimizer, tensors, ())
        unused = idle(program, trained, fixed.arrays, example)
        program = self._plan(optimizer, tensors, unused)
        fixed = FixedMemory({n: t for n, t in tensors.items() if n not in trained or n in unused})
        trained = {n: leaf for n, leaf in trained.items() if n not in unused}
        _, (_, updated) = jax.eval_shape(program.loss, trained, fixed.arrays, example)
        program = replace(program, buffers=frozenset(updated))
        norms = self._norms(bool(updated))
        if self.verify and self.torch_loss is not None:
            self.proof = prove(program, self.module, self.optimizer, self.torch_loss, example)

        # Schedulers look here before they complain that no step was made before theirs.
        self.optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        names = [key for key in optimizer.groups[0] if key not in VARIABLE]
        return _Live(
            program=program,
            flats=[FlatMemory({n: tensors[n] for n in group.shapes}) for group in program.groups],
            fixed=fixed,
            state=program.state(trained, optimizer),
            steps=program.steps(optimizer),
            indices=[
                i for i, g in enumerate(optimizer.groups) if any(set(g["names"]) & {*p.shapes} for p in program.groups)
            ],
            names=names,
            constants=itemgetter(*names),
            intake=intake,
            rates=Rates(np.dtype(trained[next(iter(trained))].dtype)),
            norms=norms,
            handles=self._watch(),
        )

    def _tensors(self) -> dict[str, torch.Tensor]:
        """What the mapping carries, by torch name, as the live tensors."""
        tensors = self.module.state_dict(keep_vars=True)
        names = [n for entry in self.mapping.entries for n in entry.torch]
        if missing := [n for n in names if n not in tensors]:
            raise MappingError(f"expected the module the mapping was made for; this one has no {', '.join(missing)}.")
        if elsewhere := [f"{n} on {tensors[n].device}" for n in names if tensors[n].device.type != "cpu"]:
            raise TransferError(
                f"expected torch's parameters in CPU memory, got {', '.join(elsewhere)}. Call module.cpu(): JAX does "
                f"the training, on whichever device it has."
            )
        return {n: tensors[n] for n in names}

    def _plan(self, optimizer: OptimizerState, tensors: dict[str, torch.Tensor], unused: Collection[str]) -> Program:
        groups = []
        for group in optimizer.groups:
            names = [n for n in group["names"] if n in optimizer.trained and n not in unused]
            if unmapped := [n for n in names if n not in tensors]:
                raise MappingError(f"expected every trained parameter in the mapping, missing {', '.join(unmapped)}.")
            if names:
                groups.append(Group({n: tuple(tensors[n].shape) for n in names}, group))
        dtypes = {str(tensors[n].dtype) for group in groups for n in group.shapes}
        if dtypes not in ({"torch.float32"}, {"torch.float64"}):
            raise UsageError(f"expected trained parameters all in float32 or all in float64, got {sorted(dtypes)}.")
        buffers = frozenset(n for n, _ in self.module.named_buffers() if n in tensors)
        return Program(self.mapping, self.jax_loss, optimizer.kind, tuple(groups), buffers, self.clip_norm)

    def _norms(self, returned: bool) -> list[Any]:
        """Layers that count their batches. Their statistics move in train mode, so the JAX loss must return them."""
        norms = {
            n: m for n, m in self.module.named_modules() if m.training and getattr(m, "running_mean", None) is not None
        }
        if norms and not returned:
            raise UsageError(
                f"{', '.join(norms)}: running statistics move in train mode, but jax_loss does not return them. "
                f"Return (loss, info, model) with the updated model, or call .eval() on these layers."
            )
        return [norm for norm in norms.values() if getattr(norm, "num_batches_tracked", None) is not None]

    def _watch(self) -> list[Any]:
        look = Watch(self.sync)
        handles = []
        for module in self.module.modules():
            handles += [
                module.register_forward_pre_hook(look),
                module.register_state_dict_pre_hook(look),
                module.register_load_state_dict_pre_hook(look),
            ]
        return [
            *handles,
            self.optimizer.register_state_dict_pre_hook(Watch(self._write_optimizer)),
            self.optimizer.register_load_state_dict_post_hook(Watch(self._read_optimizer)),
            self.optimizer.register_step_pre_hook(Watch(self._refuse_step)),
        ]

    def _compile(self, constants: list[tuple]) -> None:
        """Makes the compiled functions anew, with the hyper-parameters the optimiser's groups have now."""
        live = self._live
        assert live is not None
        program = live.program
        hypers = [
            {**group.hyper, **dict(zip(live.names, values, strict=True))}
            for group, values in zip(program.groups, constants, strict=True)
        ]
        if [slots(program.kind, hyper) for hyper in hypers] != [slots(program.kind, g.hyper) for g in program.groups]:
            raise UsageError(
                "a hyper-parameter that adds or removes a moment (momentum, amsgrad, centered) was changed while the "
                "step is open. Close the step, change it, and open a new one."
            )
        live.program = program.with_hyper(hypers)
        unflatten = live.intake.structure.unflatten
        live.compiled = {
            kind: jax.jit(
                lambda state, fixed, rates, arrays, f=f: f(state, fixed, rates, unflatten(arrays)), donate_argnums=0
            )
            for kind, f in (("step", live.program.step), ("epoch", live.program.epoch))
        }
        live.compiled_for = constants
        live.shapes = set()


@dataclass
class _Live:
    """What an open step holds after its first call."""

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
    handles: list[Any]  # of the hooks
    ahead: int = 0  # updates torch has not seen
    compiled: dict[str, Callable] = field(default_factory=dict)  # "step" and "epoch"
    compiled_for: list[tuple] = field(default_factory=list)  # values of the constants, by group
    shapes: set[tuple] = field(default_factory=set)  # of batches already compiled for


def _reject_hooks(module: nn.Module) -> None:
    """Code that runs inside torch's backward pass would be left out silently."""
    hooked = [
        n for n, p in module.named_parameters() if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
    ]
    hooked += [n or "the module" for n, m in module.named_modules() if m._backward_hooks or m._backward_pre_hooks]
    if hooked:
        raise UsageError(
            f"expected no backward hooks, which a compiled step cannot run; found some on {', '.join(hooked)}. "
            f"Remove them, or write what they do into jax_loss."
        )
