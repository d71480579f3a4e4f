"""Planted bugs in layers: they live at `forward`."""

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from parity_halves import draw, layer_norm, linear, make_twin, seeded
from torch import nn

from crossfade.parity import Twin


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.fc2 = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        h = F.gelu(self.norm(self.fc1(x)))
        return self.out(torch.tanh(self.fc2(h)))


TRUNK = dict.fromkeys(
    (
        "GELU by its tanh approximation",
        "LayerNorm eps 1e-6",
        "LayerNorm after the activation",
        "square kernel not transposed",
        "layers of equal shape swapped",
        "float32 leak",
        "float32 result",
        "activation forgotten",
        "LayerNorm variance with ddof 1",
    ),
    "forward",
)


def trunk(bug: str | None = None) -> Twin:
    def apply(p, x):
        first, second = ("fc2", "fc1") if bug == "layers of equal shape swapped" else ("fc1", "fc2")
        eps = 1e-6 if bug == "LayerNorm eps 1e-6" else 1e-5
        gelu = lambda h: jax.nn.gelu(h, approximate=bug == "GELU by its tanh approximation")
        h = linear(p[first], x)
        if bug == "square kernel not transposed":
            h = x @ p["fc1"]["weight"] + p["fc1"]["bias"][None]
        if bug == "LayerNorm after the activation":
            h = layer_norm(p["norm"], gelu(h), eps)
        elif bug == "LayerNorm variance with ddof 1":
            deviation = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True, ddof=1) + eps)
            h = gelu(deviation * p["norm"]["weight"][None] + p["norm"]["bias"][None])
        else:
            h = gelu(layer_norm(p["norm"], h, eps))
        if bug == "float32 leak":
            h = h.astype(jnp.float32).astype(h.dtype)
        h = linear(p[second], h)
        y = linear(p["out"], h if bug == "activation forgotten" else jnp.tanh(h))
        return y.astype(jnp.float32) if bug == "float32 result" else y

    return make_twin("trunk", seeded(Trunk), apply, batch=draw(5, 6))


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):  # (B, 2, 8, 8)
        h = torch.relu(self.norm(self.conv(x)))  # (B, 4, 4, 4)
        return self.fc(F.max_pool2d(h, 3, stride=2, padding=1).flatten(1))


VISION = dict.fromkeys(
    (
        "SAME padding with stride 2",
        "GroupNorm eps 1e-6",
        "max-pool SAME padding",
        "flatten in NHWC order",
        "GroupNorm groups interleaved",
    ),
    "forward",
)


def vision(bug: str | None = None) -> Twin:
    def apply(p, x):
        padding = "SAME" if bug == "SAME padding with stride 2" else ((1, 1), (1, 1))
        h = jax.lax.conv_general_dilated(x, p["conv"]["weight"], (2, 2), padding)
        h = h + p["conv"]["bias"][None, :, None, None]
        eps = 1e-6 if bug == "GroupNorm eps 1e-6" else 1e-5
        shape, axes = ((-1, 2, 2, 4, 4), (2, 3, 4))
        if bug == "GroupNorm groups interleaved":
            axes = (1, 3, 4)
        groups = h.reshape(shape)
        groups = groups - groups.mean(axes, keepdims=True)
        groups = groups / jnp.sqrt(jnp.square(groups).mean(axes, keepdims=True) + eps)
        h = groups.reshape(h.shape) * p["norm"]["weight"][None, :, None, None] + p["norm"]["bias"][None, :, None, None]
        pad = "SAME" if bug == "max-pool SAME padding" else ((0, 0), (0, 0), (1, 1), (1, 1))
        h = jax.lax.reduce_window(jax.nn.relu(h), -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pad)
        if bug == "flatten in NHWC order":
            h = h.transpose(0, 2, 3, 1)
        return linear(p["fc"], h.reshape(h.shape[0], -1))

    return make_twin("vision", seeded(Vision), apply, batch=draw(3, 2, 8, 8))


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTMCell(3, 4)
        self.gru = nn.GRUCell(4, 4)

    def forward(self, x, h, c):
        h, c = self.lstm(x, (h, c))
        return self.gru(h, c), h, c


MEMORY = dict.fromkeys(
    (
        "LSTM gates in the order i, g, f, o",
        "LSTM carry as (c, h)",
        "GRU reset before the product",
        "GRU update inverted",
    ),
    "forward",
)


def memory(bug: str | None = None) -> Twin:
    def apply(p, x, h, c):
        if bug == "LSTM carry as (c, h)":
            h, c = c, h
        bias = p["lstm"]["bias_ih"] + p["lstm"]["bias_hh"]
        gates = x @ p["lstm"]["weight_ih"].T + h @ p["lstm"]["weight_hh"].T + bias[None]
        i, f, g, o = jnp.split(gates, 4, -1)
        if bug == "LSTM gates in the order i, g, f, o":
            f, g = g, f
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return gru(p["gru"], h, c), h, c

    def gru(p, x, h):
        r_x, z_x, n_x = jnp.split(x @ p["weight_ih"].T + p["bias_ih"][None], 3, -1)
        r_h, z_h, n_h = jnp.split(h @ p["weight_hh"].T + p["bias_hh"][None], 3, -1)
        r, z = jax.nn.sigmoid(r_x + r_h), jax.nn.sigmoid(z_x + z_h)
        if bug == "GRU reset before the product":
            n_h = jnp.split((r * h) @ p["weight_hh"].T + p["bias_hh"][None], 3, -1)[2]
            n = jnp.tanh(n_x + n_h)
        else:
            n = jnp.tanh(n_x + r * n_h)
        return z * n + (1 - z) * h if bug == "GRU update inverted" else (1 - z) * n + z * h

    return make_twin("memory", seeded(Memory), apply, batch=(draw(3, 3), draw(3, 4, seed=1), draw(3, 4, seed=2)))


class Noisy(nn.Module):
    """A factorised noisy layer on an embedding; the noise is an argument."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.mu = nn.Parameter(torch.randn(4, 4))
        self.sigma = nn.Parameter(torch.randn(4, 4))

    def forward(self, index, e_in, e_out):
        f = lambda e: e.sign() * e.abs().sqrt()
        weight = self.mu + self.sigma * torch.outer(f(e_out), f(e_in))
        return self.embed(index) @ weight.T


NOISY = dict.fromkeys(
    ("noise of a noisy layer transposed", "square root of the noise forgotten", "embedding index one too low"),
    "forward",
)


def noisy(bug: str | None = None) -> Twin:
    def apply(p, index, e_in, e_out):
        f = lambda e: e if bug == "square root of the noise forgotten" else jnp.sign(e) * jnp.sqrt(jnp.abs(e))
        outer = jnp.outer(f(e_out), f(e_in))
        weight = p["mu"] + p["sigma"] * (outer.T if bug == "noise of a noisy layer transposed" else outer)
        index = index - 1 if bug == "embedding index one too low" else index
        return p["embed"]["weight"][index] @ weight.T

    index = draw(3).argsort()
    return make_twin("noisy", seeded(Noisy), apply, batch=(index, draw(4, seed=1), draw(4, seed=2)))


FAMILIES = {trunk: TRUNK, vision: VISION, memory: MEMORY, noisy: NOISY}
