"""`bridge.import_torch`: torch code in JAX is the same function, with the same derivative."""

import jax
import jax.numpy as jnp
import pytest
import torch

from bridge.import_torch_agents import LOSSES, NOISY
from bridge.import_torch_cases import OPERATIONS
from bridge.import_torch_kinks import KINKS
from bridge.import_torch_modules import MODULES
from bridge.import_torch_proof import difference
from crossfade.bridge.from_torch import table
from default_run import few_of

VALUE, GRADIENT = 1e-12, 1e-12

DEFAULT = (
    "clamp",
    "where",
    "gather",
    "in place",
    "written in a loop",
    "detach",
    "data",
    "trees",
    "categorical",
    "mask assignment",
)
DEFAULT_KINKS = (
    "clamp",
    "abs",
    "leaky_relu",
    "norm",
    "max of an axis",
    "max of all",
    "hardtanh",
    "std",
    "relu",
    "prelu",
    "maximum",
)


@pytest.mark.parametrize("case", few_of(OPERATIONS, *DEFAULT))
def test_operations(case, x64):
    function, *args = case
    value, gradient = difference(function, *args)
    assert value <= VALUE and gradient <= GRADIENT


@pytest.mark.parametrize("case", few_of(KINKS, *DEFAULT_KINKS))
def test_value_and_gradient_at_kinks(case, x64):
    function, *args = case
    value, gradient = difference(function, *args)
    assert value <= VALUE and gradient <= GRADIENT


@pytest.mark.parametrize("case", few_of(MODULES, "mlp", "gru cell", "gpt, tied", "batch norm", "multihead attention"))
def test_modules(case, x64):
    function, *args = case
    value, gradient = difference(function, *args)
    assert value <= VALUE and gradient <= GRADIENT


@pytest.mark.parametrize("case", few_of(LOSSES, "ppo", "dqn", "iqn", "gradient penalty"))
def test_losses(case, x64):
    function, *args = case
    value, gradient = difference(function, *args)
    assert value <= VALUE and gradient <= GRADIENT


@pytest.mark.parametrize("case", few_of(NOISY, "dropout", "sac actor"))
def test_random_functions_draw_what_torch_draws_from_the_same_key(case, x64):
    function, *args = case
    value, gradient = difference(function, *args, key=jax.random.key(3))
    assert value <= VALUE and gradient <= GRADIENT


def test_there_are_enough_cases():
    assert len(OPERATIONS) + len(MODULES) + len(LOSSES) + len(NOISY) >= 80 and len(KINKS) >= 40


# Rules can be wrong, and are found to be

WRONG = {
    "clamp": ("clamp", lambda x, low=None, high=None: jnp.clip(x, low, high)),
    "abs": ("abs", jnp.abs),
    "leaky_relu": ("leaky_relu", lambda x, slope=0.01: jax.nn.leaky_relu(x, slope)),
    "norm": ("linalg_vector_norm", lambda x, p, dim, keepdim=False, dtype=None: jnp.linalg.norm(x, axis=1)),
    "max of an axis": ("max.dim", lambda x, dim, keepdim=False: (x.max(dim), x.argmax(dim))),
    "std": ("std.correction", lambda x, dim=None, correction=1, keepdim=False: jnp.std(x, 1, ddof=1)),
    "hardtanh": ("hardtanh", lambda x, low=-1, high=1: jnp.where(x < low, low, jnp.where(x > high, high, x))),
}


@pytest.mark.parametrize("kink", WRONG)
def test_what_jax_does_at_a_kink_would_be_noticed(kink, x64, monkeypatch):
    function, *args = KINKS[kink]
    op, wrong = WRONG[kink]
    table.find("relu")
    monkeypatch.setitem(table._rules, op, wrong)
    value, gradient = difference(function, *args)
    assert value <= VALUE and gradient > 1e-3


def test_a_wrong_rule_would_be_noticed(x64, monkeypatch):
    table.find("relu")
    monkeypatch.setitem(table._rules, "gelu", lambda x, approximate="none": jax.nn.gelu(x))
    assert difference(*OPERATIONS["smooth activations"])[0] > 1e-6


def test_a_lost_detach_would_be_noticed(x64, monkeypatch):
    table.find("relu")
    monkeypatch.setitem(table._rules, "detach", lambda x: x)
    assert difference(*OPERATIONS["detach"])[1] > 1e-3


def test_each_rule_is_of_an_operation_that_exists():
    own = ("keep_gradient", "own_derivative", "strided_flat", "strided_read", "strided_write")
    forms = lambda name: (name, f"{name}_")
    unknown = [
        op
        for op in table.known()
        if op not in own and not any(hasattr(torch.ops.aten, f) for f in forms(op.partition(".")[0]))
    ]
    assert not unknown
