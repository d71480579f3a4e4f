"""A game of a few numbers and replays of it, for the tests of IQN's data path in JAX."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from crossfade.algos.iqn import replay_jax
from crossfade.algos.iqn.batch import Episode
from crossfade.algos.iqn.config import IQNConfig


@dataclass(frozen=True)
class Tiny(IQNConfig):
    players: int = 1

    @property
    def agents(self) -> int:
        return self.players


class Heap(NamedTuple):
    place: Any  # (*batch, agents) int32
    heap: Any  # (*batch,) int32


@dataclass(frozen=True)
class Toy:
    """Agents walk on a ring of 7 cells by their action, and take as much from a heap that grows with every turn.

    A move gives what was taken, and 0.5 more where u < 0.5. Together, only the first in the order takes something.
    """

    agents: int = 1
    turns: int = 4
    observation_dim, n_actions, turn_numbers = 3, 4, 1

    @property
    def start_numbers(self):
        return self.agents

    def begin(self, uniform):
        return Heap(jnp.floor(7 * uniform).astype(jnp.int32), jnp.zeros(uniform.shape[:-1], jnp.int32))

    def start_turn(self, state, uniform):
        return state._replace(heap=state.heap + jnp.floor(4 * uniform[..., 0]).astype(jnp.int32))

    def observe(self, state, agent):
        place = lambda i: jnp.take(state.place, i % self.agents, axis=-1)
        return jnp.stack([place(agent), state.heap, place(agent + 1)], -1).astype(jnp.int8)

    def move(self, state, agent, action, uniform):
        place = (jnp.take(state.place, agent, axis=-1) + action) % 7
        taken = jnp.minimum(state.heap, action)
        after = Heap(state.place.at[..., agent].set(place), state.heap - taken)
        return after, taken.astype(jnp.float32) + jnp.where(uniform < 0.5, jnp.float32(0.5), 0)

    def move_together(self, state, action, order, uniform):
        first = jnp.arange(self.agents)[None] == order[..., :1]
        taken = jnp.where(first, jnp.minimum(state.heap[..., None], action), 0)
        after = Heap((state.place + action) % 7, state.heap - taken.sum(-1, dtype=jnp.int32))
        return after, taken.astype(jnp.float32) + jnp.where(uniform < 0.5, jnp.float32(0.5), 0)


# Replay


SMALL = Tiny(frames=3, n_step=2, memory=16, batch_size=4, gamma=(0.5,))

LARGE = Tiny(frames=5, n_step=3, memory=1024, batch_size=8)

TURNS, REWARDS = 4, np.array([1, 2, 4, 8], np.float32)


def episode(number, turns, worlds=1, agents=1):
    """Every observation is (number of the episode + 1, turn + 1, 1 + world + 10 agent); rewards are 1, 2, 4, 8, ..."""
    shape = turns + 1, worlds, agents
    t, world, agent = np.indices(shape)
    seen = np.stack([np.full(shape, number + 1), t + 1, 1 + world + 10 * agent], -1).astype(np.int8)
    reward = np.float32(2) ** (t[:-1] % 4) + 16 * agent[:-1] + 32 * world[:-1]
    action = (number + t[:-1] + agent[:-1]) % 4
    return Episode(*map(jnp.asarray, (seen[:-1], action.astype(np.int32), reward.astype(np.float32), seen[-1])))


@partial(jax.jit, static_argnums=2)
def remember(replay, played, config):
    replay, history = replay_jax.open_episode(replay, config)
    return replay_jax.store(replay, played, config), history


sample = jax.jit(replay_jax.sample, static_argnums=(2, 3))

drawable = jax.jit(replay_jax.drawable, static_argnums=(1, 2))

drawable_rows = lambda replay, turns, config: np.flatnonzero(drawable(replay, turns, config)).tolist()


def after(epochs, config, turns=TURNS):
    """The replay after some epochs."""
    if not config.legacy:  # what only sampling looks at is left out, so that fewer programs are compiled
        written = tuple(quirk for quirk in config.quirks if quirk in ("gap_bootstrap", "stale_history"))
        config = replace(config, quirks=written, batch_size=4, ends="bootstrap", gamma=(0.5,))
    return written_by(config, epochs, turns)


@cache
def written_by(config, epochs, turns):
    replay = replay_jax.start(config, Toy(config.agents, turns))
    for i in range(epochs):
        replay, _ = remember(replay, episode(i, turns, config.worlds, config.agents), config)
    return replay


def transitions(replay, rows, config, turns=TURNS):
    """What is learned from these rows of the first world by agent 0: their numbers are the smallest."""
    choice = np.full((config.agents, config.worlds * config.memory), 0.5, np.float32)
    choice[0, rows] = np.arange(len(rows)) / 1000
    found, ready = sample(replay, jnp.asarray(choice), turns, config)
    assert ready
    return jax.tree.map(lambda x: np.asarray(x)[0, : len(rows)], found)
