"""The host's side of IQN's data: replay against the published buffer and by hand, noise, risk, playing a toy game."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.algos.iqn import noise_numpy, replay_numpy, rollout_numpy
from crossfade.algos.iqn.batch import Episode, Noise, Replay
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.risk_numpy import distort
from crossfade.envs.game import MOVES, ORDERS, Game
from crossfade.random import random_numpy as random


@dataclass(frozen=True)
class Config(IQNConfig):
    players: int = 1
    n_step: int = 3

    @property
    def agents(self):
        return self.players


class Ring(NamedTuple):
    place: np.ndarray
    pot: np.ndarray


@dataclass(frozen=True)
class Toy:
    """Agents go round a ring of 7 cells; whoever comes to an even one takes what is in the pot, so order counts."""

    agents: int = 3
    turns: int = 6
    observation_dim: int = 3
    n_actions: int = 3
    turn_numbers: int = 1

    @property
    def start_numbers(self):
        return self.agents

    def begin(self, uniform):
        return Ring(np.floor(uniform * 7).astype(np.int32), np.zeros(uniform.shape[:-1], np.int32))

    def start_turn(self, state, uniform):
        return state._replace(pot=state.pot + np.floor(uniform[..., 0] * 3).astype(np.int32))

    def observe(self, state, agent):
        own = np.take_along_axis(state.place, self._which(state, agent), -1)[..., 0]
        return np.stack([own, np.minimum(state.pot, 9), state.place.sum(-1) % 5], -1).astype(np.int8)

    def move(self, state, agent, action, uniform):
        which = self._which(state, agent)
        new = (np.take_along_axis(state.place, which, -1)[..., 0] + action + 1) % 7
        place = state.place.copy()
        np.put_along_axis(place, which, new[..., None], -1)
        takes = new % 2 == 0
        reward = np.where(takes, state.pot + uniform, np.float32(-1)).astype(np.float32)
        return Ring(place, np.where(takes, 0, state.pot).astype(np.int32)), reward

    def move_together(self, state, action, order, uniform):
        reward = np.zeros(action.shape, np.float32)
        for k in range(self.agents):
            agent = order[..., k : k + 1]
            of = lambda x, agent=agent: np.take_along_axis(x, agent, -1)[..., 0]
            state, got = self.move(state, agent[..., 0], of(action), of(uniform))
            np.put_along_axis(reward, agent, (got + np.float32(100 * k))[..., None], -1)
        return state, reward

    def _which(self, state, agent):
        return np.broadcast_to(agent, state.pot.shape)[..., None]


def random_episode(rng: np.random.Generator, game: Toy, worlds: int) -> Episode:
    """Numbers without a game; observations are not 0, so that they differ from a gap."""
    shape = (game.turns, worlds, game.agents)
    return Episode(
        rng.integers(1, 100, (*shape, game.observation_dim)).astype(np.int8),
        rng.integers(0, 4, shape).astype(np.int32),
        rng.normal(size=shape).astype(np.float32),
        rng.integers(1, 100, (*shape[1:], game.observation_dim)).astype(np.int8),
    )


def after(episodes: int, config: IQNConfig, game: Toy) -> Replay:
    rng, replay = np.random.default_rng(0), replay_numpy.start(config, game)
    for _ in range(episodes):
        replay, _ = replay_numpy.open_episode(replay, config)
        replay = replay_numpy.store(replay, random_episode(rng, game, config.worlds), config)
    return replay


def drawn(replay: Replay, turns: int, config: IQNConfig) -> list[int]:
    return np.flatnonzero(replay_numpy.drawable(replay, turns, config)).tolist()


# The published buffer


class Published:
    """One agent's buffer, as the reference facts have it."""

    def __init__(self, capacity: int, frames: int, dim: int):
        self.states = [[0.0] * dim for _ in range(capacity)]
        self.actions, self.rewards, self.dones = [0] * capacity, [0.0] * capacity, [0.0] * capacity
        self.capacity, self.frames, self.idx, self.size = capacity, frames, 0, 0

    def add(self, state, action, reward, done):
        self.states[self.idx], self.actions[self.idx] = state, action
        self.rewards[self.idx], self.dones[self.idx] = reward, done
        self.idx = (self.idx + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_empty(self):
        self.idx = (self.idx + self.frames - 1) % self.capacity

    def current_state(self):
        return [self.states[i % self.capacity] for i in range(self.idx - self.frames + 1, self.idx)]

    def starts(self):
        return max(1, self.size - self.frames - 1)

    def sample(self, start):
        rows = range(start, start + self.frames)
        state = [x for row in rows for x in self.states[row]]
        next_state = [x for row in rows for x in self.states[row + 1]]
        valid = 1.0 - any(self.dones[row] for row in rows[:-1])
        return state, self.actions[rows[-1]], self.rewards[rows[-1]], next_state, self.dones[rows[-1]], valid


def test_legacy_is_the_published_buffer_over_three_laps():
    game = Toy(agents=2, turns=50)
    config = Config(players=2, worlds=2, batch_size=100, legacy=True)
    rng, replay = np.random.default_rng(3), replay_numpy.start(config, game)
    buffers = [[Published(1024, 5, 3) for _ in range(2)] for _ in range(2)]
    laps = 0
    for epoch in range(60):
        laps += int(replay.index) + 54 > 1024
        replay, history = replay_numpy.open_episode(replay, config)
        episode = random_episode(rng, game, 2)
        for w, k in np.ndindex(2, 2):
            buffer = buffers[w][k]
            buffer.add_empty()
            assert history[w, k].tolist() == buffer.current_state()
            for t in range(50):
                state, reward = episode.observation[t, w, k].tolist(), float(episode.reward[t, w, k])
                buffer.add(state, int(episode.action[t, w, k]), reward, 0.0)
        replay = replay_numpy.store(replay, episode, config)
        reference = buffers[0][0]
        assert (int(replay.index), int(replay.size)) == (reference.idx, reference.size)
        assert drawn(replay, 50, config) == [start + 4 for start in range(reference.starts())]

        choice = rng.random((2, 2 * 1024)).astype(np.float32)
        batch, ready = replay_numpy.sample(replay, choice, 50, config)
        assert bool(ready) == (2 * reference.starts() >= 100) == (epoch > 0)
        if not ready:
            continue
        for k in range(2):
            starts = [(choice[k, w * 1024 + s + 4], w, s) for w in range(2) for s in range(reference.starts())]
            expected = [buffers[w][k].sample(s) for _, w, s in sorted(starts)[:100]]
            state, action, reward, next_state, done, valid = zip(*expected, strict=True)
            assert batch.state[k].tolist() == list(state)
            assert batch.action[k].tolist() == list(action)
            assert batch.reward[k].tolist() == list(reward)
            assert batch.next_state[k].tolist() == list(next_state)
            assert batch.valid[k].tolist() == list(valid)
            target = [np.float32(0.99**3) * (1 - d) for d in done]
            assert batch.discount[k].tolist() == target
    assert laps == 3


# The correct replay, by hand: 4 turns, 3 frames, 2 steps; episode e sees 10 e + t and gets 8 (t + 1) in turn t

SMALL = Toy(agents=1, turns=4, observation_dim=1)


def small(**settings) -> IQNConfig:
    return Config(**{"frames": 3, "n_step": 2, "memory": 24, "batch_size": 4, "gamma": (0.5,), **settings})


def fill(episodes: int, config: IQNConfig) -> Replay:
    replay = replay_numpy.start(config, SMALL)
    for e in range(1, episodes + 1):
        replay, _ = replay_numpy.open_episode(replay, config)
        turns = np.arange(4).reshape(4, 1, 1)
        episode = Episode(
            (10 * e + turns[..., None]).astype(np.int8),
            ((e + turns) % 3).astype(np.int32),
            (8.0 * (turns + 1)).astype(np.float32),
            np.full((1, 1, 1), 10 * e + 4, np.int8),
        )
        replay = replay_numpy.store(replay, episode, config)
    return replay


class Window(NamedTuple):
    state: list
    action: int
    reward: float
    next_state: list
    discount: float
    valid: float


def windows(replay: Replay, config: IQNConfig) -> dict[int, Window]:
    """What each row gives that can be drawn; rising numbers draw rows in their order."""
    rows = drawn(replay, 4, config)
    rising = (np.arange(config.memory, dtype=np.float32) / np.float32(config.memory))[None]
    batch, ready = replay_numpy.sample(replay, rising, 4, replace(config, batch_size=len(rows)))
    assert ready
    columns = (getattr(batch, name)[0].tolist() for name in Window._fields)
    return {row: Window(*values) for row, *values in zip(rows, *columns, strict=True)}


FIRST = {
    2: Window([0, 0, 10], 1, 8 + 8, [10, 11, 12], 0.25, 1),
    3: Window([0, 10, 11], 2, 16 + 12, [11, 12, 13], 0.25, 1),
    4: Window([10, 11, 12], 0, 24 + 16, [12, 13, 14], 0.25, 1),
    5: Window([11, 12, 13], 1, 32, [12, 13, 14], 0.5, 1),
}


def test_the_windows_of_the_first_episode():
    replay = fill(1, small())
    assert windows(replay, small()) == FIRST
    assert replay.turn[:8].tolist() == [-1, -1, 0, 1, 2, 3, 4, -1]
    assert (int(replay.index), int(replay.size), int(replay.filled)) == (7, 4, 7)
    assert replay_numpy.steps_ahead(replay, 4, small())[2:6].tolist() == [2, 2, 2, 1]
    two = windows(fill(2, small()), small())
    assert {row: two.pop(row) for row in FIRST} == FIRST
    assert two[9] == Window([0, 0, 20], 2, 16, [20, 21, 22], 0.25, 1)
    assert list(two) == [9, 10, 11, 12]


def test_an_episode_can_end_for_good():
    found = windows(fill(2, small(ends="terminal")), small(ends="terminal"))
    assert [found[row].discount for row in (2, 3, 4, 5)] == [0.25, 0.25, 0, 0]
    assert {row: window._replace(discount=0) for row, window in found.items() if row < 9} == {
        row: window._replace(discount=0) for row, window in FIRST.items()
    }


def test_what_is_partly_overwritten_is_not_drawn_and_the_newest_is():
    # Three episodes fill rows 0 to 20, the fourth has its gap in 21 and 22, and its turns from row 23 on.
    assert drawn(fill(3, small()), 4, small()) == [2, 3, 4, 5, 9, 10, 11, 12, 16, 17, 18, 19]
    replay = fill(4, small())
    assert (int(replay.index), int(replay.size), int(replay.filled)) == (4, 16, 24)
    assert drawn(replay, 4, small()) == [0, 1, 2, 9, 10, 11, 12, 16, 17, 18, 19, 23]
    assert replay.turn[3] == 4 and replay.observation[0, 0, 3, 0] == 44  # the first episode had turn 1 in this row
    assert replay.action[0, 0, 3] == 0 and replay.reward[0, 0, 3] == 0
    found = windows(replay, small())
    assert found[23] == Window([0, 0, 40], 1, 16, [40, 41, 42], 0.25, 1)
    assert found[0] == Window([0, 40, 41], 2, 28, [41, 42, 43], 0.25, 1)
    assert found[2] == Window([41, 42, 43], 1, 32, [42, 43, 44], 0.5, 1)
    # One more row of memory, and of the first episode rows 3 to 6 are left, in which a single window is whole.
    more = small(memory=25)
    assert drawn(fill(4, more), 4, more) == [0, 1, 5, 9, 10, 11, 12, 16, 17, 18, 19, 23, 24]
    assert windows(fill(4, more), more)[5] == FIRST[5]


def test_one_frame_needs_no_gap():
    config = small(frames=1, n_step=1)
    replay, history = replay_numpy.open_episode(fill(1, config), config)
    assert history.shape == (1, 1, 0, 1)
    found = windows(replay, config)
    assert found[0] == Window([10], 1, 8, [11], 0.5, 1)
    assert found[3] == Window([13], 1, 32, [14], 0.5, 1)
    assert list(found) == [0, 1, 2, 3]


def test_a_batch_has_no_row_twice_and_of_equal_numbers_takes_the_first():
    game, config = Toy(agents=2, turns=50), Config(players=2, worlds=3, batch_size=250, memory=128)
    replay = after(2, config, game)
    replay = replay._replace(action=np.arange(3 * 2 * 128, dtype=np.int32).reshape(3, 2, 128))  # to tell rows apart
    can = set(drawn(replay, 50, config))
    assert len(can) == 100
    choice = np.random.default_rng(1).random((2, 3 * 128)).astype(np.float32)
    batch, ready = replay_numpy.sample(replay, choice, 50, config)
    assert ready and ready.shape == ()
    for k in range(2):
        taken = batch.action[k].tolist()
        ranks = [choice[k, place // 256 * 128 + place % 128] for place in taken]
        assert len(set(taken)) == 250 and ranks == sorted(ranks)
        assert all(place // 128 % 2 == k and place % 128 in can for place in taken)
    tied, _ = replay_numpy.sample(replay, np.zeros_like(choice), 50, config)
    in_order = [w * 256 + 128 + row for w in range(3) for row in sorted(can)]
    assert tied.action[1].tolist() == in_order[:250]


def test_a_batch_is_not_ready_before_enough_can_be_drawn():
    game, choice = Toy(agents=1, turns=50), np.zeros((1, 2 * 1024), np.float32)
    config = Config(worlds=2, batch_size=101)
    batch, ready = replay_numpy.sample(after(1, config, game), choice, 50, config)
    assert not ready and batch.state.shape == (1, 101, 15)
    assert replay_numpy.sample(after(2, config, game), choice, 50, config)[1]
    exactly = replace(config, batch_size=100)
    assert replay_numpy.sample(after(1, exactly, game), choice, 50, exactly)[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_discounts_are_of_each_agent_and_rounded_once(dtype):
    config = Config(players=2, gamma=(0.99, 0.9), n_step=4, memory=64, batch_size=6, dtype=dtype)
    game = Toy(agents=2)
    replay = after(1, config, game)
    rising = np.tile((np.arange(64, dtype=np.float32) / 64)[None], (2, 1))
    batch, _ = replay_numpy.sample(replay, rising, 6, config)
    real = np.dtype(dtype).type
    for k, gamma in enumerate((0.99, 0.9)):
        for t, m in enumerate((4, 4, 4, 3, 2, 1)):
            total = real(0)
            for i in range(m):
                total = total + real(gamma**i) * real(replay.reward[0, k, 4 + t + i])
            assert batch.reward[k, t] == total and batch.discount[k, t] == real(gamma**m)
    assert {getattr(batch, name).dtype for name in ("state", "next_state", "reward", "discount", "valid")} == {
        np.dtype(dtype)
    }
    assert batch.action.dtype == np.int32 and batch.fractions is None and batch.noise is None


@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_given_stays_as_it_is(legacy):
    game, config = Toy(agents=1), Config(memory=32, batch_size=2, legacy=legacy)
    replay, episode = after(3, config, game), random_episode(np.random.default_rng(5), game, 1)
    before = [array.copy() for array in (*replay, *episode)]
    opened, history = replay_numpy.open_episode(replay, config)
    kept = [array.copy() for array in opened]
    history[:] = 77
    stored = replay_numpy.store(opened, episode, config)
    replay_numpy.sample(stored, np.zeros((1, 32), np.float32), 6, config)
    for array, saved in zip((*replay, *episode, *opened), (*before, *kept), strict=True):
        np.testing.assert_array_equal(array, saved)
    dtypes = [np.int8, np.int32, np.float32, np.int32, np.int32, np.int32, np.int32]
    assert [array.dtype for array in stored] == [array.dtype for array in opened] == dtypes


# One fault at a time


def test_q1_windows_do_not_know_where_episodes_end():
    config = small(quirks=("unmarked_ends",))
    found = windows(fill(2, config), config)
    past = Window([11, 12, 13], 1, 32 + 0, [13, 14, 0], 0.25, 1)
    assert {row: found[row] for row in FIRST} == FIRST | {5: past}
    terminal = small(quirks=("unmarked_ends",), ends="terminal")
    assert {window.discount for window in windows(fill(2, terminal), terminal).values()} == {0.25}
    # Row 5 holds the last turn: where it is an older frame of the state, ends that are marked make it count nothing.
    marked, unmarked = small(quirks=("gap_rows",)), small(quirks=("gap_rows", "unmarked_ends"))
    rows = range(2, 10)
    valid = lambda config: [windows(fill(2, config), config)[row].valid for row in rows]
    assert valid(marked) == [1, 1, 1, 1, 0, 0, 1, 1]
    assert valid(unmarked) == [1] * 8


def test_q2_gap_rows_are_drawn():
    config = small(quirks=("gap_rows",))
    found = windows(fill(2, config), config)
    plain = windows(fill(2, small()), small())
    assert {row: found[row] for row in plain} == plain
    assert sorted(set(found) - set(plain)) == [6, 7, 8]
    assert found[8] == Window([14, 0, 0], 0, 0 + 4, [0, 20, 21], 0.25, 1)
    game = Toy(agents=1, turns=50)
    for quirks, share in (
        (("gap_rows", "gap_bootstrap"), (4, 54)),
        (("gap_rows",), (5, 55)),
        (("gap_bootstrap",), (0, 50)),
    ):
        config = Config(quirks=quirks)
        replay = after(30, config, game)
        length = 54 if "gap_bootstrap" in quirks else 55
        rows = [row for row in drawn(replay, 50, config) if 200 <= row < 200 + length]
        gaps = [row for row in rows if not 0 <= replay.turn[row] < 50]
        assert (len(gaps), len(rows)) == share


def test_q3_the_last_turn_bootstraps_from_the_gap():
    config = small(quirks=("gap_bootstrap",))
    replay = fill(2, config)
    assert replay.turn[:14].tolist() == [-1, -1, 0, 1, 2, 3, -1, -1, 0, 1, 2, 3, -1, -1]
    assert (int(replay.index), int(replay.size), int(replay.filled)) == (12, 8, 12)
    found = windows(replay, config)
    changed = {row: FIRST[row]._replace(next_state=[12, 13, 0]) for row in (4, 5)}
    assert {row: found[row] for row in FIRST} == FIRST | changed
    assert list(found) == [2, 3, 4, 5, 8, 9]  # the gap after rows 10 and 11 has not come yet


def test_q4_the_newest_rows_are_out_of_reach():
    game = Toy(agents=1, turns=50)
    with_gap, lagging = Config(quirks=("gap_bootstrap",)), Config(quirks=("gap_bootstrap", "lagging_size"))
    replay = after(15, lagging, game)
    assert (int(replay.index), int(replay.size), int(replay.filled)) == (810, 750, 810)
    reach = drawn(replay, 50, lagging)
    assert reach[-1] == 747 and 809 - reach[-1] == 62
    everything = drawn(replay, 50, with_gap)
    assert everything[-1] == 806 and reach == [row for row in everything if row <= 747]
    alone = Config(quirks=("lagging_size",))
    replay = after(15, alone, game)
    assert int(replay.index) == 825
    assert drawn(replay, 50, alone) == [row for row in drawn(replay, 50, Config()) if row <= 747]
    assert drawn(replay, 50, Config())[-1] == 823
    full = after(25, alone, game)  # of a full ring, rows 4 to 1021
    assert drawn(full, 50, alone) == [row for row in drawn(full, 50, Config()) if 4 <= row < 1022]


def test_q5_old_frames_are_the_history_once_the_ring_is_full():
    game = Toy(agents=1, turns=50)
    stale = Config(quirks=("gap_bootstrap", "stale_history"))
    clean = Config(quirks=("gap_bootstrap",))
    rng, replay, other = np.random.default_rng(0), replay_numpy.start(stale, game), replay_numpy.start(clean, game)
    dirty = []
    for epoch in range(45):
        replay, history = replay_numpy.open_episode(replay, stale)
        other, zeros = replay_numpy.open_episode(other, clean)
        assert not zeros.any()
        if history.any():
            dirty.append(epoch)
        episode = random_episode(rng, game, 1)
        replay, other = replay_numpy.store(replay, episode, stale), replay_numpy.store(other, episode, clean)
        for name in ("turn", "index", "size", "filled"):
            np.testing.assert_array_equal(getattr(replay, name), getattr(other, name))
        turns = other.turn >= 0
        for name in ("observation", "action", "reward"):
            np.testing.assert_array_equal(getattr(replay, name)[:, :, turns], getattr(other, name)[:, :, turns])
            if epoch >= 19:
                assert getattr(replay, name)[:, :, ~turns].any() and not getattr(other, name)[:, :, ~turns].any()
        assert drawn(replay, 50, stale) == drawn(other, 50, clean)
    assert dirty == list(range(19, 45))


def test_q6_windows_lie_across_the_head():
    game, plain, config = Toy(agents=1, turns=50), Config(), Config(quirks=("straddling_windows",))
    replay = after(25, config, game)
    assert int(replay.index) == 351  # 25 * 55 - 1024
    found, correct = set(drawn(replay, 50, config)), set(drawn(replay, 50, plain))
    assert found - correct == {351, 352, 353, 354}
    assert correct - found == {0, 1, 2, 3, 1022, 1023}
    rank = np.ones((1, 1024), np.float32)
    rank[0, 351] = 0
    batch, _ = replay_numpy.sample(replay, rank, 50, replace(config, batch_size=1))
    assert replay.turn[347:352].tolist() == [47, 48, 49, 50, 17]
    np.testing.assert_array_equal(batch.state[0, 0], replay.observation[0, 0, 347:352].ravel())
    assert batch.valid[0, 0] == 0
    legacy = Config(legacy=True)
    replay = after(25, legacy, game)
    head, rows = int(replay.index), drawn(replay, 50, legacy)
    assert len(rows) == 1018
    assert len([row for row in rows if row - 4 < head <= row + 1]) == 5


def test_q8_only_the_discount_has_n_steps():
    config = small(quirks=("discount_only",))
    found = windows(fill(1, config), config)
    newer = ([0, 10, 11], [10, 11, 12], [11, 12, 13], [12, 13, 14])
    for row, reward, next_state in zip(FIRST, (8, 16, 24, 32), newer, strict=True):
        assert found[row] == FIRST[row]._replace(reward=reward, next_state=next_state, discount=0.25)
    terminal = small(quirks=("discount_only",), ends="terminal")
    assert [w.discount for w in windows(fill(1, terminal), terminal).values()] == [0.25, 0.25, 0.25, 0]
    published = small(quirks=("discount_only",), gamma=(0.99,), n_step=3, dtype="float64")
    for window, reward in zip(windows(fill(1, published), published).values(), (8, 16, 24, 32), strict=True):
        assert window.discount == pytest.approx(0.970299, abs=1e-15) and window.reward == reward


# Noise and risk


def test_noise_has_the_shapes_of_its_page():
    game, config = Toy(), Config(players=3, worlds=2, memory=32, batch_size=5, quantiles=7, acting_quantiles=4)
    noise = noise_numpy.draw(random.key(0), game, 11, config)
    each = (6, 2, 3)
    assert [array.shape for array in noise] == [
        *((2, 3), (6, 2, 1), (6, 3), each, each, each),
        *((*each, 4), (3, 64), (3, 3, 5, 7), (3, 3, 11)),
    ]
    whole = {"order", "action"}
    for name, array in noise._asdict().items():
        assert array.dtype == (np.int32 if name in whole else np.float32)
        assert name in whole | {"noise"} or 0 <= array.min() <= array.max() < 1
    assert set(noise.action.ravel().tolist()) == {0, 1, 2}
    assert noise_numpy.draw(random.key(0), game, 0, config).noise.shape == (3, 3, 0)


def test_noise_is_that_of_jax():
    game, config = Toy(turns=20), Config(players=3, worlds=2, memory=32, batch_size=5, order="shuffled")
    noise = noise_numpy.draw(random.key(7), game, 11, config)
    key = lambda name: jax.random.fold_in(jax.random.key(7), Noise._fields.index(name))
    for name in ("start", "turn", "explore", "reward", "acting", "choice", "fractions"):
        shape = getattr(noise, name).shape
        np.testing.assert_array_equal(getattr(noise, name), jax.random.uniform(key(name), shape))
    np.testing.assert_array_equal(noise.noise, jax.random.normal(key("noise"), (3, 3, 11)))
    np.testing.assert_array_equal(noise.action, jnp.floor(jax.random.uniform(key("action"), (20, 2, 3)) * 3))
    np.testing.assert_array_equal(noise.order, jnp.argsort(jax.random.uniform(key("order"), (20, 3)), stable=True))
    assert len({tuple(turn) for turn in noise.order.tolist()}) == 6


def test_orders_that_nobody_draws():
    game, config = Toy(turns=4), Config(players=3, memory=32)
    order = lambda kind: noise_numpy.draw(random.key(0), game, 0, replace(config, order=kind)).order.tolist()
    assert order("fixed") == [[0, 1, 2]] * 4
    assert order("rotated") == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_risk_by_hand(dtype):
    tau = np.array([0.0, 0.04, 0.25, 0.64, 0.99], dtype)
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    normal = NormalDist()
    wang = lambda eta: [0.0, *(normal.cdf(normal.inv_cdf(float(t)) + eta) for t in tau[1:])]
    for risk, level, expected in (
        ("neutral", 0.3, tau),
        ("cvar", 0.25, [0.0, 0.01, 0.0625, 0.16, 0.2475]),
        ("wang", 0.0, tau),
        ("wang", -0.75, wang(-0.75)),
        ("wang", 0.75, wang(0.75)),
        ("power", 1, [0.0, 0.2, 0.5, 0.8, math.sqrt(0.99)]),
        ("power", 0.0, tau),
        ("power", 0.25, [0.0, *(float(t) ** 0.8 for t in tau[1:])]),
        ("power", -1.0, [0.0, 1 - math.sqrt(0.96), 1 - math.sqrt(0.75), 0.4, 0.9]),
        ("power", -2.0, [0.0, *(1 - (1 - float(t)) ** (1 / 3) for t in tau[1:])]),
    ):
        found = distort(tau, risk, level)
        assert found.dtype == tau.dtype
        close(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [1e-30, 1.0, -3.0, 50.0, -50.0, 1e300, -1e300])
def test_risk_never_leaves_the_fractions(dtype, level):
    tau = np.array([0.0, 2.0**-23, 0.5, 1 - 2.0**-23], dtype)
    for risk in ("wang", "power", *(["cvar"] if 0 < level <= 1 else [])):
        found = distort(tau, risk, level)
        assert found.dtype == tau.dtype and ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found) >= 0).all()


# Playing


def greedy(game: Toy, agent: int, stack: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """An action that depends on the agent, on every place of the stack, and on the fractions."""
    weights = np.arange(1, stack.shape[-1] + 1) % 5 + agent
    return ((stack @ weights.astype(stack.dtype) + np.floor(100 * fractions.sum(-1))) % game.n_actions).astype(np.int32)


def play_plainly(game: Toy, history: np.ndarray, noise: Noise, epsilon: tuple[float, ...], config: IQNConfig):
    """One world after the other, with lists."""
    shape = (game.turns, config.worlds, game.agents)
    seen = np.zeros((*shape, game.observation_dim), np.int8)
    action, reward, last = np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros((*shape[1:], 3), np.int8)
    ends = []
    for w in range(config.worlds):
        frames = [[frame.tolist() for frame in history[w, k]] for k in range(game.agents)]
        state = game.begin(noise.start[w])

        def look(t, k, state, w=w, frames=frames):
            seen[t, w, k] = game.observe(state, k)

        def decide(t, k, w=w, frames=frames):
            stack = [*frames[k], seen[t, w, k].tolist()]
            frames[k] = stack[1:]
            fractions = noise.acting[t, w, k] * np.float32(config.risk_level[k] if config.risk[k] == "cvar" else 1)
            flat = np.array([x for frame in stack for x in frame], np.float32)
            choice = greedy(game, k, flat[None], fractions[None])[0]
            return noise.action[t, w, k] if noise.explore[t, w, k] < np.float32(epsilon[k]) else choice

        for t in range(game.turns):
            state = game.start_turn(state, noise.turn[t, w])
            order = noise.order[t].tolist()
            if config.moves == "sequential":
                for k in order:
                    look(t, k, state)
                    action[t, w, k] = decide(t, k)
                    state, reward[t, w, k] = game.move(state, k, action[t, w, k], noise.reward[t, w, k])
                continue
            for k in range(game.agents):
                look(t, k, state)
            for k in range(game.agents):
                action[t, w, k] = decide(t, k)
            if config.moves == "stale_obs":
                for k in order:
                    state, reward[t, w, k] = game.move(state, k, action[t, w, k], noise.reward[t, w, k])
            else:
                state, reward[t, w] = game.move_together(state, action[t, w], noise.order[t], noise.reward[t, w])
        last[w] = [game.observe(state, k) for k in range(game.agents)]
        ends.append(state)
    return Episode(seen, action, reward, last), ends


@pytest.mark.parametrize("worlds", [1, 4])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("moves", MOVES)
def test_an_episode_is_played_as_plainly(moves, order, worlds):
    game, epsilon = Toy(turns=12), (0.4, 0.0, 1.0)
    settings = {"risk": ("cvar", "neutral", "cvar"), "risk_level": (0.5, 0.0, 0.25), "acting_quantiles": 1}
    config = Config(players=3, worlds=worlds, memory=64, frames=3, moves=moves, order=order, **settings)
    noise = noise_numpy.draw(random.key(worlds), game, 0, config)
    history = np.random.default_rng(0).integers(1, 9, (worlds, 3, 2, 3)).astype(np.int8)
    before, asked = history.copy(), []

    def act(agent, stack, fractions):
        assert stack.shape == (worlds, 9) and fractions.shape == (worlds, 1)
        assert stack.dtype == fractions.dtype == np.float32
        asked.append(agent)
        return greedy(game, agent, stack, fractions)

    assert isinstance(game, Game)
    episode, end = rollout_numpy.play(game, act, history, noise, np.array(epsilon), config)
    expected, ends = play_plainly(game, history, noise, epsilon, config)
    for name, found, wanted in zip(Episode._fields, episode, expected, strict=True):
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    np.testing.assert_array_equal(end.place, [state.place for state in ends])
    np.testing.assert_array_equal(end.pot, [state.pot for state in ends])
    np.testing.assert_array_equal(history, before)
    explored = noise.explore < np.float32(0.4)
    assert asked.count(0) == int((~explored[:, :, 0].all(1)).sum()) and asked.count(1) == 12 and asked.count(2) == 0


def test_turn_kinds_and_orders_are_different_games():
    game, history = Toy(turns=12), np.zeros((2, 3, 4, 3), np.int8)
    act = lambda agent, stack, fractions: greedy(game, agent, stack, fractions)
    found = set()
    for moves in MOVES:
        for order in ORDERS:
            config = Config(players=3, worlds=2, memory=64, moves=moves, order=order)
            noise = noise_numpy.draw(random.key(0), game, 0, config)
            episode, _ = rollout_numpy.play(game, act, history, noise, np.zeros(3), config)
            found.add(episode.reward.tobytes())
    assert len(found) == 9


def test_epsilon_is_compared_in_float32():
    """0.7 in float32 lies below 0.7 in float64: a number equal to it is not below epsilon, the one before it is."""
    game, config = Toy(agents=1, turns=2), Config(memory=64, dtype="float64")
    noise = noise_numpy.draw(random.key(0), game, 0, config)
    limit = np.float32(0.7)
    explore = np.array([np.nextafter(limit, np.float32(0)), limit], np.float32).reshape(2, 1, 1)
    noise = noise._replace(explore=explore, action=np.full((2, 1, 1), 2, np.int32))
    assert float(limit) < 0.7

    def act(agent, stack, fractions):
        assert stack.dtype == fractions.dtype == np.float64
        return np.zeros(1, np.int32)

    episode, _ = rollout_numpy.play(game, act, np.zeros((1, 1, 4, 3), np.int8), noise, np.array([0.7]), config)
    assert episode.action.ravel().tolist() == [2, 0]


def test_returns_are_means_over_worlds():
    reward = np.array([[[1, 10], [3, 30]], [[0.5, 0], [0.5, -4]]], np.float32)  # 2 turns, 2 worlds, 2 agents
    episode = Episode(None, None, reward, None)
    assert rollout_numpy.returns(episode) == {"return": 20.5, "return_0": 2.5, "return_1": 18.0}
