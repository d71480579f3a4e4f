"""Parameters that torch skips for want of a gradient, which in JAX looks like a gradient of zeros."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
import torch
from optimizer_nets import INPUTS, TARGETS, difference, numbers
from torch import nn, optim

from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.optimizers.exchange import read_torch, to_optax, to_torch_optimizer, write_optax
from crossfade.bridge.rules import Rule, split, stack
from crossfade.errors import MappingError, NoCounterpart
from default_run import few

EXACT = 1e-12
pytestmark = pytest.mark.usefixtures("x64")


class NetTorch(nn.Module):
    """`spare` is used by some updates only."""

    def __init__(self):
        super().__init__()
        self.main, self.spare = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x, spare):
        return self.main(x) + self.spare(x) if spare else self.main(x)


class NetEquinox(eqx.Module):
    main: eqx.nn.Linear
    spare: eqx.nn.Linear

    def __init__(self):
        self.main, self.spare = (eqx.nn.Linear(3, 4, key=jax.random.key(i)) for i in range(2))

    def __call__(self, x, spare):
        return self.main(x) + self.spare(x) if spare else self.main(x)


def make_module():
    torch.manual_seed(0)
    return NetTorch().double()


def train_torch(module, optimizer, updates, uses):
    for i in updates:
        optimizer.zero_grad()
        y = module(torch.from_numpy(INPUTS[i]), uses(i))
        (y - torch.from_numpy(TARGETS[i])).square().mean().backward()
        optimizer.step()


@eqx.filter_jit
def gradient(model, x, y, spare):
    return eqx.filter_grad(lambda m: jnp.mean((jax.vmap(lambda row: m(row, spare))(x) - y) ** 2))(model)


def train_jax(model, tx, opt_state, updates, uses):
    step = eqx.filter_jit(tx.update)
    for i in updates:
        change, opt_state = step(gradient(model, INPUTS[i], TARGETS[i], uses(i)), opt_state, model)
        model = optax.apply_updates(model, change)
    return model, opt_state


OPTIMIZERS = {
    "sgd decay": lambda m: optim.SGD(m.named_parameters(), lr=0.05, weight_decay=0.1),
    "sgd momentum decay": lambda m: optim.SGD(m.named_parameters(), lr=0.02, momentum=0.9, weight_decay=0.1),
    "sgd dampening": lambda m: optim.SGD(m.named_parameters(), lr=0.02, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "adam": lambda m: optim.Adam(m.named_parameters(), lr=1e-2),
    "adam decay": lambda m: optim.Adam(m.named_parameters(), lr=1e-2, weight_decay=0.1, amsgrad=True),
    "adamw": lambda m: optim.AdamW(m.named_parameters(), lr=1e-2, weight_decay=0.1),
    "rmsprop": lambda m: optim.RMSprop(m.named_parameters(), lr=1e-3, momentum=0.9, weight_decay=0.1),
    "adagrad": lambda m: optim.Adagrad(m.named_parameters(), lr=0.05, lr_decay=0.1, weight_decay=0.1),
    "groups": lambda m: optim.AdamW(
        [{"params": list(m.main.named_parameters("main"))}, {"params": list(m.spare.named_parameters("spare"))}],
        lr=1e-2,
        weight_decay=0.1,
    ),
}


def there_and_back(make, uses, start=10, middle=20, stop=30, **options):
    """Torch, JAX, torch against torch alone: the largest difference; torch must also save the same slots."""
    alone, expected = (lambda m: (m, make(m)))(make_module())
    train_torch(alone, expected, range(stop), uses)

    module = make_module()
    optimizer, mapping = make(module), Mapping.by_name(module, NetEquinox())
    train_torch(module, optimizer, range(start), uses)
    tx, opt_state, _ = to_optax(optimizer, mapping, **options)
    model = mapping.to_jax(module.state_dict())
    model, opt_state = train_jax(model, tx, opt_state, range(start, middle), uses)
    module.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer)
    train_torch(module, optimizer, range(middle, stop), uses)
    kept = [{i: list(slots) for i, slots in o.state_dict()["state"].items()} for o in (optimizer, expected)]
    assert kept[0] == kept[1]
    return difference(numbers(module, optimizer), numbers(alone, expected))


@pytest.mark.parametrize("start", few((0, 10), 10))
@pytest.mark.parametrize("name", few(OPTIMIZERS, "sgd momentum decay", "adamw", "rmsprop", "adagrad", "groups"))
def test_a_parameter_that_never_gets_a_gradient_is_neither_moved_nor_decayed(name, start):
    assert there_and_back(OPTIMIZERS[name], lambda i: False, start) <= EXACT


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_parameter_behind_the_others_begins_with_its_first_gradient(name):
    """Skipped for 15 updates, ten of them in torch; then used by every update, in JAX and in torch."""
    assert there_and_back(OPTIMIZERS[name], lambda i: i >= 15) <= EXACT


@pytest.mark.parametrize("name", ["sgd momentum decay", "adamw", "rmsprop"])
def test_a_parameter_that_torch_skips_now_and_then_is_skipped_in_jax_too(name):
    names = ["spare.weight", "spare.bias"] if name == "sgd momentum decay" else []  # SGD keeps no count that would tell
    assert there_and_back(OPTIMIZERS[name], lambda i: i % 3 == 0, skipped=names) <= EXACT


FRESH = ("sgd momentum decay", "adamw", "rmsprop", "adagrad")


@pytest.mark.parametrize("name", few(FRESH, "sgd momentum decay", "adamw"))
def test_a_fresh_optimiser_is_told_which_parameters_will_be_skipped(name):
    uses = lambda i: i % 3 == 1
    assert there_and_back(OPTIMIZERS[name], uses, start=0, skipped=["spare.weight", "spare.bias"]) <= EXACT


def test_a_gradient_of_zeros_counts_where_torch_has_skipped_nothing():
    """An output layer that begins at zero gives the layers below it a gradient of zeros, which torch counts."""

    def fresh():
        module = make_module()
        nn.init.zeros_(module.main.weight)
        nn.init.zeros_(module.main.bias)
        return module, optim.Adam(module.named_parameters(), lr=1e-2)

    x = torch.from_numpy(INPUTS[0])
    loss = lambda module: (module.main(x).square() * module.spare(x)).mean() + module.main(x).mean()
    alone, expected = fresh()
    for _ in range(4):
        expected.zero_grad()
        loss(alone).backward()
        expected.step()

    module, optimizer = fresh()
    mapping = Mapping.by_name(module, NetEquinox())
    tx, opt_state, _ = to_optax(optimizer, mapping)
    model = mapping.to_jax(module.state_dict())
    row = lambda m, x: jnp.mean(m.main(x) ** 2 * m.spare(x)) + jnp.mean(m.main(x))
    grad = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.mean(jax.vmap(lambda x: row(m, x))(INPUTS[0]))))
    assert not grad(model).spare.weight.any()
    for _ in range(4):
        change, opt_state = tx.update(grad(model), opt_state, model)
        model = optax.apply_updates(model, change)
    module.load_state_dict(mapping.to_torch(model))
    to_torch_optimizer(opt_state, mapping, optimizer)
    assert difference(numbers(module, optimizer), numbers(alone, expected)) <= EXACT


@pytest.mark.parametrize("name", ["sgd momentum decay", "adamw"])
def test_frozen_parameters_stay_whatever_gradient_jax_gives_them(name):
    module = make_module()
    optimizer, mapping = OPTIMIZERS[name](module), Mapping.by_name(module, NetEquinox())
    train_torch(module, optimizer, range(5), lambda i: True)
    module.spare.requires_grad_(False)
    tx, opt_state, _ = to_optax(optimizer, mapping)
    before = mapping.to_jax(module.state_dict())
    after, _ = train_jax(before, tx, opt_state, range(5, 8), lambda i: True)
    assert jnp.array_equal(after.spare.weight, before.spare.weight)
    assert not jnp.array_equal(after.main.weight, before.main.weight)


class Halves(eqx.Module):
    """`main` cut into two leaves."""

    weights: tuple
    bias: jax.Array


def test_a_leaf_of_a_parameter_that_was_cut_is_decayed_with_the_others():
    """torch's parameter has a gradient as soon as one half of it has."""
    module = nn.Linear(3, 4).double()
    model = Halves((jnp.zeros((2, 3)), jnp.zeros((2, 3))), jnp.zeros(4))
    entries = (
        Entry(("weight",), ("weights.0", "weights.1"), Rule(split(0, 2, 2))),
        Entry(("bias",), ("bias",), Rule()),
    )
    mapping = Mapping(entries, {"weight": (4, 3), "bias": (4,)}, model)
    tx, opt_state, _ = to_optax(optim.AdamW(module.named_parameters(), lr=0.1, weight_decay=0.5), mapping)
    model = mapping.to_jax(module.state_dict())
    grads = Halves((jnp.ones((2, 3)), jnp.zeros((2, 3))), jnp.zeros(4))
    change, _ = tx.update(grads, opt_state, model)
    assert jnp.allclose(change.weights[1], -0.05 * model.weights[1], rtol=1e-12)
    assert not change.bias.any()


def test_names_that_are_not_trained_are_refused():
    module = make_module()
    optimizer, mapping = OPTIMIZERS["adamw"](module), Mapping.by_name(module, NetEquinox())
    with pytest.raises(MappingError, match=r"skipped: .*spare.wieght.* Did you mean 'spare.weight'\?"):
        to_optax(optimizer, mapping, skipped=["spare.wieght"])


def test_a_leaf_whose_parameters_were_skipped_apart_is_refused():
    module = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)]).double()
    optimizer = optim.AdamW(module.named_parameters())
    module[0](torch.ones(2, 3).double()).sum().backward()
    optimizer.step()
    model = jax.vmap(lambda key: eqx.nn.Linear(3, 1, key=key))(jax.random.split(jax.random.key(0)))
    entries = tuple(Entry((f"0.{n}", f"1.{n}"), (n,), Rule(stack())) for n in ("weight", "bias"))
    mapping = Mapping(entries, {n: tuple(t.shape) for n, t in module.state_dict().items()}, model)
    with pytest.raises(NoCounterpart, match=r"0.weight: 1, 1.weight: 0"):
        to_optax(optimizer, mapping)


def test_optax_own_optimisers_count_once_for_all():
    module = make_module()
    optimizer, mapping = OPTIMIZERS["adamw"](module), Mapping.by_name(module, NetEquinox())
    train_torch(module, optimizer, range(3), lambda i: i == 0)
    opt_state = optax.adamw(1e-3).init(mapping.opened.params)
    with pytest.raises(NoCounterpart, match="same step, 3, .*got spare.weight: 1, spare.bias: 1"):
        write_optax(read_torch(optimizer, module), opt_state, mapping)
