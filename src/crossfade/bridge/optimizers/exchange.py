"""Optimisers across the border: a torch optimiser becomes an optax transformation with its state, and back.

Both ways lead through `OptimizerState`, the neutral record under torch's names that checkpoints keep as well:

    torch.optim  -- read_torch -->   OptimizerState  -- build_optax -->  optax
    torch.optim  <-- write_torch --  OptimizerState  <-- read_optax --   optax
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import PyTree
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...errors import UsageError
from ..mapping import Mapping
from .plateau import read_plateau, with_metric, write_plateau
from .rates import read_rates, with_learning_rate
from .schedule_formulas import epoch_of
from .schedules import clock, to_schedule
from .state_optax import OptaxOptimizer, build_optax, read_optax, write_optax
from .state_torch import OptimizerState, Parameters, advance, by_name, read_torch, write_torch

__all__ = [
    "OptaxOptimizer",
    "OptimizerState",
    "Parameters",
    "build_optax",
    "parameters_by_name",
    "read_optax",
    "read_torch",
    "to_optax",
    "to_torch_optimizer",
    "with_learning_rate",
    "with_metric",
    "write_optax",
    "write_torch",
]


def to_optax(
    torch_optimizer: torch.optim.Optimizer,
    mapping: Mapping,
    *,
    scheduler: LRScheduler | None = None,
    schedule_every: int = 1,
    schedule_phase: int | None = None,
    horizon: int | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    skipped: Iterable[str] = (),
    named_parameters: Parameters | None = None,
) -> OptaxOptimizer:
    """The optax twin of a torch optimiser, standing where the torch one stands.

    Learning rates. `scheduler` is stepped every `schedule_every` updates; since its last step `schedule_phase` updates
    have been made. torch's count of updates tells the phase if the scheduler has run from the start; SGD keeps none and
    needs to be told. A LambdaLR whose function JAX cannot trace is tabulated for `horizon` scheduler steps, and gives
    NaN beyond. A ReduceLROnPlateau goes along in the optax state: `opt_state = with_metric(opt_state, metric)` is its
    step. Without a scheduler the rates are in the optax state: code that sets `param_groups[i]["lr"]` by hand goes on
    with `opt_state = with_learning_rate(opt_state, rate)`.

    Gradients. `clip_norm` is that of a `clip_grad_norm_` over the optimiser's parameters before each step, `clip_value`
    that of a `clip_grad_value_`. Parameters in no group, or with `requires_grad=False`, stay fixed. torch also skips
    parameters without a gradient, which in JAX is a gradient of zeros: a parameter whose count is behind the others'
    has been skipped before and is skipped whenever its gradient is all zeros; one that was never updated is not decayed
    before its first other gradient. `skipped` names further parameters that get no gradient at some updates, where no
    count tells (skipping.py).
    """
    state = read_torch(torch_optimizer, parameters_by_name(torch_optimizer, mapping, named_parameters))
    given: Any = {"clip_norm": clip_norm, "clip_value": clip_value, "skipped": skipped}
    if scheduler is None:
        return build_optax(state, mapping, **given)
    _check_scheduler(scheduler, torch_optimizer)
    if isinstance(scheduler, ReduceLROnPlateau):
        return build_optax(state, mapping, **given, plateau=read_plateau(scheduler))
    phase = _phase(state, scheduler, schedule_every) if schedule_phase is None else schedule_phase
    now = clock(scheduler, schedule_every, phase)
    count = now if state.kind == "SGD" else state.step
    schedule = to_schedule(scheduler, count=count, every=schedule_every, phase=phase, horizon=horizon)
    return build_optax(state, mapping, **given, schedule=schedule, count=count, clock=now)


def to_torch_optimizer(
    opt_state: PyTree,
    mapping: Mapping,
    torch_optimizer: torch.optim.Optimizer,
    *,
    scheduler: LRScheduler | None = None,
    schedule_every: int = 1,
    named_parameters: Parameters | None = None,
) -> None:
    """Writes an optax state into `torch_optimizer`, as if torch had made the updates.

    A `scheduler` is stepped as often as torch would have stepped it since `torch_optimizer` was last current. Without
    one the learning rates stay as they are, or become those set by `with_learning_rate`.
    """
    named = parameters_by_name(torch_optimizer, mapping, named_parameters)
    before = read_torch(torch_optimizer, named)
    after = read_optax(opt_state, before, mapping)
    if scheduler is None:
        return write_torch(after, torch_optimizer, named)
    _check_scheduler(scheduler, torch_optimizer)
    if isinstance(scheduler, ReduceLROnPlateau):
        write_torch(after, torch_optimizer, named)
        return write_plateau(opt_state, scheduler)
    if after.groups != before.groups:
        raise UsageError(
            f"expected learning rates that follow the scheduler, got {[g['lr'] for g in after.groups]} set by hand in "
            f"the optax state. Leave out scheduler=, or pass it to to_optax too and set no rates by hand."
        )
    rates, epoch = read_rates(opt_state), epoch_of(scheduler)
    done = epoch * schedule_every if before.kind == "SGD" else before.step
    ahead = (
        after.step // schedule_every - done // schedule_every
        if rates is None
        else rates.clock // schedule_every - epoch
    )
    if after.step < before.step or ahead < 0:
        raise UsageError(
            f"expected an optax state no older than the torch optimiser, which has made {done} updates; got one of "
            f"{after.step}. A scheduler cannot be stepped backwards: give a torch optimiser and scheduler made anew."
        )
    write_torch(after, torch_optimizer, named)
    advance(scheduler, int(ahead))


def _phase(state: OptimizerState, scheduler: LRScheduler, every: int) -> int:
    """How many updates have been made since the scheduler's last step, by torch's count of updates."""
    if every == 1:
        return 0
    counted = state.kind != "SGD" or all(group["momentum"] for group in state.groups) and not state.step
    if counted and state.step // every == epoch_of(scheduler):
        return state.step % every
    updates = f"{state.step} updates" if counted else "no count of updates (torch's SGD keeps none)"
    raise UsageError(
        f"expected the optimiser to tell how many updates were made since the scheduler's last step, got {updates} "
        f"and a scheduler at epoch {epoch_of(scheduler)}, stepped every {every} updates. Pass schedule_phase=, a "
        f"number from 0 (the scheduler has just been stepped) to {every - 1}."
    )


def parameters_by_name(
    optimizer: torch.optim.Optimizer, mapping: Mapping, given: Parameters | None
) -> dict[str, torch.Tensor]:
    """The optimiser's parameters by the mapping's names: as given, as in the module that was matched, or as torch was
    told."""
    if given is not None:
        return _plainly(by_name(given), mapping)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if mapping.origin is not None:
        matched = _plainly(by_name(mapping.origin[0]), mapping)
        if {id(p) for p in parameters} <= {id(p) for p in matched.values()}:
            return matched
    if all("param_names" in group for group in optimizer.param_groups):
        names = [name for group in optimizer.param_groups for name in group["param_names"]]
        return _plainly(dict(zip(names, parameters, strict=True)), mapping)
    raise UsageError(
        "the optimiser's parameters are not those of the module that was matched, and torch keeps no names: pass "
        "named_parameters=module (to checkpoint.save an OptimizerState), or build the optimiser from "
        "module.named_parameters()."
    )


def _plainly(named: dict[str, torch.Tensor], mapping: Mapping) -> dict[str, torch.Tensor]:
    """Without the prefixes of DDP and `torch.compile`."""
    return {mapping.plain_name(name): parameter for name, parameter in named.items()}


def _check_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> None:
    if scheduler.optimizer is not optimizer:
        raise UsageError("expected the scheduler of this very optimiser, got one that drives another.")
