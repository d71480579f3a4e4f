"""torch's learning-rate schedulers as functions of the update count that JAX can trace.

torch computes most schedules by recursion on the current rate; the closed forms here give the same values up to
rounding. After the valley of CosineAnnealingLR torch's own recursion carries a relative error of about
1e-17 T_max**2, which is not imitated.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from ..errors import NoCounterpart, UsageError
from .optimizers_torch import advance

Formula = Callable[[Any, Any], Any]  # (epoch, numpy or jax.numpy) -> learning rate

PROBES = (0, 1, 2, 3, 7, 10, 100, 1_000, 10_000)  # epochs ahead at which a traced LambdaLR is checked


def to_schedule(
    scheduler: LRScheduler, *, count: int = 0, every: int = 1, phase: int | None = None, horizon: int | None = None
) -> Callable[[Any], tuple[Any, ...]]:
    """`schedule(count)`: the learning rate of each group after `count` updates, one scheduler step per `every` updates.

    The scheduler stands now at `count` updates, the last `phase` of them (by default `count % every`) made since it was
    stepped. A LambdaLR is tabulated for `horizon` scheduler steps if that is given.
    """
    formulas = _formulas(scheduler, horizon)
    _check_current(scheduler, formulas)
    offset = clock(scheduler, every, count % every if phase is None else phase) - count

    def schedule(count):
        epoch = (jnp.asarray(count).astype(int) + offset) // every  # int64 if on: an int32 divides into float32
        return tuple(formula(epoch, jnp) for formula in formulas)

    return schedule


def clock(scheduler: LRScheduler, every: int, phase: int) -> int:
    """Where a scheduler stands, in updates: its epochs and, within the present one, `phase` updates."""
    if every < 1 or not 0 <= phase < every:
        raise UsageError(
            f"expected schedule_every of at least 1 and a schedule_phase from 0 to schedule_every - 1, got {every} and "
            f"{phase}. The phase is the number of updates made since the scheduler was last stepped."
        )
    return scheduler.last_epoch * every + phase


def _formulas(scheduler: LRScheduler, horizon: int | None) -> list[Formula]:
    if type(scheduler) is lr_scheduler.LambdaLR:
        pairs = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
        return [_lambda(float(base), function, horizon, scheduler.last_epoch) for base, function in pairs]
    if type(scheduler) not in FORMULAS:
        raise NoCounterpart(
            f"expected one of {', '.join(c.__name__ for c in FORMULAS)}, LambdaLR; got {type(scheduler).__name__}, "
            f"which has no traceable counterpart here. Write it as a LambdaLR, or pass a schedule to build_optax."
        )
    return [FORMULAS[type(scheduler)](scheduler, float(base)) for base in scheduler.base_lrs]


def _check_current(scheduler: LRScheduler, formulas: list[Formula]) -> None:
    """Refuses rates that the scheduler has not made: torch carries on from a rate set by hand, a formula cannot."""
    groups = scheduler.optimizer.param_groups
    for i, (group, last, formula) in enumerate(zip(groups, scheduler.get_last_lr(), formulas, strict=True)):
        rate, expected = float(group["lr"]), float(formula(np.int64(scheduler.last_epoch), np))
        rounding = (16 + 4 * scheduler.last_epoch) * np.finfo(float).eps * abs(expected)
        if rate == float(last) and (abs(rate - expected) <= rounding or _drifts(scheduler, i, rate, expected)):
            continue
        raise NoCounterpart(
            f"expected a learning rate of {expected} from {type(scheduler).__name__} at epoch {scheduler.last_epoch}, "
            f"got {rate}: it was set by hand or by a second scheduler. Make the scheduler anew from that rate, put "
            f"the whole schedule into one LambdaLR, or leave out scheduler= and use bridge.with_learning_rate."
        )


def _drifts(scheduler: LRScheduler, group: int, rate: float, expected: float) -> bool:
    """Whether a rate beside the closed form is what torch's recursion comes to, which is then within 1e-4 of it."""
    if type(scheduler) not in ARGUMENTS:
        return False
    base = float(scheduler.base_lrs[group])
    alone = torch.optim.SGD([torch.zeros(1)], lr=base)
    replayed = type(scheduler)(alone, **{name: getattr(scheduler, name) for name in ARGUMENTS[type(scheduler)]})
    advance(replayed, scheduler.last_epoch)
    return float(replayed.get_last_lr()[0]) == rate and math.isclose(rate, expected, rel_tol=1e-4, abs_tol=1e-9 * base)


def _step(scheduler: Any, base: float) -> Formula:
    return lambda epoch, xp: base * _power(scheduler.gamma, epoch // scheduler.step_size, xp)


def _exponential(scheduler: Any, base: float) -> Formula:
    return lambda epoch, xp: base * _power(scheduler.gamma, epoch, xp)


def _cosine(scheduler: Any, base: float) -> Formula:
    low, half = scheduler.eta_min, scheduler.T_max

    def formula(epoch, xp):  # falls until T_max, then rises again: the period is 2 T_max
        return low + (base - low) * (1 + xp.cos(math.pi * (epoch % (2 * half)) / half)) / 2

    return formula


def _linear(scheduler: Any, base: float) -> Formula:
    start, end, total = scheduler.start_factor, scheduler.end_factor, scheduler.total_iters
    return lambda epoch, xp: base * (start + (end - start) * xp.minimum(epoch, total) / max(total, 1))


FORMULAS: dict[type, Callable[[Any, float], Formula]] = {
    lr_scheduler.StepLR: _step,
    lr_scheduler.ExponentialLR: _exponential,
    lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.LinearLR: _linear,
}

ARGUMENTS: dict[type, tuple[str, ...]] = {
    lr_scheduler.StepLR: ("step_size", "gamma"),
    lr_scheduler.ExponentialLR: ("gamma",),
    lr_scheduler.CosineAnnealingLR: ("T_max", "eta_min"),
    lr_scheduler.LinearLR: ("start_factor", "end_factor", "total_iters"),
}


def _power(gamma: float, exponent: Any, xp: Any) -> Any:
    """`gamma ** exponent` with the logarithm taken in double precision: 0.9999 ** 10_000 is 3e-4 off in float32."""
    if gamma <= 0:
        raise NoCounterpart(f"expected a decay gamma above 0, got {gamma}.")
    return xp.exp(exponent * math.log(gamma))


def _lambda(base: float, function: Callable[[Any], Any], horizon: int | None, now: int) -> Formula:
    """A user's function of the epoch: a table of it if `horizon` is given, else traced and checked against itself."""
    if horizon is not None:
        if now >= horizon:
            raise UsageError(f"expected a horizon beyond the scheduler's epoch {now}, got {horizon}.")
        table = np.asarray([float(function(epoch)) for epoch in range(horizon)])
        traced = lambda epoch: jnp.take(jnp.asarray(table), epoch, mode="fill", fill_value=jnp.nan)
    else:
        _check_traceable(function, now)
        traced = function
    return lambda epoch, xp: base * (traced(epoch) if xp is jnp else float(function(int(epoch))))


def _check_traceable(function: Callable[[Any], Any], now: int) -> None:
    """Refuses a function that cannot be traced, or that gives other values when it is (int32 overflow, float32)."""
    epochs = [now + ahead for ahead in PROBES]
    tolerance = 1e-12 if jnp.result_type(float) == jnp.float64 else 1e-5
    try:
        host = np.asarray([float(function(epoch)) for epoch in epochs])
        traced = np.asarray(jax.vmap(function)(jnp.asarray(epochs)))
        if np.all(np.abs(traced - host) <= tolerance * np.abs(host).max()):
            return
        reason = f"gives {traced.tolist()} instead of {host.tolist()} at epochs {epochs}"
    except (TypeError, ArithmeticError, LookupError) as error:
        reason = f"cannot be traced: {str(error).splitlines()[0]}"
    raise NoCounterpart(
        f"LambdaLR's function {getattr(function, '__qualname__', function)!r} {reason}. Pass horizon=, the number of "
        f"scheduler steps to tabulate it for, or write it with jax.numpy."
    )
