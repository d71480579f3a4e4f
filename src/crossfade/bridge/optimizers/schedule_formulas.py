"""torch's learning-rate schedulers in closed form: the rate of a group at an epoch of the scheduler.

A formula is written once for NumPy, where it is checked against torch's own rate, and for JAX, which traces it.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from torch.optim import lr_scheduler

from ...errors import NoCounterpart, UsageError

Formula = Callable[[Any, Any], Any]  # (epoch, numpy or jax.numpy) -> learning rate

PROBES = (0, 1, 2, 3, 7, 10, 100, 1_000, 10_000)  # epochs ahead at which a traced LambdaLR is checked
LONGEST = 2**31  # epochs


def formula(scheduler: Any, group: int, horizon: int | None = None) -> Formula:
    """The rate of a parameter group under a scheduler; a LambdaLR is tabulated for `horizon` epochs if given."""
    match type(scheduler):
        case lr_scheduler.LambdaLR:
            base, function = float(scheduler.base_lrs[group]), scheduler.lr_lambdas[group]
            return _lambda(base, function, horizon, scheduler.last_epoch)
        case lr_scheduler.SequentialLR:
            return _sequential(scheduler, group, horizon)
        case lr_scheduler.ChainedScheduler:
            return _chained(scheduler, group)
        case lr_scheduler.OneCycleLR:
            return _one_cycle(scheduler, group)
        case kind if kind in FORMULAS:
            return FORMULAS[kind](scheduler, float(scheduler.base_lrs[group]))
    others = "OneCycleLR, SequentialLR, ChainedScheduler, LambdaLR"
    raise NoCounterpart(
        f"expected one of {', '.join(c.__name__ for c in FORMULAS)}, {others}; got {type(scheduler).__name__}, "
        f"which has no traceable counterpart here. Write it as a LambdaLR, or pass a schedule to build_optax."
    )


def epoch_of(scheduler: Any) -> int:
    """How often a scheduler has been stepped."""
    while isinstance(scheduler, lr_scheduler.ChainedScheduler):
        scheduler = scheduler._schedulers[0]
    return scheduler.last_epoch


def _step(scheduler: Any, base: float) -> Formula:
    return lambda epoch, xp: base * _power(scheduler.gamma, epoch // scheduler.step_size, xp)


def _multi_step(scheduler: Any, base: float) -> Formula:
    milestones = np.asarray(sorted(scheduler.milestones.elements()), np.int64)

    def formula(epoch, xp):
        passed = (xp.asarray(milestones.astype(np.int32)) <= epoch).sum()
        return base * _power(scheduler.gamma, passed, xp)

    return formula


def _constant(scheduler: Any, base: float) -> Formula:
    return lambda epoch, xp: base * xp.where(epoch < scheduler.total_iters, scheduler.factor, 1.0)


def _exponential(scheduler: Any, base: float) -> Formula:
    return lambda epoch, xp: base * _power(scheduler.gamma, epoch, xp)


def _polynomial(scheduler: Any, base: float) -> Formula:
    total, power = scheduler.total_iters, scheduler.power
    return lambda epoch, xp: base * ((total - xp.minimum(epoch, total)) / max(total, 1)) ** power  # never below 0


def _cosine(scheduler: Any, base: float) -> Formula:
    low, half = scheduler.eta_min, scheduler.T_max

    def formula(epoch, xp):  # falls until T_max, then rises again: the period is 2 T_max
        return low + (base - low) * (1 + xp.cos(math.pi * (epoch % (2 * half)) / half)) / 2

    return formula


def _restarts(scheduler: Any, base: float) -> Formula:
    """Cosines one after another, each `T_mult` times as long as the one before."""
    low, first, times = scheduler.eta_min, scheduler.T_0, scheduler.T_mult
    starts, length = [0], first
    while times > 1 and starts[-1] + length < LONGEST:
        starts, length = [*starts, starts[-1] + length], length * times
    lengths = np.asarray([first * times**i for i in range(len(starts))], np.float64)

    def formula(epoch, xp):
        which = (xp.asarray(np.asarray(starts, np.int32)) <= epoch).sum() - 1
        into = epoch % first if times == 1 else epoch - xp.asarray(np.asarray(starts, np.int32))[which]
        return low + (base - low) * (1 + xp.cos(math.pi * into / xp.asarray(lengths)[which])) / 2

    return formula


def _linear(scheduler: Any, base: float) -> Formula:
    start, end, total = scheduler.start_factor, scheduler.end_factor, scheduler.total_iters
    return lambda epoch, xp: base * (start + (end - start) * xp.minimum(epoch, total) / max(total, 1))


FORMULAS: dict[type, Callable[[Any, float], Formula]] = {
    lr_scheduler.StepLR: _step,
    lr_scheduler.MultiStepLR: _multi_step,
    lr_scheduler.ConstantLR: _constant,
    lr_scheduler.ExponentialLR: _exponential,
    lr_scheduler.PolynomialLR: _polynomial,
    lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.CosineAnnealingWarmRestarts: _restarts,
    lr_scheduler.LinearLR: _linear,
}

ARGUMENTS: dict[type, tuple[str, ...]] = {
    lr_scheduler.StepLR: ("step_size", "gamma"),
    lr_scheduler.ExponentialLR: ("gamma",),
    lr_scheduler.PolynomialLR: ("total_iters", "power"),
    lr_scheduler.CosineAnnealingLR: ("T_max", "eta_min"),
    lr_scheduler.LinearLR: ("start_factor", "end_factor", "total_iters"),
}
"""What makes a scheduler that torch steps by recursion anew."""

FACTORS = (
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.LinearLR,
)
"""Schedulers that multiply the rate they find, whatever it is."""


def _one_cycle(scheduler: Any, group: int) -> Formula:
    if scheduler.cycle_momentum:
        raise NoCounterpart(
            "OneCycleLR moves the momentum too, which is a constant of the optax transformation. Make it with "
            "cycle_momentum=False."
        )
    rates, phases = scheduler.optimizer.param_groups[group], scheduler._schedule_phases
    ends = [0.0, *(float(phase["end_step"]) for phase in phases)]

    def formula(epoch, xp):
        rate = xp.asarray(xp.nan)  # torch has no rate after its last step
        for i in reversed(range(len(phases))):
            start, end = float(rates[phases[i]["start_lr"]]), float(rates[phases[i]["end_lr"]])
            share = (epoch - ends[i]) / (ends[i + 1] - ends[i])
            if scheduler._anneal_func_type == "cos":
                now = end + (start - end) / 2 * (1 + xp.cos(math.pi * share))
            else:
                now = start + (end - start) * share
            last = scheduler.total_steps if i == len(phases) - 1 else ends[i + 1]
            rate = xp.where(epoch <= last, now, rate)
        return rate

    return formula


def _sequential(scheduler: Any, group: int, horizon: int | None) -> Formula:
    """Each scheduler from its milestone on, counted from there."""
    parts = [formula(part, group, horizon) for part in scheduler._schedulers]
    starts = [0, *scheduler._milestones]

    def sequential(epoch, xp):
        rate = parts[0](epoch, xp)
        for start, part in zip(starts[1:], parts[1:], strict=True):
            rate = xp.where(epoch >= start, part(xp.maximum(epoch - start, 0), xp), rate)
        return rate

    return sequential


def _chained(scheduler: Any, group: int) -> Formula:
    """The product of what each scheduler does to the first rate."""
    if others := [type(part).__name__ for part in scheduler._schedulers if type(part) not in FACTORS]:
        raise NoCounterpart(
            f"expected a ChainedScheduler of schedulers that multiply the rate, "
            f"{', '.join(c.__name__ for c in FACTORS)}; got {', '.join(others)}, whose rate depends on what the others "
            f"did before. Write the whole schedule as one LambdaLR."
        )
    base = float(scheduler._schedulers[0].base_lrs[group])
    parts = [FORMULAS[type(part)](part, 1.0) for part in scheduler._schedulers]
    return lambda epoch, xp: base * math.prod((part(epoch, xp) for part in parts), start=1.0)


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
        _check_traceable(function, max(now, 0))
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
