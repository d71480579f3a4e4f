"""The terms of HILP and of forward-backward representations in JAX against arithmetic by hand."""

from importlib import import_module

import jax.numpy as jnp
import numpy as np
import pytest
from offline_cases_jax import (
    BATCH,
    LATENT,
    OBSERVATION,
    actor,
    batch_of,
    expectile,
    log_prob,
    mlp,
    on_device,
    parameters_of,
    policy_of,
    small,
    value,
)
from offline_judge_jax import judge, judge_sum

# In the default run the torch half is held to its formulas, and the JAX half to the torch half.
pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]
OLD = {"spec": "r2025-06"}
MIX = 0.35  # some rows of the batch have less, some more


def sphere(v):
    return np.sqrt(v.shape[-1]) * v / np.sqrt((v**2).sum(-1, keepdims=True))


def cloning(p, name, b, z):
    mean, log_std = actor(p, name, b.observations, z)
    own = log_prob(mean, log_std, b.actions)
    return own, {"log_prob": own.mean(), "mse": ((mean - b.actions) ** 2).mean()}


def iql(names, latents_and_rewards):
    """IQL's three terms with modules called by these names, given the latent."""
    v_name, q_name, pi_name = names

    def value_loss(p, c, b, config):
        z, _ = latents_and_rewards(c, b, config)
        q = value(c, f"target_{q_name}", b.observations, z, b.actions).min(0)
        v = value(p, v_name, b.observations, z)
        return expectile(q - v, q - v, config.agent.expectile).mean(), {"v": v.mean()}

    def critic_loss(p, c, b, config):
        z, r = latents_and_rewards(c, b, config)
        y = r + 0.9 * b.masks * value(c, v_name, b.next_observations, z)
        q = value(p, q_name, b.observations, z, b.actions)
        return ((q - y) ** 2).sum(0).mean(), {"q": q.mean()}

    def actor_loss(p, c, b, config):
        z, _ = latents_and_rewards(c, b, config)
        q = value(c, q_name, b.observations, z, b.actions).min(0)
        advantage, (own, told) = q - value(c, v_name, b.observations, z), cloning(p, pi_name, b, z)
        alpha = getattr(config.agent, "alpha_awr", None) or config.agent.alpha
        weight = np.minimum(np.exp(alpha * advantage), 100)
        return -(weight * own).mean(), {"advantage": advantage.mean(), **told}

    return value_loss, critic_loss, actor_loss


# HILP


def moves(c, s, next_s, config):
    found = mlp(c, "value.phi", next_s) - mlp(c, "value.phi", s)
    return found[0] if config.faithful else found.mean(0)


def of_skills(c, b, config):
    if b.full is not None:
        return np.broadcast_to(b.latent, (BATCH, LATENT)), b.rewards
    z = sphere(b.noise["latent"])
    return z, (moves(c, b.observations, b.next_observations, config) * z).sum(-1)


def metric_loss(p, c, b, config):
    def v(p, name, s):
        gap = mlp(p, f"{name}.phi", s) - mlp(p, f"{name}.phi", b.value_goals)
        return -np.sqrt((gap**2).sum(-1))

    r, m, here = b.relabeled_rewards, 0.9 * b.relabeled_masks, v(p, "value", b.observations)
    there, next_there = v(c, "target_value", b.observations), v(c, "target_value", b.next_observations)
    advantage = r + m * np.minimum(*next_there) - (there[0] + there[1]) / 2
    terms = [expectile(advantage, r + m * next_there[e] - here[e], config.agent.expectile).mean() for e in range(2)]
    return sum(terms), {"v": here.mean()}


HILP = dict(
    zip(
        ("skill_value_loss", "skill_critic_loss", "skill_actor_loss"),
        iql(("skill_value", "skill_critic", "skill_actor"), of_skills),
        strict=True,
    )
) | {"metric_loss": metric_loss}


@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
@pytest.mark.parametrize("term", list(HILP))
def test_terms_of_hilp(phase, term):
    if phase == "pretraining" or term != "metric_loss":
        judge(small("hilp", alpha=0.4), phase, term, HILP[term])


def test_corrected_directions_are_those_of_all_members():
    judge(small("hilp", faithful=False), "pretraining", "skill_critic_loss", HILP["skill_critic_loss"])


@pytest.mark.parametrize("rows", [40, 2])
def test_the_latent_of_hilp_is_the_shortest_solution(rows):
    """With fewer transitions than numbers there are many solutions, and the shortest is meant."""
    config, rng = small("hilp"), np.random.default_rng(0)
    s, next_s, r = rng.normal(size=(rows, OBSERVATION)), rng.normal(size=(rows, OBSERVATION)), rng.normal(size=rows)
    agent = import_module(config.agent.jax)
    found = agent.infer_latent(policy_of(config), *map(jnp.asarray, (s, next_s, r)), config)
    expected = sphere(np.linalg.pinv(moves(parameters_of(config), s, next_s, config)) @ r)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# Forward-backward representations


def latents(c, b, config):
    if b.full is not None:
        return np.broadcast_to(b.latent, (BATCH, LATENT)), b.rewards
    z = np.zeros((BATCH, LATENT))
    for i in range(BATCH):
        normal = b.noise["mix"][i] < config.agent.latent_mix
        goal = mlp(c, "backward_repr.value_net", b.observations[b.noise["order"][i]])
        z[i] = sphere(b.noise["latent"][i]) if normal == config.faithful else sphere(goal)
    return z, b.rewards


def repr_loss(p, c, b, config):
    old, n = config.spec == "r2025-06", BATCH
    z, _ = latents(c, b, config)
    action = np.clip(actor(c, "actor", b.next_observations, z)[0], -1, 1)
    next_f = mlp(c, "target_forward_repr.value_net", b.next_observations, z, action)
    next_m = next_f @ sphere(mlp(c, "target_backward_repr.value_net", b.next_observations)).T
    next_m = next_m.min(0) if config.agent.aggregation(config.spec) == "min" else next_m.mean(0)
    f = mlp(p, "forward_repr.value_net", b.observations, z, b.actions)
    m = f @ sphere(mlp(p, "backward_repr.value_net", b.next_observations)).T
    total, diagonal, off = 0.0, 0.0, 0.0
    for e, i in np.ndindex(2, n):
        rest = sum((m[e, i, j] - 0.9 * next_m[i, j]) ** 2 for j in range(n) if j != i) / (n - 1)
        total += (rest + m[e, i, i] if old else rest / 2 - m[e, i, i]) / (2 * n)
        diagonal, off = diagonal + m[e, i, i] / (2 * n), off + rest / (2 * n)
    return total, {"diagonal": diagonal, "off_diagonal": off}


def ortho_loss(p, c, b, config):
    rows = sphere(mlp(p, "backward_repr.value_net", b.next_observations))
    products, total = rows @ rows.T, 0.0
    for i in range(BATCH):
        rest = sum(products[i, j] ** 2 for j in range(BATCH) if j != i) / (BATCH - 1)
        total += (rest - 2 * products[i, i]) / BATCH
    return config.agent.orthonormal * total, {}


def fb_actor_loss(p, c, b, config):
    old, z = config.spec == "r2025-06", latents(c, b, config)[0]

    def q_of(p, forward):
        action = np.clip(actor(p, "actor", b.observations, z)[0], -1, 1)
        f = mlp(forward, "forward_repr.value_net", b.observations, z, action)
        return (f @ z.T if old else (f * z).sum(-1)).min(0)

    q = q_of(p, p if old else c)
    size = np.abs(q_of(c, c)).mean() if config.agent.normalize_q_loss else 1.0
    own, told = cloning(p, "actor", b, z)
    return -q.mean() / size - config.agent.alpha_repr * own.mean(), {"q": q.mean(), **told}


FB = dict(zip(("value_loss", "critic_loss", "awr_loss"), iql(("value", "critic", "actor"), latents), strict=True)) | {
    f.__name__: f for f in (repr_loss, ortho_loss, fb_actor_loss)
}


@pytest.mark.parametrize(
    ("phase", "term", "settings"),
    [
        ("pretraining", "repr_loss", {}),
        ("pretraining", "repr_loss", OLD),
        ("pretraining", "repr_loss", {"repr_agg": "min"}),
        ("pretraining", "ortho_loss", {"orthonormal": 0.3}),
        ("pretraining", "fb_actor_loss", {}),
        ("pretraining", "fb_actor_loss", OLD),
        ("pretraining", "fb_actor_loss", {"normalize_q_loss": True, "alpha_repr": 0.2}),
        ("finetuning", "value_loss", {}),
        ("finetuning", "critic_loss", {}),
        ("finetuning", "awr_loss", {"alpha_awr": 0.4}),
    ],
)
def test_terms_of_fb(phase, term, settings):
    judge(small("fb_repr", latent_mix=MIX, **settings), phase, term, FB[term])


def test_corrected_mixing_is_the_other_way_round():
    config = small("fb_repr", faithful=False, latent_mix=MIX)
    judge(config, "pretraining", "repr_loss", repr_loss)
    assert 0 < (batch_of(config, "pretraining").noise["mix"] < MIX).sum() < BATCH


def test_the_latent_of_fb_is_the_mean_of_rewarded_goals():
    config, rng = small("fb_repr"), np.random.default_rng(0)
    s, r = rng.normal(size=(9, OBSERVATION)), rng.normal(size=9)
    agent = import_module(config.agent.jax)
    found = agent.infer_latent(policy_of(config), *map(jnp.asarray, (s, s + 1, r)), config)
    rows = sphere(mlp(parameters_of(config), "backward_repr.value_net", s))
    np.testing.assert_allclose(found, sphere(sum(r[n] * rows[n] for n in range(9)) / 9), rtol=1e-11)


@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
@pytest.mark.parametrize("agent", ["hilp", "fb_repr"])
def test_the_loss_of_agents_of_latents_is_the_sum_of_its_terms(agent, phase):
    judge_sum(small(agent), phase)


@pytest.mark.parametrize(("agent", "name"), [("hilp", "skill_actor"), ("fb_repr", "actor")])
def test_acting_at_a_latent(agent, name):
    config = small(agent)
    b = batch_of(config, "finetuning")
    act = import_module(config.agent.jax).act
    found = act(policy_of(config), on_device(b).observations, on_device(b).latent, config)
    mean = actor(parameters_of(config), name, b.observations, np.broadcast_to(b.latent, (BATCH, LATENT)))[0]
    np.testing.assert_allclose(found, np.clip(mean, -1, 1), rtol=1e-12)
