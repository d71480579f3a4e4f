"""Torch -> JAX -> torch through bundles, with layouts that differ and optimiser state, bit for bit."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from bits import same
from torch import nn

from crossfade import checkpoint
from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.optimizers.exchange import read_torch, to_optax, to_torch_optimizer
from crossfade.bridge.rules import Rule, permute
from crossfade.errors import CheckpointError, UsageError


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class JaxPolicy(eqx.Module):
    """Kernels lie the other way round: (in, out)."""

    kernels: list[jax.Array]
    biases: list[jax.Array]

    def __init__(self, outputs: int = 2):
        self.kernels = [jnp.zeros((3, 5)), jnp.zeros((5, outputs))]
        self.biases = [jnp.zeros(5), jnp.zeros(outputs)]

    def __call__(self, x):
        return jnp.tanh(x @ self.kernels[0] + self.biases[0]) @ self.kernels[1] + self.biases[1]


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.8, 0.99)),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "no steps yet": lambda p: torch.optim.Adam(p),
    "groups": lambda p: torch.optim.AdamW([{"params": p[:2], "lr": 0.1}, {"params": p[2:], "weight_decay": 0.3}]),
}


def train(module, optimizer, steps):
    for seed in range(steps):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()


def make(name, steps):
    torch.manual_seed(0)
    module = Policy()
    optimizer = OPTIMIZERS[name](list(module.parameters()))
    train(module, optimizer, 0 if name == "no steps yet" else steps)
    return module, optimizer


@pytest.fixture
def mapping():
    entries = []
    for i, layer in enumerate(("fc1", "fc2")):
        entries.append(Entry((f"{layer}.weight",), (f"kernels.{i}",), Rule(permute(1, 0))))
        entries.append(Entry((f"{layer}.bias",), (f"biases.{i}",), Rule()))
    shapes = {name: tuple(t.shape) for name, t in Policy().state_dict().items()}
    return Mapping(tuple(entries), shapes, JaxPolicy())


def states(optimizer):
    """Moments and hyper-parameters as torch itself tells them."""
    record = optimizer.state_dict()
    return record["state"], record["param_groups"]


def assert_same_training_state(module, optimizer, other, other_optimizer):
    for name, tensor in module.state_dict().items():
        assert same(tensor, other.state_dict()[name]), name
    (moments, groups), (other_moments, other_groups) = states(optimizer), states(other_optimizer)
    assert groups == other_groups and moments.keys() == other_moments.keys()
    for index, slots in moments.items():
        for slot, value in slots.items():
            assert same(value, other_moments[index][slot]), (index, slot)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_torch_to_torch_resumes_bit_exactly(tmp_path, name):
    module, optimizer = make(name, 3)
    checkpoint.save(tmp_path, params=module, optimizer=optimizer)
    other, other_optimizer = make(name, 1)
    checkpoint.load(tmp_path, like=other).restore(other, other_optimizer)
    assert_same_training_state(module, optimizer, other, other_optimizer)
    train(module, optimizer, 2)
    train(other, other_optimizer, 2)
    assert_same_training_state(module, optimizer, other, other_optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_torch_to_jax_to_torch_is_bit_exact(tmp_path, mapping, name):
    module, optimizer = make(name, 3)
    checkpoint.save(tmp_path / "torch", params=module, optimizer=optimizer, mapping=mapping, step=3)

    in_jax = checkpoint.load(tmp_path / "torch", side="jax", mapping=mapping)
    assert isinstance(in_jax.params, JaxPolicy)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(jax.vmap(in_jax.params)(x), module(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-6)
    tx, opt_state, _ = in_jax.optax(mapping)
    assert jax.tree.structure(tx.init(in_jax.params)) == jax.tree.structure(opt_state)
    checkpoint.save(
        tmp_path / "jax",
        params=in_jax.params,
        optimizer=opt_state,
        optimizer_like=in_jax.optimizer,
        mapping=mapping,
        step=3,
    )

    other, other_optimizer = make(name, 1)
    checkpoint.load(tmp_path / "jax").restore(other, other_optimizer)
    assert_same_training_state(module, optimizer, other, other_optimizer)
    first, second = (checkpoint.load(tmp_path / side).manifest["files"] for side in ("torch", "jax"))
    assert first == second, "the files themselves are equal, hashes and all"


def test_one_changed_moment_is_seen(tmp_path):
    """The guard of the equalities above."""
    module, optimizer = make("Adam", 3)
    checkpoint.save(tmp_path, params=module, optimizer=optimizer)
    other, other_optimizer = make("Adam", 3)
    bundle = checkpoint.load(tmp_path)
    bundle.optimizer.moments["fc2.bias"]["exp_avg_sq"][0] *= 1 + 2**-20
    bundle.restore(other, other_optimizer)
    with pytest.raises(AssertionError, match="exp_avg_sq"):
        assert_same_training_state(module, optimizer, other, other_optimizer)


def test_moments_lie_under_torch_names(tmp_path):
    module, optimizer = make("Adam", 1)
    checkpoint.save(tmp_path, params=module, optimizer=optimizer)
    arrays = checkpoint.import_safetensors(checkpoint.latest(tmp_path) / "optimizer.safetensors")
    assert same(arrays["fc1.weight.exp_avg"], optimizer.state[module.fc1.weight]["exp_avg"])
    assert checkpoint.load(tmp_path).manifest["optimizer"]["kind"] == "Adam"


def test_the_recorded_mapping_loads_a_jax_model_without_matching_again(tmp_path, mapping):
    module, _ = make("Adam", 1)
    checkpoint.save(tmp_path, params=module, mapping=mapping)
    model = checkpoint.load(tmp_path, side="jax", like=JaxPolicy()).params
    assert same(model.kernels[0], module.fc1.weight.detach().T)


@pytest.mark.parametrize("rotten", [{}, {"schema": 1}, {"schema": 1, "entries": 3}])
def test_a_rotten_mapping_is_refused(tmp_path, mapping, rotten, monkeypatch):
    monkeypatch.setattr(Mapping, "to_json", lambda self: rotten)
    checkpoint.save(tmp_path, params=Policy(), mapping=mapping)
    with pytest.raises(CheckpointError, match="mapping this crossfade can read"):
        checkpoint.load(tmp_path, side="jax", like=JaxPolicy())
    with pytest.raises(CheckpointError, match="mapping this crossfade can read"):
        checkpoint.convert(tmp_path, "jax")


def test_a_jax_model_of_another_shape_is_refused(tmp_path, mapping):
    checkpoint.save(tmp_path, params=Policy(), mapping=mapping)
    with pytest.raises(CheckpointError, match=r"fc2.weight: expected float32 \(3, 5\), got float32 \(2, 5\)"):
        checkpoint.load(tmp_path, side="jax", mapping=mapping, like=JaxPolicy(outputs=3))


def test_tied_and_torch_only_weights_survive_the_way_through_jax(tmp_path):
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    shapes = {"a": (2, 2), "b": (2, 2), "count": ()}
    model = eqx.tree_at(
        lambda m: m.weight, eqx.nn.Linear(2, 2, use_bias=False, key=jax.random.key(0)), jnp.array(weight)
    )
    entry = Entry(("a",), ("weight",), Rule(permute(1, 0)))
    mapping = Mapping((entry,), shapes, model, tied={"b": "a"}, torch_only={"count": np.array(7)})
    checkpoint.save(tmp_path, params=model, mapping=mapping)
    bundle = checkpoint.load(tmp_path)
    assert bundle.manifest["aliases"] == {"b": "a"} and bundle.params["count"] == 7
    assert same(bundle.params["b"], weight.T)
    assert same(checkpoint.load(tmp_path, side="jax", mapping=mapping).params.weight, weight)
    checkpoint.convert(tmp_path, "jax", tmp_path / "model.safetensors")
    assert same(checkpoint.import_safetensors(tmp_path / "model.safetensors")["weight"], weight)


def test_restore_refuses_an_optimiser_that_does_not_fit_and_changes_nothing(tmp_path):
    module, optimizer = make("Adam", 2)
    checkpoint.save(tmp_path / "with", params=module, optimizer=optimizer)
    checkpoint.save(tmp_path / "without", params=module)
    other, sgd = make("SGD", 1)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(UsageError, match="kind Adam, got SGD"):
        checkpoint.load(tmp_path / "with").restore(other, sgd)
    with pytest.raises(CheckpointError, match="a bundle with an optimiser"):
        checkpoint.load(tmp_path / "without").restore(other, sgd)
    assert all(torch.equal(before[n], t) for n, t in other.state_dict().items())


@pytest.mark.parametrize("given", ["torch optimiser", "its state", "torch optimiser with names"])
def test_an_optax_state_is_saved_as_the_torch_optimiser_it_continues(tmp_path, mapping, given):
    """Trained in JAX, saved there, and taken up again in torch: as if torch had made the updates."""
    module, optimizer = make("Adam", 3)
    if given == "torch optimiser with names":
        optimizer = torch.optim.Adam(module.named_parameters(), lr=1e-2, betas=(0.8, 0.99))
        train(module, optimizer, 1)
    tx, opt_state, _ = to_optax(optimizer, mapping, named_parameters=module)
    model = mapping.to_jax(module.state_dict())
    for seed in range(4):
        updates, opt_state = tx.update(jax.tree.map(lambda p, seed=seed: jnp.cos(p + seed), model), opt_state, model)
        model = optax.apply_updates(model, updates)
    like = {"its state": read_torch(optimizer, module)}.get(given, optimizer)
    params = model if given == "torch optimiser with names" else module
    checkpoint.save(tmp_path, params=params, optimizer=opt_state, optimizer_like=like, mapping=mapping, step=7)

    to_torch_optimizer(opt_state, mapping, optimizer, named_parameters=module)
    other, other_optimizer = make("Adam", 1)
    checkpoint.load(tmp_path).restore(other, other_optimizer)
    for (_, slots), (_, others) in zip(states(optimizer)[0].items(), states(other_optimizer)[0].items(), strict=True):
        assert slots.keys() == others.keys() and all(same(slots[slot], others[slot]) for slot in slots)
    again = checkpoint.load(tmp_path, side="jax", mapping=mapping).optax(mapping)
    for got, expected in zip(jax.tree.leaves(again.opt_state), jax.tree.leaves(opt_state), strict=True):
        assert same(got, expected)


def test_an_optax_state_that_cannot_be_described_is_refused(tmp_path, mapping):
    module, optimizer = make("Adam", 3)
    made = to_optax(optimizer, mapping, named_parameters=module)
    model = mapping.to_jax(module.state_dict())
    for options, words in (
        ({"optimizer": made.opt_state, "optimizer_like": optimizer}, "named_parameters"),
        ({"optimizer": made.opt_state, "optimizer_like": 3}, "optimizer_like of int"),
        ({"optimizer": made.opt_state}, "optimizer_like of NoneType"),
        ({"optimizer": made, "optimizer_like": read_torch(optimizer, module)}, "tx.update returned last"),
    ):
        with pytest.raises(UsageError, match=words):
            checkpoint.save(tmp_path, params=model, mapping=mapping, **options)
    assert list(tmp_path.iterdir()) == []
