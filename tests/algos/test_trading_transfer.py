"""Phase 1 grows into phase 2 and stays the same function to the last bit, in both frameworks."""

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import pytest
import torch

from crossfade.config import apply
from crossfade.errors import CheckpointError
from crossfade.nn.normalizer_numpy import Statistics, normalize
from crossfade.systems.trading import transfer
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_jax import System as JaxSystem
from crossfade.systems.trading.system_torch import System

SIZES = (1, 7, 64, 1000)


@lru_cache
def phases(network: str, dtype: str, window: int = 20) -> SimpleNamespace:
    """A network of phase 1 that is no longer at its start, with what it grows into."""
    new = apply(TradingConfig(), ["env.phase=2", f"env.window={window}", f"network={network}", f"dtype={dtype}"])
    old, rng = transfer.before(new), np.random.default_rng(0)
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
    return np.array_equal(one[0], two[0][:, :3]) and np.array_equal(one[1], two[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", ["mlp", "seed"])
@pytest.mark.parametrize("framework", FORWARD)
def test_growth_keeps_the_function_to_the_last_bit(framework, network, dtype):
    for n in SIZES:
        assert same(*both(FORWARD[framework], phases(network, dtype), n)), n


@pytest.mark.parametrize("network", ["mlp", "seed"])
@pytest.mark.parametrize("framework", FORWARD)
def test_new_actions_begin_at_a_low_logit_whatever_is_seen(framework, network):
    _, (logits, _) = both(FORWARD[framework], phases(network, "float64"), 7)
    assert (logits[:, 3:] == -3.0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_in_torch_it_does_with_any_threads_and_window(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for window in (1, 3, 19):
            for n in SIZES:
                assert same(*both(torch_forward, phases("mlp", "float32", window), n)), (window, n)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("framework", FORWARD)
def test_new_columns_that_are_not_zero_are_noticed(framework):
    case = phases("mlp", "float32")
    parameters, seen = case.after
    weight = parameters["trunk.0.weight"].copy()
    weight[:, -1] = 1e-4
    assert not same(*both(FORWARD[framework], case, 7, ({**parameters, "trunk.0.weight": weight}, seen)))


def test_in_torch_what_has_grown_is_computed_apart_and_counts():
    """One product over 233 inputs may sum in another order than one over 225, and does on most machines."""
    case = phases("mlp", "float64")
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
    found = transfer.divergence(logits, mask)
    for row, legal, nats in zip(logits, mask, found, strict=True):
        p = np.where(legal[:3], np.exp(row[:3]), 0) / np.exp(row[:3])[legal[:3]].sum()
        q = np.where(legal, np.exp(row), 0) / np.exp(row)[legal].sum()
        expected = sum(a * np.log(a / b) for a, b in zip(p, q[:3], strict=True) if a > 0)
        assert nats == pytest.approx(expected, abs=1e-12)
        assert nats > 1e-3 if legal[3:].any() else nats == 0


def test_a_new_action_is_tried_now_and_then():
    case = phases("mlp", "float64")
    parameters, seen = case.after
    new = replace(case.new, days=2, n_envs=64)
    observation, mask = transfer.open_positions(new, System(new).data, seen)
    legal = mask[:, 3:].any(-1)
    nats = transfer.divergence(torch_forward(new, parameters, observation)[0], mask)
    assert 0 < legal.mean() < 1 and (nats[~legal] == 0).all() and (nats[legal] > 0).all()
    text = transfer.describe(nats)
    assert "bit for bit" in text and f"KL {nats[legal].mean():.3g} nats" in text
    assert "KL" not in transfer.describe(nats[~legal])


REFUSED = [
    (["env.window=19"], "same window and features"),
    (["features=seed8"], "features: expected sound"),
    (["normalize_observations=false"], "normalize_observations: expected True"),
    (["hidden=32"], "hidden: expected 64"),
    (["network=seed"], "network: expected mlp"),
    (["dtype=float64"], "dtype: expected float32"),
    (["env.phase=1"], "from phase 1 to phase 2"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_grow_is_refused(words, message):
    case = phases("mlp", "float32")
    with pytest.raises(CheckpointError, match=message):
        transfer.grow(*case.before, case.old, apply(case.new, words))


def test_parameters_of_another_shape_are_refused():
    case = phases("mlp", "float32")
    parameters = {**case.before[0], "trunk.0.bias": np.zeros(3, "float32")}
    assert transfer.is_phase_1(case.before[0], case.new) and not transfer.is_phase_1(parameters, case.new)
    assert not transfer.is_phase_1(case.before[0], case.old)
    with pytest.raises(CheckpointError, match="expected parameters of shapes"):
        transfer.grow(parameters, case.before[1], case.old, case.new)


def test_statistics_are_carried_and_new_ones_begin_at_mean_0_and_variance_1():
    case = phases("mlp", "float32")
    (mean, var, count), (new_mean, new_var, new_count) = case.before[1], case.after[1]
    assert np.array_equal(new_mean, [*mean, *[0] * 8]) and np.array_equal(new_var, [*var, *[1] * 8])
    assert new_count == count and new_mean.dtype == np.float32
