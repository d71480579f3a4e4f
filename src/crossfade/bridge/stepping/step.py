"""`bridge.Step`: a torch training step executed by JAX, the core of mode `jax_minimal`.

    before                                              after
    optimizer.zero_grad()                               step = Step(module, optimizer, jax_loss, mapping, ...)
    loss = torch_loss(module, batch)                    loss = step(batch)
    loss.backward()                                     scheduler.step()
    clip_grad_norm_(module.parameters(), 0.5)
    optimizer.step()
    scheduler.step()

torch's memory stays the truth: a step reads parameters and buffers where torch has them and writes the results there,
all at once. So whatever torch code reads at any time is up to date (target networks, copies, views, other processes),
whatever it writes enters the next step, and a step that fails or is interrupted leaves everything as it was. The
moments stay in JAX until torch looks into `optimizer.state`. Many small steps go faster in one call of `step.epoch`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np
import torch
from jaxtyping import PyTree
from torch import nn

from ...errors import UsageError
from ..mapping import Mapping
from ..optimizers.clipping import check_clipping
from ..transfer import numpy_to_tensor
from .batch import stack
from .live import Live, Source, open_live
from .memory import Results, cores
from .proof import Row
from .reads import Reads

SPIN_SECONDS = 200e-6  # a program shorter than this is awaited awake: waking a thread takes as long as the program


@dataclass
class Stats:
    """What a step has done so far. Times leave out the calls that compiled."""

    calls: int = 0  # of step(...) and step.epoch(...)
    updates: int = 0  # minibatches learnt from
    openings: int = 0  # times the program was made: once, and again when parts were frozen, unfrozen or replaced
    compiles: int = 0  # one for each new batch shape or hyper-parameter (learning rates apart), step and epoch apart
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

    module, optimizer: the torch module, and an optimiser of a kind in `optim.state.HYPERPARAMETERS` built on its
        parameters. Learning rates are read at every call, so torch's schedulers keep working.
    jax_loss: `jax_loss(model, batch)` -> loss, (loss, info), or (loss, info, model) where the model's state (the
        statistics of a BatchNorm) has moved on.
    mapping: from `bridge.match`; `model` is of the kind it was made for.
    torch_loss: `torch_loss(module, batch)` -> loss or (loss, info), for the proof on the first call.
    clip_norm, clip_value: as `clip_grad_norm_` or `clip_grad_value_` over the optimiser's parameters before each step.
    set_to_none: as in `optimizer.zero_grad(set_to_none=...)`: parameters that the loss does not use have no gradient
        and stay as they are, or, if False, one of zeros, by which moments decay and parameters move on.
    verify: False leaves the proof out.

    Parameters that do not require gradients or that the optimiser does not hold stay as they are, as in torch. Freezing
    and unfreezing, another mode of a normalisation or new parameter groups make a new program, with a new proof. What
    `jax_loss` reads beside its arguments is compiled in: when it has changed, the step refuses to go on with the old
    value (docs/step_speed.md says what it sees).
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
        clip_value: float | None = None,
        set_to_none: bool = True,
        verify: bool = True,
    ):
        if verify and torch_loss is None:
            raise UsageError(
                "expected torch_loss, because the first call proves itself against a torch step. "
                "Pass torch_loss=..., or verify=False to go without the proof."
            )
        check_clipping(clip_norm, clip_value)
        _reject_hooks(module, optimizer)
        self.module, self.optimizer, self.mapping = module, optimizer, mapping
        self.jax_loss, self.torch_loss = jax_loss, torch_loss
        self.clip_norm, self.clip_value = clip_norm, clip_value
        self.set_to_none, self.verify = set_to_none, verify
        self.stats = Stats()
        self.proof: tuple[Row, ...] = ()
        self._closed = False
        self._live: Live | None = None  # made on the first call, when a batch tells which parameters the loss uses
        self._draw: Callable[[str, PyTree], list[torch.Tensor]] | None = None  # for a loss that draws from torch
        self._quick = True  # the last program was short enough to be awaited awake
        self._alone = cores() == 1
        self._results = Results()

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

    def _run(self, kind: str, batch: PyTree, updates: int) -> Any:
        began = perf_counter()
        live = self._live
        if live is None or not live.stands(self.jax_loss, (self.clip_norm, self.clip_value)):
            live = self._open(kind, batch)
        else:
            live.reads.check()
        groups = [self.optimizer.param_groups[i] for i in live.indices]
        constants = [live.constants(group) for group in groups]
        if constants != live.compiled_for:
            live.compile(constants)
        arguments = live.arguments(groups, batch if self._draw is None else (batch, self._draw(kind, batch)))

        entered = perf_counter()
        moments, flats, buffers, loss, info = live.compiled[kind](*arguments)
        self._await(loss, entered)
        left = perf_counter()

        result = self._results(loss, live.trained.at_home)
        if info is not None:
            result = (result, jax.tree.map(numpy_to_tensor, info))
        live.commit(moments, flats, buffers, updates)
        fresh = live.is_fresh((kind, live.intake.shapes))
        if fresh:
            live.reads.remember()
        stats = self.stats
        stats.calls += 1
        stats.updates += updates
        stats.compiles += fresh
        if not fresh:
            stats.step_seconds += left - entered
            stats.bridge_seconds += perf_counter() - began - (left - entered)
        return result

    def _await(self, loss: jax.Array, entered: float) -> None:
        """Waits for the program, so that errors surface here and a call takes the time it takes."""
        if self._alone:
            loss.block_until_ready()
            return
        if self._quick:
            while not loss.is_ready() and perf_counter() - entered < SPIN_SECONDS:  # pyright: ignore
                pass
        loss.block_until_ready()
        self._quick = perf_counter() - entered < SPIN_SECONDS

    # Opening and closing

    def close(self) -> None:
        """Ends the step: torch goes on from there. Closing twice is fine."""
        if self._live is not None and self.optimizer.state is self._live.moments:
            self.optimizer.state = self._live.moments.plain()
        self._closed, self._live = True, None

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _source(self, kind: str, batch: PyTree) -> tuple[Source, PyTree]:
        """What the next program is made from, and the batch as that takes it."""
        torch_loss = self.torch_loss if self.verify else None
        return Source(self.jax_loss, self.mapping, torch_loss, Reads(self.jax_loss)), batch

    def _open(self, kind: str, batch: PyTree) -> Live:
        if self._closed:
            raise UsageError("the step is closed. Open a new Step to go on in JAX.")
        source, batch = self._source(kind, batch)
        _reject_hooks(self.module, self.optimizer)
        live, self.proof = open_live(
            self.module,
            self.optimizer,
            source,
            (self.clip_norm, self.clip_value),
            self.set_to_none,
            kind,
            batch,
            self._live,
        )
        # Schedulers look here before they complain that no step was made before theirs.
        self.optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        self._live = live
        self.stats.openings += 1
        return live


def _reject_hooks(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Code that runs inside torch's backward pass or its optimiser's step would be left out silently."""
    if vars(optimizer).get("_optimizer_step_pre_hooks") or vars(optimizer).get("_optimizer_step_post_hooks"):
        raise UsageError(
            "expected an optimiser without hooks of its step, which a compiled step cannot run. Remove them, and do "
            "what they do after each call of the step."
        )
    hooked = [
        n for n, p in module.named_parameters() if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
    ]
    hooked += [n or "the module" for n, m in module.named_modules() if m._backward_hooks or m._backward_pre_hooks]
    if hooked:
        raise UsageError(
            f"expected no backward hooks, which a compiled step cannot run; found some on {', '.join(hooked)}. "
            f"Remove them, or write what they do into jax_loss."
        )
