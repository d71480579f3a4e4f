"""The terms of contrastive RL and of TD-InfoNCE in JAX against arithmetic by hand."""

import numpy as np
import pytest
from offline_cases_jax import BATCH, LATENT, actor, batch_of, log_prob, mlp, parameters_of, small, value
from offline_judge_jax import judge, judge_sum

# In the default run the torch half is held to its formulas, and the JAX half to the torch half.
pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]


def logits(p, name, s, a, g):
    phi, psi = mlp(p, f"{name}.phi", s, a), mlp(p, f"{name}.psi", g)
    return np.stack([phi[e] @ psi[e].T for e in range(2)]) / np.sqrt(LATENT)


def log_softmax(row):
    return row - np.log(np.exp(row).sum())


def probability(table):
    return np.mean([np.exp(log_softmax(row)[i]) for member in table for i, row in enumerate(member)])


def bc_loss(p, c, b, config):
    mean, log_std = actor(p, "actor", b.observations)
    told = log_prob(mean, log_std, b.actions).mean()
    return -told, {"log_prob": told, "mse": ((mean - b.actions) ** 2).mean()}


def reward_loss(p, c, b, config):
    return ((value(p, "reward", b.observations) - b.rewards) ** 2).mean(), {}


def policy(p, s, noise):
    mean, log_std = actor(p, "actor", s)
    return np.clip(mean if noise is None else mean + np.exp(log_std) * noise, -1, 1)


def actor_loss_of(table):
    """With `table(logits, config)` the matrix M."""

    def actor_loss(p, c, b, config):
        def q_of(p):
            action = policy(p, b.observations, b.noise.get("action"))
            m = table(logits(c, "critic", b.observations, action, b.actor_goals), config)
            w = [m[i, i] - np.log(np.exp(m[i]).sum()) + np.log(BATCH) for i in range(BATCH)]
            return np.exp(w) * value(c, "reward", b.actor_goals)

        size = np.abs(q_of(c)).mean() if config.agent.normalize_q_loss else 1.0
        cloning, told = bc_loss(p, c, b, config)
        return -q_of(p).mean() / size + config.agent.alpha * cloning, {"q": q_of(p).mean(), **told}

    return actor_loss


def crl_contrastive(p, c, b, config):
    table = logits(p, "critic", b.observations, b.actions, b.value_goals)
    total = 0.0
    for e, i in np.ndindex(2, BATCH):
        total -= log_softmax(table[e, i])[i]
        if config.agent.contrastive == "forward":
            total += config.agent.penalty * np.log(np.exp(table[e, i]).sum()) ** 2
        else:
            total -= log_softmax(table[e, :, i])[i]
    return total / (2 * BATCH), {"probability": probability(table)}


def floored(table, config):
    return np.log(np.maximum(np.exp(table), 1e-6)).min(0)


def td_contrastive(p, c, b, config):
    now = logits(p, "critic", b.observations, b.actions, b.next_observations)
    later = logits(p, "critic", b.observations, b.actions, b.value_goals)
    mixed = np.where(np.eye(BATCH, dtype=bool), now, later)
    next_actions = b.next_actions
    if b.full is not None:
        next_actions = policy(c, b.next_observations, b.noise.get("next_action"))
    there = aggregated(logits(c, "target_critic", b.next_observations, next_actions, b.value_goals), config)
    total = 0.0
    for e, i in np.ndindex(2, BATCH):
        weights = np.exp(log_softmax(there[i]))
        total -= 0.1 * log_softmax(mixed[e, i])[i] + 0.9 * weights @ log_softmax(later[e, i])
    return total / (2 * BATCH), {"probability": probability(mixed)}


def aggregated(table, config):
    return table.min(0) if config.agent.aggregation(config.spec) == "min" else table.mean(0)


SHARED = {"bc_loss": bc_loss, "reward_loss": reward_loss}
CRL = {**SHARED, "contrastive_loss": crl_contrastive, "actor_loss": actor_loss_of(floored)}
TD = {**SHARED, "contrastive_loss": td_contrastive, "actor_loss": actor_loss_of(aggregated)}


@pytest.mark.parametrize(
    ("phase", "term", "settings"),
    [
        ("pretraining", "contrastive_loss", {"penalty": 0.3}),
        ("pretraining", "contrastive_loss", {"contrastive": "symmetric"}),
        ("pretraining", "bc_loss", {}),
        ("finetuning", "reward_loss", {}),
        ("finetuning", "contrastive_loss", {}),
        ("finetuning", "actor_loss", {}),
        ("finetuning", "actor_loss", {"normalize_q_loss": False, "const_std": False}),
    ],
)
def test_terms_of_crl(phase, term, settings):
    judge(small("crl_infonce", **settings), phase, term, CRL[term])


def test_logits_below_the_floor_count_as_the_floor():
    config = small("crl_infonce")
    p, b = parameters_of(config), batch_of(config, "finetuning")
    p["critic.phi.layers.2.weight"] *= 10  # some logits are below log 1e-6, others are not
    table = logits(p, "critic", b.observations, policy(p, b.observations, None), b.actor_goals)
    assert (table < np.log(1e-6)).any() and (table.min(0) > np.log(1e-6)).any()
    judge(config, "finetuning", "actor_loss", CRL["actor_loss"], p)


@pytest.mark.parametrize(
    ("phase", "term", "settings"),
    [
        ("pretraining", "contrastive_loss", {}),
        ("pretraining", "contrastive_loss", {"spec": "r2025-06"}),
        ("pretraining", "bc_loss", {}),
        ("finetuning", "reward_loss", {}),
        ("finetuning", "contrastive_loss", {}),
        ("finetuning", "contrastive_loss", {"const_std": False, "logit_agg": "min"}),
        ("finetuning", "actor_loss", {}),
        ("finetuning", "actor_loss", {"spec": "r2025-06", "normalize_q_loss": False}),
        ("finetuning", "actor_loss", {"const_std": False}),
    ],
)
def test_terms_of_td_infonce(phase, term, settings):
    judge(small("td_infonce", **settings), phase, term, TD[term])


@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
@pytest.mark.parametrize("agent", ["crl_infonce", "td_infonce"])
def test_the_loss_of_contrastive_agents_is_the_sum_of_its_terms(agent, phase):
    judge_sum(small(agent), phase)
