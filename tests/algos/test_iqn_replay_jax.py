"""The data path of IQN in JAX: replay by hand and against a list of all rows, its faults one by one, noise, attitudes
to risk, and episodes against a plain loop."""

import math
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.algos.iqn import noise_jax, replay_jax, risk_jax, rollout_jax
from crossfade.algos.iqn.batch import Episode, Noise
from crossfade.algos.iqn.config import IQNConfig
from crossfade.envs.game import MOVES
from crossfade.random import random_numpy


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
draw = jax.jit(noise_jax.draw, static_argnums=(1, 2, 3))


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


def test_an_empty_replay_holds_zeros_and_no_turn():
    replay = replay_jax.start(replace(SMALL, worlds=2, players=3), Toy(3))
    assert replay.observation.shape == (2, 3, 16, 3) and replay.observation.dtype == jnp.int8
    assert replay.action.shape == replay.reward.shape == (2, 3, 16)
    assert (replay.action.dtype, replay.reward.dtype) == (jnp.int32, jnp.float32)
    assert (replay.turn == -1).all() and not any(map(jnp.any, (*replay[:3], *replay[4:])))
    assert drawable_rows(replay, TURNS, SMALL) == []


def test_the_first_episode_has_a_gap_its_turns_and_the_observation_after_them():
    replay = after(1, SMALL)
    assert (replay.index, replay.size, replay.filled) == (7, 4, 7)
    assert replay.turn.tolist() == [-1, -1, 0, 1, 2, 3, 4] + [-1] * 9
    assert replay.observation[0, 0, :8, 1].tolist() == [0, 0, 1, 2, 3, 4, 5, 0]
    assert replay.reward[0, 0, :8].tolist() == [0, 0, 1, 2, 4, 8, 0, 0]
    assert replay.action[0, 0, :8].tolist() == [0, 0, 0, 1, 2, 3, 0, 0]
    assert replay_jax.steps_ahead(replay, TURNS, SMALL)[2:6].tolist() == [2, 2, 2, 1]
    assert drawable_rows(replay, TURNS, SMALL) == [2, 3, 4, 5]


@pytest.mark.parametrize("ends", ["bootstrap", "terminal"])
def test_windows_of_an_episode_by_hand(ends):
    found = transitions(after(1, SMALL), [2, 3, 4, 5], replace(SMALL, ends=ends))
    frames = lambda stacked: stacked.reshape(4, 3, 3)[..., 1].tolist()
    assert frames(found.state) == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert found.state[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]  # zeros before the first turn, oldest first
    assert frames(found.next_state) == [[1, 2, 3], [2, 3, 4], [3, 4, 5], [3, 4, 5]]
    assert found.action.tolist() == [0, 1, 2, 3]
    assert found.reward.tolist() == [2, 4, 8, 8]  # 1 + 2 / 2, 2 + 4 / 2, 4 + 8 / 2, 8
    assert found.discount.tolist() == ([0.25, 0.25, 0.25, 0.5] if ends == "bootstrap" else [0.25, 0.25, 0, 0])
    assert found.valid.tolist() == [1, 1, 1, 1]
    assert found.fractions is found.noise is None
    assert {x.dtype for x in found[2:6]} | {found.state.dtype} == {np.dtype("float32")}


def test_episodes_partly_overwritten_give_no_windows_with_missing_rows():
    assert drawable_rows(after(2, SMALL), TURNS, SMALL) == [2, 3, 4, 5, 9, 10, 11, 12]
    # The third episode wraps: rows 14, 15, 0 .. 4. Of the first, rows 5 and 6 are left.
    replay = after(3, SMALL)
    assert (replay.index, replay.size, replay.filled) == (5, 12, 16)
    assert replay.turn.tolist() == [0, 1, 2, 3, 4, 3, 4, -1, -1, 0, 1, 2, 3, 4, -1, -1]
    assert drawable_rows(replay, TURNS, SMALL) == [0, 1, 2, 3, 9, 10, 11, 12]
    newest = transitions(replay, [0, 3], SMALL)
    assert newest.state.reshape(2, 3, 3)[..., :2].tolist() == [[[0, 0], [0, 0], [3, 1]], [[3, 2], [3, 3], [3, 4]]]
    # With 20 rows, row 0 of the gap before the first episode is overwritten: row 2 lacks its oldest frame, row 3 not.
    longer = replace(SMALL, memory=20)
    assert drawable_rows(after(3, longer), TURNS, longer) == [3, 4, 5, 9, 10, 11, 12, 16, 17, 18, 19]


def listed(epochs, config, turns):
    """Transitions that can be drawn, agent 0's of every world, from the list of all rows that were ever written.

    Rows are named by their place in that list, not modulo the memory: another way to say the rules of replay.py.
    """
    worlds, before = config.worlds, config.frames - 1
    blank = ([[0, 0, 0]] * worlds, [0] * worlds, [0] * worlds, -1)
    rows = []
    for i in range(epochs):
        played = jax.tree.map(lambda x: np.asarray(x).tolist(), episode(i, turns, worlds, config.agents))
        of_agent = lambda column: [own[0] for own in column]
        rows += [blank] * before
        columns = zip(played.observation, played.action, played.reward, strict=True)
        rows += [(*map(of_agent, row), t) for t, row in enumerate(columns)]
        rows += [(of_agent(played.last), [0] * worlds, [0] * worlds, turns)]
    oldest = max(0, len(rows) - config.memory)
    found = {}
    for world in range(worlds):
        for j in range(oldest + before, len(rows)):
            t = rows[j][3]
            if not 0 <= t < turns:
                continue
            m = min(config.n_step, turns - t)
            window = lambda last: sum((rows[k][0][world] for k in range(last - before, last + 1)), [])  # noqa: B023
            gain = np.zeros((), config.dtype)
            for k in range(m):
                gain += np.array(config.gamma[0] ** k, config.dtype) * np.array(rows[j + k][2][world], config.dtype)
            discount = 0 if config.ends == "terminal" and t + m == turns else config.gamma[0] ** m
            found[tuple(window(j))] = (
                rows[j][1][world],
                gain.item(),
                window(j + m),
                np.array(discount, config.dtype).item(),
            )
    return found


@pytest.mark.parametrize("ends", ["bootstrap", "terminal"])
def test_all_windows_agree_with_a_list_of_all_rows(ends):
    turns = 5
    config = Tiny(frames=3, n_step=3, memory=29, worlds=2, players=2, gamma=(0.97, 0.5), ends=ends)
    replay = replay_jax.start(config, Toy(2, turns))
    everything = replace(config, batch_size=2 * 29)
    choice = jnp.asarray(np.random.default_rng(0).random((2, 2 * 29)), jnp.float32)
    for i in range(8):
        replay, history = remember(replay, episode(i, turns, 2, 2), config)
        assert history.shape == (2, 2, 2, 3) and not history.any()
        expected = listed(i + 1, config, turns)
        found = jax.tree.map(np.asarray, sample(replay, choice, turns, everything)[0])
        n = 2 * len(drawable_rows(replay, turns, config))
        got = {
            tuple(found.state[0, b].astype(int).tolist()): (
                found.action[0, b].item(),
                found.reward[0, b].item(),
                found.next_state[0, b].astype(int).tolist(),
                found.discount[0, b].item(),
            )
            for b in range(n)
        }
        assert len(got) == n == len(expected)
        assert got == expected
        assert (found.valid[:, :n] == 1).all()


def test_agents_learn_from_their_own_rows_with_their_own_discount():
    config = replace(SMALL, worlds=2, players=2, gamma=(0.5, 0.25), batch_size=2)
    choice = np.full((2, 32), 0.5, np.float32)
    choice[0, [2, 16 + 3]] = 0, 0.25  # agent 0: first turn of world 0, second of world 1
    choice[1, [16 + 5, 4]] = 0, 0.25  # agent 1: last turn of world 1, third of world 0
    found, _ = sample(after(1, config), jnp.asarray(choice), TURNS, config)
    assert found.state[..., -2:].tolist() == [[[1, 1], [2, 2]], [[4, 12], [3, 11]]]
    assert found.reward.tolist() == [[2, 34 + 18], [8 + 48, 20 + 24 / 4]]
    assert found.discount.tolist() == [[0.25, 0.25], [0.25, 0.0625]]


def test_a_batch_is_drawn_without_replacement_the_smallest_numbers_first():
    config, replay = replace(SMALL, batch_size=8, worlds=2), after(2, replace(SMALL, worlds=2))
    choice = np.random.default_rng(1).random((1, 32)).astype(np.float32)
    found, _ = sample(replay, jnp.asarray(choice), TURNS, config)
    rows = [world * 16 + row for world in (0, 1) for row in (2, 3, 4, 5, 9, 10, 11, 12)]
    expected = sorted(rows, key=lambda i: choice[0, i])[:8]
    place = [(1 + (i % 16 > 6), 1 + (i % 16 - 2) % 7, 1 + i // 16) for i in expected]
    assert len(set(place)) == 8
    assert list(map(tuple, found.state[0, :, -3:].astype(int).tolist())) == place
    tied, _ = sample(replay, jnp.full((1, 32), 0.25, jnp.float32), TURNS, config)
    assert tied.state[0, :, -2].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]  # all of world 0, in their order


def test_a_replay_with_too_few_windows_is_not_ready():
    choice = jnp.zeros((1, 16), jnp.float32)
    replay = after(1, SMALL)
    for batch_size, expected in ((4, True), (5, False)):
        found, ready = sample(replay, choice, TURNS, replace(SMALL, batch_size=batch_size))
        assert ready.item() is expected and found.state.shape == (1, batch_size, 9)
    two = replace(SMALL, worlds=2, batch_size=8)
    assert sample(after(1, two), jnp.zeros((1, 32), jnp.float32), TURNS, two)[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_under_x64(dtype, x64):
    config = replace(SMALL, dtype=dtype, quirks=("gap_rows",), ends="terminal")
    replay = after(1, config)
    assert [str(x.dtype) for x in replay] == ["int8", "int32", "float32", *["int32"] * 4]
    found, _ = sample(replay, jnp.zeros((1, 16), jnp.float32), TURNS, config)
    assert [str(x.dtype) for x in found[:6]] == [dtype, "int32", *[dtype] * 4]
    assert replay_jax.steps_ahead(replay, TURNS, config).dtype == jnp.int32


def test_a_donated_replay_is_written_in_place():
    config = replace(LARGE, memory=65536)
    replay, played = replay_jax.start(config, Toy(1, 50)), episode(0, 50)
    memory = jax.jit(remember, static_argnums=2, donate_argnums=0).lower(replay, played, config).compile()
    found, ring = memory.memory_analysis(), replay.observation.nbytes
    assert found.alias_size_in_bytes > ring and found.temp_size_in_bytes < ring // 4


# Faults of the published system, one by one


def with_quirks(config, *quirks):
    return replace(config, quirks=quirks)


def test_q1_unmarked_ends_looks_beyond_the_episode():
    config = with_quirks(replace(SMALL, ends="terminal"), "unmarked_ends")
    assert set(replay_jax.steps_ahead(after(1, config), TURNS, config).tolist()) == {2}
    assert drawable_rows(after(1, config), TURNS, config) == [2, 3, 4]  # two rows after row 5 are not there yet
    found = transitions(after(2, config), [4, 5], config)
    assert found.reward.tolist() == [8, 8] and found.discount.tolist() == [0.25, 0.25]
    assert found.next_state[1].reshape(3, 3)[:, :2].tolist() == [[1, 4], [1, 5], [0, 0]]
    marked = transitions(after(2, config), [4, 5], with_quirks(config))
    assert marked.discount.tolist() == [0, 0] and marked.next_state[1].reshape(3, 3)[2, :2].tolist() == [1, 5]


def test_q2_gap_rows_are_drawn():
    share = {}
    for quirks in (("gap_rows",), ("gap_rows", "gap_bootstrap"), ()):
        config = with_quirks(LARGE, *quirks)
        replay, n = after(12, config, 50), 54 if "gap_bootstrap" in quirks else 55
        rows = [j for j in drawable_rows(replay, 50, config) if n <= j < 10 * n]  # nine whole episodes
        share[quirks] = sum(replay.turn[j].item() == -1 for j in rows), len(rows)
    assert share == {
        ("gap_rows",): (9 * 4, 9 * 55),
        ("gap_rows", "gap_bootstrap"): (9 * 4, 9 * 54),
        (): (0, 9 * 50),
    }


def test_q2_windows_over_an_end_do_not_count_unless_ends_are_unmarked():
    config = with_quirks(SMALL, "gap_rows")
    replay = after(2, config)
    assert replay_jax.steps_ahead(replay, TURNS, config)[:9].tolist() == [2, 2, 2, 2, 2, 1, 2, 2, 2]
    assert drawable_rows(replay, TURNS, config) == list(range(2, 13)) and replay.index == 14
    # Row 6 is the observation after the last turn, rows 7 and 8 the gap: row 5, the last turn, is before rows 6 and 7.
    rows = [5, 6, 7, 8, 9]
    assert transitions(replay, rows, replace(config, batch_size=5)).valid.tolist() == [1, 0, 0, 1, 1]
    both = with_quirks(replace(config, batch_size=5), "gap_rows", "unmarked_ends")
    assert transitions(replay, rows, both).valid.tolist() == [1, 1, 1, 1, 1]


def test_q3_gap_bootstrap_reads_the_gap():
    config = with_quirks(SMALL, "gap_bootstrap")
    first, replay = after(1, config), after(2, config)
    assert (first.index, first.filled, replay.index, replay.size) == (6, 6, 12, 8)
    assert first.turn.tolist() == [-1, -1, 0, 1, 2, 3] + [-1] * 10
    assert drawable_rows(first, TURNS, config) == [2, 3]  # the row after row 5 is not there yet
    last = lambda config: transitions(after(2, config), [5], config)
    assert last(config).next_state.reshape(3, 3)[:, :2].tolist() == [[1, 3], [1, 4], [0, 0]]
    assert last(SMALL).next_state.reshape(3, 3)[:, :2].tolist() == [[1, 3], [1, 4], [1, 5]]
    assert last(config).discount.tolist() == last(SMALL).discount.tolist() == [0.5]


def test_q4_lagging_size_hides_the_newest_rows():
    for quirks, newest in (((), 3), (("lagging_size",), 62)):
        config = with_quirks(LARGE, "gap_bootstrap", "gap_rows", *quirks)
        replay = after(15, config, 50)
        assert (replay.index, replay.size, replay.filled) == (810, 750, 810)
        rows = drawable_rows(replay, 50, config)
        assert rows == list(range(4, 810 - newest))
    alone = with_quirks(LARGE, "lagging_size")  # 55 rows for each epoch: windows end before row 4 + 750 - 6
    rows = drawable_rows(after(15, alone, 50), 50, alone)
    assert max(rows) == 747 and max(drawable_rows(after(15, LARGE, 50), 50, LARGE)) == 15 * 55 - 2


@pytest.mark.parametrize("quirks", [(), ("stale_history",)])
def test_q5_stale_history_keeps_old_frames(quirks):
    config = with_quirks(LARGE, "gap_bootstrap", *quirks)
    replay, zero = replay_jax.start(config, Toy(1, 50)), []
    for i in range(22):
        replay, history = remember(replay, episode(i, 50), config)
        zero.append(not history.any())
    assert zero == ([True] * 19 + [False] * 3 if quirks else [True] * 22)
    # The gap of epoch 21 is rows 1134 .. 1137 - 1024: turns of epoch 2, rows 112 on, behind its gap, rows 108 .. 111.
    assert replay.turn[110:114].tolist() == [-1] * 4
    assert history[0, 0, :, :2].tolist() == ([[0, 0], [0, 0], [3, 1], [3, 2]] if quirks else [[0, 0]] * 4)
    assert replay.reward[0, 0, 110:114].tolist() == ([0, 0, 1, 2] if quirks else [0] * 4)
    assert replay.action[0, 0, 110:114].tolist() == ([0, 0, 2, 3] if quirks else [0] * 4)


def test_q6_straddling_windows_mix_new_and_old_frames():
    config = with_quirks(LARGE, "straddling_windows")
    replay = after(20, LARGE, 50)
    assert (replay.index, replay.filled, replay.size) == (1100 - 1024, 1024, 1000)
    straddling, kept = drawable_rows(replay, 50, config), drawable_rows(replay, 50, LARGE)
    # Over the head: rows 76 .. 79, of epoch 1. Beyond the last start of 1018: rows 1022 and 1023, turns of epoch 18.
    # Over the end of the array: rows 0 .. 3, all turns of that epoch.
    assert sorted(set(straddling) - set(kept)) == [76, 77, 78, 79]
    assert sorted(set(kept) - set(straddling)) == [0, 1, 2, 3, 1022, 1023]
    found = transitions(replay, [77], config, 50)
    assert found.state.reshape(5, 3)[:, 0].tolist() == [20, 20, 20, 2, 2]
    lagging = with_quirks(LARGE, "straddling_windows", "lagging_size")
    assert max(drawable_rows(replay, 50, lagging)) == 4 + 1000 - 6 - 1


def test_q6_bounds_windows_by_what_is_filled_before_the_ring_is_full():
    config = with_quirks(SMALL, "straddling_windows")
    # After one epoch 7 rows are filled: starts below 7 - 3 - 1 = 3, so that windows end at rows 2, 3, 4.
    assert drawable_rows(after(1, config), TURNS, config) == [2, 3, 4]
    # By `size`, 4 turns: max(1, 4 - 3 - 1) = 1 start.
    lagging = with_quirks(SMALL, "straddling_windows", "lagging_size")
    assert drawable_rows(after(1, lagging), TURNS, lagging) == [2]


def test_q8_discount_only_sums_no_rewards():
    config = with_quirks(LARGE, "discount_only")
    replay = after(1, config, 50)
    found, summed = (transitions(replay, [4, 53], c, 50) for c in (config, LARGE))
    assert found.discount.tolist() == np.array([0.970299] * 2, np.float32).tolist()
    assert found.reward.tolist() == [1, 2]  # turns 0 and 49
    assert found.next_state.reshape(2, 5, 3)[:, -1, 1].tolist() == [2, 51]
    assert np.allclose(summed.reward, [1 + 0.99 * 2 + 0.9801 * 4, 2], rtol=1e-6, atol=0)
    assert summed.next_state.reshape(2, 5, 3)[:, -1, 1].tolist() == [4, 51]
    ended = transitions(replay, [51, 52, 53], replace(config, ends="terminal"), 50)
    assert ended.discount.tolist() == np.array([0.970299, 0.970299, 0], np.float32).tolist()


def test_legacy_has_all_faults():
    config = replace(LARGE, legacy=True, ends="terminal")
    replay = after(20, config, 50)
    rows = drawable_rows(replay, 50, config)
    assert replay.index == 20 * 54 - 1024 and rows == list(range(4, 4 + 1000 - 6))
    found = transitions(replay, rows[:8], config, 50)
    assert set(found.discount.tolist()) == {np.float32(0.970299).item()} and found.valid.tolist() == [1] * 8
    assert found.reward.tolist() == replay.reward[0, 0, 4:12].tolist()


# Noise


@pytest.mark.parametrize("x", [False, True])
def test_fields_of_the_noise_are_those_of_jax_random(x):
    game = Toy(3, 5)
    config = Tiny(players=3, worlds=2, order="shuffled", batch_size=4, quantiles=3, acting_quantiles=6, memory=16)
    with jax.enable_x64(x):
        key = jax.random.key(7)
        found = draw(key, game, 11, config)
        field = lambda i: random_numpy.fold_in(random_numpy.key(7), i)  # proven elsewhere to be jax.random's numbers
        u = lambda i, *shape: random_numpy.uniform(field(i), shape)
        expected = Noise(
            start=u(0, 2, 3),
            turn=u(1, 5, 2, 1),
            order=np.argsort(u(2, 5, 3), axis=-1, kind="stable").astype(np.int32),
            explore=u(3, 5, 2, 3),
            action=np.floor(u(4, 5, 2, 3) * np.float32(4)).astype(np.int32),
            reward=u(5, 5, 2, 3),
            acting=u(6, 5, 2, 3, 6),
            choice=u(7, 3, 32),
            fractions=u(8, 3, 3, 4, 3),
            noise=random_numpy.normal(field(9), (3, 3, 11)),
        )
    for name, ours, theirs in zip(Noise._fields, found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
        assert (np.asarray(ours) == theirs).all(), name
    assert len(set(map(tuple, found.order.tolist()))) > 1 and 0 <= found.action.min() < found.action.max() <= 3


def test_orders_of_the_agents():
    config = Tiny(players=3, memory=16)
    order_of = jax.jit(
        lambda key, order: noise_jax.draw(key, Toy(3, 5), 0, replace(config, order=order)).order, static_argnums=1
    )
    drawn = lambda order: order_of(jax.random.key(0), order)
    assert drawn("fixed").tolist() == [[0, 1, 2]] * 5
    assert drawn("rotated").tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]
    assert drawn("fixed").dtype == drawn("rotated").dtype == jnp.int32


# Risk


def distorted(fractions, attitudes):
    """Each number distorted by each attitude, (attitudes, n)."""
    each = lambda x: jnp.stack([risk_jax.distort(x, *attitude) for attitude in attitudes])
    return jax.jit(each)(jnp.asarray(fractions))


def test_distortions_by_hand():
    cases = [
        (0.3, "neutral", 5.0, 0.3),
        (0.8, "cvar", 0.25, 0.2),
        (0.5, "wang", 1.0, 0.8413447),
        (0.8413447, "wang", -1.0, 0.5),
        (0.25, "power", 1.0, 0.5),  # a square root
        (0.25, "power", 0, 0.25),
        (0.75, "power", -1.0, 0.5),
        (0.271, "power", -2.0, 0.1),  # 1 - 0.9 ** 3
    ]
    tau, expected = (np.array([case[i] for case in cases], np.float32) for i in (0, 3))
    found = distorted(tau, [case[1:3] for case in cases])
    assert np.allclose(np.diag(found), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distortions_stay_fractions_of_their_type(dtype, x64):
    fractions = np.array([0, 2.0**-23, 2.0**-12, 0.1, 0.5, 0.9, 1 - 2.0**-23], dtype)
    attitudes = [("neutral", 0.0), ("cvar", 0.1), ("cvar", 1.0), ("power", -9.5), ("power", 30), ("power", -1e6)]
    attitudes += [("wang", eta) for eta in (-1e39, -40.0, -0.75, 0.0, 0.75, 40.0, 1e39)]
    found = np.asarray(distorted(fractions, attitudes))
    assert found.dtype == dtype and np.isfinite(found).all()
    assert (found[:, 0] == 0).all() and (found >= 0).all() and (found <= 1).all() and (np.diff(found) >= 0).all()


def test_every_agent_distorts_by_its_own_attitude(x64):
    risk, level = ("cvar", "neutral", "wang", "power"), (0.25, 0.0, -0.75, -2.0)
    config = Tiny(players=4, risk=risk, risk_level=level)
    tau = np.random.default_rng(0).random((2, 3, 4, 5))
    normal, distort_all = NormalDist(), jax.jit(risk_jax.distort_all, static_argnums=1)
    rules = (
        lambda t: t / 4,
        lambda t: t,
        lambda t: normal.cdf(normal.inv_cdf(t) - 0.75),
        lambda t: 1 - (1 - t) ** (1 / 3),
    )
    expected = np.stack([np.vectorize(rule)(tau[:, :, i]) for i, rule in enumerate(rules)], 2)
    assert np.allclose(distort_all(jnp.asarray(tau), config), expected, rtol=1e-12, atol=1e-14)
    alike = replace(config, risk=("wang",), risk_level=(-0.75,))
    all_wang = np.vectorize(rules[2])(tau)
    assert np.allclose(distort_all(jnp.asarray(tau), alike), all_wang, rtol=1e-12, atol=1e-14)


# Episodes


PLAYED = Tiny(
    players=3,
    worlds=2,
    frames=3,
    acting_quantiles=4,
    memory=32,
    batch_size=4,
    risk=("cvar", "neutral", "power"),
    risk_level=(0.5, 0.0, 2.0),
)
GAME = Toy(3, 6)
EPSILON = jnp.array([0.0, 0.5, 1.0], jnp.float32)
WEIGHTS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2], [1, 6, 1, 8, 0, 3, 3, 9, 8]], np.float32)


def act(agent, stack, fractions):
    """Whole numbers of what is seen, and one more where a fraction is above 0.4."""
    score = (stack * jnp.asarray(WEIGHTS)[agent][None]).sum(-1) + (fractions.max(-1) > 0.4)
    return score.astype(jnp.int32) % 4


play = jax.jit(partial(rollout_jax.play, GAME, act), static_argnums=3)


def randomness(order):
    """The noise of an episode, drawn by NumPy; `order` is data, so that one compiled program serves all orders."""
    rng = np.random.default_rng(5)
    u = lambda *shape: rng.random(shape, np.float32)
    return Noise(
        start=u(2, 3),
        turn=u(6, 2, 1),
        order=np.array(order, np.int32),
        explore=u(6, 2, 3),
        action=rng.integers(0, 4, (6, 2, 3), np.int32),
        reward=u(6, 2, 3),
        acting=u(6, 2, 3, 4),
        choice=None,
        fractions=None,
        noise=None,
    )


FIXED = [[0, 1, 2]] * 6
ORDERS = {
    "fixed": FIXED,
    "rotated": [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2,
    "shuffled": [[2, 0, 1], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 1, 0], [1, 0, 2]],
}


def played_by_hand(history, noise, epsilon, moves):
    """One world after the other in plain Python."""
    turns, worlds, agents = noise.explore.shape
    distort = [lambda t: t / 2, lambda t: t, lambda t: t ** (1 / 3)]
    columns = [[[None] * worlds for _ in range(turns)] for _ in range(3)]
    lasts, finals = [], []
    for w in range(worlds):
        place, heap = [math.floor(np.float32(7) * u) for u in noise.start[w]], 0
        frames = history[w].tolist()

        def observe(i):
            return [place[i], heap, place[(i + 1) % agents]]  # noqa: B023

        def decide(t, i, seen):
            stack = [*frames[i][-2:], seen]  # noqa: B023
            frames[i].append(seen)  # noqa: B023
            if noise.explore[t, w, i] < epsilon[i]:  # noqa: B023
                return int(noise.action[t, w, i])  # noqa: B023
            score = sum(a * b for a, b in zip(sum(stack, []), WEIGHTS[i].tolist(), strict=True))
            return int(score + (max(map(distort[i], noise.acting[t, w, i].tolist())) > 0.4)) % 4  # noqa: B023

        for t in range(turns):
            heap += math.floor(4 * noise.turn[t, w, 0])
            order = noise.order[t].tolist()
            seen, action, reward = [None] * agents, [None] * agents, [0.0] * agents
            if moves != "sequential":
                seen = [observe(i) for i in range(agents)]
                action = [decide(t, i, seen[i]) for i in range(agents)]
            for i in order:
                if moves == "sequential":
                    seen[i] = observe(i)
                    action[i] = decide(t, i, seen[i])
                taken = min(heap, action[i]) if moves != "simultaneous" or i == order[0] else 0
                heap -= taken
                place[i] = (place[i] + action[i]) % 7
                reward[i] = taken + (0.5 if noise.reward[t, w, i] < 0.5 else 0.0)
            for column, value in zip(columns, (seen, action, reward), strict=True):
                column[t][w] = value
        lasts.append([observe(i) for i in range(agents)])
        finals.append((place, heap))
    return Episode(*columns, lasts), finals


@pytest.mark.parametrize("moves", MOVES)
def test_episodes_are_those_of_a_plain_loop(moves):
    config = replace(PLAYED, moves=moves)
    history = np.random.default_rng(3).integers(0, 5, (2, 3, 2, 3)).astype(np.int8)
    found = {}
    for order, agents in ORDERS.items():
        noise = randomness(agents)
        got, final = play(jnp.asarray(history), noise, EPSILON, config)
        expected, finals = played_by_hand(history, noise, EPSILON, moves)
        assert [str(x.dtype) for x in got] == ["int8", "int32", "float32", "int8"]
        for name, ours, theirs in zip(Episode._fields, got, expected, strict=True):
            assert ours.tolist() == np.array(theirs).tolist(), (order, name)
        assert list(zip(final.place.tolist(), final.heap.tolist(), strict=True)) == [(p, h) for p, h in finals]
        found[order] = got.action.tolist(), got.reward.tolist()
    assert found["fixed"] != found["rotated"] != found["shuffled"] != found["fixed"]


def test_turn_kinds_differ():
    noise = randomness(FIXED)
    history = jnp.zeros((2, 3, 2, 3), jnp.int8)
    played = [play(history, noise, EPSILON, replace(PLAYED, moves=moves))[0] for moves in MOVES]
    assert len({str([x.tolist() for x in one]) for one in played}) == 3


@pytest.mark.parametrize("moves", ["sequential", "stale_obs"])
def test_the_network_runs_only_where_some_world_does_not_explore(moves):
    ran = []

    def noted(agent, stack, fractions):
        jax.debug.callback(lambda i: ran.append(int(i)), agent)
        return act(agent, stack, fractions)

    config = replace(PLAYED, moves=moves)
    noise = randomness(FIXED)
    got, _ = jax.jit(partial(rollout_jax.play, GAME, noted), static_argnums=3)(
        jnp.zeros((2, 3, 2, 3), jnp.int8), noise, EPSILON, config
    )
    jax.block_until_ready(got)
    jax.effects_barrier()
    needed = (noise.explore >= np.asarray(EPSILON)[None, None]).any(1).sum(0).tolist()
    assert [ran.count(agent) for agent in range(3)] == needed
    assert needed[0] == 6 and 0 < needed[1] < 6 and needed[2] == 0


def test_returns_are_sums_over_turns_and_means_over_games():
    reward = jnp.array([[[1, 10], [2, 20]], [[4, 40], [8, 80]]], jnp.float32)  # turns, worlds, agents
    found = rollout_jax.returns(Episode(None, None, reward, None))
    assert {name: value.item() for name, value in found.items()} == {"return": 82.5, "return_0": 7.5, "return_1": 75}


def test_epochs_do_not_compile_anew():
    config = replace(PLAYED, memory=20)

    @partial(jax.jit, donate_argnums=0)
    def epoch(replay, key, epsilon):
        noise = noise_jax.draw(key, GAME, 2, config)
        replay, history = replay_jax.open_episode(replay, config)
        played, _ = rollout_jax.play(GAME, act, history, noise, epsilon, config)
        replay = replay_jax.store(replay, played, config)
        return replay, replay_jax.sample(replay, noise.choice, GAME.turns, config), rollout_jax.returns(played)

    replay = jax.tree.map(jnp.copy, replay_jax.start(config, GAME))
    for i in range(5):
        replay, (found, ready), logged = epoch(replay, jax.random.key(i), EPSILON * 0.5**i)
        assert ready and found.state.shape == (3, 4, 9) and logged["return"] >= 0
    assert epoch._cache_size() == 1
    assert (replay.index, replay.size, replay.filled) == (5 * 9 % 20, 20, 20)
