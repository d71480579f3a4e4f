"""torch's schedulers as JAX functions of the update count: the values torch gives, whenever they are picked up."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from crossfade.bridge.optimizers.schedules import advance, to_schedule
from crossfade.errors import NoCounterpart, UsageError

RATES = (0.1, 3e-4)

SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=30, gamma=0.3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.98),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=50),
    "CosineAnnealingLR with a floor": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=70, eta_min=1e-5),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=120),
    "LinearLR to zero": lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=90),
    "LinearLR of no length": lambda o: lr_scheduler.LinearLR(o, start_factor=0.5, total_iters=0),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [10, 10, 60, 200], gamma=0.3),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, factor=0.25, total_iters=40),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=200, power=2.5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=30, eta_min=1e-5),
    "CosineAnnealingWarmRestarts longer": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=7, T_mult=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, list(RATES), total_steps=260, cycle_momentum=False),
    "OneCycleLR of three phases": lambda o: lr_scheduler.OneCycleLR(
        o,
        list(RATES),
        total_steps=260,
        three_phase=True,
        anneal_strategy="linear",
        cycle_momentum=False,
    ),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.LinearLR(o, 0.1, total_iters=20),
            lr_scheduler.CosineAnnealingLR(o, T_max=90),
            lr_scheduler.StepLR(o, 30, gamma=0.5),
        ],
        milestones=[20, 110],
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [
            lr_scheduler.ConstantLR(o, 0.1, total_iters=20),
            lr_scheduler.ExponentialLR(o, gamma=0.98),
            lr_scheduler.MultiStepLR(o, [50]),
        ]
    ),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, [lambda epoch: 0.95**epoch, lambda epoch: 1 - epoch / 1000]),
}

FROM_BASE = ("Lambda", "LinearLR of no length", "CosineAnnealingWarm", "OneCycle")  # torch forgets a rate set by hand

UNTRACEABLE = {
    "a branch": lambda epoch: 1.0 if epoch < 10 else 0.5,
    "math": lambda epoch: math.exp(-epoch),
    "NumPy": lambda epoch: np.cos(epoch / 100),
    "a list": lambda epoch: [1.0, 0.5][epoch % 2],
}


def optimizer():
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": rate} for rate in RATES]
    return torch.optim.SGD(groups, lr=1.0)


def torch_rates(scheduler, epochs):
    rates = []
    for _ in range(epochs):
        rates.append(scheduler.get_last_lr())
        advance(scheduler, 1)
    return np.asarray(rates)


def jax_rates(schedule, counts):
    return np.stack(jax.vmap(schedule)(jnp.asarray(counts, jnp.int32)), axis=-1)


def gap(got, expected):
    """The largest difference, relative to each group's first rate."""
    return np.max(np.abs(got - expected) / np.asarray(RATES))


@pytest.mark.parametrize("start, every", [(0, 1), (137, 1), (24, 7)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_schedule_gives_the_rates_torch_gives(name, start, every, x64):
    expected = torch_rates(SCHEDULES[name](optimizer()), 250)
    resumed = SCHEDULES[name](optimizer())
    advance(resumed, start)
    counts = np.arange(start * every, 250 * every)
    got = jax_rates(to_schedule(resumed, count=start * every, every=every), counts)
    assert gap(got, expected[counts // every]) <= 1e-13


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "LinearLR of no length"])
def test_a_wrong_count_is_seen(name, x64):
    expected = torch_rates(SCHEDULES[name](optimizer()), 80)
    got = jax_rates(to_schedule(SCHEDULES[name](optimizer()), count=1), np.arange(80))
    assert gap(got, expected) > 1e-3


def test_float32_rates_stay_exact_over_long_runs():
    scheduler = lr_scheduler.ExponentialLR(optimizer(), gamma=0.9999)
    got = jax_rates(to_schedule(scheduler), [10_000])
    assert gap(got, np.asarray(RATES) * 0.9999**10_000) <= 1e-6


@pytest.mark.parametrize("reason", UNTRACEABLE)
def test_a_function_that_cannot_be_traced_is_refused_and_tabulated_on_demand(reason, x64):
    scheduler = lr_scheduler.LambdaLR(optimizer(), UNTRACEABLE[reason])
    with pytest.raises(NoCounterpart, match="horizon="):
        to_schedule(scheduler)
    got = jax_rates(to_schedule(scheduler, horizon=60), np.arange(61))
    assert gap(got[:60], torch_rates(scheduler, 60)) == 0
    assert np.isnan(got[60]).all()


def test_a_function_that_overflows_in_32_bits_is_refused():
    scheduler = lr_scheduler.LambdaLR(optimizer(), lambda epoch: 1 - epoch**3 / 1e13)
    with pytest.raises(NoCounterpart, match="instead of"):
        to_schedule(scheduler)


def test_a_horizon_already_passed_is_refused():
    scheduler = lr_scheduler.LambdaLR(optimizer(), UNTRACEABLE["a branch"])
    advance(scheduler, 20)
    with pytest.raises(UsageError, match="horizon beyond the scheduler's epoch 20"):
        to_schedule(scheduler, horizon=20)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=100),
        lambda o: lr_scheduler.ReduceLROnPlateau(o),
        lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
        lambda o: type("Mine", (lr_scheduler.StepLR,), {})(o, 10),
    ],
)
def test_schedulers_without_counterpart_are_refused_by_name(make):
    scheduler = make(optimizer())
    with pytest.raises(NoCounterpart, match=type(scheduler).__name__):
        to_schedule(scheduler)


def test_a_cycled_momentum_is_refused():
    with pytest.raises(NoCounterpart, match="cycle_momentum=False"):
        to_schedule(lr_scheduler.OneCycleLR(optimizer(), max_lr=1.0, total_steps=100))


def test_one_cycle_has_no_rate_after_its_last_step(x64):
    scheduler = lr_scheduler.OneCycleLR(optimizer(), max_lr=1.0, total_steps=10, cycle_momentum=False)
    got = jax_rates(to_schedule(scheduler), np.arange(12))
    assert np.isfinite(got[:11]).all() and np.isnan(got[11]).all()


def test_a_chain_whose_parts_depend_on_each_other_is_refused():
    shared = optimizer()
    parts = [lr_scheduler.CosineAnnealingLR(shared, T_max=10), lr_scheduler.ExponentialLR(shared, gamma=0.9)]
    with pytest.raises(NoCounterpart, match="got CosineAnnealingLR"):
        to_schedule(lr_scheduler.ChainedScheduler(parts))


def test_a_rate_changed_by_a_second_scheduler_is_refused():
    shared = optimizer()
    first = lr_scheduler.StepLR(shared, step_size=10)
    second = lr_scheduler.LinearLR(shared, start_factor=0.5, total_iters=40)
    advance(first, 10)
    advance(second, 10)
    for scheduler in (first, second):
        with pytest.raises(NoCounterpart, match="second scheduler"):
            to_schedule(scheduler)


def test_a_decay_that_is_not_positive_is_refused():
    with pytest.raises(NoCounterpart, match="gamma"):
        to_schedule(lr_scheduler.ExponentialLR(optimizer(), gamma=0.0))


@pytest.mark.parametrize("change", [1e-3, 1e-5, 1e-8, 3e-16])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_set_by_hand_is_refused_however_near_it_is(name, change):
    shared = optimizer()
    scheduler = SCHEDULES[name](shared)
    advance(scheduler, 7)
    shared.param_groups[1]["lr"] *= 1 + change
    with pytest.raises(NoCounterpart, match=r"set by hand .*bridge.with_learning_rate"):
        to_schedule(scheduler)


@pytest.mark.parametrize("change", [1e-5, 1e-8, 1e-12])
@pytest.mark.parametrize("name", [name for name in SCHEDULES if not name.startswith(FROM_BASE)])
def test_a_rate_set_by_hand_from_which_torch_went_on_is_refused(name, change):
    shared = optimizer()
    scheduler = SCHEDULES[name](shared)
    advance(scheduler, 7)
    shared.param_groups[0]["lr"] *= 1 + change
    advance(scheduler, 7)
    with pytest.raises(NoCounterpart, match="set by hand"):
        to_schedule(scheduler)


@pytest.mark.parametrize("epochs", [999, 1000, 1001, 2500])
def test_a_rate_beside_the_formula_is_accepted_where_torch_itself_comes_to_it(epochs):
    """torch's recursion for the cosine loses digits in the valley."""
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer(), T_max=1000)
    advance(scheduler, epochs)
    got = jax_rates(to_schedule(scheduler, count=epochs), [epochs])
    assert gap(got, scheduler.get_last_lr()) < 1e-6


@pytest.mark.parametrize("phase", [0, 3, 6])
def test_a_schedule_goes_on_within_its_period(phase, x64):
    scheduler = SCHEDULES["LinearLR"](optimizer())
    advance(scheduler, 4)
    expected = torch_rates(scheduler, 10)  # from epoch 4 on
    advance(again := SCHEDULES["LinearLR"](optimizer()), 4)
    got = jax_rates(to_schedule(again, count=100, every=7, phase=phase), 100 + np.arange(60))
    assert gap(got, expected[(np.arange(60) + phase) // 7]) <= 1e-13


@pytest.mark.parametrize("every, phase", [(7, 7), (7, -1), (0, 0)])
def test_a_phase_outside_its_period_is_refused(every, phase):
    with pytest.raises(UsageError, match="schedule_phase from 0 to schedule_every - 1"):
        to_schedule(SCHEDULES["StepLR"](optimizer()), every=every, phase=phase)
