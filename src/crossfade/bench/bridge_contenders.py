"""Nine ways to make one Adam step on the same tanh network with the same batches.

Each contender is a function that learns from the next batch (or the next 32) and ends with the loss on the host.
torch's and `accelerate`, whose user stays in torch, get their batches as tensors, JAX's and `Step` as NumPy arrays:
what a buffer written in that framework would hand them.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jaxtyping import Array, Float
from torch import nn

from ..bridge.mapping import Mapping
from ..bridge.stepping.accelerating import accelerate
from ..bridge.stepping.step import Step

LEARNING_RATE = 1e-3
EPOCH = 32  # minibatches in one compiled loop
POOL = 64  # different minibatches


class TorchNet(nn.Module):
    def __init__(self, sizes: tuple[int, ...]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = torch.tanh(layer(x))
        return last(x)


class JaxNet(eqx.Module):
    layers: list[eqx.nn.Linear]

    def __init__(self, sizes: tuple[int, ...]):
        keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)]

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " outputs"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = jnp.tanh(layer(x))
        return last(x)


def torch_loss(net: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return ((net(batch["x"]) - batch["y"]) ** 2).mean()


def jax_loss(net: JaxNet, batch: dict[str, Any]) -> Float[Array, ""]:
    return ((jax.vmap(net)(batch["x"]) - batch["y"]) ** 2).mean()


class Contenders:
    """Makes each contender anew, from the same weights and the same pool of batches."""

    def __init__(self, sizes: tuple[int, ...], batch: int):
        rng = np.random.default_rng(0)
        draw = lambda width: rng.normal(size=(POOL, batch, width)).astype(np.float32)
        self.sizes, self.pool = sizes, {"x": draw(sizes[0]), "y": draw(sizes[-1])}

    def makers(self) -> dict[str, Callable[[], Callable[[], float]]]:
        """Functions by name, each of which makes a contender or raises `Unavailable`."""
        return {
            "torch eager": self.eager,
            "torch eager, fused Adam": partial(self.eager, fused=True),
            "torch.compile, whole step": self.compiled,
            "JAX by hand": self.by_hand,
            "bridge.Step": self.step,
            "accelerate": partial(self.step, imported=True),
            "JAX by hand, scan of 32": self.by_hand_scan,
            "bridge.Step.epoch of 32": self.epoch,
            "accelerate, epoch of 32": partial(self.epoch, imported=True),
        }

    def eager(self, fused: bool = False) -> Callable[[], float]:
        net, batches = self._net(), self._tensors()
        optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE, fused=fused)

        def run() -> float:
            optimizer.zero_grad()
            loss = torch_loss(net, next(batches))
            loss.backward()
            optimizer.step()
            return loss.item()

        return run

    def compiled(self) -> Callable[[], float]:
        """`torch.compile` of the whole functional step: forward, backward and Adam in one graph."""
        if shutil.which("g++") is None and shutil.which("clang++") is None:
            raise Unavailable("torch.compile needs a C++ compiler, and there is none here")
        net, batches = self._net(), self._tensors()
        params = {n: p.detach().clone() for n, p in net.named_parameters()}
        zeros = {n: torch.zeros_like(p) for n, p in params.items()}
        state: tuple[Any, ...] = (params, zeros, {n: z.clone() for n, z in zeros.items()}, torch.zeros(()))

        def loss_of(params, batch):
            out = torch.func.functional_call(net, params, (batch["x"],))
            return ((out - batch["y"]) ** 2).mean()

        @torch.compile(fullgraph=True)
        def step(params, m, v, t, batch):
            grads, loss = torch.func.grad_and_value(loss_of)(params, batch)
            t = t + 1
            m = {n: 0.9 * m[n] + 0.1 * g for n, g in grads.items()}
            v = {n: 0.999 * v[n] + 0.001 * g * g for n, g in grads.items()}
            size, root = LEARNING_RATE / (1 - 0.9**t), torch.sqrt(1 - 0.999**t)
            params = {n: p - size * m[n] / (torch.sqrt(v[n]) / root + 1e-8) for n, p in params.items()}
            return params, m, v, t, loss

        def run() -> float:
            nonlocal state
            with torch.no_grad():
                *new, loss = step(*state, batch=next(batches))
            state = tuple(new)
            return loss.item()

        return run

    def by_hand(self) -> Callable[[], float]:
        """What a JAX user writes: one donated, jitted update of an Equinox net with `optax.adam`."""
        update, carry = self._update()
        step = jax.jit(update, donate_argnums=0)
        batches = self._arrays(1)

        def run() -> float:
            nonlocal carry
            carry, loss = step(carry, next(batches))
            return np.asarray(loss.block_until_ready()).item()

        return run

    def by_hand_scan(self) -> Callable[[], float]:
        update, carry = self._update()
        step = jax.jit(lambda carry, batches: jax.lax.scan(update, carry, batches), donate_argnums=0)
        batches = self._arrays(EPOCH)

        def run() -> float:
            nonlocal carry
            carry, losses = step(carry, next(batches))
            return np.asarray(losses.block_until_ready())[-1].item()

        return run

    def step(self, imported: bool = False) -> Callable[[], float]:
        step, batches = self._bridge(imported), self._tensors(1) if imported else self._arrays(1)
        return lambda: step(next(batches)).item()

    def epoch(self, imported: bool = False) -> Callable[[], float]:
        step, batches = self._bridge(imported), self._tensors(EPOCH) if imported else self._arrays(EPOCH)
        return lambda: step.epoch(next(batches))[-1].item()

    def _bridge(self, imported: bool) -> Step:
        """A step whose loss is written in JAX, or imported from torch."""
        net, jax_net = self._net(), JaxNet(self.sizes)
        optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
        if imported:
            return accelerate(torch_loss, net, optimizer)
        return Step(net, optimizer, jax_loss, Mapping.by_name(net, jax_net), torch_loss=torch_loss)

    def _update(self) -> tuple[Callable, Any]:
        net = self._net()
        params, static = eqx.partition(Mapping.by_name(net, JaxNet(self.sizes)).to_jax(net.state_dict()), eqx.is_array)
        adam = optax.adam(LEARNING_RATE)

        def update(carry, batch):
            params, state = carry
            loss, grads = jax.value_and_grad(lambda p: jax_loss(eqx.combine(p, static), batch))(params)
            updates, state = adam.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return update, (params, adam.init(params))

    def _net(self) -> TorchNet:
        torch.manual_seed(0)
        return TorchNet(self.sizes)

    def _tensors(self, count: int = 1) -> Iterator[dict[str, torch.Tensor]]:
        return cycle([{k: torch.from_numpy(v.copy()) for k, v in batch.items()} for batch in self._batches(count)])

    def _arrays(self, count: int) -> Iterator[dict[str, np.ndarray]]:
        return cycle(self._batches(count))

    def _batches(self, count: int) -> list[dict[str, np.ndarray]]:
        """Single minibatches, or several along a leading axis."""
        if count == 1:
            return [{k: v[i] for k, v in self.pool.items()} for i in range(POOL)]
        return [{k: v[i : i + count] for k, v in self.pool.items()} for i in range(0, POOL, count)]


class Unavailable(Exception):
    """A contender that cannot run on this machine, and why."""
