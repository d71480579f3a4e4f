"""Faults of the published replay in NumPy, each alone, with the number it changes."""

from dataclasses import replace

import numpy as np
import pytest
from iqn_numpy_cases import FIRST, Config, Toy, Window, after, drawn, fill, random_episode, small, windows

from crossfade.algos.iqn import replay_numpy

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
