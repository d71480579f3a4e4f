"""IQL's and ReBRAC's terms in torch, against arithmetic in NumPy written out here."""

import numpy as np
import pytest
import torch
from offline_torch_cases import (
    arrays,
    assert_told,
    clip,
    config,
    expectile,
    log_prob,
    made,
    mean,
    q,
    squashed_log_prob,
    tensors,
    transitions,
    v,
)

from crossfade.algos.offline.iql import agent_torch as iql
from crossfade.algos.offline.iql.params import IQL
from crossfade.algos.offline.rebrac import agent_torch as rebrac
from crossfade.algos.offline.rebrac.params import ReBRAC


def test_iql_clones():
    chosen = config(IQL())
    policy, batch = made(chosen), transitions(chosen)
    mu = mean(arrays(policy), "actor", batch.observations)
    density = log_prob(mu, batch.actions).mean()
    told = {"log_prob": density, "mse": ((mu - batch.actions) ** 2).mean()}
    assert_told(iql.bc_loss(policy, tensors(batch), chosen), -density, told)


def ready(policy, b, chosen):
    """With what IQL's terms share."""
    return iql.prepare(policy, tensors(b), chosen)


def test_iql_values():
    chosen = config(IQL(expectile=0.7))
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    values = v(p, "value", b.observations)
    u = q(p, "target_critic", b.observations, b.actions).min(0) - values
    assert (u < 0).any() and (u > 0).any()
    value = expectile(u, u, 0.7).mean()
    assert_told(iql.value_loss(policy, ready(policy, b, chosen), chosen), value, {"v": values.mean()})


def test_iql_critic():
    chosen = config(IQL())
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    y = b.rewards + 0.9 * b.masks * v(p, "value", b.next_observations)
    values = q(p, "critic", b.observations, b.actions)
    value = ((values[0] - y) ** 2 + (values[1] - y) ** 2).mean()
    assert_told(iql.critic_loss(policy, ready(policy, b, chosen), chosen), value, {"q": values.mean()})


@pytest.mark.parametrize("alpha", [3.0, 100.0])
def test_iql_regression(alpha):
    """At the greater alpha some weights are cut at 100."""
    chosen = config(IQL(alpha=alpha))
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    advantage = q(p, "critic", b.observations, b.actions).min(0) - v(p, "value", b.observations)
    weight = np.minimum(np.exp(alpha * advantage), 100)
    assert (weight == 100).any() == (alpha == 100)
    mu = mean(p, "actor", b.observations)
    density = log_prob(mu, b.actions)
    told = {"advantage": advantage.mean(), "log_prob": density.mean(), "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(iql.actor_loss(policy, ready(policy, b, chosen), chosen), -(weight * density).mean(), told)


@pytest.mark.parametrize("const_std", [True, False])
def test_iql_by_the_gradient_of_its_critic(const_std):
    chosen = config(IQL(actor_loss="ddpgbc", alpha=0.5), const_std=const_std)
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    mu, log_std = mean(p, "actor", b.observations), 0.0 if const_std else p["actor.log_stds"]
    action = clip(mu if const_std else mu + np.exp(log_std) * b.noise["action"])
    values = q(p, "critic", b.observations, action).min(0)
    density = log_prob(mu, b.actions, log_std).mean()
    value = -values.mean() / np.abs(values).mean() - 0.5 * density
    told = {"q": values.mean(), "log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(iql.actor_loss(policy, ready(policy, b, chosen), chosen), value, told)


def test_rebrac_clones_by_the_density_of_a_squashed_action():
    chosen = config(ReBRAC())
    policy, b = made(chosen), transitions(chosen)
    mu = mean(arrays(policy), "actor", b.observations)
    density = squashed_log_prob(mu, b.actions).mean()
    told = {"log_prob": density, "mse": ((np.tanh(mu) - b.actions) ** 2).mean()}
    assert_told(rebrac.bc_loss(policy, tensors(b), chosen), -density, told)


def test_rebrac_critic():
    """The noise is so great that its clip matters."""
    chosen = config(ReBRAC(alpha_critic=0.3, actor_noise=0.6, noise_clip=0.5))
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    noise = np.clip(0.6 * b.noise["target_action"], -0.5, 0.5)
    assert (np.abs(noise) == 0.5).any()
    action = clip(np.tanh(mean(p, "target_actor", b.next_observations)) + noise)
    after = q(p, "target_critic", b.next_observations, action).min(0)
    y = b.rewards + 0.9 * b.masks * (after - 0.3 * ((action - b.next_actions) ** 2).sum(-1))
    values = q(p, "critic", b.observations, b.actions)
    value = ((values - y) ** 2).mean()
    assert_told(rebrac.critic_loss(policy, tensors(b), chosen), value, {"q": values.mean()})


@pytest.mark.parametrize("normalize", [True, False])
def test_rebrac_actor(normalize):
    chosen = config(ReBRAC(alpha_actor=0.4, normalize_q_loss=normalize))
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    action = np.tanh(mean(p, "actor", b.observations))
    values = q(p, "critic", b.observations, action).min(0)
    scale = 1 / np.abs(values).mean() if normalize else 1
    error = (action - b.actions) ** 2
    value = -scale * values.mean() + 0.4 * error.sum(-1).mean()
    assert_told(rebrac.actor_loss(policy, tensors(b), chosen), value, {"q": values.mean(), "mse": error.mean()})


@pytest.mark.parametrize("agent, functions", [(IQL(), iql), (ReBRAC(), rebrac)])
def test_acting_takes_the_clipped_mode(agent, functions):
    chosen = config(agent)
    policy, b = made(chosen), transitions(chosen)
    with torch.no_grad():
        policy["actor"].mean_net.weight.mul_(5)
    mu = mean(arrays(policy), "actor", b.observations)
    expected = np.tanh(mu) if functions is rebrac else clip(mu)
    assert (np.abs(mu) > 1).any()
    got = functions.act(policy, torch.from_numpy(b.observations), None, chosen)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-12)
