"""The learner of the offline agents in JAX: one Adam for all modules, and targets that follow."""

import equinox as eqx
import jax
import numpy as np
import pytest
from offline_cases_jax import batch_of, named, on_device, policy_of, small

from crossfade.algos.offline.learner_jax import follow, make_optimizer, remember, reset_targets, update
from crossfade.algos.offline.losses_jax import loss

pytestmark = pytest.mark.usefixtures("x64")


def stepping(config):
    policy = policy_of(config)
    tx = make_optimizer(policy, config)
    step = eqx.filter_jit(lambda policy, state, batch: update(policy, tx, state, batch, config))
    return policy, tx.init(policy), step


def adam(parameters, gradients, lr):
    """Adam by hand over a sequence of gradients (Kingma and Ba 2015)."""
    m, v = np.zeros_like(parameters), np.zeros_like(parameters)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        parameters = parameters - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return parameters


def test_idle_modules_take_part_with_gradients_of_0():
    """Of four updates the first alone is full: the actor goes on by its momentum, and all share one count."""
    config = small("iql", lr=1e-2)
    policy, state, step = stepping(config)
    start, measure = named(policy), eqx.filter_jit(eqx.filter_grad(lambda p, b: loss(p, b, config)[0]))
    gradients = []
    for i in range(4):
        batch = on_device(batch_of(config, "finetuning", full=i == 0, seed=i))
        gradients.append(named(measure(policy, batch)))
        policy, state, info = step(policy, state, batch)
        assert (info["actor_loss"] != 0) == (i == 0)
    end, zeros = named(policy), "actor.mean_net.weight"
    assert gradients[0][zeros].any() and not any(g[zeros].any() for g in gradients[1:])
    for name, array in start.items():
        if not name.startswith("target_"):
            expected = adam(array, [g[name] for g in gradients], 1e-2)
            np.testing.assert_allclose(end[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)
    stopped = adam(start[zeros], [gradients[0][zeros]], 1e-2)
    assert (np.abs(end[zeros] - start[zeros]) > 2 * np.abs(stopped - start[zeros])).all()


def test_only_modules_that_learn_have_moments():
    config = small("iql")
    policy, state, _ = stepping(config)
    moments = named(state[0].mu)
    assert set(moments) == {name for name in named(policy) if not name.startswith("target_")}


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("agent", "phase", "followed", "always"),
    [
        ("iql", "pretraining", (), True),
        ("iql", "finetuning", ("critic",), True),
        ("rebrac", "pretraining", (), True),
        ("rebrac", "finetuning", ("critic", "actor"), False),
    ],
)
def test_targets_follow_the_modules_of_before_the_update(agent, phase, followed, always, full):
    config = small(agent, tau=0.2, lr=0.1)
    policy, state, step = stepping(config)
    before = named(policy)
    after = named(step(policy, state, on_device(batch_of(config, phase, full=full)))[0])
    for name in before:
        module = name.split(".")[0].removeprefix("target_")
        if not name.startswith("target_"):
            continue
        if module in followed and (always or full):
            expected = 0.8 * before[name] + 0.2 * before[name.removeprefix("target_")]
            np.testing.assert_allclose(after[name], expected, rtol=1e-14)
        else:
            assert (after[name] == before[name]).all(), name


def test_following_is_what_the_update_does():
    config = small("rebrac", tau=0.3)
    policy = policy_of(config)
    batch = on_device(batch_of(config, "finetuning"))
    moved = jax.tree.map(lambda a: a + 1, policy)
    after = named(follow(moved, remember(policy, batch, config), batch, config))
    name = "actor.mean_net.bias"
    online, target = named(policy)[name], named(moved)[f"target_{name}"]
    np.testing.assert_allclose(after[f"target_{name}"], 0.7 * target + 0.3 * online, rtol=1e-14)
    assert (after[name] == named(moved)[name]).all()


@pytest.mark.parametrize(("agent", "reset"), [("iql", ()), ("td_infonce", ("critic",)), ("hilp", ("skill_critic",))])
def test_targets_are_reset_between_the_phases(agent, reset):
    config = small(agent)
    policy = policy_of(config)
    before, after = named(policy), named(reset_targets(policy, config))
    for name in before:
        module = name.split(".")[0].removeprefix("target_")
        source = name.removeprefix("target_") if name.startswith("target_") and module in reset else name
        assert (after[name] == before[source]).all()
    arrays = jax.tree.leaves(reset_targets(policy, config))
    assert len({leaf.unsafe_buffer_pointer() for leaf in arrays}) == len(arrays), "given away twice"
