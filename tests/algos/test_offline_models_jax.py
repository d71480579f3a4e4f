"""The terms of MBPO and DINO with ReBRAC in JAX against arithmetic by hand; imagined transitions, the centre."""

from importlib import import_module

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from offline_cases_jax import (
    ACTION,
    BATCH,
    OBSERVATION,
    actor,
    batch_of,
    log_prob,
    mlp,
    named,
    on_device,
    parameters_of,
    policy_of,
    small,
    value,
)
from offline_judge_jax import judge, judge_sum

from crossfade.algos.offline.learner_jax import make_optimizer, update
from crossfade.algos.offline.losses_jax import terms

# In the default run the torch half is held to its formulas, and the JAX half to the torch half.
pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]


def cloned(p, s, b):
    mean, log_std = actor(p, "actor", s)
    own = log_prob(mean, log_std, np.arctanh(b.actions)) - np.log(1 - b.actions**2).sum(-1)
    return -own.mean(), {"log_prob": own.mean(), "mse": ((np.tanh(mean) - b.actions) ** 2).mean()}


def critic_of(p, c, b, s, next_s, config):
    """ReBRAC's, at states or codes."""
    noise = np.clip(0.2 * b.noise["target_action"], -0.5, 0.5)
    action = np.clip(np.tanh(actor(c, "target_actor", next_s)[0]) + noise, -1, 1)
    penalty = config.agent.alpha_critic * ((action - b.next_actions) ** 2).sum(-1)
    y = b.rewards + 0.9 * b.masks * (value(c, "target_critic", next_s, action).min(0) - penalty)
    q = value(p, "critic", s, b.actions)
    return ((q - y) ** 2).mean(), {"q": q.mean()}


def actor_of(p, c, b, s, config):
    of = lambda p: np.tanh(actor(p, "actor", s)[0])
    q_of = lambda p: value(c, "critic", s, of(p)).min(0)
    error = (of(p) - b.actions) ** 2
    told = {"q": q_of(p).mean(), "mse": error.mean()}
    return -q_of(p).mean() / np.abs(q_of(c)).mean() + config.agent.alpha_actor * error.sum(-1).mean(), told


# MBPO


def transition_loss(p, c, b, config):
    change = mlp(p, "transition.value_net", b.observations, b.actions)
    return ((change - (b.next_observations - b.observations)) ** 2).mean(), {}


MBPO = {
    "transition_loss": transition_loss,
    "reward_loss": lambda p, c, b, config: (((value(p, "reward", b.observations) - b.rewards) ** 2).mean(), {}),
    "bc_loss": lambda p, c, b, config: cloned(p, b.observations, b),
    "critic_loss": lambda p, c, b, config: critic_of(p, c, b, b.observations, b.next_observations, config),
    "actor_loss": lambda p, c, b, config: actor_of(p, c, b, b.observations, config),
}
CLONING = {"alpha_actor": 0.5, "alpha_critic": 0.4}


@pytest.mark.parametrize(
    ("phase", "term"),
    [
        ("pretraining", "transition_loss"),
        ("pretraining", "bc_loss"),
        ("finetuning", "reward_loss"),
        ("finetuning", "transition_loss"),
        ("finetuning", "critic_loss"),
        ("finetuning", "actor_loss"),
    ],
)
def test_terms_of_mbpo(phase, term):
    judge(small("mbpo_rebrac", **CLONING), phase, term, MBPO[term])


def test_critic_and_actor_learn_from_what_is_imagined():
    config = small("mbpo_rebrac", **CLONING)
    p, b = parameters_of(config), batch_of(config, "finetuning")
    imagined = batch_of(config, "finetuning", seed=9)._replace(noise=None, full=None)
    found = eqx.filter_jit(lambda m, b: terms(m, b, config))(
        policy_of(config), on_device(b._replace(imagined=imagined))
    )
    own = imagined._replace(noise=b.noise, full=True)
    for term, source in {"reward_loss": b, "transition_loss": b, "critic_loss": own, "actor_loss": own}.items():
        np.testing.assert_allclose(found[term], MBPO[term](p, p, source, config)[0], rtol=1e-12)


@pytest.mark.parametrize("corrected", [(), ("standing_rollouts",)])
def test_imagined_transitions(corrected):
    config = small("mbpo_rebrac", rollout_steps=2, corrected=corrected)
    p, rng = parameters_of(config), np.random.default_rng(0)
    start, noise = rng.normal(size=(5, OBSERVATION)), 4 * rng.normal(size=(2, 2, 5, ACTION))
    imagine = import_module(config.agent.jax).imagine
    found = imagine(policy_of(config), jnp.asarray(start), jnp.asarray(noise), config)
    noisy = lambda s, n: np.clip(np.tanh(actor(p, "actor", s)[0]) + np.clip(0.2 * n, -0.5, 0.5), -1, 1)
    s, rows = start, []
    for k in range(2):
        a = noisy(s, noise[0, k])
        next_s = s + mlp(p, "transition.value_net", s, a)
        rows.append((s, a, next_s, value(p, "reward", s), np.ones(5), noisy(next_s, noise[1, k])))
        s = next_s if corrected else s
    expected = [np.concatenate(column) for column in zip(*rows, strict=True)]
    if not corrected:
        expected[5] = np.concatenate([expected[1][1:], expected[1][:1]])
    for mine, theirs in zip(found[:6], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11)
    assert found[6:] == (None,) * len(found[6:])


# DINO


def views(b):
    return b.observations + np.clip(0.5 * b.noise["views"], -1, 1)


def code(p, name, s):
    return mlp(p, f"{name}.encoder.mlp", s)


def dino_repr(p, c, b, config):
    center, total = c["target_repr_center.array"], 0.0
    for x in views(b).reshape(-1, OBSERVATION):
        teacher = np.exp((code(c, "target_encoder", x) - center) / 0.04)
        student = np.exp(code(p, "encoder", x) / 0.1)
        total -= (teacher / teacher.sum() * np.log(student / student.sum())).sum()
    return total / (2 * BATCH), {}


DINO = {
    "repr_loss": dino_repr,
    "bc_loss": lambda p, c, b, config: cloned(p, code(c, "encoder", b.observations), b),
    "critic_loss": lambda p, c, b, config: critic_of(
        p, c, b, code(c, "encoder", b.observations), code(c, "target_encoder", b.next_observations), config
    ),
    "actor_loss": lambda p, c, b, config: actor_of(p, c, b, code(c, "encoder", b.observations), config),
}


@pytest.mark.parametrize(
    ("phase", "term"),
    [
        ("pretraining", "repr_loss"),
        ("pretraining", "bc_loss"),
        ("finetuning", "critic_loss"),
        ("finetuning", "actor_loss"),
    ],
)
def test_terms_of_dino(phase, term):
    judge(small("dino_rebrac", encoder="mlp", **CLONING), phase, term, DINO[term])


@pytest.mark.parametrize(
    ("phase", "corrected"),
    [("pretraining", ()), ("pretraining", ("constant_center",)), ("finetuning", ("constant_center",))],
)
def test_the_centre_moves_in_pretraining_unless_constant(phase, corrected):
    """By the target of before the update, which itself moves on."""
    config = small("dino_rebrac", encoder="mlp", corrected=corrected, tau=0.3, lr=0.1)
    policy, p, b = policy_of(config), parameters_of(config), batch_of(config, phase)
    tx = make_optimizer(policy, config)
    after = named(eqx.filter_jit(lambda p, s, b: update(p, tx, s, b, config))(policy, tx.init(policy), on_device(b))[0])
    center = p["target_repr_center.array"]
    if corrected and phase == "pretraining":
        center = 0.9 * center + 0.1 * code(p, "target_encoder", views(b)).mean((0, 1))
    np.testing.assert_allclose(after["target_repr_center.array"], center, rtol=1e-12)
    name = "encoder.encoder.mlp.layers.0.weight"
    np.testing.assert_allclose(after[f"target_{name}"], 0.7 * p[f"target_{name}"] + 0.3 * p[name], rtol=1e-13)
    assert (after[name] == p[name]).all() == (phase == "finetuning")


def test_acting_on_codes():
    config = small("dino_rebrac", encoder="mlp")
    p, b = parameters_of(config), batch_of(config, "finetuning")
    found = import_module(config.agent.jax).act(policy_of(config), on_device(b).observations, None, config)
    np.testing.assert_allclose(found, np.tanh(actor(p, "actor", code(p, "encoder", b.observations))[0]), rtol=1e-12)


@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
@pytest.mark.parametrize("agent", ["mbpo_rebrac", "dino_rebrac"])
def test_the_loss_on_top_of_rebrac_is_the_sum_of_its_terms(agent, phase):
    judge_sum(small(agent, **({"encoder": "mlp"} if agent == "dino_rebrac" else {})), phase)
