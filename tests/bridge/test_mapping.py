"""Mapping: transfers, checks, saving, telling."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
import torch
from torch import nn

from bridge.zoo import ZOO
from crossfade.bridge import Mapping, Rule, match
from crossfade.bridge.libraries import named_leaves, open_model
from crossfade.bridge.rules import permute
from crossfade.errors import MappingError, TransferError, UsageError


class Twin(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear

    def __init__(self):
        k1, k2 = jax.random.split(jax.random.key(0))
        self.a, self.b = eqx.nn.Linear(3, 4, key=k1), eqx.nn.Linear(4, 4, key=k2)

    def __call__(self, x):
        return self.b(jax.nn.relu(self.a(x)))


class TorchTwin(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


@pytest.fixture(scope="module")
def matched():
    module = TorchTwin()
    return module, match(module, Twin(), torch.randn(4, 3))


def test_by_name_is_what_match_finds_for_twins(matched):
    module, mapping = matched
    named = Mapping.by_name(module, Twin())
    assert [(e.torch, e.jax, e.rule) for e in named.entries] == [(e.torch, e.jax, e.rule) for e in mapping.entries]
    with pytest.raises(MappingError, match="stand alone"):
        Mapping.by_name(nn.Linear(3, 4), Twin())


def test_verify_tells_a_right_mapping_from_wrong_ones(matched):
    _, mapping = matched
    assert mapping.verify().ok and "NO" not in str(mapping.verify())
    entries = {entry.torch[0]: entry for entry in mapping.entries}
    transposed = replace(entries["b.weight"], rule=Rule(permute(1, 0)))
    wrong = replace(mapping, entries=tuple({**entries, "b.weight": transposed}.values()))
    assert not wrong.verify().ok and wrong.verify().forward > 1e-3
    missing = replace(mapping, entries=tuple(e for n, e in entries.items() if n != "b.bias"))
    assert not missing.verify().bijective and not missing.verify().ok


@pytest.mark.parametrize(
    ("name", "library"),
    [("lstm", "haiku"), *(pytest.param(*c, marks=pytest.mark.slow) for c in (("pixels", "linen"), ("critics", "nnx")))],
)
def test_a_saved_mapping_is_the_same(name, library, tmp_path):
    case = ZOO[name]
    module, model = case.torch(), case.jax(library)
    mapping = match(module, model, case.example(), **case.options(library))
    mapping.save(tmp_path / "mapping.json")
    loaded = Mapping.load(tmp_path / "mapping.json", model)
    assert loaded.to_json() == mapping.to_json()
    state = module.state_dict()
    for one, other in zip(
        *(named_leaves(open_model(m.to_jax(state)).params).values() for m in (mapping, loaded)), strict=True
    ):
        assert np.array_equal(one, other)
    with pytest.raises(UsageError, match=r"verify\(torch_module, example\)"):
        loaded.verify()
    assert loaded.verify(module, case.example(), **case.options(library)).ok


def test_a_state_dict_that_does_not_fit_is_explained(matched):
    module, mapping = matched
    state = module.state_dict()
    misspelt = {("a.wieght" if n == "a.weight" else n): t for n, t in state.items()}
    with pytest.raises(MappingError, match=r"missing: a\.weight\n.*unexpected: a\.wieght Did you mean 'a\.weight'"):
        mapping.to_jax(misspelt)
    with pytest.raises(MappingError, match=r"a\.bias: expected \(4,\), got \(5,\)"):
        mapping.to_jax(state | {"a.bias": torch.zeros(5)})


def test_an_attribute_called_module_is_no_prefix():
    class Inner(eqx.Module):
        module: eqx.nn.Linear

    inner = nn.Module()
    inner.module = nn.Linear(3, 4)
    state = inner.state_dict()
    mapping = Mapping.by_name(inner, Inner(eqx.nn.Linear(3, 4, key=jax.random.key(0))))
    for prefix in ("", "_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."):
        model = mapping.to_jax({prefix + name: tensor for name, tensor in state.items()})
        assert np.array_equal(model.module.weight, state["module.weight"])


def test_doubles_are_never_narrowed_silently(matched):
    module, mapping = matched
    state = {name: tensor.double() for name, tensor in module.state_dict().items()}
    with pytest.raises(TransferError, match="float64"):
        mapping.to_jax(state)


def test_tied_weights_that_drifted_apart_are_refused():
    case = ZOO["tied"]
    module = case.torch()
    mapping = match(module, case.jax("equinox"), case.example())
    assert mapping.tied == {"head.weight": "embed.weight"}
    state = {n: t.clone() for n, t in module.state_dict().items()}
    back = mapping.to_torch(mapping.to_jax(state))
    assert torch.equal(back["head.weight"], state["embed.weight"])
    with pytest.raises(MappingError, match="one tensor in the matched module"):
        mapping.to_jax(state | {"head.weight": state["head.weight"] + 1})


def test_gradients_pass_by_the_linear_part_of_a_rule():
    """Torch gives both biases of a cell the gradient of their sum; an added constant has none."""
    case = ZOO["lstm"]
    module, model = case.torch(), case.jax("haiku")
    mapping = match(module, model, case.example())
    module(case.example()).square().sum().backward()
    expected = {name: p.grad.numpy() for name, p in module.named_parameters()}
    transformed, params = mapping.to_jax(module.state_dict())
    x = case.jax_example("haiku")
    gradient = jax.grad(lambda params: (transformed.apply(params, x) ** 2).sum())(params)
    named = mapping.leaves_to_torch({p: np.asarray(g) for p, g in named_leaves(gradient).items()}, linear=True)
    leaves = mapping.leaves_to_jax(expected, linear=True)
    for name, value in expected.items():
        np.testing.assert_allclose(named[name], value, rtol=1e-4, atol=1e-5)
    for path, value in named_leaves(gradient).items():
        np.testing.assert_allclose(leaves[path], value, rtol=1e-4, atol=1e-5)


def test_explain_is_an_aligned_table(matched):
    lines = matched[1].explain().splitlines()
    assert lines[0].split() == ["torch", "JAX", "rule", "found", "by"]
    assert lines[1].split("  ")[0] == "a.weight (4, 3)"
    assert len({line.index("same") for line in lines[1:]}) == 1
