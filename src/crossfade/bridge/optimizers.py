"""Optimisers across the border: a torch optimiser becomes an optax transformation with its state, and back.

Both ways lead through `OptimizerState`, the neutral record under torch's names that checkpoints keep as well:

    torch.optim  -- read_torch -->   OptimizerState  -- build_optax -->  optax
    torch.optim  <-- write_torch --  OptimizerState  <-- read_optax --   optax
"""

import torch
from jaxtyping import PyTree
from torch.optim.lr_scheduler import LRScheduler

from ..errors import UsageError
from .mapping import Mapping
from .optimizers_optax import OptaxOptimizer, build_optax, read_optax, write_optax
from .optimizers_torch import OptimizerState, Parameters, advance, by_name, read_torch, write_torch
from .schedules import to_schedule

__all__ = [
    "OptaxOptimizer",
    "OptimizerState",
    "Parameters",
    "build_optax",
    "read_optax",
    "read_torch",
    "to_optax",
    "to_torch_optimizer",
    "write_optax",
    "write_torch",
]


def to_optax(
    torch_optimizer: torch.optim.Optimizer,
    mapping: Mapping,
    *,
    scheduler: LRScheduler | None = None,
    schedule_every: int = 1,
    horizon: int | None = None,
    clip_norm: float | None = None,
    named_parameters: Parameters | None = None,
) -> OptaxOptimizer:
    """The optax twin of a torch optimiser, standing where the torch one stands.

    `scheduler` is stepped every `schedule_every` updates; a LambdaLR whose function JAX cannot trace is tabulated for
    `horizon` scheduler steps, and gives NaN beyond. `clip_norm` is that of a `clip_grad_norm_` over the optimiser's
    parameters before each step. Parameters in no group, or with `requires_grad=False`, stay fixed. torch's SGD keeps
    no count: with `schedule_every > 1` hand it over when the scheduler has just stepped.
    """
    state = read_torch(torch_optimizer, _parameters(torch_optimizer, mapping, named_parameters))
    if scheduler is None:
        return build_optax(state, mapping, clip_norm=clip_norm)
    _check_scheduler(scheduler, torch_optimizer)
    state = state.at_step(_updates(state, scheduler, schedule_every))
    schedule = to_schedule(scheduler, count=state.step, every=schedule_every, horizon=horizon)
    return build_optax(state, mapping, schedule=schedule, clip_norm=clip_norm)


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

    A `scheduler` is stepped as often as torch would have stepped it since `torch_optimizer` was last current; without
    one the learning rates stay as they are.
    """
    named = _parameters(torch_optimizer, mapping, named_parameters)
    before = read_torch(torch_optimizer, named)
    after = read_optax(opt_state, before, mapping)
    if scheduler is None:
        return write_torch(after, torch_optimizer, named)
    _check_scheduler(scheduler, torch_optimizer)
    done = _updates(before, scheduler, schedule_every)
    if after.step < done:
        raise UsageError(
            f"expected an optax state no older than the torch optimiser, which has made {done} updates; got one of "
            f"{after.step}. A scheduler cannot be stepped backwards: give a torch optimiser and scheduler made anew."
        )
    write_torch(after, torch_optimizer, named)
    advance(scheduler, after.step // schedule_every - done // schedule_every)


def _parameters(
    optimizer: torch.optim.Optimizer, mapping: Mapping, given: Parameters | None
) -> dict[str, torch.Tensor]:
    """The optimiser's parameters by name: as given, as in the module that was matched, or as torch was told."""
    if given is not None:
        return by_name(given)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if mapping.origin is not None:
        matched = by_name(mapping.origin[0])
        if {id(p) for p in parameters} <= {id(p) for p in matched.values()}:
            return matched
    if all("param_names" in group for group in optimizer.param_groups):
        names = [name for group in optimizer.param_groups for name in group["param_names"]]
        return dict(zip(names, parameters, strict=True))
    raise UsageError(
        "the optimiser's parameters are not those of the module that was matched, and torch keeps no names: pass "
        "named_parameters=module, or build the optimiser from module.named_parameters()."
    )


def _check_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> None:
    if scheduler.optimizer is not optimizer:
        raise UsageError("expected the scheduler of this very optimiser, got one that drives another.")


def _updates(state: OptimizerState, scheduler: LRScheduler, every: int) -> int:
    """Updates made so far; of SGD only the scheduler knows."""
    return max(state.step, scheduler.last_epoch * every) if state.kind == "SGD" else state.step
