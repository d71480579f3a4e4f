"""Planted bugs in losses: they live at `loss`, or at `grad` when the value is right and its derivative is not."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from parity_halves import draw, linear, make_twin, seeded
from torch import nn

from crossfade.parity import Twin


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 2)
        self.value = nn.Linear(3, 1)
        self.log_std = nn.Parameter(torch.tensor([0.3, -0.4]))


def gaussian() -> Gaussian:
    net = seeded(Gaussian)
    with torch.no_grad():
        net.log_std[0] = 0.25  # exactly at the upper bound of the clamp
    return net


PPO = {
    "advantage normalised with ddof 0": "loss",
    "entropy with the wrong sign": "loss",
    "sum for mean": "loss",
    "value target and advantage exchanged": "loss",
    "ratio of the wrong sign": "loss",
    "returns bootstrapped from the wrong step": "loss",
    "info key renamed": "loss",
    "clamp halves the gradient at its bound": "grad",
    "ratio detached": "grad",
    "value trunk detached": "grad",
}


def ppo(bug: str | None = None) -> Twin:
    def torch_loss(net, b):
        mean, value = net.mean(b["obs"]), net.value(b["obs"]).squeeze(-1)
        policy = torch.distributions.Normal(mean, net.log_std.clamp(-2.0, 0.25).exp())
        ratio = torch.exp(policy.log_prob(b["action"]).sum(-1) - b["log_prob"])
        next_value = torch.cat([b["value"][1:], b["value"][-1:]])
        advantage = b["reward"] + 0.9 * next_value - b["value"]
        normal = (advantage - advantage.mean()) / advantage.std()
        surrogate = torch.minimum(ratio * normal, ratio.clamp(0.8, 1.2) * normal)
        entropy = policy.entropy().sum(-1).mean()
        loss = -surrogate.mean() + 0.5 * (value - advantage - b["value"]).square().mean() - 0.01 * entropy
        return loss, {"entropy": entropy, "ratio": ratio.mean()}

    def jax_loss(p, b):
        obs = b["obs"]
        mean, value = linear(p["mean"], obs), linear(p["value"], obs).squeeze(-1)
        clamp = lambda x, low, high: jnp.where(x > high, high, jnp.where(x < low, low, x))
        if bug == "clamp halves the gradient at its bound":
            clamp = jnp.clip
        if bug == "value trunk detached":
            value = jax.lax.stop_gradient(value)
        log_std = jnp.broadcast_to(clamp(p["log_std"], -2.0, 0.25)[None], mean.shape)
        log_prob = -0.5 * jnp.square((b["action"] - mean) / jnp.exp(log_std)) - log_std - 0.5 * math.log(2 * math.pi)
        log_ratio = log_prob.sum(-1) - b["log_prob"]
        ratio = jnp.exp(-log_ratio if bug == "ratio of the wrong sign" else log_ratio)
        if bug == "ratio detached":
            ratio = jax.lax.stop_gradient(ratio)
        last = b["value"][:1] if bug == "returns bootstrapped from the wrong step" else b["value"][-1:]
        advantage = b["reward"] + 0.9 * jnp.concatenate([b["value"][1:], last]) - b["value"]
        normal = (advantage - advantage.mean()) / advantage.std(ddof=bug != "advantage normalised with ddof 0")
        surrogate = jnp.minimum(ratio * normal, jnp.clip(ratio, 0.8, 1.2) * normal)
        entropy = (log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
        target = normal if bug == "value target and advantage exchanged" else advantage + b["value"]
        reduce = jnp.sum if bug == "sum for mean" else jnp.mean
        bonus = -entropy if bug == "entropy with the wrong sign" else entropy
        loss = -surrogate.mean() + 0.5 * reduce(jnp.square(value - target)) - 0.01 * bonus
        return loss, {"H" if bug == "info key renamed" else "entropy": entropy, "ratio": ratio.mean()}

    batch = {
        "obs": draw(6, 3),
        "action": draw(6, 2, seed=1),
        "log_prob": draw(6, seed=2) - 2,
        "reward": draw(6, seed=3),
        "value": draw(6, seed=4),
    }
    return make_twin("ppo", gaussian(), batch=batch, loss=(torch_loss, jax_loss))


SAC = {
    "tanh log-determinant missing": "loss",
    "log-determinant without its factor 2": "loss",
    "temperature on the wrong term": "loss",
    "sample for rsample": "grad",
    "log-probability detached": "grad",
}


def sac(bug: str | None = None) -> Twin:
    """The actor's loss; the noise is part of the batch."""

    def torch_loss(net, b):
        mean, std = net.mean(b["obs"]), net.log_std.exp()
        u = mean + std * b["noise"]
        log_prob = torch.distributions.Normal(mean, std).log_prob(u) - 2 * (math.log(2) - u - F.softplus(-2 * u))
        q = (torch.tanh(u) * b["critic"]).sum(-1)
        return (0.2 * log_prob.sum(-1) - q).mean()

    def jax_loss(p, b):
        mean = linear(p["mean"], b["obs"])
        log_std = jnp.broadcast_to(p["log_std"][None], mean.shape)
        u = mean + jnp.exp(log_std) * b["noise"]
        if bug == "sample for rsample":
            u = jax.lax.stop_gradient(u)
        log_prob = -0.5 * jnp.square((u - mean) / jnp.exp(log_std)) - log_std - 0.5 * math.log(2 * math.pi)
        factor = {"tanh log-determinant missing": 0, "log-determinant without its factor 2": 1}.get(bug or "", 2)
        log_prob = (log_prob - factor * (math.log(2) - u - jax.nn.softplus(-2 * u))).sum(-1)
        if bug == "log-probability detached":
            log_prob = jax.lax.stop_gradient(log_prob)
        q = (jnp.tanh(u) * b["critic"]).sum(-1)
        return (log_prob - 0.2 * q if bug == "temperature on the wrong term" else 0.2 * log_prob - q).mean()

    batch = {"obs": draw(5, 3), "noise": draw(5, 2, seed=1), "critic": draw(5, 2, seed=2)}
    return make_twin("sac", gaussian(), batch=batch, loss=(torch_loss, jax_loss))


TD = {
    "terminal mask inverted": "loss",
    "truncation not bootstrapped": "loss",
    "l2 loss with its half": "loss",
    "mse for huber": "loss",
    "gather along the wrong axis": "loss",
    "max over the batch": "loss",
    "expectile weights exchanged": "loss",
    "quantile axis exchanged": "loss",
    "discount squared": "loss",
    "missing stop_gradient on the target": "grad",
    "gradient of abs at zero": "grad",
    "gradient of the norm at zero": "grad",
    "gradient of a tied maximum": "grad",
}


def td(bug: str | None = None) -> Twin:
    """Losses of value learning side by side: Q-learning, expectile, quantile Huber, and three kinks at exactly zero."""

    class Values(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(3, 4)
            self.zeros = nn.Parameter(torch.zeros(4))

    def torch_loss(net, b):
        q = net.q(b["obs"])  # (4, 4): a square table, where a wrong axis raises nothing
        chosen = q.gather(1, b["action"][:, None]).squeeze(1)
        with torch.no_grad():
            backup = b["reward"] + 0.9 * (1 - b["terminal"]) * net.q(b["next_obs"]).max(1).values
        error = backup - chosen
        expectile = (torch.where(error > 0, 0.7, 0.3) * error.square()).mean()
        taus = (torch.arange(4) + 0.5) / 4
        pairwise = q.detach()[:, None, :] + b["reward"][:, None, None] - q[:, :, None]  # (B, own, target)
        weight = (taus[None, :, None] - (pairwise.detach() < 0).to(q)).abs()
        quantile = (weight * F.huber_loss(pairwise, torch.zeros_like(pairwise), reduction="none")).mean(2).sum(1).mean()
        kinks = net.zeros.abs().sum() + net.zeros.norm() + net.zeros[None].max(1).values.sum()
        loss = F.huber_loss(chosen, backup) + (chosen - backup).square().mean() + expectile + quantile + kinks
        return loss, {"td": error.abs().mean(), "quantile": quantile}

    def jax_loss(p, b):
        q = linear(p["q"], b["obs"])
        rows = jnp.arange(4)
        chosen = q[b["action"], rows] if bug == "gather along the wrong axis" else q[rows, b["action"]]
        mask = b["terminal"] if bug == "terminal mask inverted" else 1 - b["terminal"]
        if bug == "truncation not bootstrapped":
            mask = mask * (1 - b["truncated"])
        discount = 0.81 if bug == "discount squared" else 0.9
        backup = b["reward"] + discount * mask * linear(p["q"], b["next_obs"]).max(
            0 if bug == "max over the batch" else 1
        )
        if bug != "missing stop_gradient on the target":
            backup = jax.lax.stop_gradient(backup)
        error = backup - chosen
        up, down = (0.3, 0.7) if bug == "expectile weights exchanged" else (0.7, 0.3)
        expectile = (jnp.where(error > 0, up, down) * jnp.square(error)).mean()
        taus = (rows + 0.5) / 4
        pairwise = jax.lax.stop_gradient(q)[:, None, :] + b["reward"][:, None, None] - q[:, :, None]
        taus = taus[None, None, :] if bug == "quantile axis exchanged" else taus[None, :, None]
        weight = jnp.abs(taus - (jax.lax.stop_gradient(pairwise) < 0))
        quantile = (weight * huber(pairwise)).mean(2).sum(1).mean()
        single = jnp.square(error) / 2 if bug == "mse for huber" else huber(error)
        half = 0.5 if bug == "l2 loss with its half" else 1.0
        loss = single.mean() + half * jnp.square(error).mean() + expectile + quantile + kinks(p["zeros"])
        return loss, {"td": jnp.abs(error).mean(), "quantile": quantile}

    def huber(x):
        return jnp.where(jnp.abs(x) <= 1, jnp.square(x) / 2, jnp.abs(x) - 0.5)

    def kinks(z):
        """torch's derivatives: 0 for |z| and for the norm at zero, one winner for a tied maximum."""
        square = jnp.sum(jnp.square(z))
        safe = jnp.where(square == 0, 0.0, jnp.sqrt(jnp.where(square == 0, 1.0, square)))
        norm = jnp.linalg.norm(z) if bug == "gradient of the norm at zero" else safe
        size = jnp.abs(z) if bug == "gradient of abs at zero" else z * jnp.sign(z)
        top = z.max() if bug == "gradient of a tied maximum" else z[jnp.argmax(z)]
        return size.sum() + norm + top

    batch = {
        "obs": draw(4, 3),
        "next_obs": draw(4, 3, seed=1),
        "action": np.array([3, 0, 2, 1]),
        "reward": draw(4, seed=2),
        "terminal": np.array([0.0, 1.0, 0.0, 0.0], np.float32),
        "truncated": np.array([0.0, 0.0, 1.0, 0.0], np.float32),
    }
    module = seeded(Values)
    with torch.no_grad():
        module.zeros.zero_()
    return make_twin("td", module, batch=batch, loss=(torch_loss, jax_loss))


FAMILIES = {ppo: PPO, sac: SAC, td: TD}
