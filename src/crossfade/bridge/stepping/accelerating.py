"""`crossfade.accelerate`: a torch training step executed by JAX, from the torch loss alone.

    before                                              after
    optimizer.zero_grad()                               step = cf.accelerate(loss, module, optimizer, clip_norm=0.5)
    value = loss(module, batch)                         value = step(batch)
    value.backward()
    clip_grad_norm_(module.parameters(), 0.5)
    optimizer.step()

The loss is imported (`bridge.import_torch`) with the batch of the first call as its example; parameters keep torch's
names and layout. All the rest is `bridge.Step`'s: torch's memory stays the truth, and the first call proves itself.
"""

from collections.abc import Callable
from typing import Any

import jax
import torch
from jaxtyping import PyTree

from ...errors import UsageError
from ..libraries import NamedArrays
from ..mapping import Mapping
from ..transfer import to_torch
from .batch import Intake
from .boxes import Boxes
from .live import Source
from .live_loss import LiveLoss, Parts, private
from .reads import Reads
from .step import Step


def accelerate(
    loss: Callable[..., Any],
    module: Parts,
    optimizer: torch.optim.Optimizer,
    *,
    jax_loss: Callable[[Any, Any], Any] | None = None,
    mapping: Mapping | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    set_to_none: bool = True,
    verify: bool = True,
) -> Step:
    """A `Step` that does what zero_grad, loss, backward, clipping and `optimizer.step()` do: `value = step(batch)`.

    loss: `loss(module, batch)` or, as closures are written, `loss(batch)`; gives the loss, or (loss, info), or a longer
        tuple, with what is to be logged. It is run a few times when a step is opened, and then no more. What it draws
        from torch's generator (dropout, rsample) is drawn there before every step, so the stream is that of plain
        torch. `x.item()` is a number to be logged as info or to multiply by; what else it does at a run, it would do
        once.
    module: what the loss reads: a module, or a list or dict of modules and bare tensors, given to `loss` as it is. What
        the optimiser owns is trained; all else, also what the loss closes over, is read anew at every step, so target
        networks that follow and parts that other steps train are up to date.
    jax_loss: `jax_loss(model, batch)` in place of the imported loss. Its model is a dict of arrays by torch name in
        torch's layout, or what `mapping` was made for; `loss` then serves the proof.
    clip_norm, clip_value, set_to_none, verify: as in `Step`.

    Several optimisers have a step each. Numbers that the loss reads beside its arguments are compiled in: when one has
    changed, the step refuses to go on (docs/step_speed.md says what it sees).
    """
    given: Any = {"clip_norm": clip_norm, "clip_value": clip_value, "set_to_none": set_to_none, "verify": verify}
    if jax_loss is not None and mapping is not None:
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"module: expected the module that the mapping was made for, got {type(module).__name__}. Leave "
                f"mapping out, and jax_loss is given a dict of arrays by torch name."
            )
        return Step(module, optimizer, jax_loss, mapping, torch_loss=loss if verify else None, **given)
    if mapping is not None:
        raise UsageError("mapping: expected none without jax_loss: an imported loss keeps torch's names and layout.")
    return _Accelerated(loss, module, optimizer, jax_loss, **given)


class _Accelerated(Step):
    """A step whose loss reads what `LiveLoss` finds, and whose program is imported unless a JAX loss is given."""

    def __init__(
        self,
        loss: Callable[..., Any],
        module: Parts,
        optimizer: torch.optim.Optimizer,
        jax_loss: Callable[[Any, Any], Any] | None,
        **given: Any,
    ):
        self._loss, self._by_hand = LiveLoss(loss, module, optimizer), jax_loss
        self._begun = False  # the first batch has come
        super().__init__(
            self._loss.roof,
            optimizer,
            jax_loss or _unopened,
            Mapping.identity(self._loss.tensors),
            torch_loss=self._loss.in_torch,
            **given,
        )

    def __call__(self, batch: PyTree) -> Any:
        return self._as_given(self._run("step", self._opened(batch), 1))

    def epoch(self, batches: PyTree) -> Any:
        if isinstance(batches, list):
            return self._as_given(super().epoch([self._opened(batch) for batch in batches]))
        return self._as_given(super().epoch(self._opened(batches)))

    def _as_given(self, result: Any) -> Any:
        """As many results as the loss itself gives."""
        return (result[0], *result[1]) if self._loss.spread and self._by_hand is None else result

    def _opened(self, batch: PyTree) -> PyTree:
        """The batch in containers that JAX knows."""
        if not self._begun:
            self._loss.boxes, self._begun = Boxes.of(batch), True
        return batch if self._loss.boxes is None else self._loss.boxes.open(batch)

    def _source(self, kind: str, batch: PyTree) -> tuple[Source, PyTree]:
        loss = self._loss
        first = lambda leaf: leaf[0] if kind == "epoch" else leaf
        example = lambda whole: jax.tree.map(lambda leaf: _tensor(first(leaf)), Intake(whole).copies(whole))
        loss.look(example(batch))
        _reject_shared_memory(self.optimizer)
        self.module, self.mapping = loss.roof, Mapping.identity(loss.tensors)
        torch_loss = loss.in_torch if self.verify else None
        if self._by_hand is not None:
            if loss.random and self.verify:
                raise UsageError(
                    "the loss draws random numbers that jax_loss cannot see, so the two cannot be compared. Draw them "
                    "outside and pass them in the batch, or pass verify=False."
                )
            loss.random = False
            by_hand, boxes = self._by_hand, loss.boxes
            jax_loss = by_hand if boxes is None else lambda model, batch: by_hand(model, boxes.close(batch))
            return Source(jax_loss, self.mapping, torch_loss, Reads(by_hand), by_name=True), batch
        self._draw = loss.draw if loss.random else None
        batch = (batch, loss.drawn(kind, batch)) if loss.random else batch
        state = {name: private(tensor) for name, tensor in loss.tensors.items()}
        self.jax_loss = Imported(loss, state, example(batch))
        return Source(self.jax_loss, self.mapping, torch_loss, loss.reads, imported=True, by_name=True), batch


class Imported:
    """`jax_loss(model, batch)` of a torch loss: `model` is a `NamedArrays`."""

    def __init__(self, loss: LiveLoss, state: dict[str, torch.Tensor], batch: PyTree):
        from ..from_torch.imported import import_torch

        self.function = import_torch(loss.pure, state, batch)

    def __call__(self, model: NamedArrays, batch: PyTree) -> Any:
        loss, info, buffers = self.function(dict(model), batch)
        return (loss, info, NamedArrays(buffers)) if buffers else (loss, info)


def _unopened(model: Any, batch: Any) -> Any:
    raise AssertionError("the loss is imported when the first batch is known")


def _tensor(leaf: Any) -> torch.Tensor:
    """A batch as torch users hold it: with 64-bit integers, which indexing and losses ask for."""
    tensor = to_torch(leaf)
    return tensor.long() if tensor.dtype == torch.int32 else tensor


def _reject_shared_memory(optimizer: torch.optim.Optimizer) -> None:
    """Two parameters over the same memory would each be written as if alone."""
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    spans = sorted((p.data_ptr(), p.data_ptr() + p.numel() * p.element_size(), tuple(p.shape)) for p in owned)
    for (_, end, shape), (start, _, other) in zip(spans, spans[1:], strict=False):
        if start < end:
            raise UsageError(
                f"expected parameters with memory of their own; two of shapes {shape} and {other} share theirs. Use "
                f"one Parameter in both places."
            )
