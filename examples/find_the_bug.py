"""A port of a small actor-critic with three bugs in it, found one after another and mended.

The torch half is right. The JAX half differs from it in a layer, in the loss, and in a gradient; the losses are equal
by then, which is the kind of bug that only shows as training that goes worse. Each time the proof stops at the first
level that fails, and the bisect names the operation, both lines and the cause.

    python examples/find_the_bug.py [folder for the reports, default runs/]
"""

# %%
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import crossfade as cf

DISCOUNT = 0.9


# %% In torch
class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 16)
        self.norm = nn.LayerNorm(16)
        self.actor = nn.Linear(16, 3)
        self.critic = nn.Linear(16, 1)

    def forward(self, obs):
        h = torch.tanh(self.norm(self.fc(obs)))
        return self.actor(h), self.critic(h).squeeze(-1)


def torch_loss(net, batch):
    logits, value = net(batch["obs"])
    with torch.no_grad():
        target = batch["reward"] + DISCOUNT * net(batch["next_obs"])[1]
    advantage = (target - value).detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_prob = torch.log_softmax(logits, -1).gather(1, batch["action"][:, None]).squeeze(1)
    actor_loss, critic_loss = -(log_prob * advantage).mean(), (value - target).square().mean()
    return actor_loss + 0.5 * critic_loss, {"actor_loss": actor_loss, "critic_loss": critic_loss}


# %% The port, and what is wrong with it
@dataclass(frozen=True)
class Port:
    eps: float = 1e-6  # Flax's default; torch has 1e-5
    ddof: int = 0  # NumPy's default; torch divides by n - 1
    target_is_constant: bool = False


class JaxActorCritic(eqx.Module):
    fc: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

    def __init__(self, eps, key):
        keys = jax.random.split(key, 3)
        self.fc = eqx.nn.Linear(4, 16, key=keys[0])
        self.norm = eqx.nn.LayerNorm(16, eps=eps)
        self.actor = eqx.nn.Linear(16, 3, key=keys[1])
        self.critic = eqx.nn.Linear(16, 1, key=keys[2])

    def __call__(self, obs):
        h = jnp.tanh(self.norm(self.fc(obs)))
        return self.actor(h), self.critic(h).squeeze(-1)


def jax_loss(port):
    def loss(net, batch):
        logits, value = jax.vmap(net)(batch["obs"])
        target = batch["reward"] + DISCOUNT * jax.vmap(net)(batch["next_obs"])[1]
        if port.target_is_constant:
            target = jax.lax.stop_gradient(target)
        advantage = jax.lax.stop_gradient(target - value)
        advantage = (advantage - advantage.mean()) / (advantage.std(ddof=port.ddof) + 1e-8)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["action"][:, None], 1).squeeze(1)
        actor_loss, critic_loss = -(log_prob * advantage).mean(), jnp.square(value - target).mean()
        return actor_loss + 0.5 * critic_loss, {"actor_loss": actor_loss, "critic_loss": critic_loss}

    return loss


# %% Both halves on the same numbers
def make_twin(port: Port) -> cf.parity.Twin:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    net, model = ActorCritic(), JaxActorCritic(port.eps, jax.random.key(0))
    batch = {
        "obs": rng.standard_normal((8, 4), np.float32),
        "next_obs": rng.standard_normal((8, 4), np.float32),
        "action": rng.integers(0, 3, 8),
        "reward": rng.standard_normal(8, np.float32),
    }
    return cf.parity.Twin(
        "actor_critic",
        torch=net,
        jax=model,
        mapping=cf.bridge.Mapping.by_name(net, model),
        batch=batch,
        example=batch["obs"],
        loss=(torch_loss, jax_loss(port)),
    )


def find_and_mend(port: Port, folder: Path) -> list[cf.parity.Divergence]:
    """Proves, bisects, mends what was named, and again until the halves are the same system."""
    mend = {"eps": {"eps": 1e-5}, "ddof": {"ddof": 1}, "detach": {"target_is_constant": True}}
    found = []
    while True:
        report = cf.parity.check(make_twin(port), levels="grad", bisect=True)
        report.save(folder / "find_the_bug" / f"{len(found)}.html")
        divergence = None if report.first is None else report.first.divergence
        if divergence is None:
            print(f"{len(found)} bugs mended: {report.verdict}")
            return found
        print(divergence.text(), end="\n\n")
        found.append(divergence)
        port = replace(port, **mend[divergence.kind])


# %%
if __name__ == "__main__":
    bugs = find_and_mend(Port(), Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
    sys.exit(0 if len(bugs) == 3 else 1)
