"""Update steps in the shapes of CleanRL, CORL and nanoGPT: a torch loss and optimiser, and the JAX loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import optim
from torch.nn import functional as F

from crossfade.bridge import match
from crossfade.bridge.libraries import open_model
from crossfade.parity import Twin
from gallery.case import Case
from gallery.deep_q import ACTIONS as MOVES, ATOMS, CASES as VALUES
from gallery.policies import CASES as POLICIES
from gallery.recurrent import CASES as RECURRENT
from gallery.transformers import CASES as TRANSFORMERS, WORDS

Batch = dict[str, np.ndarray]
RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape)


def shares(*shape: int) -> np.ndarray:
    """Probabilities along the last axis."""
    raw = RNG.uniform(0.1, 1.0, shape)
    return (raw / raw.sum(-1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Update:
    """`losses` are given what the models return on the batch's inputs, and the batch."""

    case: Case
    library: str
    inputs: tuple[str, ...]
    batch: Batch
    losses: tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
    optimizer: Callable[[Any], optim.Optimizer] = lambda parameters: optim.Adam(parameters, lr=3e-3)
    clip_norm: float | None = None

    def twin(self, name: str, wrong: Callable[[Any, Any], Any] | None = None) -> Twin:
        """The twin of the step; with another JAX loss in place of its own."""
        module, case = self.case.module().eval(), self.case
        options = case.options | case.own.get(self.library, {})
        mapping = match(module, case.jax[self.library](), case.example(), **options)
        call = options.get("jax_apply") or open_model(mapping.jax_model).call
        run = options.get("torch_apply") or (lambda m, x: m(*x) if isinstance(x, tuple) else m(x))
        inputs = lambda batch: tuple(batch[key] for key in self.inputs)
        given = lambda batch: inputs(batch) if len(self.inputs) > 1 else inputs(batch)[0]
        ours, theirs = self.losses[0], wrong or self.losses[1]
        return Twin(
            name,
            torch=module,
            jax=mapping.jax_model,
            mapping=mapping,
            batch=self.batch,
            loss=(lambda m, b: ours(run(m, given(b)), b), lambda m, b: theirs(call(m, given(b)), b)),
            optimizer=self.optimizer,
            clip_norm=self.clip_norm,
        )


# Value-based


def dqn_torch(q, batch):
    return F.mse_loss(q.gather(1, batch["action"][:, None]).squeeze(1), batch["target"])


def dqn_jax(q, batch):
    return jnp.square(q[jnp.arange(len(q)), batch["action"]] - batch["target"]).mean()


def c51_torch(outputs, batch):
    chosen = outputs[0][torch.arange(len(batch["action"])), batch["action"]]
    return -(batch["target"] * chosen.clamp(min=1e-5, max=1 - 1e-5).log()).sum(-1).mean()


def c51_jax(outputs, batch):
    chosen = outputs[0][jnp.arange(len(batch["action"])), batch["action"]]
    return -(batch["target"] * jnp.log(jnp.clip(chosen, 1e-5, 1 - 1e-5))).sum(-1).mean()


def quantile_torch(quantiles, batch):
    chosen = quantiles[torch.arange(len(batch["action"])), batch["action"]]
    apart = batch["target"][:, None, :] - chosen[:, :, None]
    huber = torch.where(apart.abs() <= 1, 0.5 * apart**2, apart.abs() - 0.5)
    tau = (torch.arange(ATOMS, dtype=chosen.dtype) + 0.5) / ATOMS
    weight = (tau[None, :, None] - (apart.detach() < 0).to(chosen.dtype)).abs()
    return (weight * huber).mean(2).sum(1).mean()


def quantile_jax(quantiles, batch):
    chosen = quantiles[jnp.arange(len(batch["action"])), batch["action"]]
    apart = batch["target"][:, None, :] - chosen[:, :, None]
    huber = jnp.where(jnp.abs(apart) <= 1, 0.5 * apart**2, jnp.abs(apart) - 0.5)
    tau = (jnp.arange(ATOMS, dtype=chosen.dtype) + 0.5) / ATOMS
    weight = jnp.abs(tau[None, :, None] - (jax.lax.stop_gradient(apart) < 0))
    return (weight * huber).mean(2).sum(1).mean()


# Policy gradients


def ppo_torch(outputs, batch):
    logits, value = outputs
    policy = torch.distributions.Categorical(logits=logits, validate_args=False)
    ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
    value = value.view(-1)
    clipped = batch["value"] + (value - batch["value"]).clamp(-0.2, 0.2)
    errors = torch.max((value - batch["return"]) ** 2, (clipped - batch["return"]) ** 2)
    return loss - 0.01 * policy.entropy().mean() + 0.5 * 0.5 * errors.mean()


def ppo_jax(outputs, batch, ddof: int = 1):
    logits, value = outputs
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probs, batch["action"].reshape(-1, 1), 1)[:, 0]
    ratio = jnp.exp(chosen - batch["log_prob"])
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std(ddof=ddof) + 1e-8)
    loss = jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 0.8, 1.2)).mean()
    value = value.reshape(-1)
    clipped = batch["value"] + jnp.clip(value - batch["value"], -0.2, 0.2)
    errors = jnp.maximum((value - batch["return"]) ** 2, (clipped - batch["return"]) ** 2)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return loss - 0.01 * entropy + 0.5 * 0.5 * errors.mean()


def ppo_lstm_torch(outputs, batch):
    logits, value, _ = outputs
    return ppo_torch((logits.flatten(0, 1), value), batch)


def ppo_lstm_jax(outputs, batch):
    logits, value, _ = outputs
    return ppo_jax((logits.reshape(-1, logits.shape[-1]), value), batch)


def gaussian_torch(outputs, batch):
    mean, deviation, value = outputs
    policy = torch.distributions.Normal(mean, deviation, validate_args=False)
    ratio = (policy.log_prob(batch["action"]).sum(1) - batch["log_prob"]).exp()
    policy_loss = torch.max(-batch["advantage"] * ratio, -batch["advantage"] * ratio.clamp(0.8, 1.2)).mean()
    return policy_loss + 0.5 * F.mse_loss(value.squeeze(1), batch["return"]) - 0.01 * policy.entropy().sum(1).mean()


def gaussian_jax(outputs, batch):
    mean, deviation, value = outputs
    standard = (batch["action"] - mean) / deviation
    log_prob = (-0.5 * standard**2 - jnp.log(deviation) - 0.5 * jnp.log(2 * jnp.pi)).sum(1)
    ratio = jnp.exp(log_prob - batch["log_prob"])
    policy_loss = jnp.maximum(-batch["advantage"] * ratio, -batch["advantage"] * jnp.clip(ratio, 0.8, 1.2)).mean()
    entropy = (0.5 + 0.5 * jnp.log(2 * jnp.pi) + jnp.log(deviation)).sum(1).mean()
    return policy_loss + 0.5 * jnp.square(value[:, 0] - batch["return"]).mean() - 0.01 * entropy


# Continuous control


def actor_torch(action, batch):
    """DDPG's, with a quadratic in the place of the critic."""
    return ((action - batch["best"]) ** 2).sum(1).mean()


def actor_jax(action, batch):
    return ((action - batch["best"]) ** 2).sum(1).mean()


def twins_torch(outputs, batch):
    online, least = outputs
    target = batch["reward"] + 0.99 * (1 - batch["done"]) * least.detach().view(-1)
    return sum(F.mse_loss(q.view(-1), target) for q in online)


def twins_jax(outputs, batch):
    online, least = outputs
    target = batch["reward"] + 0.99 * (1 - batch["done"]) * jax.lax.stop_gradient(least).reshape(-1)
    return jnp.square(online.reshape(2, -1) - target[None]).mean(1).sum()


def twins_without_stop(outputs, batch):
    online, least = outputs
    target = batch["reward"] + 0.99 * (1 - batch["done"]) * least.reshape(-1)
    return jnp.square(online.reshape(2, -1) - target[None]).mean(1).sum()


def sac_torch(outputs, batch):
    """A squashed sample by given noise; a linear critic."""
    mean, log_std = outputs
    deviation = log_std.exp()
    raw = mean + deviation * batch["noise"]
    action = torch.tanh(raw)
    log_prob = torch.distributions.Normal(mean, deviation, validate_args=False).log_prob(raw)
    log_prob = (log_prob - torch.log(1 - action.pow(2) + 1e-6)).sum(1)
    return (0.2 * log_prob - (action * batch["slope"]).sum(1)).mean()


def sac_jax(outputs, batch, epsilon: float = 1e-6):
    mean, log_std = outputs
    deviation = jnp.exp(log_std)
    raw = mean + deviation * batch["noise"]
    action = jnp.tanh(raw)
    log_prob = -0.5 * ((raw - mean) / deviation) ** 2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    log_prob = (log_prob - jnp.log(1 - action**2 + epsilon)).sum(1)
    return (0.2 * log_prob - (action * batch["slope"]).sum(1)).mean()


# Offline


def iql_torch(outputs, batch):
    mean, deviation, value, q1, q2 = outputs
    advantage = torch.min(q1, q2).detach().squeeze(1) - value
    expectile = (torch.abs(0.7 - (advantage < 0).to(value.dtype)) * advantage**2).mean()
    target = batch["target"]
    critics = F.mse_loss(q1.squeeze(1), target) + F.mse_loss(q2.squeeze(1), target)
    weight = torch.exp(3.0 * advantage.detach()).clamp(max=100.0)
    policy = torch.distributions.Normal(mean, deviation, validate_args=False)
    return expectile + critics - (weight * policy.log_prob(batch["action"]).sum(1)).mean()


def iql_jax(outputs, batch, tau: float = 0.7):
    mean, deviation, value, q1, q2 = outputs
    advantage = jax.lax.stop_gradient(jnp.minimum(q1, q2))[:, 0] - value
    expectile = (jnp.abs(tau - (advantage < 0)) * advantage**2).mean()
    critics = jnp.square(q1[:, 0] - batch["target"]).mean() + jnp.square(q2[:, 0] - batch["target"]).mean()
    weight = jnp.minimum(jnp.exp(3.0 * jax.lax.stop_gradient(advantage)), 100.0)
    standard = (batch["action"] - mean) / deviation[None]
    log_prob = (-0.5 * standard**2 - jnp.log(deviation)[None] - 0.5 * jnp.log(2 * jnp.pi)).sum(1)
    return expectile + critics - (weight * log_prob).mean()


def edac_torch(q, batch):
    return ((q - batch["target"].view(1, -1)) ** 2).mean(1).sum(0)


def edac_jax(q, batch):
    return jnp.square(q - batch["target"][None]).mean(1).sum(0)


def decisions_torch(predicted, batch):
    loss = F.mse_loss(predicted, batch["actions"], reduction="none")
    return (loss * batch["legal"].unsqueeze(-1)).mean()


def decisions_jax(predicted, batch):
    return (jnp.square(predicted - batch["actions"]) * batch["legal"][..., None]).mean()


def words_torch(logits, batch):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), batch["next"].view(-1))


def words_jax(logits, batch):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["next"][..., None], -1)
    return -chosen.mean()


PPO = {
    "x": floats(16, 4),
    "action": whole(2, 16),
    "log_prob": -np.abs(floats(16)),
    "advantage": floats(16),
    "return": floats(16),
    "value": floats(16),
}
adam = lambda **options: lambda parameters: optim.Adam(parameters, **options)

UPDATES = {
    "dqn": Update(
        VALUES["dqn"],
        "linen",
        ("x",),
        {"x": floats(16, 4), "action": whole(MOVES, 16), "target": floats(16)},
        (dqn_torch, dqn_jax),
        adam(lr=2.5e-4),
    ),
    "c51": Update(
        VALUES["c51"],
        "linen",
        ("x",),
        {"x": floats(16, 4), "action": whole(MOVES, 16), "target": shares(16, ATOMS)},
        (c51_torch, c51_jax),
        adam(lr=2.5e-4, eps=0.01 / 32),
    ),
    "quantiles": Update(
        VALUES["quantiles"],
        "linen",
        ("x",),
        {"x": floats(16, 4), "action": whole(MOVES, 16), "target": floats(16, ATOMS)},
        (quantile_torch, quantile_jax),
    ),
    "ppo": Update(
        POLICIES["ppo"], "linen", ("x",), PPO, (ppo_torch, ppo_jax), adam(lr=2.5e-4, eps=1e-5), clip_norm=0.5
    ),
    "ppo continuous": Update(
        POLICIES["ppo continuous"],
        "linen",
        ("x",),
        PPO | {"action": floats(16, 2)},
        (gaussian_torch, gaussian_jax),
        adam(lr=3e-4, eps=1e-5),
        clip_norm=0.5,
    ),
    "ppo lstm": Update(
        RECURRENT["ppo lstm"],
        "equinox two biases",
        ("x", "h", "c"),
        PPO | {"x": floats(4, 4, 3), "h": floats(4, 4), "c": floats(4, 4)},
        (ppo_lstm_torch, ppo_lstm_jax),
        lambda parameters: optim.RMSprop(parameters, lr=1e-3, alpha=0.99, eps=1e-5),
    ),
    "ddpg actor": Update(
        POLICIES["ddpg actor"],
        "linen",
        ("x",),
        {"x": floats(16, 4), "best": floats(16, 2)},
        (actor_torch, actor_jax),
        adam(lr=3e-4),
    ),
    "td3 critics": Update(
        POLICIES["twin critics"],
        "linen",
        ("x", "a"),
        {"x": floats(16, 4), "a": floats(16, 2), "reward": floats(16), "done": whole(2, 16).astype(np.float32)},
        (twins_torch, twins_jax),
        adam(lr=3e-4),
    ),
    "sac actor": Update(
        POLICIES["sac actor"],
        "linen fused",
        ("x",),
        {"x": floats(16, 4), "noise": floats(16, 2), "slope": floats(16, 2)},
        (sac_torch, sac_jax),
    ),
    "iql": Update(
        POLICIES["iql"],
        "linen",
        ("x", "a"),
        {"x": floats(16, 4), "a": floats(16, 2), "action": floats(16, 2), "target": floats(16)},
        (iql_torch, iql_jax),
        adam(lr=3e-4),
    ),
    "edac": Update(
        POLICIES["edac"],
        "equinox",
        ("x", "a"),
        {"x": floats(16, 4), "a": floats(16, 2), "target": floats(16)},
        (edac_torch, edac_jax),
        adam(lr=3e-4),
    ),
    "decision transformer": Update(
        TRANSFORMERS["decision transformer"],
        "linen",
        ("states", "actions", "returns", "steps"),
        {
            "states": floats(3, 5, 4),
            "actions": floats(3, 5, 2),
            "returns": floats(3, 5),
            "steps": whole(9, 3, 5),
            "legal": whole(2, 3, 5).astype(np.float32),
        },
        (decisions_torch, decisions_jax),
        lambda parameters: optim.AdamW(parameters, lr=1e-3, weight_decay=1e-2, betas=(0.9, 0.999)),
        clip_norm=0.25,
    ),
    "nanoGPT": Update(
        TRANSFORMERS["nanoGPT"],
        "linen",
        ("words",),
        {"words": whole(WORDS, 3, 5), "next": whole(WORDS, 3, 5)},
        (words_torch, words_jax),
        lambda parameters: optim.AdamW(parameters, lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95)),
        clip_norm=1.0,
    ),
}

# name -> a JAX loss that looks alike and is another one
WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "ppo": lambda outputs, batch: ppo_jax(outputs, batch, ddof=0),
    "td3 critics": twins_without_stop,
    "sac actor": lambda outputs, batch: sac_jax(outputs, batch, epsilon=1e-4),
    "iql": lambda outputs, batch: iql_jax(outputs, batch, tau=0.8),
}
