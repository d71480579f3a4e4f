"""Layers of crossfade.nn equal torch's, value and gradient, in float64; and a changed parameter shows."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import crossfade.nn as cfnn
from crossfade.bridge import Mapping
from crossfade.nn.noisy_torch import NoisyLinear

KEY = jax.random.key(0)


@dataclass(frozen=True)
class Case:
    ours: Callable[[], eqx.Module]
    theirs: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    call: Callable  # (jax layer, *arrays) -> array
    torch_call: Callable = staticmethod(lambda layer, *x: layer(*x))


def _lstm_torch(cell, x, h, c):
    return torch.cat(cell(x, (h, c)), 1)


def _lstm_jax(cell, x, h, c):
    return jnp.concatenate(jax.vmap(lambda x, h, c: cell(x, (h, c)))(x, h, c), 1)


def _batched(layer, *x):
    return jax.vmap(layer)(*x)


CASES = {
    "conv1d": Case(
        lambda: cfnn.Conv1d(2, 4, 3, stride=2, padding=1, key=KEY),
        lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1),
        ((2, 2, 6),),
        _batched,
    ),
    "conv2d": Case(
        lambda: cfnn.Conv2d(4, 4, (3, 2), padding=(1, 0), dilation=(1, 2), groups=2, key=KEY),
        lambda: nn.Conv2d(4, 4, (3, 2), padding=(1, 0), dilation=(1, 2), groups=2),
        ((2, 4, 5, 6),),
        _batched,
    ),
    "lstm": Case(
        lambda: cfnn.LSTMCell(3, 4, key=KEY),
        lambda: nn.LSTMCell(3, 4),
        ((2, 3), (2, 4), (2, 4)),
        _lstm_jax,
        _lstm_torch,
    ),
    "gru": Case(lambda: cfnn.GRUCell(3, 4, key=KEY), lambda: nn.GRUCell(3, 4), ((2, 3), (2, 4)), _batched),
    "noisy": Case(
        lambda: cfnn.NoisyLinear(3, 4, key=KEY),
        lambda: NoisyLinear(3, 4),
        ((2, 3), (3,), (4,)),
        lambda layer, *x: layer(*map(jnp.asarray, x)),
    ),
}


def _pair(case: Case, seed: int = 0):
    rng = np.random.default_rng(seed)
    theirs = case.theirs().double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.tensor(rng.normal(size=p.shape)))
    ours = Mapping.by_name(theirs, case.ours()).to_jax(theirs.state_dict())
    return ours, theirs, [rng.normal(size=shape) for shape in case.inputs]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_torch(name, x64):
    case = CASES[name]
    ours, theirs, inputs = _pair(case)
    expected = case.torch_call(theirs, *map(torch.tensor, inputs))
    np.testing.assert_allclose(eqx.filter_jit(case.call)(ours, *inputs), expected.detach(), rtol=1e-12, atol=1e-12)

    (expected**2).sum().backward()
    gradient = eqx.filter_jit(eqx.filter_grad(lambda layer: (case.call(layer, *inputs) ** 2).sum()))(ours)
    for parameter, leaf in theirs.named_parameters():
        np.testing.assert_allclose(getattr(gradient, parameter), leaf.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_a_changed_parameter_shows(name, x64):
    case = CASES[name]
    ours, theirs, inputs = _pair(case)
    expected = case.call(ours, *inputs)
    for parameter, _ in theirs.named_parameters():
        leaf = getattr(ours, parameter)
        changed = eqx.tree_at(lambda m, n=parameter: getattr(m, n), ours, leaf.at[(0,) * leaf.ndim].add(0.1))
        assert np.abs(case.call(changed, *inputs) - expected).max() > 1e-6


@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_batchnorm_keeps_torchs_running_statistics(shape, x64):
    rng = np.random.default_rng(0)
    theirs = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](3, momentum=0.3).double()
    ours = cfnn.BatchNorm(3, momentum=0.3)
    ours = eqx.tree_at(lambda m: (m.weight, m.bias), ours, (jnp.array(rng.normal(size=3)), jnp.array([1.0, 2.0, 3.0])))
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(np.array(ours.weight)))
        theirs.bias.copy_(torch.tensor(np.array(ours.bias)))
    stats = ours.init_stats()
    for _ in range(3):
        x = rng.normal(1.0, 2.0, shape)
        y, stats = ours(jnp.array(x), stats, train=True)
        np.testing.assert_allclose(y, theirs(torch.tensor(x)).detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(stats.running_mean, theirs.running_mean, rtol=1e-12)
    np.testing.assert_allclose(stats.running_var, theirs.running_var, rtol=1e-12)

    y, after = ours(jnp.array(x), stats, train=False)
    np.testing.assert_allclose(y, theirs.eval()(torch.tensor(x)).detach(), rtol=1e-12, atol=1e-12)
    assert eqx.tree_equal(after, stats)
    biased = stats.running_var * 0.9
    assert np.abs(ours(jnp.array(x), cfnn.BatchStats(stats.running_mean, biased), train=False)[0] - y).max() > 1e-3
