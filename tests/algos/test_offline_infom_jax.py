"""The terms of InFOM in JAX against arithmetic by hand, both revisions."""

import jax.numpy as jnp
import numpy as np
import pytest
from offline_cases_jax import (
    ACTION,
    BATCH,
    LATENT,
    OBSERVATION,
    actor,
    batch_of,
    expectile,
    linear,
    log_prob,
    mlp,
    parameters_of,
    policy_of,
    small,
    value,
)
from offline_judge_jax import judge, judge_sum

from crossfade.algos.offline.infom.flow_jax import conditioned, euler

# In the default run the torch half is held to its formulas, and the JAX half to the torch half.
pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]
OLD = {"spec": "r2025-06"}


def field(p, name, x, t, s, a, z):
    """One row at a time; s, a and z may have fewer axes than x."""
    rows = x.shape[:-1]
    spread = lambda part: np.broadcast_to(part, (*rows, part.shape[-1]))
    time = np.broadcast_to(np.asarray(t), rows)[..., None]
    return mlp(p, f"{name}.vector_field_net", x, time, spread(s), spread(a), spread(z))


def flow(p, name, x, s, a, z, b, config):
    steps = config.agent.flow_steps
    for i in range(steps):
        x = x + field(p, name, x, i / steps, s, a, z) / steps
        if config.agent.clip_flow_goals:
            x = np.clip(x, b.bounds[0] + 1e-5, b.bounds[1] - 1e-5)
    return x


def intention(p, b):
    features = mlp(p, "intention_encoder.trunk_net", b.next_observations, b.next_actions, final=True)
    return tuple(linear(p, f"intention_encoder.{net}", features) for net in ("mean_net", "log_std_net"))


def flow_loss(p, c, b, config):
    old = config.spec == "r2025-06"
    s, a, t, e = b.observations, b.actions, b.noise["time"], b.noise["current"]
    mean, log_std = intention(p, b)
    z = mean + np.exp(log_std) * b.noise["latent"]
    fixed = intention(c, b)
    fixed = fixed[0] + np.exp(fixed[1]) * b.noise["latent"]
    sigma = np.exp(log_std)
    kl = -0.5 * ((1 + log_std - mean**2 - sigma) if old else (1 + 2 * log_std - mean**2 - sigma**2)).mean()
    x = t[:, None] * s + (1 - t[:, None]) * e
    current = ((s - e - field(p, "critic_vf", x, t, s, a, z)) ** 2).mean(-1)
    e = e if old else b.noise["future"]
    end = flow(c, "target_critic_vf", e, b.next_observations, b.next_actions, fixed, b, config)
    x = t[:, None] * end + (1 - t[:, None]) * e
    target = field(c, "target_critic_vf", x, t, b.next_observations, b.next_actions, fixed)
    future = ((target - field(p, "critic_vf", x, t, s, a, fixed)) ** 2).mean(-1)
    told = {"kl": kl, "current": current.mean(), "future": future.mean()}
    return (0.1 * current + 0.9 * future).mean() + config.agent.kl_weight * kl, told


def critic_loss(p, c, b, config):
    z = b.noise["critic_latent"]
    if config.agent.critic_latents == "encoding":
        mean, log_std = intention(c, b)
        z = mean + np.exp(log_std) * z
    rewards = [
        value(c, "reward", flow(c, "critic_vf", e, b.observations, b.actions, z[g] if z.ndim == 3 else z, b, config))
        for g, e in enumerate(b.noise["goals"])
    ]
    y = np.mean(rewards, 0) / (1 - config.gamma)
    q = value(p, "critic", b.observations, b.actions)
    return np.mean([expectile(y - one, y - one, config.agent.expectile) for one in q]), {"q": q.mean()}


def bc_loss(p, c, b, config):
    mean, log_std = actor(p, "actor", b.observations)
    told = log_prob(mean, log_std, b.actions).mean()
    return -told, {"log_prob": told, "mse": ((mean - b.actions) ** 2).mean()}


def reward_loss(p, c, b, config):
    return ((value(p, "reward", b.observations) - b.rewards) ** 2).mean(), {}


def actor_loss(p, c, b, config):
    def q_of(p):
        mean, log_std = actor(p, "actor", b.observations)
        action = mean + np.exp(log_std) * b.noise["action"] if "action" in b.noise else mean
        q = value(c, "critic", b.observations, np.clip(action, -1, 1))
        return q.min(0) if config.agent.q_agg == "min" else q.mean(0)

    size = np.abs(q_of(c)).mean() if config.agent.normalize_q_loss else 1.0
    cloning, told = bc_loss(p, c, b, config)
    return -q_of(p).mean() / size + config.agent.alpha * cloning, {"q": q_of(p).mean(), **told}


FORMULAS = {f.__name__: f for f in (flow_loss, critic_loss, bc_loss, reward_loss, actor_loss)}
FEW = {"flow_steps": 3, "flow_goals": 2, "kl_weight": 0.3}


@pytest.mark.parametrize(
    ("phase", "term", "settings"),
    [
        ("pretraining", "flow_loss", {}),
        ("pretraining", "flow_loss", OLD),
        ("pretraining", "flow_loss", {"clip_flow_goals": False, "value_layer_norm": True}),
        ("pretraining", "bc_loss", {}),
        ("finetuning", "flow_loss", {}),
        ("finetuning", "reward_loss", {}),
        ("finetuning", "critic_loss", {}),
        ("finetuning", "critic_loss", OLD),
        ("finetuning", "critic_loss", {"critic_latents": "encoding", "clip_flow_goals": False}),
        ("finetuning", "critic_loss", {"critic_latents": "encoding", **OLD}),
        ("finetuning", "actor_loss", {}),
        ("finetuning", "actor_loss", {"q_agg": "mean", "normalize_q_loss": True, "const_std": False}),
    ],
)
def test_terms_of_infom(phase, term, settings):
    judge(small("infom", **FEW, **settings), phase, term, FORMULAS[term])


@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
def test_the_loss_of_infom_is_the_sum_of_its_terms(phase):
    judge_sum(small("infom", **FEW), phase)


@pytest.mark.parametrize("settings", [{}, OLD])
def test_conditions_computed_once_give_the_same_velocities(settings):
    config = small("infom", **settings)
    policy, p, rng = policy_of(config), parameters_of(config), np.random.default_rng(0)
    s, a, z = (rng.normal(size=(BATCH, n)) for n in (OBSERVATION, ACTION, LATENT))
    x, t = rng.normal(size=(5, BATCH, OBSERVATION)), rng.uniform(size=BATCH)
    given = conditioned(policy["critic_vf"], *map(jnp.asarray, (s, a, z)))
    np.testing.assert_allclose(given.velocity(*map(jnp.asarray, (x, t))), field(p, "critic_vf", x, t, s, a, z), 1e-12)
    plain = policy["critic_vf"](*map(jnp.asarray, (x[0], t, s, a, z)))
    np.testing.assert_allclose(given.velocity(*map(jnp.asarray, (x[0], t))), plain, 1e-12)


def test_flows_stay_within_the_bounds_of_the_data():
    config = small("infom")
    policy, b = policy_of(config), batch_of(config, "finetuning")
    given = conditioned(policy["critic_vf"], *map(jnp.asarray, (b.observations, b.actions, b.noise["latent"])))
    start = jnp.asarray(b.noise["goals"])
    inside = euler(given, start, 10, jnp.asarray(b.bounds))
    assert inside.min() == -0.8 + 1e-5 and inside.max() == 0.7 - 1e-5
    assert jnp.abs(euler(given, start, 10, None)).max() > 0.8
