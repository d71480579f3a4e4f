"""Adversarial motion priors in torch and JAX, written apart, are the same: losses, gradients of second order, rewards,
memory, updates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from amp_cases import BIPED, CONVENTIONS, FLOATING, INPUTS, arrays, batch, discriminators, small, tensors

from crossfade.algos.amp import features_jax, features_numpy, losses_jax, losses_torch, replay_jax, replay_numpy
from crossfade.algos.amp.config import AMPConfig
from crossfade.bridge.libraries import named_leaves
from crossfade.config import apply
from crossfade.errors import UsageError
from crossfade.optim import eager_torch, masking_jax
from crossfade.random import random_numpy as random

BOTH = (losses_torch, torch.tensor), (losses_jax, jnp.array)


def relative(found, expected) -> float:
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))


# Losses


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_loss_gradient_and_update_are_the_same(convention, x64):
    config = small(convention=convention)
    ours, theirs = discriminators(config)
    value, info = losses_torch.loss(ours, tensors(batch()), config)
    gradients = dict(zip(dict(ours.named_parameters()), torch.autograd.grad(value, ours.parameters()), strict=True))
    (_, told), found = jax.value_and_grad(losses_jax.loss, has_aux=True)(theirs, arrays(batch()), config)
    assert max(relative(told[name], info[name].detach()) for name in info) <= 1e-12
    assert max(relative(leaf, gradients[name]) for name, leaf in named_leaves(found).items()) <= 1e-10
    adam, tx = torch.optim.Adam(ours.parameters(), lr=1e-3), optax.adam(1e-3)
    state = tx.init(theirs)
    for i in range(3):
        eager_torch.update(ours, adam, lambda d, b: losses_torch.loss(d, b, config), tensors(batch(i)))
        loss = lambda d, b: losses_jax.loss(d, b, config)
        theirs, state, _ = masking_jax.update(theirs, tx, state, loss, arrays(batch(i)))
    moved = {name: p.detach().numpy() for name, p in ours.named_parameters()}
    assert max(relative(leaf, moved[name]) for name, leaf in named_leaves(theirs).items()) <= 1e-9


def test_the_penalty_has_a_gradient_of_second_order(x64):
    """As torch's graph of a gradient has it, and as differences of the penalty in every weight have it."""
    ours, theirs = discriminators(small())
    rows = torch.from_numpy(batch().reference).requires_grad_()
    (slope,) = torch.autograd.grad(ours(rows).sum(), rows, create_graph=True)
    gradients = lambda value: torch.autograd.grad(value, list(ours.parameters()), allow_unused=True)
    expected = gradients(slope.square().sum(-1).mean())
    found = gradients(losses_torch.gradient_penalty(ours, rows.detach()))
    penalty = lambda d: losses_jax.gradient_penalty(d, jnp.asarray(batch().reference))
    theirs_found = named_leaves(jax.grad(penalty)(theirs))
    for name, wanted, own in zip(dict(ours.named_parameters()), expected, found, strict=True):
        wanted, own = (torch.zeros(theirs_found[name].shape) if g is None else g for g in (wanted, own))
        assert relative(own, wanted) <= 1e-12 and relative(theirs_found[name], wanted) <= 1e-10, name
    weight, step = theirs.layers[1].weight, 1e-6
    moved = lambda by: eqx.tree_at(lambda d: d.layers[1].weight, theirs, weight.at[2, 3].add(by))
    difference = (penalty(moved(step)) - penalty(moved(-step))) / (2 * step)
    assert abs(difference) > 1e-3 and relative(theirs_found["layers.1.weight"][2, 3], difference) < 1e-6


@pytest.mark.parametrize(("losses", "array"), BOTH)
def test_losses_and_rewards_are_what_they_are_by_hand(losses, array, x64):
    float64 = {"dtype": torch.float64} if losses is losses_torch else {}
    reference, policy = array([1.0, 0.5], **float64), array([-1.0, 1.0], **float64)
    softplus = lambda x: np.log1p(np.exp(x))
    wanted = {
        "lsgan_pm1": (0.25 / 2 + 4 / 2, [max(0, 1 - (d - 1) ** 2 / 4) for d in (-3.0, -1.0, 0.0, 1.0, 2.0)]),
        "lsgan_01": (0.5 * 0.25 / 2 + 0.5 * 2 / 2, [0, 0, 0, 1, 1]),
        "bce": (
            (softplus(-1) + softplus(-0.5)) / 2 + (softplus(-1) + softplus(1)) / 2,
            [softplus(d) for d in (-3.0, -1.0, 0.0, 1.0, 2.0)],
        ),
    }
    for convention, (loss, rewards) in wanted.items():
        assert float(losses.adversarial_loss(reference, policy, convention)) == pytest.approx(loss, rel=1e-12)
        scores = array([-3.0, -1.0, 0.0, 1.0, 2.0], **float64)
        np.testing.assert_allclose(np.asarray(losses.style_reward(scores, convention)), rewards, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_reward_fits_the_targets_of_its_loss(convention, x64):
    """D16: at the target of the reference a transition earns 1 or more, at that of the policy nothing."""
    high, low = {"lsgan_pm1": (1.0, -1.0), "lsgan_01": (1.0, 0.0), "bce": (30.0, -30.0)}[convention]
    for losses, array in BOTH:
        best, worst = (float(losses.style_reward(array([score]), convention)[0]) for score in (high, low))
        assert best >= 1.0 and worst < 1e-9
        middle = losses.boundary(convention)
        assert low < middle < high


@pytest.mark.parametrize(("losses", "array"), BOTH)
def test_accuracy_counts_both_kinds_alike(losses, array):
    found = losses.accuracy(array([0.7, 0.2, 0.9, 0.6]), array([0.4, 0.8, 0.3, 0.7]), "lsgan_01")
    assert float(found) == pytest.approx(0.5 * (3 / 4 + 1 / 2))


def test_scores_far_out_stay_exact(x64):
    """softplus(-D) at D = 25 is 1.4e-11: a softplus that becomes linear beyond 20 would lose it."""
    for losses, array in BOTH:
        float64 = {"dtype": torch.float64} if losses is losses_torch else {}
        found = losses.style_reward(array([25.0, -25.0], **float64), "bce")
        np.testing.assert_allclose(np.asarray(found), [25 + np.exp(-25.0), np.exp(-25.0)], rtol=1e-10)


# Memory


def test_memory_is_written_read_and_the_same_in_both(x64):
    """D11: what is drawn are rows that were stored, and the ring forgets the oldest."""
    config, rng = small(memory=10), np.random.default_rng(0)
    ours, theirs = (side.start(10, INPUTS, "float64") for side in (replay_numpy, replay_jax))
    reference, stored = rng.normal(size=(7, INPUTS)), []
    for i in range(5):
        rows = rng.normal(size=(4, INPUTS))
        stored = [*stored, *rows]
        ours, theirs = replay_numpy.store(ours, rows), replay_jax.store(theirs, jnp.asarray(rows))
        noise = replay_numpy.draw(random.key(i), config)
        compiled = replay_jax.draw(jax.random.key(i), config)
        found = replay_numpy.batches(reference, ours, noise)
        told = replay_jax.batches(jnp.asarray(reference), theirs, compiled)
        for a, b in ((ours, theirs), (noise, compiled), (found, told)):
            assert all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(a, b, strict=True))
        kept, drawn = np.array(stored[-10:]), found.policy.reshape(-1, INPUTS)
        assert {tuple(row) for row in drawn} == {tuple(row) for row in kept}  # 96 draws from at most 10 rows
        assert {tuple(row) for row in found.reference.reshape(-1, INPUTS)} == {tuple(row) for row in reference}
    assert int(ours.size) == 10 and int(ours.index) == 0


def test_storing_leaves_the_memory_before_it_as_it_was():
    before = replay_numpy.start(10, INPUTS, "float64")
    replay_numpy.store(before, np.ones((4, INPUTS)))
    assert not before.transition.any() and before.size == 0


# Features


@pytest.mark.parametrize("skeleton", [BIPED, FLOATING], ids=lambda s: s.base)
def test_features_are_the_same_in_both(skeleton, x64):
    rng, n = np.random.default_rng(0), 10_000
    qpos, qvel = rng.normal(size=(n, skeleton.nq)), rng.normal(size=(n, skeleton.nv))
    if skeleton.base == "free":
        qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=-1, keepdims=True)
    clearance = rng.uniform(-0.01, 0.04, (n, 2))
    ours = features_numpy.features(qpos, qvel, clearance, skeleton)
    theirs = features_jax.features(*map(jnp.asarray, (qpos, qvel, clearance)), skeleton)
    assert relative(theirs, ours) <= 1e-12 and ours.shape == (n, len(skeleton.features))
    mean, deviation = ours.mean(0), ours.std(0) / 4
    x = features_numpy.transitions(ours[:-1], ours[1:], mean, deviation)
    y = features_jax.transitions(*map(jnp.asarray, (ours[:-1], ours[1:], mean, deviation)))
    assert relative(y, x) <= 1e-12 and np.abs(x).max() == features_numpy.FARTHEST


# Settings


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["hidden="], "at least one layer"),
        (["penalty=-1"], "penalty: expected"),
        (["convention=wgan"], "convention: expected"),
        (["task_weight=0", "style_weight=0"], "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words, hint):
    with pytest.raises(UsageError, match=hint):
        apply(AMPConfig(), words)


def test_a_memory_too_small_for_a_rollout_is_refused():
    with pytest.raises(UsageError, match=r"memory: expected at least n_envs \* n_steps = 65"):
        small().check_fits(65, 1)
    with pytest.raises(UsageError, match=r"devices: expected a divisor of batch = 32"):
        small().check_fits(64, 3)
