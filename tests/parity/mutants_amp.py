"""Planted bugs in the JAX half of adversarial motion priors, and in what a robot's PPO needs of squashed actions.

The torch half, and all of the JAX half that a bug does not name, is what is shipped.
"""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from mutants_iqn import patched
from parity_halves import make_twin
from torch import nn

from crossfade.algos.amp import features_jax, features_numpy, losses_jax, losses_torch, replay_jax, replay_numpy
from crossfade.algos.amp.batch import Replay, Transitions
from crossfade.algos.amp.config import AMPConfig
from crossfade.algos.amp.discriminator_jax import Discriminator as JaxDiscriminator
from crossfade.algos.amp.discriminator_torch import Discriminator as TorchDiscriminator
from crossfade.algos.amp.skeleton import Skeleton
from crossfade.algos.ppo import gae_jax, gae_torch
from crossfade.bridge import Mapping
from crossfade.nn import gaussian_jax, gaussian_torch
from crossfade.parity import Twin

INPUTS, ROWS, MEMORY = 6, 16, 32
CONFIG = AMPConfig(hidden=(8, 8), updates=2, batch=ROWS, memory=MEMORY)


@cache
def models() -> tuple[TorchDiscriminator, JaxDiscriminator, Any]:
    """A discriminator in both frameworks."""
    torch.manual_seed(0)
    ours = TorchDiscriminator(INPUTS, CONFIG.hidden)
    theirs = JaxDiscriminator(INPUTS, CONFIG.hidden)
    return ours, theirs, Mapping.by_name(ours, theirs)


def batch(i: int) -> Transitions:
    rng = np.random.default_rng(i)
    return Transitions(rng.normal(size=(ROWS, INPUTS)), rng.normal(1.0, 2.0, size=(ROWS, INPUTS)))


# Loss

LOSS = {
    "penalty without the square": "loss",
    "penalty on the policy's transitions": "loss",
    "penalty of the mean score": "loss",
    "penalty by its whole weight": "loss",
    "targets 1 and 0 under the loss of 1 and -1": "loss",
    "reference and policy exchanged": "loss",
    "penalty held fixed": "grad",
    "slope through the first layer alone": "grad",
}


def amp_loss(bug: str | None = None) -> Twin:
    ours, theirs, mapping = models()
    right = losses_jax.gradient_penalty

    def held(discriminator, x):
        return right(jax.lax.stop_gradient(discriminator), x)

    def first_layer(discriminator, x):
        fixed = (discriminator.layers[0], *jax.lax.stop_gradient(discriminator.layers[1:]))
        return right(eqx.tree_at(lambda d: d.layers, discriminator, fixed), x)

    def root(discriminator, x):
        slope = jax.grad(lambda x: discriminator(x).sum())(x)
        return jnp.sqrt(jnp.square(slope).sum(-1)).mean()

    penalties = {
        "penalty without the square": root,
        "penalty of the mean score": lambda d, x: right(d, x) / len(x) ** 2,
        "penalty by its whole weight": lambda d, x: 2 * right(d, x),
        "penalty held fixed": held,
        "slope through the first layer alone": first_layer,
    }

    def loss(discriminator, given):
        if bug == "penalty on the policy's transitions":
            swapped = lambda d, x: right(d, given.policy)
            return patched(losses_jax.loss, (losses_jax, "gradient_penalty", swapped))(discriminator, given, CONFIG)
        if bug == "targets 1 and 0 under the loss of 1 and -1":
            other = lambda reference, policy, _: jnp.square(reference - 1).mean() + jnp.square(policy).mean()
            return patched(losses_jax.loss, (losses_jax, "adversarial_loss", other))(discriminator, given, CONFIG)
        if bug == "reference and policy exchanged":
            return losses_jax.loss(discriminator, Transitions(given.policy, given.reference), CONFIG)
        if bug in penalties:
            wrong = (losses_jax, "gradient_penalty", penalties[bug])
            return patched(losses_jax.loss, wrong)(discriminator, given, CONFIG)
        return losses_jax.loss(discriminator, given, CONFIG)

    return Twin(
        "amp_loss",
        torch=ours,
        jax=theirs,
        mapping=mapping,
        batches=batch,
        loss=(lambda d, b: losses_torch.loss(d, b, CONFIG), loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    )


# Reward

REWARD = dict.fromkeys(("D16 reward of other targets", "reward below 0", "reward of the score itself"), "forward")


FAR = 10.0
"""So far out that some scores are beyond the reach of any reward."""


def amp_reward(bug: str | None = None) -> Twin:
    ours, theirs, mapping = models()

    def earned(discriminator, given):
        score = discriminator(FAR * given.policy)
        if bug == "D16 reward of other targets":
            return losses_jax.style_reward(score, "lsgan_01")
        if bug == "reward below 0":
            return 1 - 0.25 * jnp.square(score - 1)
        if bug == "reward of the score itself":
            return score
        return losses_jax.style_reward(score, CONFIG.convention)

    forward = lambda d, given: losses_torch.style_reward(d(FAR * given.policy), CONFIG.convention)
    return Twin("amp_reward", torch=ours, jax=theirs, mapping=mapping, batches=batch, forward=(forward, earned))


# Motion

MOTION = dict.fromkeys(
    (
        "D12 joints of t with the root of t + 1",
        "D12 state after the reset",
        "D17 root velocity of unit length",
        "quaternion in the order x, y, z, w",
        "turning in the frame of the body",
        "velocities in the frame of the world",
        "normalised by the policy's own statistics",
        "feature of another joint",
    ),
    "rollout",
)
FLOATING = Skeleton(("hip", "knee"), ("toe",))
FRAMES = 12


def motion(words: np.ndarray, dtype: str) -> tuple[np.ndarray, ...]:
    """Positions, velocities and heights of feet from the words of a key: a state more than there are steps."""
    rng = np.random.default_rng(words)
    qpos, qvel = rng.normal(size=(FRAMES + 1, FLOATING.nq)), rng.normal(size=(FRAMES + 1, FLOATING.nv))
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=-1, keepdims=True)
    return tuple(array.astype(dtype) for array in (qpos, qvel, rng.uniform(-0.01, 0.03, (FRAMES + 1, 1))))


def amp_motion(bug: str | None = None) -> Twin:
    """Features and transitions of one motion, in which every fourth step ends an episode."""
    statistics = np.zeros(len(FLOATING.features)), np.full(len(FLOATING.features), 1.5)
    ended = np.arange(FRAMES) % 4 == 3

    def host(_, key):
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        phi = features_numpy.features(*motion(key.numpy().astype(np.uint32), dtype), FLOATING)
        mean, deviation = (array.astype(dtype) for array in statistics)
        return {"transitions": features_numpy.transitions(phi[:-1], phi[1:], mean, deviation)}

    def compiled(_, key):
        dtype = "float64" if jax.config.jax_enable_x64 else "float32"  # pyright: ignore[reportAttributeAccessIssue]
        qpos, qvel, feet = map(jnp.asarray, motion(np.asarray(jax.random.key_data(key)), dtype))
        if bug == "D17 root velocity of unit length":
            length = jnp.linalg.norm(qvel[:, :3], axis=-1, keepdims=True)
            qvel = qvel.at[:, :3].set(qvel[:, :3] / jnp.broadcast_to(length, (len(qvel), 3)))
        if bug == "quaternion in the order x, y, z, w":
            qpos = qpos.at[:, 3:7].set(jnp.roll(qpos[:, 3:7], -1, axis=-1))
        if bug == "feature of another joint":
            qpos = qpos.at[:, 7:].set(jnp.roll(qpos[:, 7:], 1, axis=-1))
        patches = {
            "turning in the frame of the body": ("rotated", lambda quaternion, v: v),
            "velocities in the frame of the world": ("yaw", lambda quaternion: jnp.zeros_like(quaternion[..., 0])),
        }
        wrong = [(features_jax, *patches[bug])] if bug in patches else []
        phi = patched(features_jax.features, *wrong)(qpos, qvel, feet, FLOATING)
        before, after = phi[:-1], phi[1:]
        if bug == "D12 joints of t with the root of t + 1":
            after = after.at[:, :4].set(before[:, :4])
        if bug == "D12 state after the reset":
            wide = jnp.broadcast_to(jnp.asarray(ended)[:, None], after.shape)
            after = jnp.where(wide, jnp.broadcast_to(phi[:1], after.shape), after)
        mean, deviation = (jnp.asarray(array, dtype) for array in statistics)
        if bug == "normalised by the policy's own statistics":
            mean, deviation = phi.mean(0), phi.std(0)
        return {"transitions": features_jax.transitions(before, after, mean, deviation)}

    return Twin("amp_motion", rollout=(host, compiled))


# Memory

REPLAY = dict.fromkeys(
    (
        "D11 memory never read",
        "D11 memory never written",
        "rows drawn that hold nothing",
        "index not moved",
        "one batch for all gradient steps",
    ),
    "rollout",
)


def amp_replay(bug: str | None = None) -> Twin:
    """Some rollouts into a memory that they go round in, and the batches after each."""
    rng = np.random.default_rng(5)
    rollouts, reference = rng.normal(size=(5, 12, INPUTS)), rng.normal(size=(9, INPUTS))

    def run(start, store, batches, dtype):
        memory, found = start, []
        for i, rows in enumerate(rollouts.astype(dtype)):
            memory = store(memory, rows)
            found.append(batches(memory, rows, i))
        return {"memory": memory, "batches": found}

    def host(_, key):
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        words = key.numpy().astype(np.uint32)
        draw = lambda i: replay_numpy.draw(words + np.uint32(i), CONFIG)
        take = lambda memory, rows, i: replay_numpy.batches(reference.astype(dtype), memory, draw(i))
        return run(replay_numpy.start(MEMORY, INPUTS, dtype), replay_numpy.store, take, dtype)

    def compiled(_, key):
        dtype = "float64" if jax.config.jax_enable_x64 else "float32"  # pyright: ignore[reportAttributeAccessIssue]
        words, right = jax.random.key_data(key), replay_jax.store

        def store(memory, rows):
            after = right(memory, jnp.asarray(rows))
            if bug == "D11 memory never written":
                return memory._replace(index=after.index, size=after.size)
            return after._replace(index=memory.index) if bug == "index not moved" else after

        def take(memory, rows, i):
            noise = replay_jax.draw(jax.random.wrap_key_data(words + jnp.uint32(i)), CONFIG)
            if bug == "one batch for all gradient steps":
                noise = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), noise)
            if bug == "D11 memory never read":
                memory = Replay(jnp.asarray(rows), jnp.int32(0), jnp.int32(len(rows)))
            if bug == "rows drawn that hold nothing":
                memory = memory._replace(size=jnp.int32(MEMORY))
            return replay_jax.batches(jnp.asarray(reference, dtype), memory, noise)

        return run(replay_jax.start(MEMORY, INPUTS, dtype), store, take, dtype)

    return Twin("amp_replay", rollout=(host, compiled))


# What PPO makes of a robot's actions and of limits of time

ACTIONS = {
    "log-prob without the tanh term": "loss",
    "log-prob of the squashed action": "loss",
    "action clipped and squashed": "forward",
    "GAE: limit taken for an end": "loss",
    "GAE: limit masked": "loss",
    "GAE: trace goes on across a limit": "loss",
    "GAE: value of the state after the reset": "loss",
}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.outputs, self.value = nn.Linear(4, 4), nn.Linear(4, 1)


def robot_ppo(bug: str | None = None) -> Twin:
    """Squashed actions of a rollout of 12 steps of 3 environments, with falls and limits, scored and weighed."""
    torch.manual_seed(1)
    module = Policy()
    rng = np.random.default_rng(7)
    terminated = rng.random((12, 3)) < 0.1
    given = {
        "observation": rng.normal(size=(12, 3, 4)),
        "next": rng.normal(size=(12, 3, 4)),
        "u": rng.normal(size=(12, 3, 2)),
        "reward": rng.normal(size=(12, 3)),
        "terminated": terminated,
        "truncated": (rng.random((12, 3)) < 0.2) & ~terminated,
    }
    mode = {"GAE: limit taken for an end": "terminal", "GAE: limit masked": "mask"}.get(bug or "", "bootstrap")

    def torch_forward(net, b):
        return gaussian_torch.Gaussian(2, True, "state").executed(net.outputs(b["observation"])[..., :2])

    def torch_loss(net, b):
        actions = gaussian_torch.Gaussian(2, True, "state")
        value, later = net.value(b["observation"]).squeeze(-1), net.value(b["next"]).squeeze(-1)
        flags = b["terminated"].bool(), b["truncated"].bool()
        advantage = gae_torch.gae(b["reward"], value, later, *flags, 0.9, 0.8).detach()
        return -(actions.log_prob(net.outputs(b["observation"]), b["u"]) * advantage).mean()

    def linear(p, x):
        y = x @ p["weight"].T
        return y + jnp.broadcast_to(p["bias"], y.shape)

    def jax_forward(p, b):
        u = linear(p["outputs"], b["observation"])[..., :2]
        u = jnp.clip(u, -1, 1) if bug == "action clipped and squashed" else u
        return gaussian_jax.Gaussian(2, True, "state").executed(u)

    def jax_loss(p, b):
        actions = gaussian_jax.Gaussian(2, bug != "log-prob without the tanh term", "state")
        value, later = (linear(p["value"], b[name])[..., 0] for name in ("observation", "next"))
        terminated, truncated = (b[name].astype(bool) for name in ("terminated", "truncated"))
        if bug == "GAE: value of the state after the reset":
            later = jnp.where(truncated, jnp.roll(value, -1, 0), later)
        advantage = gae_jax.gae(b["reward"], value, later, terminated, truncated, 0.9, 0.8, mode)
        if bug == "GAE: trace goes on across a limit":
            error = b["reward"] + 0.9 * jnp.where(terminated, 0, later) - value
            never = jnp.zeros_like(truncated)
            advantage = gae_jax.gae(error, 0 * value, 0 * value, terminated, never, 0.9, 0.8)
        u = jnp.tanh(b["u"]) if bug == "log-prob of the squashed action" else b["u"]
        score = actions.log_prob(linear(p["outputs"], b["observation"]), u)
        return -(score * jax.lax.stop_gradient(advantage)).mean()

    return make_twin(
        "robot_ppo", module, batch=given, forward=(torch_forward, jax_forward), loss=(torch_loss, jax_loss)
    )


FAMILIES = {
    amp_loss: LOSS,
    amp_reward: REWARD,
    amp_motion: MOTION,
    amp_replay: REPLAY,
    robot_ppo: ACTIONS,
}
