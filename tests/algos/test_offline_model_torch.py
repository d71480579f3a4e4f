"""MBPO and DINO with ReBRAC in torch, against arithmetic in NumPy written out here; statistics of gradients."""

import numpy as np
import pytest
import torch
from offline_torch_cases import (
    ACTION,
    OBSERVATION,
    Arrays,
    arrays,
    assert_told,
    clip,
    config,
    joined,
    made,
    mean,
    mlp,
    q,
    squashed_log_prob,
    tensors,
    transitions,
    v,
)

from crossfade.algos.offline import learner_torch as learner
from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.dino_rebrac import agent_torch as dino
from crossfade.algos.offline.dino_rebrac.params import DINOReBRAC
from crossfade.algos.offline.losses_torch import terms
from crossfade.algos.offline.mbpo_rebrac import agent_torch as mbpo
from crossfade.algos.offline.mbpo_rebrac.params import MBPOReBRAC
from crossfade.algos.offline.statistics_torch import gradient_statistics

RNG = np.random.default_rng(5)
STANDING = pytest.mark.parametrize("standing", [True, False])


def rebrac_by_hand(p: Arrays, s, a, s1, r, m, a1, noise) -> tuple[float, float]:
    """Critic and actor with alphas of 0.3 and 0.4 and the usual noise."""
    action = clip(np.tanh(mean(p, "target_actor", s1)) + np.clip(0.2 * noise, -0.5, 0.5))
    after = q(p, "target_critic", s1, action).min(0) - 0.3 * ((action - a1) ** 2).sum(-1)
    critic = ((q(p, "critic", s, a) - (r + 0.9 * m * after)) ** 2).mean()
    action = np.tanh(mean(p, "actor", s))
    values = q(p, "critic", s, action).min(0)
    return critic, -values.mean() / np.abs(values).mean() + 0.4 * ((action - a) ** 2).sum(-1).mean()


# MBPO


def mbpo_case(full: bool | None = None, **settings):
    chosen = config(MBPOReBRAC(alpha_critic=0.3, alpha_actor=0.4), **settings)
    policy = made(chosen)
    return chosen, policy, arrays(policy), transitions(chosen, full)


def step(p: Arrays, s: np.ndarray, a: np.ndarray) -> np.ndarray:
    return s + mlp(p, "transition.value_net", joined(s, a))


def test_the_model_learns_changes_and_rewards():
    chosen, policy, p, b = mbpo_case(True)
    value = ((step(p, b.observations, b.actions) - b.next_observations) ** 2).mean()
    assert_told(mbpo.transition_loss(policy, tensors(b), chosen), value, {})
    value = ((v(p, "reward", b.observations) - b.rewards) ** 2).mean()
    assert_told(mbpo.reward_loss(policy, tensors(b), chosen), value, {})


def imagined(steps: int, n: int, standing: bool):
    chosen, policy, p, _ = mbpo_case(corrected=() if standing else ("standing_rollouts",))
    s, noise = RNG.normal(size=(n, OBSERVATION)), 2 * RNG.normal(size=(2, steps, n, ACTION))
    got = mbpo.imagine(policy, torch.from_numpy(s), torch.from_numpy(noise), chosen)
    return p, s, noise, got


@STANDING
def test_imagined_transitions(standing):
    steps, n = 3, 2
    p, start, noise, got = imagined(steps, n, standing)
    acted = lambda s, noise: clip(np.tanh(mean(p, "actor", s)) + np.clip(0.2 * noise, -0.5, 0.5))
    s, expected = start, []
    for k in range(steps):
        a = acted(s, noise[0, k])
        after = step(p, s, a)
        expected.append((s, a, after, v(p, "reward", s), acted(after, noise[1, k])))
        s = start if standing else after
    s, a, after, r, a1 = (np.concatenate(part) for part in zip(*expected, strict=True))
    a1 = np.concatenate([a[1:], a[:1]]) if standing else a1
    for name, array in dict(observations=s, actions=a, next_observations=after, rewards=r, next_actions=a1).items():
        found = getattr(got, name)
        assert not found.requires_grad
        np.testing.assert_allclose(found.numpy(), array, rtol=1e-12, atol=1e-14, err_msg=name)
    assert (got.masks == 1).all() and got.masks.shape == (steps * n,)


def test_critic_and_actor_learn_from_what_is_imagined_if_there_is_any():
    chosen, policy, p, b = mbpo_case(True)
    noise = b.noise["target_action"]
    found = rebrac_by_hand(p, b.observations, b.actions, b.next_observations, b.rewards, b.masks, b.next_actions, noise)
    got = terms(policy, tensors(b), chosen)
    assert (got["critic_loss"].item(), got["actor_loss"].item()) == pytest.approx(found, rel=1e-12)

    other = transitions(chosen, True, seed=8)
    dreams = Batch(*other[:5], other.next_actions)
    instead = rebrac_by_hand(p, *other[:5], other.next_actions, noise)
    got = terms(policy, tensors(b._replace(imagined=dreams)), chosen)
    assert (got["critic_loss"].item(), got["actor_loss"].item()) == pytest.approx(instead, rel=1e-12)
    assert instead != pytest.approx(found, rel=1e-3)
    model = ((step(p, b.observations, b.actions) - b.next_observations) ** 2).mean()
    assert got["transition_loss"].item() == pytest.approx(model, rel=1e-12), "the model learns from the data"


# DINO


def dino_case(full: bool | None = None, **settings):
    agent = DINOReBRAC(alpha_critic=0.3, alpha_actor=0.4, view_noise=0.9)
    chosen = config(agent, encoder="mlp", **settings)
    policy = made(chosen)
    return chosen, policy, arrays(policy), transitions(chosen, full)


def code(p: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return mlp(p, f"{name}.encoder.mlp", x)


def views(b: Batch) -> np.ndarray:
    noise = np.clip(0.9 * b.noise["views"], -1, 1)
    assert (np.abs(noise) == 1).any()
    return b.observations + noise


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_distillation():
    chosen, policy, p, b = dino_case()
    each = []
    for x in views(b):
        teacher = softmax((code(p, "target_encoder", x) - p["target_repr_center.array"]) / 0.04)
        each.append(-(teacher * np.log(softmax(code(p, "encoder", x) / 0.1))).sum(-1).mean())
    assert_told(dino.repr_loss(policy, tensors(b), chosen), np.mean(each), {})


def test_views_of_images_come_with_the_batch():
    chosen, policy, _, b = dino_case()
    given = tensors(b._replace(views=views(b), noise={}))
    torch.testing.assert_close(dino.repr_loss(policy, given, chosen), dino.repr_loss(policy, tensors(b), chosen))


def test_cloning_by_codes():
    chosen, policy, p, b = dino_case()
    mu = mean(p, "actor", code(p, "encoder", b.observations))
    density = squashed_log_prob(mu, b.actions).mean()
    told = {"log_prob": density, "mse": ((np.tanh(mu) - b.actions) ** 2).mean()}
    assert_told(dino.bc_loss(policy, tensors(b), chosen), -density, told)
    got = dino.act(policy, torch.from_numpy(b.observations), None, chosen)
    np.testing.assert_allclose(got.detach().numpy(), np.tanh(mu), rtol=1e-12)


def test_fine_tuning_reads_codes():
    chosen, policy, p, b = dino_case(True)
    s, s1 = code(p, "encoder", b.observations), code(p, "target_encoder", b.next_observations)
    found = rebrac_by_hand(p, s, b.actions, s1, b.rewards, b.masks, b.next_actions, b.noise["target_action"])
    got = terms(policy, tensors(b), chosen)
    assert (got["critic_loss"].item(), got["actor_loss"].item()) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("full", [None, True])
def test_the_centre_moves_in_pre_training_if_it_is_corrected(corrected, full):
    chosen, policy, p, b = dino_case(full, corrected=("constant_center",) if corrected else ())
    learner.update(policy, learner.make_optimizer(policy, chosen), tensors(b), chosen)
    centre = p["target_repr_center.array"]
    if corrected and full is None:
        codes = np.stack([code(p, "target_encoder", x) for x in views(b)])
        centre = 0.9 * centre + 0.1 * codes.mean((0, 1))
    np.testing.assert_allclose(arrays(policy)["target_repr_center.array"], centre, rtol=1e-12)


def test_between_the_phases_the_target_encoder_is_set_to_the_encoder():
    chosen, policy, p, _ = dino_case()
    learner.reset_targets(policy, chosen)
    for name, array in arrays(policy).items():
        source = name.removeprefix("target_") if name.startswith("target_encoder.") else name
        assert (array == p[source]).all(), name


# Statistics


@pytest.mark.parametrize("summed", [True, False])
def test_statistics_of_a_gradient(summed):
    found = {"a": torch.tensor([3.0, -4.0]), "b": torch.tensor([[12.0]])}
    told = {name: quantity.item() for name, quantity in gradient_statistics(found, summed).items()}
    assert told == {"max": 12, "min": -4, "norm": 17 if summed else 13}
