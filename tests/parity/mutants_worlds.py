"""Planted bugs in mappings, environments and rollouts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import torch
from mutants_nets import trunk
from parity_halves import Params, functional, seeded
from torch import nn

from crossfade import random
from crossfade.bridge.mapping import Mapping
from crossfade.bridge.rules import Rule, flip
from crossfade.parity import Twin

SIZE, LIMIT = 4, 6
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

MAPPING = {
    "a bias left out of the mapping": "map",
    "two leaves taken for one tensor": "map",
    "equal shapes exchanged in the mapping": "forward",
    "features reversed on the way": "forward",
}


def mapped(bug: str | None = None) -> Twin:
    twin = trunk()
    entries = list(twin.mapping.entries)
    at = {entry.torch[0]: i for i, entry in enumerate(entries)}
    if bug == "a bias left out of the mapping":
        del entries[at["fc1.bias"]]
    elif bug == "two leaves taken for one tensor":
        entries[at["fc2.bias"]] = replace(entries[at["fc2.bias"]], jax=("fc1.bias",))
    elif bug == "equal shapes exchanged in the mapping":
        one, other = entries[at["fc1.weight"]], entries[at["fc2.weight"]]
        entries[at["fc1.weight"]], entries[at["fc2.weight"]] = replace(one, jax=other.jax), replace(other, jax=one.jax)
    elif bug == "features reversed on the way":
        entries[at["norm.weight"]] = replace(entries[at["norm.weight"]], rule=Rule(flip(0)))
    return replace(twin, name="mapped", mapping=replace(twin.mapping, entries=tuple(entries)))


class GridNumpy:
    """Walk to the far corner of a small board before the time is up."""

    def reset(self, key):
        return {"position": random.numpy.randint(key, (2,), 0, SIZE - 1), "time": np.int64(0)}

    def step(self, state, action):
        position = np.clip(state["position"] + MOVES[action], 0, SIZE - 1)
        time = state["time"] + 1
        goal = bool((position == SIZE - 1).all())
        reward = 1.0 if goal else -0.1 * float(np.abs(position - state["position"]).sum())
        return {"position": position, "time": time}, {"reward": reward, "done": goal or bool(time >= LIMIT)}


class GridJax:
    def __init__(self, bug: str | None = None):
        self.bug = bug

    def reset(self, key):
        key = jax.random.split(key)[0] if self.bug == "reset from a split of the key" else key
        time = jnp.asarray(self.bug == "time counted from one", int)
        return {"position": jax.random.randint(key, (2,), 0, SIZE - 1, jnp.int32), "time": time}

    def step(self, state, action):
        border = SIZE if self.bug == "border one cell too far" else SIZE - 1
        moved = state["position"] + jnp.asarray(MOVES, jnp.int32)[action]
        position = moved % SIZE if self.bug == "board without borders" else jnp.clip(moved, 0, border)
        time = state["time"] + 1
        goal = (position == SIZE - 1).all()
        cost = 0.1 * jnp.abs(position - state["position"]).sum()
        reward = jnp.where(goal, 1.0, cost if self.bug == "cost with the wrong sign" else -cost)
        late = state["time"] if self.bug == "done one step late" else time
        ends = goal & (late >= LIMIT) if self.bug == "goal does not end the episode" else goal | (late >= LIMIT)
        return {"position": position, "time": time}, {"reward": reward, "done": ends}


GRID = dict.fromkeys(
    (
        "reset from a split of the key",
        "time counted from one",
        "border one cell too far",
        "board without borders",
        "cost with the wrong sign",
        "done one step late",
        "goal does not end the episode",
    ),
    "env",
)


def grid(bug: str | None = None) -> Twin:
    return Twin("grid", env=(GridNumpy(), GridJax(bug)), actions=np.random.default_rng(0).integers(0, 4, 40))


WALK = dict.fromkeys(
    (
        "key used again at every step",
        "halves of the split exchanged",
        "greedy action for a sampled one",
        "log-probability of the greedy action",
        "observation after the reset for the last one",
    ),
    "rollout",
)


def walk(bug: str | None = None) -> Twin:
    """A random policy on the board, driven by one key on both sides."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 4)

    def torch_rollout(net, key):
        env, steps = GridNumpy(), []
        key, start = random.split(key)
        state = env.reset(start.numpy().astype(np.uint32))
        for _ in range(12):
            key, draw, start = random.split(key, 3)
            logits = torch.log_softmax(net.fc(torch.as_tensor(state["position"]).to(net.fc.weight)), -1)
            action = random.categorical(draw, logits)
            state, outputs = env.step(state, int(action))
            steps.append({"action": action, "log_prob": logits[action], "position": state["position"], **outputs})
            if outputs["done"]:
                state = env.reset(start.numpy().astype(np.uint32))
        return {name: np.stack([np.asarray(torch.as_tensor(s[name]).detach()) for s in steps]) for name in steps[0]}

    def jax_rollout(model, key):
        env, p = GridJax(), model[1]["fc"]

        def step(carry, _):
            key, state = carry
            key, draw, start = jax.random.split(key, 3)
            if bug == "halves of the split exchanged":
                key, draw = draw, key
            logits = jax.nn.log_softmax(p["weight"] @ state["position"].astype(p["weight"].dtype) + p["bias"])
            sampled = jax.random.categorical(draw, logits)
            action = logits.argmax() if bug == "greedy action for a sampled one" else sampled
            log_prob = logits.max() if bug == "log-probability of the greedy action" else logits[action]
            after, outputs = env.step(state, action)
            fresh = env.reset(start)
            state = jax.tree.map(lambda a, b: jnp.where(outputs["done"], a, b), fresh, after)
            seen = state if bug == "observation after the reset for the last one" else after
            row = {"action": action, "log_prob": log_prob, "position": seen["position"], **outputs}
            return (carry[0] if bug == "key used again at every step" else key, state), row

        key, start = jax.random.split(key)
        return jax.lax.scan(step, (key, env.reset(start)), length=12)[1]

    module = seeded(Policy)
    model: tuple[object, Params] = functional(module, lambda params, x: x)
    mapping = Mapping.by_name(module, model)
    return Twin("walk", torch=module, jax=model, mapping=mapping, rollout=(torch_rollout, jax_rollout))


FAMILIES = {mapped: MAPPING, grid: GRID, walk: WALK}
