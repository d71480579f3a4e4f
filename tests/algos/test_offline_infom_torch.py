"""InFOM's terms in torch, against arithmetic in NumPy written out here."""

import numpy as np
import pytest
import torch
from offline_torch_cases import (
    LATENT,
    Arrays,
    arrays,
    assert_told,
    clip,
    config,
    expectile,
    joined,
    log_prob,
    made,
    mean,
    mlp,
    q,
    tensors,
    transitions,
    v,
)

from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.infom import agent_torch as infom
from crossfade.algos.offline.infom.params import InFOM

OLD = pytest.mark.parametrize("spec", ["r2025-06", "r2026-05"])


def agent(**settings) -> InFOM:
    return InFOM(**{"latent_dim": LATENT, "flow_steps": 3, "flow_goals": 5, **settings})


def field(p: Arrays, name: str, x, t, s, a, z) -> np.ndarray:
    return mlp(p, f"{name}.vector_field_net", joined(x, np.full((len(x), 1), t) if np.isscalar(t) else t, s, a, z))


def euler(p: Arrays, name: str, x, s, a, z, bounds) -> np.ndarray:
    for i in range(3):
        x = x + field(p, name, x, i / 3, s, a, z) / 3
        x = x if bounds is None else np.clip(x, bounds[0] + 1e-5, bounds[1] - 1e-5)
    return x


def intention(p: Arrays, b: Batch) -> tuple[np.ndarray, np.ndarray]:
    name = "intention_encoder"
    h = mlp(p, f"{name}.trunk_net", joined(b.next_observations, b.next_actions), final=True)
    linear = lambda head: h @ p[f"{name}.{head}.weight"].T + p[f"{name}.{head}.bias"]
    return linear("mean_net"), linear("log_std_net")


@OLD
@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("full", [None, False])
def test_flow(spec, clipped, full):
    chosen = config(agent(kl_weight=0.3, clip_flow_goals=clipped), spec=spec)
    policy, b = made(chosen), transitions(chosen, full)
    p, n = arrays(policy), b.noise
    mu, log_sigma = intention(p, b)
    sigma = np.exp(log_sigma)
    z, t, e = mu + sigma * n["latent"], n["time"][:, None], n["current"]
    if spec == "r2025-06":
        e_later, kl = e, -(1 + log_sigma - mu**2 - sigma).mean() / 2
    else:
        e_later, kl = n["future"], -(1 + 2 * log_sigma - mu**2 - sigma**2).mean() / 2
    s, a, s1, a1 = b.observations, b.actions, b.next_observations, b.next_actions
    current = ((s - e - field(p, "critic_vf", t * s + (1 - t) * e, t, s, a, z)) ** 2).mean()
    f = euler(p, "target_critic_vf", e_later, s1, a1, z, b.bounds if clipped else None)
    assert clipped == ((f <= b.bounds[0] + 1e-5) | (f >= b.bounds[1] - 1e-5)).any() or not clipped
    x = t * f + (1 - t) * e_later
    future = ((field(p, "target_critic_vf", x, t, s1, a1, z) - field(p, "critic_vf", x, t, s, a, z)) ** 2).mean()
    value = 0.1 * current + 0.9 * future + 0.3 * kl
    told = {"kl": kl, "current": current, "future": future}
    assert_told(infom.flow_loss(policy, tensors(b), chosen), value, told)


def test_rewards():
    chosen = config(agent())
    policy, b = made(chosen), transitions(chosen, True)
    value = ((v(arrays(policy), "reward", b.observations) - b.rewards) ** 2).mean()
    assert_told(infom.reward_loss(policy, tensors(b), chosen), value, {})


@OLD
@pytest.mark.parametrize("latents", ["prior", "encoding"])
def test_critic(spec, latents):
    chosen = config(agent(critic_latents=latents, expectile=0.7), spec=spec)
    policy, b = made(chosen), transitions(chosen, True)
    p, n = arrays(policy), b.noise
    mu, log_sigma = intention(p, b)
    rewards = []
    for g in range(5):
        z = n["critic_latent"][g] if spec == "r2025-06" else n["critic_latent"]
        z = z if latents == "prior" else mu + np.exp(log_sigma) * z
        goal = euler(p, "critic_vf", n["goals"][g], b.observations, b.actions, z, b.bounds)
        rewards.append(v(p, "reward", goal))
    y = np.mean(rewards, 0) / (1 - 0.9)
    values = q(p, "critic", b.observations, b.actions)
    value = expectile(y - values, y - values, 0.7).mean()
    assert_told(infom.critic_loss(policy, tensors(b), chosen), value, {"q": values.mean()})


@OLD
def test_layer_norms_are_those_of_the_revision(spec):
    p = arrays(made(config(agent(), spec=spec)))
    for name in ("critic.value_net", "critic_vf.vector_field_net"):
        assert (f"{name}.norms.0.weight" in p) == (spec == "r2025-06")


@pytest.mark.parametrize("settings", [dict(q_agg="min"), dict(q_agg="mean"), dict(normalize_q_loss=True)])
@pytest.mark.parametrize("const_std", [True, False])
def test_actor(settings, const_std):
    chosen = config(agent(alpha=0.5, **settings), const_std=const_std)
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    mu, log_std = mean(p, "actor", b.observations), 0.0 if const_std else p["actor.log_stds"]
    action = clip(mu if const_std else mu + np.exp(log_std) * b.noise["action"])
    values = q(p, "critic", b.observations, action)
    values = values.mean(0) if settings.get("q_agg") == "mean" else values.min(0)
    scale = 1 / np.abs(values).mean() if "normalize_q_loss" in settings else 1
    density = log_prob(mu, b.actions, log_std).mean()
    told = {"q": values.mean(), "log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(infom.actor_loss(policy, tensors(b), chosen), -scale * values.mean() - 0.5 * density, told)


def test_cloning():
    chosen = config(agent())
    policy, b = made(chosen), transitions(chosen)
    mu = mean(arrays(policy), "actor", b.observations)
    density = log_prob(mu, b.actions).mean()
    told = {"log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(infom.bc_loss(policy, tensors(b), chosen), -density, told)


@OLD
def test_flow_between_codes(spec):
    """With an encoder the field lives in its codes: those of s are the online encoder's, those of s' its target's."""
    chosen = config(agent(), spec=spec, encoder="mlp")
    policy, b = made(chosen), transitions(chosen, True)
    p, n = arrays(policy), b.noise
    code = lambda module, x: mlp(p, f"{module}.encoder.mlp", x)
    own = code("intention_encoder", b.next_observations)
    h = mlp(p, "intention_encoder.trunk_net", joined(own, b.next_actions), final=True)
    linear = lambda head: h @ p[f"intention_encoder.{head}.weight"].T + p[f"intention_encoder.{head}.bias"]
    z, t, e = linear("mean_net") + np.exp(linear("log_std_net")) * n["latent"], n["time"][:, None], n["current"]
    s, s1 = code("critic_vf_encoder", b.observations), code("target_critic_vf_encoder", b.next_observations)
    current = ((s - e - field(p, "critic_vf", t * s + (1 - t) * e, t, s, b.actions, z)) ** 2).mean()
    e_later = e if spec == "r2025-06" else n["future"]
    f = euler(p, "target_critic_vf", e_later, s1, b.next_actions, z, None)
    x = t * f + (1 - t) * e_later
    target = field(p, "target_critic_vf", x, t, s1, b.next_actions, z)
    future = ((target - field(p, "critic_vf", x, t, s, b.actions, z)) ** 2).mean()
    _, told = infom.flow_loss(policy, tensors(b), chosen)
    assert told["current"].item() == pytest.approx(current, rel=1e-12)
    assert told["future"].item() == pytest.approx(future, rel=1e-12)
    value = ((v(p, "reward", s) - b.rewards) ** 2).mean()
    assert_told(infom.reward_loss(policy, tensors(b), chosen), value, {})


def test_intentions_learn_from_the_present_and_from_kl_only():
    chosen = config(agent(kl_weight=0.3))
    policy, b = made(chosen), tensors(transitions(chosen))
    value, told = infom.flow_loss(policy, b, chosen)
    learning = list(policy["intention_encoder"].parameters())
    got = torch.autograd.grad(value, learning, retain_graph=True)
    expected = torch.autograd.grad(0.1 * told["current"] + 0.3 * told["kl"], learning)
    for gradient, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-14)


def test_codes_learn_where_the_flow_is_and_not_from_what_it_is_given():
    chosen = config(agent(), encoder="mlp")
    policy, b = made(chosen), tensors(transitions(chosen))
    t, e = b.noise["time"], b.noise["current"]
    mu, log_sigma = policy["intention_encoder"](b.next_observations, b.next_actions)
    z = mu + log_sigma.exp() * b.noise["latent"]
    code = policy["critic_vf_encoder"](b.observations)
    s = code.detach()
    velocity = policy["critic_vf"](t[:, None] * code + (1 - t[:, None]) * e, t, s, b.actions, z)
    learning = list(policy["critic_vf_encoder"].parameters())
    expected = torch.autograd.grad(0.1 * (s - e - velocity).square().mean(), learning)
    got = torch.autograd.grad(infom.flow_loss(policy, b, chosen)[0], learning)
    for gradient, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-14)
