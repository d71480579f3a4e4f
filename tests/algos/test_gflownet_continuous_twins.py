"""The torch half and the JAX half of the continuous GFlowNet, written apart, are the same system."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
import torch

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.continuous import (
    density_jax,
    density_torch,
    evaluation,
    learner_jax,
    learner_torch,
    noise_jax,
    noise_numpy,
    vectorized,
)
from crossfade.bridge.libraries import named_leaves
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.torus.params import TorusParams
from crossfade.random import random_numpy as random
from crossfade.registry import find
from crossfade.systems.gflownet import continuous_jax as system_jax, continuous_torch as system_torch
from crossfade.trainers.making import make_trainer, precision
from default_run import few

KINDS = ("beta", "von_mises")
WORLDS = {"cube": CubeParams(min_increment=0.25), "torus": TorusParams(n_turns=3, harmonics=2)}
LOSSES = ("tb", "vargrad", "db", "subtb", "fldb")

pytestmark = pytest.mark.usefixtures("x64")


def tiny(world, **settings):
    sizes = {"hidden": 8, "batch_size": 8, "components": 2, "dtype": "float64"}
    return GFlowNetConfig(env=WORLDS[world], **{**sizes, **settings})


def halves(config):
    """Each half's system, with its policy at the start."""
    systems = system_torch.System(config), system_jax.System(config)
    return [(system, system.make_policy(system.parameters())) for system in systems]


def difference(ours, theirs):
    """The largest one between two trees of arrays, beside the largest number in each array."""
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    assert all(np.shape(a) == np.shape(b) for a, b in pairs)
    arrays = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    return max(np.abs(a - b).max() / max(np.abs(a).max(), 1.0) for a, b in arrays)


def tensors(tree):
    return jax.tree.map(lambda array: torch.from_numpy(np.array(array)), tree)


@pytest.mark.parametrize("dtype", few(("float64", "float32"), "float32"))
@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_the_same_bits(kind, dtype):
    sizes = 3, 5, 2, 4, kind, dtype
    ours, theirs = noise_numpy.draw(random.key(7), *sizes), noise_jax.draw(jax.random.key(7), *sizes)
    for name, a, b in zip(ours._fields, ours, theirs, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            last_bit = 1e-15 if (name, dtype) == ("normal", "float64") else 0  # as crossfade.random says of itself
            assert a.dtype == b.dtype and np.abs(a - b).max() <= last_bit, name


def densities(kind):
    """Log-densities, their gradients, and draws, for raw numbers from small to large: of torch and of JAX."""
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(300, 2, 3, 3)) * rng.choice([0.1, 1, 4], (300, 1, 1, 1))
    ratio = rng.uniform(1e-6, 1 - 1e-6, (300, 2))
    noise = noise_numpy.draw(random.key(0), 1, 300, 2, 3, kind, "float64").at(0)
    leaf = torch.from_numpy(raw).requires_grad_()
    value = density_torch.log_prob(kind, leaf, torch.from_numpy(ratio))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    ours = value.detach().numpy(), gradient.numpy(), density_torch.draw(kind, leaf.detach(), tensors(noise)).numpy()

    @jax.jit
    def theirs(raw, ratio, noise):
        log_prob = lambda raw: density_jax.log_prob(kind, raw, ratio)
        return log_prob(raw), jax.grad(lambda raw: log_prob(raw).sum())(raw), density_jax.draw(kind, raw, noise)

    return ours, theirs(raw, ratio, noise)


@pytest.mark.parametrize("kind", KINDS)
def test_densities_and_draws_are_the_same(kind):
    for a, b in zip(*densities(kind), strict=True):
        assert difference(a, b) < 1e-12


def walks(system, policy):
    """What a half samples, forwards with exploration and backwards, and what it says about it."""
    there = system.sample(policy, random.key(0), 32)
    back = system.sample_back(policy, evaluation.target_draws(system.config.env, 32, random.key(1)), random.key(2))
    return there, back, system.terms(policy, there), system.terms(policy, back)


@functools.cache
def their_walks(world):
    return walks(*halves(tiny(world, epsilon=0.3))[1])


def our_walks(world):
    return walks(*halves(tiny(world, epsilon=0.3))[0])


@pytest.mark.parametrize("world", WORLDS)
def test_trajectories_and_what_is_said_of_them_are_the_same(world):
    ours = our_walks(world)
    lengths = {tuple(sorted(set(found.valid.sum(0)))) for found in ours[:2]}
    assert world == "torus" or all(len(found) > 1 for found in lengths)
    for a, b in zip(ours, their_walks(world), strict=True):
        assert difference(a, b) < 1e-12


def gradients(config, losses):
    """Of each loss what is logged and the gradient, by name, on a batch that torch sampled."""
    (system, policy), (_, their_policy) = halves(config)
    batch, _ = system.collect(policy, None, 0)
    tensors, ours = system.tensors(batch), {}
    for loss in losses:
        policy.zero_grad()
        value, info = learner_torch.loss(policy, tensors, replace(config, loss=loss))
        value.backward()
        gradient = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in policy.named_parameters()}
        ours[loss] = {name: quantity.detach().numpy() for name, quantity in {**info, **gradient}.items()}

    @jax.jit
    def theirs(policy, batch):
        grad = lambda loss: jax.grad(learner_jax.loss, has_aux=True)(policy, batch, replace(config, loss=loss))
        return {loss: grad(loss) for loss in losses}

    found = theirs(their_policy, batch).items()
    return ours, {loss: {**info, **named_leaves(gradient)} for loss, (gradient, info) in found}


@pytest.mark.parametrize(
    ("world", "backward", "losses"),
    [
        pytest.param("torus", "shared", LOSSES, marks=pytest.mark.slow),
        ("torus", "shared", ("db", "fldb")),
        pytest.param("cube", "learned", ("vargrad",), marks=pytest.mark.slow),
        pytest.param("cube", "fixed", ("subtb",), marks=pytest.mark.slow),
    ],
)
def test_losses_and_gradients_are_the_same(world, backward, losses):
    ours, theirs = gradients(tiny(world, loss=losses[-1], backward=backward), losses)
    assert difference(ours, theirs) < 1e-11


def trained(config, updates):
    """Metrics and parameters after some updates in the config's mode."""
    with precision(config):
        trainer = make_trainer(find("gflownet"), config)
        return trainer.run(0, updates), trainer.snapshot().parameters


def check_equal(config, modes, updates):
    ours = trained(replace(config, mode="torch"), updates)
    for mode in modes:
        theirs = trained(replace(config, mode=mode), updates)
        assert np.array_equal(ours[0]["mean_length"], theirs[0]["mean_length"]), mode  # the same jumps
        assert difference(ours, theirs) < 1e-9, mode


@pytest.mark.parametrize("world", ["cube", pytest.param("torus", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", few(("jax_policy", "jax_full"), "jax_full"))
def test_twenty_iterations_from_one_key_are_the_same_in_every_mode(world, mode):
    check_equal(tiny(world, epsilon=0.1), (mode,), 20)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["tb", "subtb"])
@pytest.mark.parametrize("world", WORLDS)
def test_two_hundred_iterations_from_one_key_are_the_same(world, loss):
    check_equal(tiny(world, hidden=16, batch_size=16, loss=loss), ("jax_minimal", "jax_full"), 200)


def without_least_concentration(monkeypatch):
    monkeypatch.setattr(density_torch, "_concentration", torch.exp)


def last_proposal(monkeypatch):
    monkeypatch.setattr(density_torch, "_first", lambda proposals, accepted: proposals[..., -1])


def without_widths(monkeypatch):
    right = vectorized._options
    monkeypatch.setattr(
        vectorized, "_options", lambda moves: right(moves)._replace(log_width=np.zeros(moves.can_move.shape))
    )


def certain_return(monkeypatch):
    right = learner_torch._log_choice
    certain = lambda options: options._replace(can_move=torch.zeros_like(options.can_move))
    wrong = lambda choice, options: (right(choice, options)[0], right(choice, certain(options))[1])
    monkeypatch.setattr(learner_torch, "_log_choice", wrong)


FAULTS = [
    (without_least_concentration, "torus", 2),
    (last_proposal, "torus", 0),
    (last_proposal, "cube", 1),
    (without_widths, "cube", 2),
    (certain_return, "cube", 3),
]


@pytest.mark.parametrize(("fault", "world", "part"), FAULTS)
def test_a_fault_in_one_half_is_noticed(fault, world, part, monkeypatch):
    fault(monkeypatch)
    assert difference(our_walks(world)[part], their_walks(world)[part]) > 1e-6
