"""The agents of latents in torch, HILP and forward-backward representations, against NumPy written out here."""

import math

import numpy as np
import pytest
import torch
from offline_torch_cases import (
    BATCH,
    LATENT,
    OBSERVATION,
    Arrays,
    arrays,
    assert_told,
    both,
    clip,
    config,
    expectile,
    joined,
    log_prob,
    made,
    mean,
    mlp,
    q,
    sphere,
    tensors,
    transitions,
    v,
)

from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.fb_repr import agent_torch as fb
from crossfade.algos.offline.fb_repr.params import FBRepr
from crossfade.algos.offline.hilp import agent_torch as hilp
from crossfade.algos.offline.hilp.params import HILP

OLD = pytest.mark.parametrize("spec", ["r2025-06", "r2026-05"])
RNG = np.random.default_rng(7)


def hilp_case(full: bool | None = None, **settings) -> tuple[OfflineConfig, torch.nn.ModuleDict, Arrays, Batch]:
    chosen = config(HILP(latent_dim=LATENT, expectile=0.7, alpha=3.0), **settings)
    policy = made(chosen)
    return chosen, policy, arrays(policy), transitions(chosen, full)


def fb_case(full: bool | None = None, spec="r2026-05", corrected=(), **settings):
    agent = FBRepr(**{"latent_dim": LATENT, "expectile": 0.7, "alpha_awr": 3.0, "alpha_repr": 0.5, **settings})
    chosen = config(agent, spec=spec, corrected=corrected)
    policy = made(chosen)
    return chosen, policy, arrays(policy), transitions(chosen, full)


def prepared(functions, policy, b: Batch, chosen: OfflineConfig) -> Batch:
    return functions.prepare(policy, tensors(b), chosen)


def directions(p: Arrays, s: np.ndarray, s1: np.ndarray, corrected: bool) -> np.ndarray:
    phi = both(p, "value.phi", s1) - both(p, "value.phi", s)
    return phi.mean(0) if corrected else phi[0]


def test_distances_of_goals():
    """Of several batches: in some the sign of the advantage hangs on the mean over members."""
    chosen, policy, p, _ = hilp_case()
    hangs = False
    for seed in range(12):
        b = transitions(chosen, seed=seed)
        phi = {name: both(p, f"{name}.phi", joined_rows(b)) for name in ("value", "target_value")}
        distance = lambda name, i, j, phi=phi: -np.linalg.norm(phi[name][:, i] - phi[name][:, j], axis=-1)
        s, s1, g = np.arange(4), np.arange(4, 8), np.arange(8, 12)
        before, after = distance("target_value", s, g), distance("target_value", s1, g)
        best = b.relabeled_rewards + 0.9 * b.relabeled_masks * after.min(0)
        advantage, found = best - before.mean(0), distance("value", s, g)
        target = b.relabeled_rewards + 0.9 * b.relabeled_masks * after
        value = sum(expectile(advantage, target[e] - found[e], 0.7).mean() for e in range(2))
        assert_told(hilp.metric_loss(policy, tensors(b), chosen), value, {"v": found.mean()})
        hangs |= ((advantage < 0) != (best - before.min(0) < 0)).any()
    assert hangs


def joined_rows(b: Batch) -> np.ndarray:
    return np.concatenate([b.observations, b.next_observations, b.value_goals])


@pytest.mark.parametrize("corrected", [False, True])
def test_skills_are_rewarded_for_going_their_way(corrected):
    chosen, policy, p, b = hilp_case(corrected=("first_member",) if corrected else ())
    got = prepared(hilp, policy, b, chosen)
    z = sphere(b.noise["latent"])
    np.testing.assert_allclose(got.latents.numpy(), z, rtol=1e-12)
    assert np.allclose(np.linalg.norm(z, axis=-1), math.sqrt(LATENT))
    way = directions(p, b.observations, b.next_observations, corrected)
    np.testing.assert_allclose(got.rewards.numpy(), (way * z).sum(-1), rtol=1e-12)
    assert not got.rewards.requires_grad


@pytest.mark.parametrize("agent", ["hilp", "fb"])
def test_in_fine_tuning_all_rows_have_the_latent_of_the_task(agent):
    chosen, policy, _, b = (hilp_case if agent == "hilp" else fb_case)(True)
    got = prepared(hilp if agent == "hilp" else fb, policy, b, chosen)
    assert (got.latents.numpy() == b.latent).all() and got.latents.shape == (BATCH, LATENT)
    assert (got.rewards.numpy() == b.rewards).all()


@pytest.mark.parametrize("full", [None, True])
def test_skills_learn_by_iql(full):
    chosen, policy, p, b = hilp_case(full)
    ready = prepared(hilp, policy, b, chosen)
    names = "skill_value", "skill_critic", "skill_actor"
    terms = hilp.skill_value_loss, hilp.skill_critic_loss, hilp.skill_actor_loss
    judge_iql(names, terms, chosen, policy, p, b, ready)


def test_tasks_are_learned_by_iql():
    chosen, policy, p, b = fb_case(True)
    names, terms = ("value", "critic", "actor"), (fb.value_loss, fb.critic_loss, fb.awr_loss)
    judge_iql(names, terms, chosen, policy, p, b, prepared(fb, policy, b, chosen))


def judge_iql(names, terms, chosen, policy, p: Arrays, b: Batch, ready: Batch) -> None:
    """Value, critic and actor as IQL has them, with the latent between observation and action."""
    value, critic, actor = names
    z, r, s, a = ready.latents.numpy(), ready.rewards.numpy(), b.observations, b.actions
    found = v(p, value, s, z)
    u = q(p, f"target_{critic}", s, z, a).min(0) - found
    assert_told(terms[0](policy, ready, chosen), expectile(u, u, 0.7).mean(), {"v": found.mean()})
    y = r + 0.9 * b.masks * v(p, value, b.next_observations, z)
    values = q(p, critic, s, z, a)
    assert_told(terms[1](policy, ready, chosen), ((values - y) ** 2).sum(0).mean(), {"q": values.mean()})
    advantage, mu = values.min(0) - found, mean(p, actor, s, z)
    density = log_prob(mu, a)
    told = {"advantage": advantage.mean(), "log_prob": density.mean(), "mse": ((mu - a) ** 2).mean()}
    weights = np.minimum(np.exp(3 * advantage), 100)
    assert_told(terms[2](policy, ready, chosen), -(weights * density).mean(), told)


def rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return RNG.normal(size=(n, OBSERVATION)), RNG.normal(size=(n, OBSERVATION)), RNG.normal(size=n)


@pytest.mark.parametrize("corrected", [False, True])
def test_the_latent_of_a_task_by_least_squares(corrected):
    chosen, policy, p, _ = hilp_case(corrected=("first_member",) if corrected else ())
    s, s1, r = rows(50)
    way = directions(p, s, s1, corrected)
    expected = sphere(np.linalg.solve(way.T @ way, way.T @ r))
    got = hilp.infer_latent(policy, *map(torch.from_numpy, (s, s1, r)), chosen)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9)


def test_of_many_latents_that_fit_the_shortest_is_taken():
    """Fewer transitions than numbers of a latent: x = W^T (W W^T)^-1 r."""
    chosen, policy, p, _ = hilp_case()
    s, s1, r = rows(2)
    way = directions(p, s, s1, False)
    expected = sphere(way.T @ np.linalg.solve(way @ way.T, r))
    got = hilp.infer_latent(policy, *map(torch.from_numpy, (s, s1, r)), chosen)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9)


def test_directions_that_span_less_than_the_space():
    """The last layer maps to a plane: across it a latent has nothing."""
    chosen, policy, _, _ = hilp_case()
    with torch.no_grad():
        policy["value"].phi.layers[-1].weight[:, 2].copy_(policy["value"].phi.layers[-1].weight[:, :2].sum(1))
    s, s1, r = rows(50)
    way = directions(arrays(policy), s, s1, False)
    assert np.linalg.matrix_rank(way) == 2
    expected = sphere(np.linalg.pinv(way) @ r)
    got = hilp.infer_latent(policy, *map(torch.from_numpy, (s, s1, r)), chosen)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-8)


# Forward-backward


def backward(p: Arrays, name: str, s: np.ndarray) -> np.ndarray:
    return sphere(mlp(p, f"{name}.value_net", s))


def forward(p: Arrays, name: str, *inputs: np.ndarray) -> np.ndarray:
    return both(p, f"{name}.value_net", joined(*inputs))


@pytest.mark.parametrize("corrected", [False, True])
def test_latents_are_normal_or_representations_of_other_rows(corrected):
    chosen, policy, p, b = fb_case(latent_mix=0.72, corrected=("latent_mix",) if corrected else ())
    u = b.noise["mix"]
    assert (u < 0.72).any() and (u >= 0.72).any()
    normal, represented = sphere(b.noise["latent"]), backward(p, "backward_repr", b.observations)[b.noise["order"]]
    expected = np.where(((u >= 0.72) if corrected else (u < 0.72))[:, None], normal, represented)
    got = prepared(fb, policy, b, chosen)
    np.testing.assert_allclose(got.latents.numpy(), expected, rtol=1e-12)
    assert not got.latents.requires_grad


@OLD
@pytest.mark.parametrize("repr_agg", [None, "min", "mean"])
def test_representations(spec, repr_agg):
    chosen, policy, p, b = fb_case(spec=spec, repr_agg=repr_agg)
    ready = prepared(fb, policy, b, chosen)
    z, s, s1, n = ready.latents.numpy(), b.observations, b.next_observations, BATCH
    f, g = forward(p, "forward_repr", s, z, b.actions), backward(p, "backward_repr", s1)
    action = clip(mean(p, "actor", s1, z))
    f_bar, g_bar = forward(p, "target_forward_repr", s1, z, action), backward(p, "target_backward_repr", s1)
    agg = {"min": np.min, "mean": np.mean}[repr_agg or ("min" if spec == "r2025-06" else "mean")]
    on, off = [], []
    for e, i in np.ndindex(2, n):
        m_bar = lambda j, i=i: agg([f_bar[k, i] @ g_bar[j] for k in range(2)])
        off.append(sum((f[e, i] @ g[j] - 0.9 * m_bar(j)) ** 2 for j in range(n) if j != i) / (n - 1))
        on.append(f[e, i] @ g[i])
    value = np.mean(off) + np.mean(on) if spec == "r2025-06" else np.mean(off) / 2 - np.mean(on)
    told = {"diagonal": np.mean(on), "off_diagonal": np.mean(off)}
    assert_told(fb.repr_loss(policy, ready, chosen), value, told)


def test_orthonormality():
    chosen, policy, p, b = fb_case(orthonormal=0.6)
    c = (g := backward(p, "backward_repr", b.next_observations)) @ g.T
    off = [sum(c[i, j] ** 2 for j in range(BATCH) if j != i) / (BATCH - 1) for i in range(BATCH)]
    value = 0.6 * np.mean(np.array(off) - 2 * np.diagonal(c))
    assert_told(fb.ortho_loss(policy, prepared(fb, policy, b, chosen), chosen), value, {})


@OLD
@pytest.mark.parametrize("normalize", [False, True])
def test_the_actor_of_representations(spec, normalize):
    chosen, policy, p, b = fb_case(spec=spec, normalize_q_loss=normalize)
    ready = prepared(fb, policy, b, chosen)
    z, s = ready.latents.numpy(), b.observations
    mu = mean(p, "actor", s, z)
    f = forward(p, "forward_repr", s, z, clip(mu))
    if spec == "r2025-06":
        values = np.array([[min(f[e, i] @ z[j] for e in range(2)) for j in range(BATCH)] for i in range(BATCH)])
    else:
        values = np.array([min(f[e, i] @ z[i] for e in range(2)) for i in range(BATCH)])
    scale = 1 / np.abs(values).mean() if normalize else 1
    density = log_prob(mu, b.actions).mean()
    told = {"q": values.mean(), "log_prob": density, "mse": ((mu - b.actions) ** 2).mean()}
    assert_told(fb.fb_actor_loss(policy, ready, chosen), -scale * values.mean() - 0.5 * density, told)


def test_the_latent_of_a_task_is_the_mean_of_representations_by_their_rewards():
    chosen, policy, p, _ = fb_case()
    s, s1, r = rows(50)
    expected = sphere((r[:, None] * backward(p, "backward_repr", s)).sum(0) / 50)
    got = fb.infer_latent(policy, *map(torch.from_numpy, (s, s1, r)), chosen)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("agent", ["hilp", "fb"])
def test_acting_at_a_latent(agent):
    chosen, policy, p, b = (hilp_case if agent == "hilp" else fb_case)()
    functions, actor = (hilp, "skill_actor") if agent == "hilp" else (fb, "actor")
    z = np.tile(b.latent, (BATCH, 1))
    got = functions.act(policy, torch.from_numpy(b.observations), torch.from_numpy(b.latent), chosen)
    np.testing.assert_allclose(got.detach().numpy(), clip(mean(p, actor, b.observations, z)), rtol=1e-12)
