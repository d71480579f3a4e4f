"""The contrastive agents in torch, CRL and TD-InfoNCE, against arithmetic in NumPy written out here."""

import math

import numpy as np
import pytest
import torch
from offline_torch_cases import (
    BATCH,
    LATENT,
    Arrays,
    arrays,
    assert_told,
    both,
    clip,
    config,
    diagonal,
    joined,
    log_prob,
    logsumexp,
    made,
    mean,
    tensors,
    transitions,
    v,
)

from crossfade.algos.offline.crl_infonce import agent_torch as crl
from crossfade.algos.offline.crl_infonce.params import CRLInfoNCE
from crossfade.algos.offline.td_infonce import agent_torch as td
from crossfade.algos.offline.td_infonce.params import TDInfoNCE

OLD = pytest.mark.parametrize("spec", ["r2025-06", "r2026-05"])
AGENTS = {"crl": (crl, CRLInfoNCE), "td": (td, TDInfoNCE)}


def logits(p: Arrays, name: str, s: np.ndarray, a: np.ndarray, g: np.ndarray) -> np.ndarray:
    phi, psi = both(p, f"{name}.phi", joined(s, a)), both(p, f"{name}.psi", g)
    found = np.zeros((2, len(s), len(g)))
    for e, i, j in np.ndindex(found.shape):
        found[e, i, j] = (phi[e, i] * psi[e, j]).sum() / math.sqrt(LATENT)
    return found


def probability(found: np.ndarray) -> float:
    return np.mean([np.exp(found[e, i, i]) / np.exp(found[e, i]).sum() for e, i in np.ndindex(found.shape[:2])])


@pytest.mark.parametrize("contrastive", ["forward", "symmetric"])
@pytest.mark.parametrize("full", [None, False])
def test_contrast(contrastive, full):
    chosen = config(CRLInfoNCE(latent_dim=LATENT, contrastive=contrastive, penalty=0.3))
    policy, b = made(chosen), transitions(chosen, full)
    found = logits(arrays(policy), "critic", b.observations, b.actions, b.value_goals)
    value = logsumexp(found) - diagonal(found)
    if contrastive == "forward":
        value = value + 0.3 * logsumexp(found) ** 2
    else:
        value = value + logsumexp(found.swapaxes(1, 2)) - diagonal(found)
    share = probability(found)
    assert 0 < share < 1
    assert_told(crl.contrastive_loss(policy, tensors(b), chosen), value.mean(), {"probability": share})


def actor_case(name: str, spec: str, const_std: bool, normalize: bool):
    """The actor's loss by hand."""
    chosen = config(
        AGENTS[name][1](latent_dim=LATENT, alpha=0.5, normalize_q_loss=normalize), spec=spec, const_std=const_std
    )
    policy, b = made(chosen), transitions(chosen, True)
    with torch.no_grad():
        policy["critic"].psi.layers[-1].weight.mul_(8)
    p = arrays(policy)
    mu, log_std = mean(p, "actor", b.observations), 0.0 if const_std else p["actor.log_stds"]
    action = clip(mu if const_std else mu + np.exp(log_std) * b.noise["action"])
    found = logits(p, "critic", b.observations, action, b.actor_goals)
    if name == "crl":
        assert (found < math.log(1e-6)).any(), "the floor matters"
        m = np.log(np.maximum(np.exp(found), 1e-6)).min(0)
    else:
        m = found.min(0) if spec == "r2025-06" else found.mean(0)
    values = np.exp(diagonal(m) - logsumexp(m) + math.log(BATCH)) * v(p, "reward", b.actor_goals)
    density = log_prob(mu, b.actions, log_std).mean()
    scale = 1 / np.abs(values).mean() if normalize else 1
    told = {"q": values.mean(), "log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    return chosen, policy, b, -scale * values.mean() - 0.5 * density, told


@OLD
@pytest.mark.parametrize("const_std", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("name", AGENTS)
def test_actor(name, spec, const_std, normalize):
    chosen, policy, b, value, told = actor_case(name, spec, const_std, normalize)
    assert_told(AGENTS[name][0].actor_loss(policy, tensors(b), chosen), value, told)


def test_below_its_floor_a_logit_has_no_gradient():
    chosen = config(CRLInfoNCE(latent_dim=LATENT, alpha=0.0, normalize_q_loss=False))
    policy, b = made(chosen), transitions(chosen, True)
    with torch.no_grad():
        policy["critic"].psi.layers[-1].weight.zero_()
        policy["critic"].psi.layers[-1].bias.copy_(-1e3 * policy["critic"].phi.layers[-1].bias.sign())
        policy["critic"].phi.layers[-1].weight.mul_(1e-3)
    found = logits(arrays(policy), "critic", b.observations, b.actions, b.actor_goals)
    assert (found < math.log(1e-6)).all()
    value, _ = crl.actor_loss(policy, tensors(b), chosen)
    gradients = torch.autograd.grad(value, list(policy["actor"].parameters()), materialize_grads=True)
    assert not any(gradient.any() for gradient in gradients)


@OLD
@pytest.mark.parametrize("logit_agg", [None, "min", "mean"])
@pytest.mark.parametrize("full, const_std", [(None, True), (False, True), (False, False)])
def test_contrast_by_temporal_differences(spec, logit_agg, full, const_std):
    chosen = config(TDInfoNCE(latent_dim=LATENT, logit_agg=logit_agg), spec=spec, const_std=const_std)
    policy, b = made(chosen), transitions(chosen, full)
    p, s, a = arrays(policy), b.observations, b.actions
    n, r = logits(p, "critic", s, a, b.next_observations), logits(p, "critic", s, a, b.value_goals)
    c = np.where(np.eye(BATCH, dtype=bool), n, r)
    action = b.next_actions
    if full is not None:
        mu = mean(p, "actor", b.next_observations)
        action = clip(mu if const_std else mu + np.exp(p["actor.log_stds"]) * b.noise["next_action"])
    target = logits(p, "target_critic", b.next_observations, action, b.value_goals)
    how = logit_agg or ("min" if spec == "r2025-06" else "mean")
    target = target.min(0) if how == "min" else target.mean(0)
    w = np.exp(target) / np.exp(target).sum(1, keepdims=True)
    first = logsumexp(c) - diagonal(c)
    second = -(w * (r - logsumexp(r)[..., None])).sum(-1)
    value = (0.1 * first + 0.9 * second).mean()
    assert_told(td.contrastive_loss(policy, tensors(b), chosen), value, {"probability": probability(c)})


@pytest.mark.parametrize("name", AGENTS)
def test_rewards_and_cloning(name):
    functions, agent = AGENTS[name]
    chosen = config(agent(latent_dim=LATENT))
    policy, b = made(chosen), transitions(chosen, True)
    p = arrays(policy)
    value = ((v(p, "reward", b.observations) - b.rewards) ** 2).mean()
    assert_told(functions.reward_loss(policy, tensors(b), chosen), value, {})
    mu = mean(p, "actor", b.observations)
    density = log_prob(mu, b.actions).mean()
    told = {"log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(functions.bc_loss(policy, tensors(b), chosen), -density, told)
    got = functions.act(policy, torch.from_numpy(b.observations), None, chosen)
    np.testing.assert_allclose(got.detach().numpy(), clip(mu), rtol=1e-12)
