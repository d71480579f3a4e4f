"""Replay that stacks frames, in NumPy: the published buffer over three laps, and correct windows by hand."""

from dataclasses import replace

import numpy as np
import pytest
from iqn_numpy_cases import FIRST, Config, Toy, Window, after, drawn, fill, random_episode, small, windows

from crossfade.algos.iqn import replay_numpy

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
