"""What crosses the border with an optimiser, in every JAX library; and that mistakes in it would be seen."""

import dataclasses
import json

import flax.linen as linen
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from optimizer_nets import INPUTS, TARGETS, NetEquinox, difference, make_module, numbers, same_record, train_torch
from torch import nn, optim
from torch.optim import lr_scheduler

from crossfade.bridge.libraries import open_model
from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.matching.match import match
from crossfade.bridge.optimizers.exchange import build_optax, read_optax, read_torch, to_optax, to_torch_optimizer
from crossfade.bridge.rules import Rule, permute

TURN = Rule(permute(1, 0))


class NetNnx(nnx.Module):
    def __init__(self):
        self.inner, self.outer = (nnx.Linear(n, 4, rngs=nnx.Rngs(n)) for n in (3, 4))

    def __call__(self, x):
        return self.outer(jnp.tanh(self.inner(x)))


class NetLinen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4, name="outer")(jnp.tanh(linen.Dense(4, name="inner")(x)))


def net_haiku():
    transformed = hk.without_apply_rng(
        hk.transform(lambda x: hk.Linear(4, name="outer")(jnp.tanh(hk.Linear(4, name="inner")(x))))
    )
    return transformed, transformed.init(jax.random.key(0), jnp.ones((1, 3)))


# library -> (model, names of weight and bias, rule of the weight)
LIBRARIES = {
    "equinox": (NetEquinox, ("weight", "bias"), Rule()),
    "nnx": (NetNnx, ("kernel", "bias"), TURN),
    "linen": (lambda: (NetLinen(), NetLinen().init(jax.random.key(0), jnp.ones((1, 3)))), ("kernel", "bias"), TURN),
    "haiku": (net_haiku, ("w", "b"), TURN),
}


def mapping_to(library, module):
    make, (weight, bias), rule = LIBRARIES[library]
    entries = []
    for layer in ("inner", "outer"):
        entries.append(Entry((f"{layer}.weight",), (f"{layer}.{weight}",), rule))
        entries.append(Entry((f"{layer}.bias",), (f"{layer}.{bias}",), Rule()))
    return Mapping(tuple(entries), {n: tuple(t.shape) for n, t in module.state_dict().items()}, make())


def train_jax(model, tx, opt_state, start, stop):
    opened = open_model(model)

    @jax.jit
    def step(params, opt_state, x, y):
        loss = lambda p: jnp.mean((opened.call(opened.build(p, opened.state), x) - y) ** 2)
        updates, opt_state = tx.update(jax.grad(loss)(params), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = opened.params
    for x, y in zip(INPUTS[start:stop], TARGETS[start:stop], strict=True):
        params, opt_state = step(params, opt_state, x, y)
    return opened.build(params, opened.state), opt_state


def grouped_adam(net):
    """Two groups; the bias of the first layer is in none and stays fixed."""
    groups = [
        {"params": [net.inner.weight], "lr": 3e-3, "weight_decay": 0.1},
        {"params": [net.outer.bias, net.outer.weight]},
    ]
    return optim.Adam(groups, lr=1e-2, betas=(0.8, 0.99))


@pytest.mark.parametrize("library", LIBRARIES)
def test_training_continues_exactly_in_every_library(library, x64):
    expected = make_module()
    reference = grouped_adam(expected)
    train_torch(expected, reference, 0, 40, clip_norm=0.5)

    net = make_module()
    optimizer = grouped_adam(net)
    mapping = mapping_to(library, net)
    train_torch(net, optimizer, 0, 20, clip_norm=0.5)
    tx, opt_state, _ = to_optax(optimizer, mapping, clip_norm=0.5, named_parameters=net)
    model, opt_state = train_jax(mapping.to_jax(net.state_dict()), tx, opt_state, 20, 40)
    net.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer, named_parameters=net)

    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= 1e-12


def test_clipping_of_every_number_continues_exactly(x64):
    expected, net = make_module(), make_module()
    reference, optimizer = grouped_adam(expected), grouped_adam(net)
    mapping = mapping_to("equinox", net)
    train_torch(expected, reference, 0, 40, clip_value=0.01)
    train_torch(net, optimizer, 0, 20, clip_value=0.01)
    tx, opt_state, _ = to_optax(optimizer, mapping, clip_value=0.01, named_parameters=net)
    model, opt_state = train_jax(mapping.to_jax(net.state_dict()), tx, opt_state, 20, 40)
    net.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer, named_parameters=net)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= 1e-12


def test_training_continues_in_float32_within_rounding():
    expected = make_module().float()
    torch_only = optim.Adam(expected.parameters())
    x = torch.from_numpy(INPUTS[0]).float()
    for _ in range(3):
        torch_only.zero_grad()
        expected(x).square().mean().backward()
        torch_only.step()

    net = make_module().float()
    optimizer = optim.Adam(net.named_parameters())
    mapping = mapping_to("equinox", net)
    tx, opt_state, _ = to_optax(optimizer, mapping)
    model = mapping.to_jax(net.state_dict())
    for _ in range(3):
        grads = jax.grad(lambda m: jnp.mean(jax.vmap(m)(x.numpy()) ** 2))(model)
        updates, opt_state = tx.update(grads, opt_state, model)
        model = optax.apply_updates(model, updates)
    got = mapping.to_torch(model)
    assert all(torch.allclose(got[n], p, rtol=1e-4, atol=1e-7) for n, p in expected.state_dict().items())


# Guards: the comparison above must see what a careless port gets wrong.


def swapped_betas(state):
    return dataclasses.replace(state, groups=tuple(g | {"betas": [0.9, 0.999]} for g in state.groups))


def other_eps(state):
    return dataclasses.replace(state, groups=tuple(g | {"eps": 1e-5} for g in state.groups))


def turned_moment(state):
    slots = state.moments["outer.weight"]
    turned = slots | {"exp_avg_sq": slots["exp_avg_sq"].T.copy()}
    return dataclasses.replace(state, moments=state.moments | {"outer.weight": turned})


def late_count(state):
    late = {"step": np.asarray(state.step - 1, np.float32)}
    return dataclasses.replace(state, moments={name: slots | late for name, slots in state.moments.items()})


@pytest.mark.parametrize("mistake", [swapped_betas, other_eps, turned_moment, late_count])
def test_a_mistake_in_the_state_is_seen(mistake, x64):
    net = make_module()
    optimizer = optim.Adam(net.named_parameters(), lr=1e-2, betas=(0.8, 0.99))
    mapping = mapping_to("equinox", net)
    train_torch(net, optimizer, 0, 5)
    state, model = read_torch(optimizer, net), mapping.to_jax(net.state_dict())
    gaps = []
    for candidate in (state, mistake(state)):
        tx, opt_state, _ = build_optax(candidate, mapping)
        grads = jax.grad(lambda m: jnp.mean(jax.vmap(m)(INPUTS[0]) ** 2))(model)
        updates, _ = tx.update(grads, opt_state, model)
        gaps.append({n: t.numpy() for n, t in mapping.to_torch(optax.apply_updates(model, updates)).items()})
    assert difference(gaps[1], gaps[0]) > 1e-9


@pytest.mark.parametrize(
    "make, careless",
    [
        (lambda p: optim.RMSprop(p, lr=1e-3), optax.rmsprop(1e-3, decay=0.99, eps=1e-8)),
        (lambda p: optim.Adagrad(p, lr=1e-2), optax.adagrad(1e-2, initial_accumulator_value=0.0, eps=1e-10)),
        (lambda p: optim.Adam(p, weight_decay=0.1), optax.adamw(1e-3, weight_decay=0.1)),
        (lambda p: optim.Adam(p, amsgrad=True), optax.amsgrad(1e-3)),
    ],
)
def test_the_chains_differ_from_their_careless_namesakes(make, careless, x64):
    net = make_module()
    mapping = mapping_to("equinox", net)
    model = mapping.to_jax(net.state_dict())
    exact, state, _ = to_optax(make(net.named_parameters()), mapping)
    updates = []
    for tx, opt_state in ((exact, state), (careless, careless.init(model))):
        for scale in (1.0, 0.1):  # falling gradients tell the two kinds of amsgrad apart
            grads = jax.tree.map(lambda p, scale=scale: 1e-5 * scale * jnp.cos(p), model)
            update, opt_state = tx.update(grads, opt_state, model)
        updates.append({str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(update))})
    assert difference(updates[1], updates[0]) > 1e-9


# The neutral record and torch's own


STEPPED = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p),
    "NAdam": lambda p: optim.NAdam(p),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.9),
    "Adagrad": lambda p: optim.Adagrad(p, initial_accumulator_value=0.1),
}


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", STEPPED)
def test_there_and_back_without_a_step_gives_torch_its_record_bit_for_bit(name, steps, default, x64):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        net, fresh = make_module(), make_module()
        optimizer, other = STEPPED[name](net.named_parameters()), STEPPED[name](fresh.named_parameters())
        train_torch(net, optimizer, 0, steps)
        mapping = mapping_to("haiku", net)
        to_torch_optimizer(to_optax(optimizer, mapping).opt_state, mapping, other)
        assert same_record(other.state_dict(), optimizer.state_dict())
    finally:
        torch.set_default_dtype(before)


def test_a_scheduler_stepped_once_an_epoch_may_be_handed_over_in_its_middle(x64):
    def fresh():
        net = make_module()
        optimizer = optim.Adam(net.named_parameters(), lr=1e-2)
        return net, optimizer, lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def train(net, optimizer, scheduler, start, stop):
        for i in range(start, stop):
            train_torch(net, optimizer, i, i + 1)
            if (i + 1) % 4 == 0:
                scheduler.step()

    expected, reference, scheduler = fresh()
    train(expected, reference, scheduler, 0, 30)

    net, optimizer, resumed = fresh()
    train(net, optimizer, resumed, 0, 10)
    mapping = mapping_to("equinox", net)
    tx, opt_state, schedule = to_optax(optimizer, mapping, scheduler=resumed, schedule_every=4)
    assert [float(schedule(count)[0]) for count in (10, 15, 16)] == pytest.approx([5e-3, 5e-3, 2.5e-3], rel=1e-14)
    model, opt_state = train_jax(mapping.to_jax(net.state_dict()), tx, opt_state, 10, 30)
    net.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer, scheduler=resumed, schedule_every=4)
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= 1e-12
    assert resumed.state_dict() == scheduler.state_dict()


def test_the_neutral_state_is_plain_data(x64):
    net = make_module()
    state = read_torch(grouped_adam(net), net)
    assert json.loads(json.dumps(state.groups)) == list(state.groups)
    assert state.groups[0]["names"] == ["inner.weight"] and state.step == 0
    assert all(isinstance(a, np.ndarray) for slots in state.moments.values() for a in slots.values())


def test_parameters_without_gradient_are_frozen_and_keep_their_moments(x64):
    net = make_module()
    optimizer = optim.Adam(net.named_parameters(), weight_decay=0.1)
    train_torch(net, optimizer, 0, 2)
    net.inner.requires_grad_(False)
    kept = optimizer.state[net.inner.weight]["exp_avg"].clone()
    train_torch(net, optimizer, 2, 5)
    mapping = mapping_to("linen", net)
    tx, opt_state, _ = to_optax(optimizer, mapping)
    params = mapping.opened.params
    updates, opt_state = tx.update(jax.tree.map(jnp.ones_like, params), opt_state, params)
    assert not updates["inner"]["kernel"].any() and updates["outer"]["kernel"].all()
    to_torch_optimizer(opt_state, mapping, optimizer)
    state = read_torch(optimizer, net)
    assert state.step == 6 and state.groups[0]["frozen"] == ["inner.weight", "inner.bias"]
    assert torch.equal(optimizer.state[net.inner.weight]["exp_avg"], kept)


def test_optax_own_optimisers_can_be_read(x64):
    net = make_module()
    mapping = mapping_to("equinox", net)
    model = mapping.to_jax(net.state_dict())
    for tx, template in (
        (optax.adam(1e-3), read_torch(optim.Adam(net.named_parameters()), net)),
        (optax.sgd(1e-3, momentum=0.9), read_torch(optim.SGD(net.named_parameters(), momentum=0.9), net)),
    ):
        _, opt_state = tx.update(model, tx.init(model), model)
        assert read_optax(opt_state, template, mapping).step == 1


def test_parameters_of_the_matched_module_need_no_names(x64):
    net = make_module()
    optimizer, other = optim.Adam(net.parameters()), optim.Adam(net.parameters())
    train_torch(net, optimizer, 0, 2)
    mapping = match(net, NetNnx(), torch.ones(2, 3).double())
    to_torch_optimizer(to_optax(optimizer, mapping).opt_state, mapping, other)
    assert same_record(other.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("wrap", [lambda net: torch.compile(net, backend="eager"), nn.DataParallel])
def test_the_optimiser_of_a_wrapped_module_is_carried_over(wrap, x64):
    """torch.compile and DataParallel put a word before every name."""
    expected, net = make_module(), make_module()
    reference, optimizer = optim.Adam(expected.parameters(), 1e-2), optim.Adam(wrap(net).parameters(), 1e-2)
    mapping = match(wrap(net), NetEquinox(), torch.from_numpy(INPUTS[0]))
    train_torch(expected, reference, 0, 10)
    train_torch(net, optimizer, 0, 5)
    again = build_optax(read_torch(optimizer, wrap(net)), mapping)  # as from a checkpoint
    assert jax.tree.all(jax.tree.map(np.array_equal, again.opt_state, to_optax(optimizer, mapping).opt_state))
    model, opt_state = train_jax(mapping.to_jax(wrap(net).state_dict()), again.tx, again.opt_state, 5, 10)
    net.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer, named_parameters=wrap(net))
    assert difference(numbers(net, optimizer), numbers(expected, reference)) <= 1e-12
