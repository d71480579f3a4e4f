"""A phase grows into a later one and stays the same function to the last bit, in both frameworks."""

from dataclasses import replace
from functools import lru_cache
from itertools import product
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from crossfade.config import apply
from crossfade.errors import CheckpointError
from crossfade.nn.normalizer_numpy import Statistics, normalize
from crossfade.systems.trading import growth_jax, transfer
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_jax import System as JaxSystem
from crossfade.systems.trading.system_torch import System

SIZES = (1, 2, 7, 64, 1000)
GROWTHS = [(1, 2), (2, 3), (1, 3)]


@lru_cache
def phases(*words: str, growth: tuple[int, int] = (1, 2)) -> SimpleNamespace:
    """A network of an earlier phase that is no longer at its start, with what it grows into."""
    new = apply(TradingConfig(), [f"env.phase={growth[1]}", *words])
    old, rng, dtype = transfer.before(new, growth[0]), np.random.default_rng(0), new.dtype
    start = System(replace(old, days=1)).parameters()
    parameters = {name: (a + 0.05 * rng.normal(size=a.shape)).astype(dtype) for name, a in start.items()}
    dim = old.params.observation_dim
    seen = Statistics(*(a.astype(dtype) for a in (rng.normal(size=dim), rng.uniform(0.1, 9, dim), np.array(1e4))))
    return SimpleNamespace(old=old, new=new, before=(parameters, seen), after=transfer.grow(parameters, seen, old, new))


def torch_forward(config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray):
    policy = System(replace(config, days=1)).make_policy(parameters)
    with torch.no_grad():
        return [y.numpy() for y in policy(torch.from_numpy(observation))]


def jax_forward(config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray):
    with jax.enable_x64(config.dtype == "float64"):
        policy = JaxSystem(replace(config, days=1)).make_policy(parameters)
        return [np.asarray(y) for y in _jitted(policy, observation)]


_jitted = eqx.filter_jit(lambda policy, observation: policy(observation))
FORWARD = {"torch": torch_forward, "jax": jax_forward}


def both(forward, case: SimpleNamespace, n: int, after=None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Logits and values of the two phases; the new inputs are anything, the old ones are normalised by each."""
    rng, dim = np.random.default_rng(n), case.old.params.observation_dim
    raw = rng.normal(size=(n, case.new.params.observation_dim)).astype(case.old.dtype)
    (p, seen), (q, seen_after) = case.before, after or case.after
    return (
        forward(case.old, p, normalize(seen, raw[:, :dim])),
        forward(case.new, q, normalize(seen_after, raw)),
    )


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return transfer.difference(tuple(one), tuple(two)) == 0


SHAPES = [
    ("hidden=8",),
    ("hidden=32",),
    ("hidden=32", "env.window=5"),  # the demo's
    ("hidden=64", "dtype=float64"),
    ("hidden=100", "dtype=float64"),
    ("network=seed",),
]


# In JAX every shape and size of batch compiles: one shape for each growth is in the default run.
QUICK = {(SHAPES[0], GROWTHS[0]), (SHAPES[4], GROWTHS[1]), (SHAPES[5], GROWTHS[2])}
CASES = [
    pytest.param(
        *case,
        id=f"{case[0]}-{' '.join(case[1])}-growth{GROWTHS.index(case[2])}",
        marks=() if case[0] == "torch" or case[1:] in QUICK else pytest.mark.slow,
    )
    for case in product(FORWARD, SHAPES, GROWTHS)
]


@pytest.mark.parametrize(("framework", "words", "growth"), CASES)
def test_growth_keeps_the_function_to_the_last_bit(framework, words, growth):
    for n in SIZES:
        assert same(*both(FORWARD[framework], phases(*words, growth=growth), n)), n


@pytest.mark.slow
def test_in_jax_it_does_without_compilation_too():
    case = phases("hidden=32")
    forward = lambda config, parameters, x: JaxSystem(replace(config, days=1)).make_policy(parameters)(jnp.asarray(x))
    eager = lambda *given: [np.asarray(y) for y in forward(*given)]
    for n in (1, 7, 1000):  # each compiles every operation
        assert same(*both(eager, case, n)), n


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("network", ["mlp", "seed"])
@pytest.mark.parametrize("framework", FORWARD)
def test_new_actions_begin_at_a_low_logit_whatever_is_seen(framework, network, growth):
    case = phases(f"network={network}", "dtype=float64", growth=growth)
    _, (logits, _) = both(FORWARD[framework], case, 7)
    assert (logits[:, case.old.params.n_actions :] == -3.0).all() and logits.shape[1] == case.new.params.n_actions


@pytest.mark.parametrize("threads", [1, 2])
def test_in_torch_it_does_with_any_threads_and_window(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for window in (1, 3, 19):
            for n in SIZES:
                assert same(*both(torch_forward, phases(f"env.window={window}"), n)), (window, n)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("framework", FORWARD)
def test_new_columns_that_are_not_zero_are_noticed(framework):
    case = phases()
    parameters, seen = case.after
    weight = parameters["trunk.0.weight"].copy()
    weight[:, -1] = 1e-4
    assert not same(*both(FORWARD[framework], case, 7, ({**parameters, "trunk.0.weight": weight}, seen)))


def test_what_differs_is_told_as_measured():
    case, logits, value = phases(), np.zeros((2, 3)), np.zeros(2)
    off = transfer.difference((logits, value), (np.pad(logits, ((0, 0), (0, 3))) + 1e-7, value))
    assert off == 1e-7
    assert "at most 1e-07 from what they were" in transfer.describe(case.old, case.new, off, value)


def test_in_jax_what_has_grown_is_computed_apart_and_counts():
    case, rng = phases("dtype=float64", growth=(2, 3)), np.random.default_rng(0)
    with jax.enable_x64(True):
        policy = JaxSystem(replace(case.new, days=1)).make_policy(case.after[0])
        assert isinstance(policy.trunk[0], growth_jax.GrownLinear) and policy.actor[0].old_out == (3, 6)
        for layer, width in ((policy.trunk[0], 233), (policy.actor[0], 64)):
            drawn = eqx.tree_at(lambda of: of.weight, layer, jnp.asarray(rng.normal(size=layer.weight.shape)))
            x = rng.normal(size=(9, width))
            whole = x @ np.asarray(drawn.weight).T + np.asarray(drawn.bias)
            np.testing.assert_allclose(np.asarray(drawn(jnp.asarray(x))), whole, rtol=0, atol=1e-12)


def test_in_torch_what_has_grown_is_computed_apart_and_counts():
    """One product over 233 inputs may sum in another order than one over 225, and does on most machines."""
    case = phases("dtype=float64")
    rng = np.random.default_rng(0)
    raw, h = torch.from_numpy(rng.normal(size=(9, 233))), torch.from_numpy(rng.normal(size=(9, 64)))
    policy = System(replace(case.new, days=1)).make_policy(case.after[0])
    with torch.no_grad():
        for layer, x in ((policy.trunk[0], raw), (policy.actor[0], h)):
            layer.weight += torch.from_numpy(rng.normal(size=layer.weight.shape))
            whole = torch.nn.functional.linear(x, layer.weight, layer.bias)
            torch.testing.assert_close(layer(x), whole, rtol=0, atol=1e-12)
        old = torch.nn.functional.linear(raw[:, :225], policy.trunk[0].weight[:, :225], policy.trunk[0].bias)
        policy.trunk[0].weight[:, 225:] = 0
        assert torch.equal(policy.trunk[0](raw), old)


def test_new_actions_change_nothing_where_they_are_illegal():
    rng = np.random.default_rng(0)
    logits, mask = rng.normal(size=(50, 6)), rng.random((50, 6)) < 0.5
    mask[:, 0] = True
    found = transfer.divergence(logits, mask, 3)
    for row, legal, nats in zip(logits, mask, found, strict=True):
        p = np.where(legal[:3], np.exp(row[:3]), 0) / np.exp(row[:3])[legal[:3]].sum()
        q = np.where(legal, np.exp(row), 0) / np.exp(row)[legal].sum()
        expected = sum(a * np.log(a / b) for a, b in zip(p, q[:3], strict=True) if a > 0)
        assert nats == pytest.approx(expected, abs=1e-12)
        assert nats > 1e-3 if legal[3:].any() else nats == 0


def test_a_new_action_is_tried_now_and_then():
    case = phases("dtype=float64")
    parameters, seen = case.after
    new = replace(case.new, days=2, n_envs=64)
    observation, mask = transfer.open_positions(new, System(new).data, seen)
    legal = mask[:, 3:].any(-1)
    nats = transfer.divergence(torch_forward(new, parameters, observation)[0], mask, 3)
    assert 0 < legal.mean() < 1 and (nats[~legal] == 0).all() and (nats[legal] > 0).all()
    text = transfer.describe(case.old, new, 0.0, nats)
    assert "bit for bit" in text and f"KL {nats[legal].mean():.3g} nats" in text
    assert "KL" not in transfer.describe(case.old, new, 0.0, nats[~legal])


REFUSED = [
    (["env.window=19"], "same window and features"),
    (["features=seed8"], "features: expected session"),
    (["normalize_observations=false"], "normalize_observations: expected True"),
    (["hidden=32"], "hidden: expected 64"),
    (["network=seed"], "network: expected mlp"),
    (["dtype=float64"], "dtype: expected float32"),
    (["env.phase=1"], "from an earlier phase to a later one"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_grow_is_refused(words, message):
    case = phases()
    with pytest.raises(CheckpointError, match=message):
        transfer.grow(*case.before, case.old, apply(case.new, words))


def test_parameters_of_another_shape_are_refused():
    case = phases()
    parameters = {**case.before[0], "trunk.0.bias": np.zeros(3, "float32")}
    assert transfer.earlier_phase(case.before[0], case.new) == 1
    assert transfer.earlier_phase(parameters, case.new) is transfer.earlier_phase(case.before[0], case.old) is None
    third = apply(case.new, ["env.phase=3"])
    assert [transfer.earlier_phase(of[0], third) for of in (case.before, case.after)] == [1, 2]
    with pytest.raises(CheckpointError, match="expected parameters of shapes"):
        transfer.grow(parameters, case.before[1], case.old, case.new)


def test_statistics_are_carried_and_new_ones_begin_at_mean_0_and_variance_1():
    case = phases()
    (mean, var, count), (new_mean, new_var, new_count) = case.before[1], case.after[1]
    assert np.array_equal(new_mean, [*mean, *[0] * 8]) and np.array_equal(new_var, [*var, *[1] * 8])
    assert new_count == count and new_mean.dtype == np.float32
