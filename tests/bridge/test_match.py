"""What `match` promises beyond the zoo: no side effects, honest refusals, overrides, ties, scans, lists and stacks."""

import copy
import time

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen
from torch import nn

import crossfade.nn as cfnn
from bridge import zoo_equinox, zoo_torch
from bridge.zoo import ZOO
from crossfade.bridge import Mapping, Rule, match
from crossfade.bridge.libraries import open_model
from crossfade.bridge.matching.both_models import BothModels
from crossfade.bridge.rules import add, permute
from crossfade.errors import AmbiguousMapping, MappingError, NoCounterpart, UsageError
from default_run import few

KEYS = jax.random.split(jax.random.key(0), 4)
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    """Linear layers in a row; `idle` more that are never used."""

    def __init__(self, *sizes: int, idle: int = 0, bias: bool = True):
        super().__init__()
        pairs = zip(sizes, sizes[1:], strict=False)
        self.used = nn.ModuleList(nn.Linear(i, o, bias=bias) for i, o in pairs)
        self.extra = nn.ParameterList(torch.randn(5) for _ in range(idle))

    def forward(self, x):
        for layer in self.used:
            x = torch.tanh(layer(x))
        return x


class EqxLayers(eqx.Module):
    layers: list
    spare: list

    def __init__(self, *sizes: int, idle: int = 0, use_bias: bool = True):
        pairs = zip(sizes, sizes[1:], KEYS, strict=False)
        self.layers = [eqx.nn.Linear(i, o, use_bias=use_bias, key=k) for i, o, k in pairs]
        self.spare = [jnp.zeros(5) for _ in range(idle)]

    def __call__(self, x):
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


def _pairs(mapping: Mapping) -> dict[str, str]:
    return {entry.torch[0]: entry.jax[0] for entry in mapping.entries}


def test_match_leaves_the_models_and_the_generators_alone():
    case = ZOO["batchnorm_mlp"]
    module, model = case.torch(), case.jax("equinox")
    module.fc1.weight.requires_grad_(False)
    module.bn1.eval()
    before, leaves = copy.deepcopy(module.state_dict()), {p: np.array(a) for p, a in open_model(model).leaves().items()}
    flags = [m.training for m in module.modules()]
    rng, settings = torch.get_rng_state(), (torch.get_default_dtype(), torch.get_num_threads(), jnp.ones(1).dtype)

    match(module, model, case.example())

    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(np.array_equal(a, leaves[p]) for p, a in open_model(model).leaves().items())
    assert [m.training for m in module.modules()] == flags and not module.fc1.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), rng)
    assert (torch.get_default_dtype(), torch.get_num_threads(), jnp.ones(1).dtype) == settings


def test_a_small_network_is_matched_within_two_seconds():
    module, model = Layers(3, 16, 16, 2), EqxLayers(3, 16, 16, 2)
    match(module, model, X)  # first use of either framework
    start = time.process_time()
    match(module, model, X[:3])
    assert time.process_time() - start < 2


def test_a_parameter_that_is_returned_as_it_is_counts_as_used():
    class Returned(Layers):
        def __init__(self, *sizes):
            super().__init__(*sizes, idle=2)
            self.square = nn.Parameter(torch.randn(5, 5))

        def forward(self, x):
            return super().forward(x), self.extra[0], self.extra[1], self.square

    class LinenReturned(linen.Module):
        @linen.compact
        def __call__(self, x):
            first, second = (self.param(name, linen.initializers.ones, (5,)) for name in ("b", "a"))
            square = self.param("c", linen.initializers.ones, (5, 5))
            return jnp.tanh(linen.Dense(2)(x)), first, second, square.T

    model = LinenReturned(), LinenReturned().init(jax.random.key(0), X.numpy())
    mapping = match(Returned(3, 2), model, X)
    assert (_pairs(mapping)["extra.0"], _pairs(mapping)["extra.1"]) == ("b", "a")
    assert mapping.unproved == () and mapping.verify().ok


def test_an_unused_parameter_is_matched_by_name_and_reported():
    mapping = match(Layers(3, 2, idle=1), EqxLayers(3, 2, idle=1), X)
    assert _pairs(mapping)["extra.0"] == "spare.0"
    assert mapping.unproved == ("extra.0",)
    assert "not proved by the example" in mapping.explain()


def test_unused_parameters_without_a_telling_name_need_an_override():
    module, model = Layers(3, 2, idle=2), EqxLayers(3, 2, idle=2)
    model = eqx.tree_at(lambda m: m.spare, model, {"left": jnp.zeros(5), "right": jnp.zeros(5)})
    with pytest.raises(AmbiguousMapping) as error:
        match(module, model, X)
    assert "'extra.0': 'spare.left'" in str(error.value)
    mapping = match(module, model, X, overrides={"extra.0": "spare.right"})
    assert _pairs(mapping)["extra.0"] == "spare.right" and _pairs(mapping)["extra.1"] == "spare.left"


def test_overrides_decide_and_are_proved_too():
    module, model = Layers(3, 3, 3), EqxLayers(3, 3, 3)
    mapping = match(module, model, X, overrides={"used.0.weight": ("layers.0.weight", Rule())})
    assert {e.torch[0]: e.reason for e in mapping.entries}["used.0.weight"] == "override"
    for wrong in ({"used.0.weight": "layers.1.weight"}, {"used.0.weight": ("layers.0.weight", Rule(permute(1, 0)))}):
        with pytest.raises(MappingError, match="could not be matched"):
            match(module, model, X, overrides=wrong)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"used.0.wieght": "layers.0.weight"}, "Did you mean 'used.0.weight'"),
        ({"used.0.weight": "layers.0.weigth"}, "Did you mean 'layers.0.weight'"),
        ({"used.0.weight": "layers.1.bias"}, "cannot take the shape"),
        ({("used.0.bias", "used.1.bias"): "layers.0.bias"}, "needs a rule"),
    ],
)
def test_wrong_overrides_are_explained(overrides, message):
    with pytest.raises(UsageError, match=message):
        match(Layers(3, 4, 4), EqxLayers(3, 4, 4), X, overrides=overrides)


def test_two_biases_can_be_summed_by_an_override():
    class TwoBiases(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.shift = nn.Linear(3, 2), nn.Parameter(torch.randn(2))

        def forward(self, x):
            return torch.tanh(self.fc(x) + self.shift)

    overrides = {("fc.bias", "shift"): ("layers.0.bias", Rule(add()))}
    assert match(TwoBiases(), EqxLayers(3, 2), X, overrides=overrides).verify().ok


def test_another_epsilon_is_named_as_the_first_difference():
    case = ZOO["layernorm"]
    model = case.jax("equinox")
    model = eqx.tree_at(lambda m: m.norm[0], model, eqx.nn.LayerNorm(5, eps=1e-3))
    with pytest.raises(MappingError) as error:
        match(case.torch(), model, case.example())
    text = str(error.value)
    assert "first difference" in text and "native_layer_norm" in text and "norm1.weight" in text
    assert "overrides={" in text and "'fc1.weight': 'fc.2.weight'" in text


class Blocks(nn.Module):
    """Six residual blocks of convolutions and batch norms, all of one size."""

    def __init__(self):
        super().__init__()
        half = lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3))
        self.blocks = nn.ModuleList(nn.ModuleList([half(), half()]) for _ in range(6))

    def forward(self, x):
        for first, second in self.blocks:
            x = torch.relu(x + second(torch.relu(first(x))))
        return x


class LinenBlocks(linen.Module):
    wrong: int | None = None  # the block with another activation

    @linen.compact
    def __call__(self, x):
        half = lambda x: linen.BatchNorm(True, epsilon=1e-5)(linen.Conv(3, (3, 3), use_bias=False)(x))
        for i in range(6):
            x = linen.relu(x + half(linen.tanh(half(x)) if i == self.wrong else linen.relu(half(x))))
        return x


@pytest.mark.parametrize("wrong", few((None, 0, 4), None, 0))
def test_a_deep_network_is_matched_or_refused_soon(wrong, monkeypatch):
    runs, run = [], BothModels.run_jax
    monkeypatch.setattr(BothModels, "run_jax", lambda *args: runs.append(1) or run(*args))
    x = torch.randn(2, 3, 4, 4)
    moved = np.moveaxis(x.numpy(), 1, -1)
    model = LinenBlocks(wrong), LinenBlocks(wrong).init(jax.random.key(0), moved)
    if wrong is None:
        assert match(Blocks(), model, x, jax_example=moved).verify().ok
    else:
        with pytest.raises(MappingError, match=rf"first difference: .* from blocks\.{wrong}\.1\.0\.weight") as error:
            match(Blocks(), model, x, jax_example=moved)
        assert "under this mapping the outputs differ by" in str(error.value)
    assert len(runs) < 400


@pytest.mark.parametrize(
    ("module", "model", "named"),
    [
        (Layers(3, 4), EqxLayers(3, 4, use_bias=False), "used.0.bias"),
        (Layers(3, 4, bias=False), EqxLayers(3, 4), "layers.0.bias"),
        (zoo_torch.RootMeanSquare(), zoo_equinox.RootMeanSquare(use_bias=True), "c.bias"),
    ],
)
def test_a_parameter_the_other_side_lacks_is_named(module, model, named):
    with pytest.raises(NoCounterpart, match=rf"{named} has nothing to go to"):
        match(module, model, X)


def test_a_failure_tells_what_is_left_on_each_side():
    with pytest.raises(MappingError) as error:
        match(Layers(3, 4, 2), EqxLayers(3, 5, 2), X)
    text = str(error.value)
    for line in ("torch only: used.0.weight (4, 3)", "JAX only: layers.0.weight (5, 3)", "'used.0.weight':"):
        assert line in text


def test_models_that_return_different_things_are_told_so():
    with pytest.raises(MappingError, match=r"torch returns \[\(4, 2\)\], JAX returns \[\(4, 5\)\]"):
        match(Layers(3, 2), EqxLayers(3, 5), X)


def test_torch_ties_what_jax_does_not():
    class Untied(eqx.Module):
        embed: eqx.nn.Embedding
        fc: eqx.nn.Linear
        head: eqx.nn.Linear

        def __init__(self):
            self.embed, self.fc = eqx.nn.Embedding(6, 4, key=KEYS[0]), eqx.nn.Linear(4, 4, key=KEYS[1])
            self.head = eqx.nn.Linear(4, 6, use_bias=False, key=KEYS[2])

        def __call__(self, x):
            return self.head(jax.nn.relu(self.fc(self.embed(x))))

    with pytest.raises(NoCounterpart, match=r"head\.weight and embed\.weight are one tensor in torch"):
        match(ZOO["tied"].torch(), Untied(), ZOO["tied"].example())


def test_errors_of_the_models_come_through_with_the_side_that_ran():
    with pytest.raises(RuntimeError, match="mat1 and mat2") as error:
        match(Layers(5, 2), EqxLayers(3, 2), X)
    assert "the torch module" in error.value.__notes__[0]
    with pytest.raises(TypeError) as error:
        match(Layers(3, 2), EqxLayers(5, 2), X)
    assert any("the JAX model" in note for note in error.value.__notes__)


def test_a_module_bound_to_float32_is_proved_in_float64():
    class Bound(Layers):
        def forward(self, x):
            return super().forward(x.float())

    proof = match(Bound(3, 4, 2), EqxLayers(3, 4, 2), X).verify()
    assert proof.precision == "float64" and proof.forward < 1e-14


def test_equal_branches_that_only_names_tell_apart():
    class Min(nn.Module):
        def __init__(self):
            super().__init__()
            self.q2, self.q1 = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return torch.minimum(self.q1(x), self.q2(x))

    class EqxMin(eqx.Module):
        q1: eqx.nn.Linear
        q2: eqx.nn.Linear

        def __init__(self):
            self.q1, self.q2 = eqx.nn.Linear(3, 1, key=KEYS[0]), eqx.nn.Linear(3, 1, key=KEYS[1])

        def __call__(self, x):
            return jnp.minimum(self.q2(x), self.q1(x))

    assert _pairs(match(Min(), EqxMin(), X))["q1.weight"] == "q1.weight"


def test_an_image_beside_other_features_is_put_in_order():
    class Robot(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(2, 3, 2), nn.Linear(5 + 3 * 2 * 3, 4)

        def forward(self, joints, image):
            return self.fc(torch.cat([joints, torch.relu(self.conv(image)).flatten(1)], 1))

    class LinenRobot(linen.Module):
        @linen.compact
        def __call__(self, joints, image):
            h = linen.relu(linen.Conv(3, (2, 2), padding="VALID")(image))
            return linen.Dense(4)(jnp.concatenate([joints, h.reshape(len(h), -1)], 1))

    example = torch.randn(2, 5), torch.randn(2, 2, 3, 4)
    moved = example[0].numpy(), np.moveaxis(example[1].numpy(), 1, -1)
    model = LinenRobot(), LinenRobot().init(jax.random.key(0), *moved)
    mapping = match(Robot(), model, example, jax_example=moved)
    assert "take(1, 0, 1, 2, ..., 22)" in mapping.explain()
    assert mapping.verify().ok


class Recurrences(eqx.Module):
    """Layers of cells scanned over time, `(time, inputs) -> (time, hidden)`."""

    cells: list

    def __init__(self, cell: type):
        self.cells = [cell(4, 4, key=KEYS[0]), cell(3, 4, key=KEYS[1])]  # the first layer comes last

    def __call__(self, x):
        for cell in self.cells[::-1]:
            step = lambda state, x, cell=cell: (lambda new: (new, new[0]))(cell(x, state))
            _, x = jax.lax.scan(step, (jnp.zeros(4), jnp.zeros(4)), x)
        return x


@pytest.mark.parametrize(("cell", "lossy"), [(eqx.nn.LSTMCell, True), (cfnn.LSTMCell, False)])
def test_layers_of_an_lstm_are_found_inside_scans(cell, lossy):
    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0]

    mapping = match(Outputs(), Recurrences(cell), torch.randn(2, 3, 3))
    assert _pairs(mapping)["rnn.weight_ih_l0"] == "cells.1.weight_ih"
    assert _pairs(mapping)["rnn.weight_hh_l1"] == "cells.0.weight_hh"
    assert any(e.rule.lossy for e in mapping.entries) == lossy
    assert mapping.verify().ok


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch, at the first use of torch.compile
def test_wrapped_modules_are_matched_under_their_plain_names():
    module = Layers(3, 4, 2)
    mapping = match(torch.compile(module), EqxLayers(3, 4, 2), X)
    state = module.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod."):
        model = mapping.to_jax({prefix + name: tensor for name, tensor in state.items()})
        assert all(torch.equal(value, state[name]) for name, value in mapping.to_torch(model).items())


@pytest.mark.parametrize("library", few(("equinox", "haiku"), "haiku"))
def test_running_averages_go_on_from_torchs(library):
    """One training step after the transfer moves the statistics as an average would, and back in torch they agree."""
    case = ZOO["batchnorm_conv"]
    module = case.torch()
    mapping = match(module, case.jax(library), case.example(), **case.options(library))
    model = mapping.to_jax(module.state_dict())
    x = jnp.asarray(case.jax_example(library, seed=2))
    if library == "equinox":
        net, state = model
        run = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        trained, momentum = (net, run(x, state)[1]), 0.99
    else:
        transformed, (params, state) = model
        trained, momentum = (transformed, (params, transformed.apply(params, state, None, x, True)[1])), 0.9
    after = mapping.to_torch(trained)

    seen = module.conv(case.example(seed=2)).detach()
    for name, batch in (("mean", seen.mean((0, 2, 3))), ("var", seen.var((0, 2, 3), unbiased=False))):
        before = module.state_dict()[f"bn.running_{name}"]
        expected = momentum * before + (1 - momentum) * batch
        np.testing.assert_allclose(after[f"bn.running_{name}"], expected, rtol=1e-5, atol=1e-6)


def test_a_fresh_model_trained_in_jax_gives_torch_its_debiased_statistics():
    case = ZOO["batchnorm_conv"]
    module, model = case.torch(), case.jax("equinox")
    mapping = match(module, model, case.example())
    net, state = model
    x = jnp.asarray(case.jax_example("equinox"))
    _, state = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    module.load_state_dict(mapping.to_torch((net, state)))
    expected = mapping.opened.call((eqx.nn.inference_mode(net), state), x)
    np.testing.assert_allclose(module.eval()(case.example()).detach(), expected, rtol=1e-5, atol=1e-6)


def test_a_haiku_function_with_rng_is_matched():
    transformed = hk.transform(lambda x: jnp.tanh(hk.Linear(2)(x)))
    assert match(Layers(3, 2), (transformed, transformed.init(jax.random.key(0), X.numpy())), X).verify().ok


def test_an_lstm_with_a_layer_for_each_gate_is_matched():
    case = ZOO["lstm"]
    mapping = match(case.torch(), case.jax("nnx", variant="lstm_gates"), case.example())
    gates = ("b.ii.kernel", "b.if_.kernel", "b.ig.kernel", "b.io.kernel")
    assert {e.torch[0]: e.jax for e in mapping.entries}["cell.weight_ih"] == gates
    assert mapping.verify().ok
