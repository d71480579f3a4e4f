"""Planted bugs that the weights and the batch of their twin do not show: kinks that are not reached, signs and buffers
that are the same on both sides, terms beside far larger ones. They show at other scales, or are told as not covered."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from parity_halves import draw, layer_norm, linear, make_twin, seeded
from torch import nn

from crossfade.parity import Twin


class Kinked(nn.Module):
    """Small and positive numbers throughout, normalised by buffers that change nothing yet."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))
        self.fc1, self.norm, self.fc2, self.log_std = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        x = (x - self.mean) / (self.var + 1e-5).sqrt()
        h = F.elu(self.fc1(x), alpha=2.0)
        z = self.fc2(torch.sigmoid(self.norm(h)))
        return self.log_std(F.relu(z)).clamp(-20.0, 2.0), F.leaky_relu(z, 0.01)


def kinked_module() -> Kinked:
    module = seeded(Kinked)
    with torch.no_grad():
        for parameter in (p for name, p in module.named_parameters() if not name.startswith("log_std")):
            parameter.abs_().mul_(0.5).add_(0.01)
    return module


KINKED = dict.fromkeys(
    (
        "relu6 for relu",
        "celu for elu",
        "elu with alpha 1",
        "clamp at -5 for -20",
        "upper bound of the clamp forgotten",
        "absolute value of the scale",
        "normaliser missing",
        "normaliser without its epsilon",
        "leaky slope 0.2",
        "leaky relu forgotten",
    ),
    "forward",
)


def hidden_kinks(bug: str | None = None) -> Twin:
    def apply(p, x):
        eps = 0.0 if bug == "normaliser without its epsilon" else 1e-5
        if bug != "normaliser missing":
            x = (x - p["mean"][None]) / jnp.sqrt(p["var"] + eps)[None]
        else:
            x = x / np.sqrt(1 + 1e-5)
        before = linear(p["fc1"], x)
        h = jnp.where(before > 0, before, 2 * (jnp.exp(jnp.minimum(before, 0)) - 1))
        if bug == "celu for elu":
            h = jax.nn.celu(before, 2.0)
        elif bug == "elu with alpha 1":
            h = jax.nn.elu(before)
        scale = jnp.abs(p["norm"]["weight"]) if bug == "absolute value of the scale" else p["norm"]["weight"]
        h = layer_norm({"weight": scale, "bias": p["norm"]["bias"]}, h)
        z = linear(p["fc2"], jax.nn.sigmoid(h))
        h = jax.nn.relu6(z) if bug == "relu6 for relu" else jax.nn.relu(z)
        low = -5.0 if bug == "clamp at -5 for -20" else -20.0
        high = jnp.inf if bug == "upper bound of the clamp forgotten" else 2.0
        out = jnp.clip(linear(p["log_std"], h), low, high)
        slope = 0.2 if bug == "leaky slope 0.2" else 0.01
        return out, z if bug == "leaky relu forgotten" else jnp.where(z >= 0, z, slope * z)

    return make_twin("hidden kinks", kinked_module(), apply, batch=np.abs(draw(5, 4)) / 4)


LOSSES = {
    "mse for huber where errors are small": "loss",
    "ratio not clipped": "loss",
    "target not clipped from below": "loss",
}


def hidden_losses(bug: str | None = None) -> Twin:
    """Errors below the threshold, ratios within the clip."""

    class Value(nn.Module):
        def __init__(self):
            super().__init__()
            self.v = nn.Linear(3, 1)

    def torch_loss(net, b):
        value = net.v(b["obs"]).squeeze(-1)
        ratio = torch.exp(value - b["old"]).clamp(0.5, 2.0)
        bounded = torch.maximum(value, b["old"] - 5.0)
        return F.huber_loss(value, b["old"]) + ratio.mean() + bounded.square().mean()

    def jax_loss(p, b):
        value = linear(p["v"], b["obs"]).squeeze(-1)
        error, ratio = value - b["old"], jnp.exp(value - b["old"])
        huber = jnp.where(jnp.abs(error) <= 1, jnp.square(error) / 2, jnp.abs(error) - 0.5)
        huber = jnp.square(error) / 2 if bug == "mse for huber where errors are small" else huber
        ratio = ratio if bug == "ratio not clipped" else jnp.clip(ratio, 0.5, 2.0)
        bounded = value if bug == "target not clipped from below" else jnp.maximum(value, b["old"] - 5.0)
        return huber.mean() + ratio.mean() + jnp.square(bounded).mean()

    module = seeded(Value)
    obs = draw(6, 3)
    with torch.no_grad():
        old = module.v(torch.as_tensor(obs)).squeeze(-1).numpy() + 0.1 * draw(6, seed=1)
    batch = {"obs": obs, "old": old}
    return make_twin("hidden losses", module, batch=batch, loss=(torch_loss, jax_loss), scaled=("obs",))


BESIDE = {"scale of a small output beside one of 1e12": "forward"}


def hidden_beside(bug: str | None = None) -> Twin:
    """Two outputs in one array, of which one is 1e12 times larger."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            h = self.fc(x)
            return torch.stack([1e12 * h[:, 0], h[:, 1]], -1)

    def apply(p, x):
        h = linear(p["fc"], x)
        factor = 1.001 if bug else 1.0
        return jnp.stack([1e12 * h[:, 0], factor * h[:, 1]], -1)

    return make_twin("hidden beside", seeded(Beside), apply, batch=draw(5, 3))


FAMILIES = {hidden_kinks: KINKED, hidden_losses: LOSSES, hidden_beside: BESIDE}


# What no scale can show: told as not covered


def masked(bug: bool) -> Twin:
    """An action that is never allowed: what is behind its -inf does not count."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

    def torch_forward(net, b):
        return torch.where(b["mask"], net.fc(b["obs"]), -torch.inf)

    def jax_forward(p, b):
        logits = linear(p["fc"], b["obs"])
        logits = logits.at[:, 2].mul(2.0) if bug else logits
        return jnp.where(b["mask"], logits, -jnp.inf)

    mask = np.array([[True, True, False], [True, False, False], [False, True, False], [True, True, False]])
    batch = {"obs": draw(4, 3), "mask": mask}
    return make_twin("masked", seeded(Masked), batch=batch, forward=(torch_forward, jax_forward), scaled=("obs",))


def absorbed(bug: bool) -> Twin:
    """A loss beside a constant of 1e12."""

    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)

    def torch_loss(net, b):
        return net.fc(b["obs"]).mean() + b["offset"] + b["weight"] * net.fc.weight.sum()

    def jax_loss(p, b):
        factor = 2.0 if bug else 1.0
        return factor * linear(p["fc"], b["obs"]).mean() + b["offset"] + b["weight"] * p["fc"]["weight"].sum()

    batch = {"obs": draw(4, 3), "offset": np.array(1e12), "weight": np.array(1e12)}
    return make_twin("absorbed", seeded(Alone), batch=batch, loss=(torch_loss, jax_loss))


UNCOVERED = {
    "a bug behind -inf": (masked, "column 2 unmasked"),
    "a bug beside a constant of 1e12": (absorbed, "terms of like size"),
}
