"""Faults of the published replay in JAX, each alone, with the number it changes."""

from dataclasses import replace

import numpy as np
import pytest
from iqn_jax_cases import LARGE, SMALL, TURNS, Toy, after, drawable_rows, episode, remember, transitions

from crossfade.algos.iqn import replay_jax

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
