"""The pair of nets and losses the tests of `bridge.Step` train."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from crossfade.bridge import Mapping

SIZES = (3, 5, 2)


class TorchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(SIZES[0], SIZES[1])
        self.out = nn.Linear(SIZES[1], SIZES[2])
        self.idle = nn.Linear(2, 2)  # the loss does not use it

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


class JaxNet(eqx.Module):
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    idle: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(jax.random.key(0), 3)
        self.hidden = eqx.nn.Linear(SIZES[0], SIZES[1], key=keys[0])
        self.out = eqx.nn.Linear(SIZES[1], SIZES[2], key=keys[1])
        self.idle = eqx.nn.Linear(2, 2, key=keys[2])

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


def torch_loss(net, batch):
    return 3 * ((net(batch["x"]) - batch["y"]) ** 2).mean()


def jax_loss(net, batch):
    return 3 * jnp.mean((jax.vmap(net)(batch["x"]) - batch["y"]) ** 2)


def batches(count: int, dtype: Any = np.float64, size: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    draw = lambda width: rng.normal(size=(size, width)).astype(dtype)
    return [{"x": draw(SIZES[0]), "y": draw(SIZES[-1])} for _ in range(count)]


def make(optimizer=torch.optim.Adam, dtype=torch.float64, groups=None, **options) -> tuple[TorchNet, Any, Mapping]:
    torch.manual_seed(0)
    net = TorchNet().to(dtype)
    params = groups(net) if groups else net.parameters()
    return net, optimizer(params, **{"lr": 0.02, **options}), Mapping.by_name(net, JaxNet())


def tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {k: torch.from_numpy(v) for k, v in batch.items()}


def torch_steps(net, optimizer, data, clip_norm=None, scheduler=None, loss=torch_loss, clip_value=None):
    """The reference: plain torch."""
    for batch in data:
        optimizer.zero_grad()
        loss(net, tensors(batch)).backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
        if clip_value is not None:
            nn.utils.clip_grad_value_(net.parameters(), clip_value)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def distance(a: nn.Module, b: nn.Module) -> float:
    """The largest difference of two modules, relative to each tensor's scale."""
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return max(float((x - y).abs().max() / y.abs().max().clamp(min=1e-9)) for x, y in pairs)


def moments(optimizer) -> dict[tuple[int, str], torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {(i, slot): value for i, slots in state.items() for slot, value in slots.items() if value is not None}


def assert_same_optimizer(a, b, tolerance=1e-12):
    a, b = moments(a), moments(b)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        torch.testing.assert_close(a[name], b[name], rtol=tolerance, atol=tolerance)
