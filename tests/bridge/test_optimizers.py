"""100 steps in torch then 100 in optax equal 200 in either, both ways round, for each optimiser and schedule."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
import torch
from optimizer_nets import INPUTS, STEPS, TARGETS, NetEquinox, difference, make_module, numbers, train_torch
from torch import optim
from torch.optim import lr_scheduler

from crossfade.bridge.mapping import Mapping
from crossfade.bridge.optimizers.exchange import to_optax, to_torch_optimizer

HALF = STEPS // 2
EXACT = 1e-12
pytestmark = pytest.mark.usefixtures("x64")


def two_groups(module):
    return [
        {"params": list(module.outer.named_parameters(prefix="outer")), "lr": 3e-3, "weight_decay": 0.0},
        {"params": list(module.inner.named_parameters(prefix="inner")), "betas": (0.8, 0.99), "eps": 1e-5},
    ]


def frozen_inner(module):
    return list(module.outer.named_parameters(prefix="outer"))


# name -> (make the optimiser, clip_grad_norm_)
OPTIMIZERS = {
    "sgd": (lambda m: optim.SGD(m.named_parameters(), lr=0.05, weight_decay=0.01), None),
    "sgd momentum": (lambda m: optim.SGD(m.named_parameters(), lr=0.02, momentum=0.9), 0.5),
    "sgd nesterov": (
        lambda m: optim.SGD(m.named_parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01),
        None,
    ),
    "sgd dampening": (lambda m: optim.SGD(m.named_parameters(), lr=0.02, momentum=0.9, dampening=0.3), None),
    "adam": (lambda m: optim.Adam(m.named_parameters(), lr=1e-2, eps=1e-5), 0.5),
    "adam decay": (lambda m: optim.Adam(m.named_parameters(), lr=1e-2, weight_decay=0.1), None),
    "adam amsgrad": (lambda m: optim.Adam(m.named_parameters(), lr=1e-2, amsgrad=True), None),
    "adam maximize": (lambda m: optim.Adam(m.named_parameters(), lr=1e-3, maximize=True, weight_decay=0.1), None),
    "adam groups": (lambda m: optim.Adam(two_groups(m), lr=1e-2, weight_decay=0.1), 0.5),
    "adam frozen": (lambda m: optim.Adam(frozen_inner(m), lr=1e-2, weight_decay=0.1), 0.5),
    "adamw": (lambda m: optim.AdamW(m.named_parameters(), lr=1e-2, weight_decay=0.1), None),
    "adamw amsgrad": (lambda m: optim.AdamW(m.named_parameters(), lr=1e-2, amsgrad=True), 0.5),
    "radam": (lambda m: optim.RAdam(m.named_parameters(), lr=1e-2, weight_decay=0.1), 0.5),
    "radam decoupled": (
        lambda m: optim.RAdam(m.named_parameters(), lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
        None,
    ),
    "nadam": (lambda m: optim.NAdam(m.named_parameters(), lr=1e-2, weight_decay=0.1), None),
    "nadam decoupled": (
        lambda m: optim.NAdam(m.named_parameters(), lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
        0.5,
    ),
    "adamax": (lambda m: optim.Adamax(m.named_parameters(), lr=1e-2, weight_decay=0.1, maximize=True), 0.5),
    "adadelta": (lambda m: optim.Adadelta(m.named_parameters(), lr=0.5, rho=0.8, weight_decay=0.1), None),
    "rmsprop": (lambda m: optim.RMSprop(m.named_parameters(), lr=1e-3, weight_decay=0.1), 0.5),
    "rmsprop momentum": (lambda m: optim.RMSprop(m.named_parameters(), lr=1e-3, momentum=0.9, centered=True), None),
    "adagrad": (lambda m: optim.Adagrad(m.named_parameters(), lr=0.05, initial_accumulator_value=0.1), 0.5),
    "adagrad decay": (lambda m: optim.Adagrad(m.named_parameters(), lr=0.05, lr_decay=0.01, weight_decay=0.01), None),
}

# name -> make the scheduler; every one is still changing at the hand-over
SCHEDULES = {
    "constant": lambda o: None,
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=30, gamma=0.7),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.99),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=60, eta_min=1e-4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=150),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + 0.05 * epoch)),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [30, 99, 130], gamma=0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, factor=0.3, total_iters=130),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=150, power=1.7),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=20, T_mult=2),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.01, total_steps=250, cycle_momentum=False),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, total_iters=60), lr_scheduler.CosineAnnealingLR(o, T_max=140, eta_min=1e-4)],
        milestones=[60],
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, 0.1, total_iters=120), lr_scheduler.ExponentialLR(o, gamma=0.99)]
    ),
}


class Torch:
    """A net with its optimiser and scheduler, always the same at the start."""

    def __init__(self, optimizer, schedule):
        self.module = make_module()
        make, self.clip_norm = OPTIMIZERS[optimizer]
        self.optimizer = make(self.module)
        self.scheduler = SCHEDULES[schedule](self.optimizer)
        self.mapping = Mapping.by_name(self.module, NetEquinox())

    def train(self, start, stop):
        train_torch(self.module, self.optimizer, start, stop, clip_norm=self.clip_norm, scheduler=self.scheduler)
        return self

    def to_jax(self):
        made = to_optax(self.optimizer, self.mapping, scheduler=self.scheduler, clip_norm=self.clip_norm)
        return Jax(self.mapping.to_jax(self.module.state_dict()), made.tx, made.opt_state)


class Jax:
    """The same net in Equinox with its optax state."""

    def __init__(self, model, tx, opt_state):
        self.model, self.opt_state = model, opt_state

        @eqx.filter_jit
        def train(params, opt_state, batches):
            def step(carry, batch):
                params, opt_state = carry
                x, y = batch
                grads = jax.grad(lambda p: jnp.mean((jax.vmap(eqx.combine(p, model))(x) - y) ** 2))(params)
                updates, opt_state = tx.update(grads, opt_state, params)
                return (optax.apply_updates(params, updates), opt_state), None

            return jax.lax.scan(step, (params, opt_state), batches)[0]

        self._train = train

    def train(self, start, stop):
        batches = jnp.asarray(INPUTS[start:stop]), jnp.asarray(TARGETS[start:stop])
        params, static = eqx.partition(self.model, eqx.is_inexact_array)
        params, self.opt_state = self._train(params, self.opt_state, batches)
        self.model = eqx.combine(params, static)
        return self

    def to_torch(self, into):
        into.module.load_state_dict(into.mapping.to_torch(self.model))
        to_torch_optimizer(self.opt_state, into.mapping, into.optimizer, scheduler=into.scheduler)
        return into


def records(side):
    """What torch would save, shapes and dtypes for the arrays (their values are compared by `difference`)."""
    describe = lambda value: (value.shape, value.dtype) if torch.is_tensor(value) else value
    record = side.optimizer.state_dict()
    state = {i: {slot: describe(value) for slot, value in slots.items()} for i, slots in record["state"].items()}
    scheduler = side.scheduler.state_dict() if side.scheduler is not None else None
    return state, record["param_groups"], scheduler


# Every kind of optimiser and every schedule, each with one or two of the other. The rest of the product is slow.
FAST = {
    ("sgd nesterov", "ExponentialLR"),
    ("sgd dampening", "CosineAnnealingLR"),
    ("adam", "LinearLR"),
    ("adam maximize", "StepLR"),
    ("adam groups", "constant"),
    ("adamw amsgrad", "LambdaLR"),
    ("rmsprop momentum", "StepLR"),
    ("adagrad", "ExponentialLR"),
    ("radam", "SequentialLR"),
    ("nadam decoupled", "OneCycleLR"),
    ("adamax", "ChainedScheduler"),
    ("adadelta", "CosineAnnealingWarmRestarts"),
}
CASES = [
    pytest.param(o, s, id=f"{o}-{s}", marks=() if (o, s) in FAST else pytest.mark.slow)
    for o in OPTIMIZERS
    for s in SCHEDULES
]


@pytest.mark.parametrize("optimizer, schedule", CASES)
def test_hundred_steps_here_and_hundred_there_equal_two_hundred(optimizer, schedule):
    expected = Torch(optimizer, schedule).train(0, 2 * HALF)

    half_way = Torch(optimizer, schedule).train(0, HALF)
    torch_first = half_way.to_jax().train(HALF, 2 * HALF).to_torch(half_way)
    in_jax = Torch(optimizer, schedule).to_jax().train(0, HALF)
    jax_first = in_jax.to_torch(Torch(optimizer, schedule)).train(HALF, 2 * HALF)
    only_jax = in_jax.train(HALF, 2 * HALF).to_torch(Torch(optimizer, schedule))

    for side in (torch_first, jax_first, only_jax):
        assert difference(numbers(side.module, side.optimizer), numbers(expected.module, expected.optimizer)) <= EXACT
        assert records(side) == records(expected)
