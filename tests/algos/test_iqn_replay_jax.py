"""Replay that stacks frames, in JAX: correct windows by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_jax_cases import LARGE, SMALL, TURNS, Tiny, Toy, after, drawable_rows, episode, remember, sample, transitions

from crossfade.algos.iqn import replay_jax


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
