"""An agent written in JAX acts and learns in torch, with no line of it rewritten, and goes back.

The agent is an ordinary actor-critic in Equinox: its advantages come from a `lax.scan`, its actions from `jax.random`.
It learns in JAX for a while. Then `bridge.import_jax` makes torch functions of its two JAX functions, and a torch
optimiser goes on from there, in a torch loop. In the end the agent is an Equinox module again.

    python examples/jax_agent_in_torch.py [updates in each framework, default 150]
"""

# %%
import sys
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import crossfade as cf

UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 150
CARTS, STEPS, LR = 16, 32, 3e-3
torch.set_num_threads(1)  # the nets are small


# %% The world: carts on a line, pushed left, right or not at all; the nearer to 0, the better
class Carts:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.state = self._fresh(CARTS)  # position, speed

    def _fresh(self, count: int) -> np.ndarray:
        return self.rng.uniform(-2, 2, (count, 2)).astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The reward of each cart, and whether its episode goes on: one in fifty ends."""
        self.state[:, 1] = np.clip(self.state[:, 1] + 0.3 * (action - 1), -1, 1)
        self.state[:, 0] = np.clip(self.state[:, 0] + 0.3 * self.state[:, 1], -3, 3)
        reward = -np.abs(self.state[:, 0])
        ends = self.rng.random(CARTS) < 0.02
        self.state[ends] = self._fresh(int(ends.sum()))
        return reward, (~ends).astype(np.float32)


# %% The agent, as its author wrote it
class Agent(eqx.Module):
    policy: eqx.nn.MLP
    value: eqx.nn.MLP

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.policy = eqx.nn.MLP(2, 3, 32, 2, jax.nn.tanh, key=first)
        self.value = eqx.nn.MLP(2, "scalar", 32, 2, jax.nn.tanh, key=second)


class Rollout(NamedTuple):
    observation: object  # (steps + 1, carts, 2)
    action: object  # (steps, carts)
    reward: object
    goes_on: object


def act(agent, observation, key):
    return jax.random.categorical(key, jax.vmap(agent.policy)(observation))


def loss(agent, rollout, gamma=0.95, lam=0.9):
    values = jax.vmap(jax.vmap(agent.value))(rollout.observation)

    def step(after, now):
        value, next_value, reward, goes_on = now
        after = reward + gamma * goes_on * next_value - value + gamma * lam * goes_on * after
        return after, after

    given = (values[:-1], values[1:], rollout.reward, rollout.goes_on)
    advantage = jax.lax.stop_gradient(jax.lax.scan(step, jnp.zeros_like(values[0]), given, reverse=True)[1])
    log_probs = jax.nn.log_softmax(jax.vmap(jax.vmap(agent.policy))(rollout.observation[:-1]))
    chosen = jnp.take_along_axis(log_probs, rollout.action[..., None], -1)[..., 0]
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    target = jax.lax.stop_gradient(values[:-1]) + advantage
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    total = -(chosen * scaled).mean() + 0.5 * jnp.mean((values[:-1] - target) ** 2) - 0.01 * entropy
    return total, {"reward": rollout.reward.mean(), "entropy": entropy}


def played(carts: Carts, choose) -> Rollout:
    """Some steps of all carts; `choose(observation)` gives their actions."""
    rows = []
    for _ in range(STEPS):
        observation = carts.state.copy()
        action = np.asarray(choose(observation))
        rows.append((observation, action, *carts.step(action)))
    observation, action, reward, goes_on = (np.stack(column) for column in zip(*rows, strict=True))
    return Rollout(np.concatenate([observation, carts.state[None]]), action, reward, goes_on)


# %% In JAX
agent, key = Agent(jax.random.key(0)), jax.random.key(1)
tx = optax.adam(LR)
opt_state = tx.init(eqx.filter(agent, eqx.is_inexact_array))


@eqx.filter_jit
def jax_update(agent, opt_state, rollout):
    grads, info = eqx.filter_grad(loss, has_aux=True)(agent, rollout)
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(agent, updates), opt_state, info


jax_act = eqx.filter_jit(act)
in_jax = lambda seen: jax_act(agent, seen, next(keys))
carts, rewards = Carts(0), []
for i in range(UPDATES):
    keys = iter(jax.random.split(jax.random.fold_in(key, i), STEPS))
    rollout = played(carts, in_jax)
    agent, opt_state, info = jax_update(agent, opt_state, rollout)
    rewards.append(float(info["reward"]))
print(f"mean reward in JAX:   {np.mean(rewards[:10]):.3f} at first, {np.mean(rewards[-10:]):.3f} at last")

# %% In torch: the same two functions, with a torch optimiser
torch_loss = cf.bridge.import_jax(loss, agent, rollout)
torch_act = cf.bridge.import_jax(act, agent, carts.state, key)
module = torch_loss.module(0)
optimizer = torch.optim.Adam(module.parameters(), lr=LR / 3)
in_torch = lambda seen: torch_act(module.argument(), seen, next(keys))
print(f"torch parameters:     {', '.join(list(dict(module.named_parameters()))[:4])}, ...")

rewards = []
for i in range(UPDATES):
    keys = iter(cf.random.split(cf.random.fold_in(cf.random.key(2), i), STEPS))
    with torch.no_grad():
        rollout = played(carts, in_torch)
    value, info = module(rollout)
    optimizer.zero_grad()
    value.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
    optimizer.step()
    rewards.append(float(info["reward"]))
print(f"mean reward in torch: {np.mean(rewards[:10]):.3f} at first, {np.mean(rewards[-10:]):.3f} at last")

# %% And back: the same actions for the same keys, and the same gradient
agent = module.to_jax()
keys = [jax.random.fold_in(key, i) for i in range(50)]
seen = [Carts(i).state for i in range(50)]
with torch.no_grad():
    ours = [torch_act(module.argument(), x, cf.bridge.to_torch(k)) for x, k in zip(seen, keys, strict=True)]
theirs = [jax_act(agent, x, k) for x, k in zip(seen, keys, strict=True)]
equal = np.mean([np.asarray(a) == np.asarray(b) for a, b in zip(ours, theirs, strict=True)])
optimizer.zero_grad()
module(rollout)[0].backward()
grads, _ = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(agent, rollout)
pairs = zip(module.parameters(), cf.bridge.to_torch(jax.tree.leaves(grads)), strict=True)
largest = max((p.grad - expected).abs().max().item() for p, expected in pairs)
print(f"back in JAX:          {equal:.1%} of the actions are equal; gradients differ by {largest:.1e}")
print(f"traces:               {torch_loss.traces} of the loss, {torch_act.traces} of act")
