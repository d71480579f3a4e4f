"""torch's learning-rate schedulers as functions of the update count that JAX can trace.

torch computes most schedules by recursion on the current rate; the closed forms of schedule_formulas.py give the same
values up to rounding. After the valley of CosineAnnealingLR torch's own recursion carries a relative error of about
1e-17 T_max**2, which is not imitated.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from ...errors import NoCounterpart, UsageError
from .schedule_formulas import ARGUMENTS, Formula, epoch_of, formula
from .state_torch import advance


def to_schedule(
    scheduler: LRScheduler, *, count: int = 0, every: int = 1, phase: int | None = None, horizon: int | None = None
) -> Callable[[Any], tuple[Any, ...]]:
    """`schedule(count)`: the learning rate of each group after `count` updates, one scheduler step per `every` updates.

    The scheduler stands now at `count` updates, the last `phase` of them (by default `count % every`) made since it was
    stepped. A LambdaLR is tabulated for `horizon` scheduler steps if that is given.
    """
    formulas = [formula(scheduler, i, horizon) for i in range(len(scheduler.optimizer.param_groups))]
    _check_current(scheduler, formulas)
    offset = clock(scheduler, every, count % every if phase is None else phase) - count

    def schedule(count):
        epoch = (jnp.asarray(count).astype(int) + offset) // every  # int64 if on: an int32 divides into float32
        return tuple(closed(epoch, jnp) for closed in formulas)

    return schedule


def clock(scheduler: LRScheduler, every: int, phase: int) -> int:
    """Where a scheduler stands, in updates: its epochs and, within the present one, `phase` updates."""
    if every < 1 or not 0 <= phase < every:
        raise UsageError(
            f"expected schedule_every of at least 1 and a schedule_phase from 0 to schedule_every - 1, got {every} and "
            f"{phase}. The phase is the number of updates made since the scheduler was last stepped."
        )
    return epoch_of(scheduler) * every + phase


def _check_current(scheduler: LRScheduler, formulas: list[Formula]) -> None:
    """Refuses rates that the scheduler has not made: torch carries on from a rate set by hand, a formula cannot."""
    groups, epoch = scheduler.optimizer.param_groups, epoch_of(scheduler)
    for i, (group, last, closed) in enumerate(zip(groups, scheduler.get_last_lr(), formulas, strict=True)):
        rate, expected = float(group["lr"]), float(closed(np.int64(epoch), np))
        rounding = (16 + 4 * epoch) * np.finfo(float).eps * abs(expected)
        if rate == float(last) and (abs(rate - expected) <= rounding or _drifts(scheduler, i, rate, expected)):
            continue
        raise NoCounterpart(
            f"expected a learning rate of {expected} from {type(scheduler).__name__} at epoch {epoch}, "
            f"got {rate}: it was set by hand or by a second scheduler. Make the scheduler anew from that rate, put "
            f"the whole schedule into one LambdaLR, or leave out scheduler= and use bridge.with_learning_rate."
        )


def _drifts(scheduler: Any, group: int, rate: float, expected: float) -> bool:
    """Whether a rate beside the closed form is what torch's recursion comes to, which is then within 1e-4 of it."""
    while isinstance(scheduler, lr_scheduler.SequentialLR):  # the part that is stepped now
        scheduler = scheduler._schedulers[bisect_right(scheduler._milestones, scheduler.last_epoch)]
    if type(scheduler) not in ARGUMENTS:
        return False
    base = float(scheduler.base_lrs[group])
    alone = torch.optim.SGD([torch.zeros(1)], lr=base)
    replayed = type(scheduler)(alone, **{name: getattr(scheduler, name) for name in ARGUMENTS[type(scheduler)]})
    advance(replayed, scheduler.last_epoch)
    return float(replayed.get_last_lr()[0]) == rate and math.isclose(rate, expected, rel_tol=1e-4, abs_tol=1e-9 * base)
