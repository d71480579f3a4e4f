"""A small net in torch and Equinox, its data, and the comparison used by the tests of optimisers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from crossfade.bridge.optimizers.exchange import read_torch

STEPS = 200
_rng = np.random.default_rng(0)
INPUTS, TARGETS = _rng.normal(size=(STEPS, 8, 3)), _rng.normal(size=(STEPS, 8, 4))


class NetTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


class NetEquinox(eqx.Module):
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __init__(self):
        self.inner, self.outer = (eqx.nn.Linear(n, 4, key=jax.random.key(n)) for n in (3, 4))

    def __call__(self, x):
        return self.outer(jnp.tanh(self.inner(x)))


def make_module():
    """The torch net in float64, always the same."""
    torch.manual_seed(0)
    return NetTorch().double()


def train_torch(module, optimizer, start, stop, *, clip_norm=None, clip_value=None, scheduler=None):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for x, y in zip(torch.from_numpy(INPUTS[start:stop]), torch.from_numpy(TARGETS[start:stop]), strict=True):
        optimizer.zero_grad()
        (module(x) - y).square().mean().backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, clip_norm)
        if clip_value is not None:
            nn.utils.clip_grad_value_(parameters, clip_value)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def numbers(module, optimizer):
    """Parameters, moments and learning rates, by name."""
    state = read_torch(optimizer, module)
    moments = {f"{n}.{slot}": a for n, slots in state.moments.items() for slot, a in slots.items()}
    rates = {f"lr of group {i}": np.asarray(group["lr"]) for i, group in enumerate(state.groups)}
    return {n: p.detach().numpy() for n, p in module.named_parameters()} | moments | rates


def difference(got, expected):
    """The largest difference of any array, relative to the largest element of that array."""
    assert got.keys() == expected.keys()
    return max(np.abs(got[n] - b).max() / (np.abs(b).max() or 1.0) for n, b in expected.items())


def same_record(a, b):
    """Whether two optimisers would save the same, bit for bit."""
    assert a["param_groups"] == b["param_groups"] and a["state"].keys() == b["state"].keys()
    for index, slots in a["state"].items():
        assert list(slots) == list(b["state"][index])
        for slot, value in slots.items():
            assert value.dtype == b["state"][index][slot].dtype and torch.equal(value, b["state"][index][slot])
    return True
