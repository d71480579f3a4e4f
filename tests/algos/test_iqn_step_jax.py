"""Steps of IQN's learner in JAX against arithmetic by hand, and every way to run the axis of agents."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_learner_cases_jax import (
    Config,
    gradient_of,
    named,
    of_agent,
    parameters,
    policy_of,
    sizes_of,
    small,
    transitions,
)

from crossfade.algos.iqn import learner_jax, stacked_jax
from crossfade.algos.iqn.batch import Batch
from crossfade.algos.iqn.losses_jax import model_loss
from crossfade.algos.iqn.networks_jax import make_policy
from crossfade.algos.iqn.optimizer import names
from crossfade.errors import UsageError
from crossfade.optim import masking_jax as masking, sharing_jax as sharing
from default_run import few


def batch_of(config, seed=0, ready=True, copy=False):
    return jax.tree.map(jnp.asarray, Batch(transitions(config, seed), np.array(ready), np.array(copy), {}))


@cache
def program(config):
    """`update_stacked`, compiled, on as many devices as the config says."""
    step = partial(stacked_jax.update_stacked, config=config)
    places = sharing.EVERYWHERE, sharing.EVERYWHERE
    return jax.jit(sharing.spread(step, config.devices, places, places))


def started(config):
    policy = policy_of(config)
    optimizers = learner_jax.make_optimizers(config, policy)
    return policy, optimizers, {own: tx.init(policy) for own, tx in optimizers.items()}


def trained(config, steps=3, ready=True, copies=()):
    """Parameters by name, the states of the optimisers and the infos of a few steps."""
    policy, _, opt_states = started(config)
    stacked, infos = stacked_jax.stack(policy, opt_states, config), []
    for step in range(steps):
        batch = batch_of(config, step, ready, step in copies)
        stacked, info = program(config)(stacked, batch)
        infos.append({key: float(value) for key, value in info.items()})
    policy, opt_states = stacked_jax.unstack(stacked, policy, opt_states)
    return named(policy), opt_states, infos


def trained_by_hand(config, steps=3, copies=()):
    """The same, with clipping, Adam and targets written out; gradients by `loss`, which is proven above."""
    now, norms, infos = parameters(config), [], []
    first, second = ({key: np.zeros_like(array) for key, array in now.items()} for _ in range(2))
    for step in range(steps):
        if step in copies:
            now |= {key: now[key.replace(".target.", ".local.")].copy() for key in now if ".target." in key}
        models, t, after = make_policy(config, sizes_of(config), now).models, transitions(config, step), dict(now)
        values = []
        for number in range(config.n_models):
            members = [agent for agent in range(config.agents) if config.model_of[agent] == number]
            found = [gradient_of(models[number], jax.tree.map(jnp.asarray, of_agent(t, a)), small()) for a in members]
            values.append(np.mean([info["loss"] for _, info in found]))
            each = [named(gradient.local) for gradient, _ in found]
            mean = {key: sum(one[key] for one in each) / len(each) for key in each[0]}
            norm = np.sqrt(sum((array**2).sum() for array in mean.values()))
            norms.append(norm)
            rate = config.lr[members[0]] if len(config.lr) > 1 else config.lr[0]
            for key, g in mean.items():
                own = f"models.{number}.local.{key}"
                if config.clip_norm is not None:
                    g = g * min(1, config.clip_norm / (norm + 1e-6))
                first[own] = 0.9 * first[own] + 0.1 * g
                second[own] = 0.999 * second[own] + 0.001 * g**2
                m, v = first[own] / (1 - 0.9 ** (step + 1)), second[own] / (1 - 0.999 ** (step + 1))
                after[own] = now[own] - rate * m / (np.sqrt(v) + 1e-8)
                if config.target == "soft":
                    aim = own.replace(".local.", ".target.")
                    after[aim] = config.tau * after[own] + (1 - config.tau) * now[aim]
        now = after
        infos.append(np.mean(values))
    return now, norms, infos


CASES = {
    "separate": {"lr": (0.01, 0.02, 0.05), "clip_norm": 0.2},
    "groups": {"parameters": "groups", "groups": (1, 0, 1), "clip_norm": None, "target": "hard"},
    "shared": {"parameters": "shared", "clip_norm": 0.2},
}

AXES = {
    "vmap": {"agent_axis": "vmap"},
    "unroll": {"agent_axis": "unroll"},
    "shard 2": {"agent_axis": "shard", "devices": 2},
    "shard 4": {"agent_axis": "shard", "devices": 4},
    "batches 2": {"devices": 2},
    "batches 4, vmap": {"agent_axis": "vmap", "devices": 4},
}

PAIRS = [("separate", axis) for axis in ("vmap", "batches 2")]
PAIRS += [
    pytest.param(*pair, marks=pytest.mark.slow)
    for pair in (
        ("separate", "unroll"),
        ("separate", "shard 2"),
        ("groups", "vmap"),
        ("groups", "shard 4"),
        ("groups", "batches 4, vmap"),
        ("shared", "batches 2"),
    )
]


@pytest.mark.parametrize("case", CASES)
def test_a_step_equals_arithmetic_by_hand(case, x64):
    config = small(**CASES[case])
    copies = (1,) if config.target == "hard" else ()
    found, _, infos = trained(config, copies=copies)
    expected, norms, losses = trained_by_hand(config, copies=copies)
    assert max(norms) > 1 if config.clip_norm is None else max(norms) > config.clip_norm
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-10, atol=1e-12, err_msg=key)
    np.testing.assert_allclose([info["loss"] for info in infos], losses, rtol=1e-11)
    assert all(info["learned"] == 1 for info in infos)


@pytest.mark.parametrize("case, axis", PAIRS)
def test_the_axis_of_agents_runs_in_any_way_alike(case, axis, x64):
    config = small(**CASES[case])
    found, states, infos = trained(replace(config, **AXES[axis]))
    expected, expected_states, expected_infos = trained(config)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-12, atol=1e-12, err_msg=key)
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    jax.tree.map(same, states, expected_states)
    jax.tree.map(same, infos, expected_infos)


def test_the_named_optimizers_take_the_same_step_one_by_one(x64):
    config = small(**CASES["groups"])
    policy, optimizers, opt_states = started(config)

    @jax.jit
    def one_by_one(policy, opt_states, batch):
        states, losses = {}, []
        for number, own in enumerate(names(config)):
            objective = lambda policy, batch, number=number: model_loss(policy, number, batch, config)
            step = masking.update(policy, optimizers[own], opt_states[own], objective, batch.transitions)
            policy, states[own], info = step
            losses.append(info["loss"])
        return policy, states, sum(losses) / len(losses)

    batch = batch_of(config)
    together = jax.jit(lambda *given: learner_jax.update(given[0], optimizers, *given[1:], config))
    *found, info = together(policy, opt_states, batch)
    *expected, value = one_by_one(policy, opt_states, batch)
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    jax.tree.map(same, (*found, info["loss"]), (*expected, value))


def test_a_batch_that_is_not_ready_changes_nothing_but_copies(x64):
    config = small(**CASES["groups"])
    before = parameters(config)
    found, states, infos = trained(config, steps=1, ready=False)
    assert all(np.array_equal(found[key], array) for key, array in before.items())
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(states))
    assert infos == [{"loss": 0.0, "q": 0.0, "error": 0.0, "learned": 0.0}]
    found, _, _ = trained(config, steps=1, ready=False, copies=(0,))
    assert all(np.array_equal(found[key], before[key.replace(".target.", ".local.")]) for key in before)


def test_both_targets_follow_and_are_copied(x64):
    """A copy gives the targets of the step, which then leave it by the share tau of that step."""
    config = small(target="hard", quirks=("both_targets",))
    before = parameters(config)
    found, _, _ = trained(config, steps=1, copies=(0,))
    for key in (key for key in before if ".local." in key):
        expected = 0.75 * before[key] + 0.25 * found[key]
        np.testing.assert_allclose(found[key.replace(".local.", ".target.")], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("clip_norm", few((1.0, None), 1.0))
@pytest.mark.parametrize("players", (1, 12))
def test_stacking_and_back_is_exact(players, clip_norm):
    """Also behind jit, which sorts the optimisers by name: model_10 before model_2."""
    config = small(players=players, dtype="float32", clip_norm=clip_norm)
    policy, _, opt_states = started(config)
    leaves, structure = jax.tree.flatten(opt_states)
    rng = np.random.default_rng(0)
    drawn = [jnp.asarray(rng.integers(1, 9, leaf.shape), leaf.dtype) for leaf in leaves]
    opt_states = jax.tree.unflatten(structure, drawn)
    assert set(opt_states) == ({"policy"} if players == 1 else {f"model_{k}" for k in range(12)})

    @jax.jit
    def there(policy, opt_states):
        return stacked_jax.stack(policy, opt_states, config)

    @jax.jit
    def back(stacked, policy, opt_states):
        return stacked_jax.unstack(stacked, policy, opt_states)

    stacked = there(policy, opt_states)
    plain = jax.tree.structure(stacked_jax.clipped_adam(config, 0.1).init(policy.models[0].local))
    assert jax.tree.structure(stacked.opt_state) == plain
    found = back(stacked, policy, opt_states)
    assert jax.tree.structure(found) == jax.tree.structure((policy, opt_states))
    jax.tree.map(np.testing.assert_array_equal, found, (policy, opt_states))


def test_an_optimizer_owns_the_local_network_of_its_model(x64):
    config = small(parameters="groups", groups=(0, 1, 0))
    policy, optimizers, opt_states = started(config)
    assert list(optimizers) == list(names(config)) == ["model_0", "model_1"]
    assert names(small(parameters="shared")) == ("policy",)
    moments = named(opt_states["model_1"])
    local = set(named(policy.models[1].local))
    owned = {key.partition("models.1.local.")[2] for key in moments if "models." in key}
    assert owned == local and not any("target" in key or "models.0" in key for key in moments)


def test_the_axis_of_agents_goes_with_the_devices():
    with pytest.raises(UsageError, match="agent_axis: expected shard with several devices only"):
        small(agent_axis="shard")
    for axis in ("vmap", "map", "unroll"):
        assert not small(agent_axis=axis).shares_batches
        assert small(agent_axis=axis, devices=2).shares_batches
        with pytest.raises(UsageError, match="devices: expected a divisor of batch_size = 4, got 3"):
            small(agent_axis=axis, devices=3)
    assert not small(agent_axis="shard", devices=3).shares_batches
    assert "agent_axis" in Config.bookkeeping
