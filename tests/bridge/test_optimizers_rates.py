"""Learning rates across the border: set by hand, stepped now and then, and groups that differ in their momentum."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimizer_nets import INPUTS, TARGETS, NetEquinox, difference, make_module, numbers, same_record, train_torch
from torch import optim
from torch.optim import lr_scheduler

import crossfade as cf
from crossfade.bridge.mapping import Mapping
from crossfade.bridge.optimizers.exchange import to_optax, to_torch_optimizer, with_learning_rate
from crossfade.errors import UsageError
from default_run import few, few_pairs

EXACT = 1e-12


def loss(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def train_jax(model, tx, opt_state, start, stop, rate=None):
    """Updates in one compiled loop; `rate(i)` is the learning rate set before update i."""

    def step(carry, batch):
        model, opt_state = carry
        i, x, y = batch
        if rate is not None:
            opt_state = with_learning_rate(opt_state, rate(i))
        updates, opt_state = tx.update(jax.grad(loss)(model, x, y), opt_state, model)
        return (optax.apply_updates(model, updates), opt_state), None

    batches = jnp.arange(start, stop), jnp.asarray(INPUTS[start:stop]), jnp.asarray(TARGETS[start:stop])
    return jax.jit(lambda *carry: jax.lax.scan(step, carry, batches)[0])(model, opt_state)


def crossing(net, optimizer, rate=None, start=20, stop=40, **options):
    """From torch to JAX, updates there, and back."""
    mapping = Mapping.by_name(net, NetEquinox())
    tx, opt_state, _ = to_optax(optimizer, mapping, **options)
    model, opt_state = train_jax(mapping.to_jax(net.state_dict()), tx, opt_state, start, stop, rate)
    net.load_state_dict(mapping.to_torch(model))
    options = {k: v for k, v in options.items() if k in ("scheduler", "schedule_every")}
    to_torch_optimizer(opt_state, mapping, optimizer, **options)


# Set by hand


def anneal(i):
    """CleanRL's PPO: a new rate before each update, without a scheduler."""
    return (1 - i / 60) * 2.5e-3


def train_annealed(net, optimizer, start, stop):
    for i in range(start, stop):
        optimizer.param_groups[0]["lr"] = anneal(i)
        train_torch(net, optimizer, i, i + 1)


@pytest.mark.parametrize("start", few((0, 20), 20))
def test_a_rate_annealed_by_hand_goes_on_in_jax_and_back_in_torch(start, x64):
    make = lambda net: optim.Adam(net.named_parameters(), lr=2.5e-3, eps=1e-5)
    expected = make_module()
    reference = make(expected)
    train_annealed(expected, reference, 0, 60)

    net = make_module()
    optimizer = make(net)
    train_annealed(net, optimizer, 0, start)
    crossing(net, optimizer, anneal, start, 40)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(anneal(39), rel=1e-15)
    train_annealed(net, optimizer, 40, 60)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= EXACT


def two_groups(net):
    groups = [{"params": list(net.inner.named_parameters("inner")), "lr": 3e-2}]
    return optim.AdamW([*groups, {"params": list(net.outer.named_parameters("outer"))}], lr=1e-2)


@pytest.mark.parametrize("kind", [tuple, list, jnp.asarray, np.asarray])
def test_each_group_has_a_rate_of_its_own(kind, x64):
    net = make_module()
    optimizer, mapping = two_groups(net), Mapping.by_name(net, NetEquinox())
    opt_state = with_learning_rate(to_optax(optimizer, mapping).opt_state, kind([0.5, 0.25]))
    to_torch_optimizer(opt_state, mapping, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]
    to_torch_optimizer(with_learning_rate(opt_state, 0.125), mapping, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]


def test_the_rate_is_where_optax_looks_for_it(x64):
    net = make_module()
    opt_state = to_optax(two_groups(net), Mapping.by_name(net, NetEquinox())).opt_state
    assert optax.tree_utils.tree_get(opt_state, "learning_rate") == (0.03, 0.01)


def test_a_rate_nobody_changed_keeps_its_digits_in_32_bits():
    net = make_module().float()
    optimizer, mapping = optim.Adam(net.named_parameters(), lr=3e-4), Mapping.by_name(net, NetEquinox())
    saved = optimizer.state_dict()
    opt_state = to_optax(optimizer, mapping).opt_state
    to_torch_optimizer(opt_state, mapping, optimizer)
    assert same_record(optimizer.state_dict(), saved) and optimizer.param_groups[0]["lr"] == 3e-4
    to_torch_optimizer(with_learning_rate(opt_state, 0.1), mapping, optimizer)
    assert optimizer.param_groups[0]["lr"] == float(np.float32(0.1))


def test_rates_that_cannot_be_set_are_refused(x64):
    net = make_module()
    optimizer, mapping = two_groups(net), Mapping.by_name(net, NetEquinox())
    opt_state = to_optax(optimizer, mapping).opt_state
    with pytest.raises(UsageError, match="one for each of 2 groups, got 3"):
        cf.bridge.with_learning_rate(opt_state, (1.0, 2.0, 3.0))
    with pytest.raises(UsageError, match="made by to_optax"):
        with_learning_rate(optax.adam(1e-3).init(mapping.opened.params), 1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 10)
    with pytest.raises(UsageError, match="follow a schedule"):
        with_learning_rate(to_optax(optimizer, mapping, scheduler=scheduler).opt_state, 1.0)
    with pytest.raises(UsageError, match=r"got \[1.0, 1.0\] set by hand"):
        to_torch_optimizer(with_learning_rate(opt_state, 1.0), mapping, optimizer, scheduler=scheduler)


# A scheduler stepped now and then


def train_now_and_then(net, optimizer, scheduler, start, stop, beat=lambda i: (i + 1) % 7 == 0):
    for i in range(start, stop):
        train_torch(net, optimizer, i, i + 1)
        if beat(i):
            scheduler.step()


KINDS = {
    "sgd": lambda net: optim.SGD(net.named_parameters(), lr=0.1),
    "sgd momentum": lambda net: optim.SGD(net.named_parameters(), lr=0.02, momentum=0.9),
    "adam": lambda net: optim.Adam(net.named_parameters(), lr=1e-2),
    "rmsprop": lambda net: optim.RMSprop(net.named_parameters(), lr=1e-3),
}
BEATS = {"i + 1": lambda i: (i + 1) % 7 == 0, "i": lambda i: i % 7 == 0}


SCHEDULERS = {
    "ExponentialLR": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=0.8),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3), lr_scheduler.PolynomialLR(optimizer, total_iters=7)],
        milestones=[3],
    ),
    "ChainedScheduler": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(optimizer, 0.2, total_iters=5), lr_scheduler.MultiStepLR(optimizer, [2, 6], gamma=0.5)]
    ),
}


def run(kind, beat, scheduled="ExponentialLR"):
    net = make_module()
    optimizer = KINDS[kind](net)
    scheduler = SCHEDULERS[scheduled](optimizer)
    train = lambda start, stop: train_now_and_then(net, optimizer, scheduler, start, stop, beat)
    return train, (net, optimizer, scheduler)


@pytest.mark.parametrize("beat, phase", [(BEATS["i + 1"], 3), (BEATS["i"], 2)])
@pytest.mark.parametrize(
    "kind, scheduled",
    few_pairs(itertools.product(KINDS, SCHEDULERS), ("sgd", "ExponentialLR"), ("adam", "SequentialLR")),
)
def test_a_scheduler_may_be_handed_over_off_its_beat(kind, scheduled, beat, phase, x64):
    train, (expected, reference, follower) = run(kind, beat, scheduled)
    train(0, 60)
    train, (net, optimizer, scheduler) = run(kind, beat, scheduled)
    train(0, 10)
    crossing(net, optimizer, None, 10, 40, scheduler=scheduler, schedule_every=7, schedule_phase=phase)
    train(40, 60)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= EXACT
    assert scheduler.state_dict() == follower.state_dict()


@pytest.mark.parametrize(
    "kind, updates, beat, words",
    [
        ("sgd", 10, "i + 1", "SGD keeps none.*epoch 1, .*schedule_phase=, a number from 0 .* to 6"),
        ("sgd momentum", 10, "i + 1", "SGD keeps none"),
        ("sgd", 0, "i + 1", "SGD keeps none"),
        ("adam", 10, "i", "got 10 updates and a scheduler at epoch 2"),
    ],
)
def test_a_phase_that_nothing_tells_is_asked_for(kind, updates, beat, words, x64):
    train, (net, optimizer, scheduler) = run(kind, BEATS[beat])
    train(0, updates)
    with pytest.raises(UsageError, match=words):
        to_optax(optimizer, Mapping.by_name(net, NetEquinox()), scheduler=scheduler, schedule_every=7)


def test_a_scheduler_made_after_some_training_keeps_its_own_time(x64):
    def fresh():
        net = make_module()
        optimizer = KINDS["adam"](net)
        train_torch(net, optimizer, 0, 11)
        return net, optimizer, lr_scheduler.ExponentialLR(optimizer, gamma=0.8)

    expected, reference, follower = fresh()
    train_now_and_then(expected, reference, follower, 11, 50, lambda i: (i - 10) % 7 == 0)
    net, optimizer, scheduler = fresh()
    train_now_and_then(net, optimizer, scheduler, 11, 20, lambda i: (i - 10) % 7 == 0)
    crossing(net, optimizer, None, 20, 50, scheduler=scheduler, schedule_every=7, schedule_phase=2)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= EXACT
    assert scheduler.state_dict() == follower.state_dict()


# Groups of SGD that differ in their momentum


MIXED = {
    "with and without": ({"momentum": 0.9}, {"momentum": 0.0}),
    "decayed, without first": ({"momentum": 0.0, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}),
    "dampened": ({"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.0}),
    "three kinds": ({"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.8}),
}


@pytest.mark.parametrize("scheduled", few((False, True), True))
@pytest.mark.parametrize("start", few((0, 20), 20))
@pytest.mark.parametrize("name", MIXED)
def test_groups_of_sgd_may_differ_in_their_momentum(name, start, scheduled, x64):
    def fresh():
        net = make_module()
        inner, outer = (dict(params=list(getattr(net, n).named_parameters(n))) for n in ("inner", "outer"))
        optimizer = optim.SGD([inner | MIXED[name][0], outer | MIXED[name][1]], lr=0.02)
        return net, optimizer, lr_scheduler.ExponentialLR(optimizer, gamma=0.99) if scheduled else None

    expected, reference, scheduler = fresh()
    train_torch(expected, reference, 0, 60, scheduler=scheduler)
    net, optimizer, scheduler = fresh()
    train_torch(net, optimizer, 0, start, scheduler=scheduler)
    crossing(net, optimizer, None, start, 40, scheduler=scheduler)
    train_torch(net, optimizer, 40, 60, scheduler=scheduler)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= EXACT
    slots = [{i: list(kept) for i, kept in o.state_dict()["state"].items()} for o in (optimizer, reference)]
    assert slots[0] == slots[1]
