"""Treasurehunt behind PettingZoo's two faces is the same treasurehunt, and PettingZoo has nothing to say against it."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from crossfade.envs.treasurehunt.params import TreasurehuntParams
from crossfade.envs.treasurehunt.pettingzoo_env import aec_env, parallel_env
from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt
from crossfade.errors import UsageError
from crossfade.random import random_numpy as random

SMALL = {"height": 6, "width": 7, "agents": 3, "radius": 1, "turns": 9, "items": ("gem:10:0.2:0.5:-3", "bone:-4:0.1")}
TAG = {"height": 6, "width": 6, "agents": 2, "radius": 1, "turns": 9, "items": (), "rule": "tag", "sand": False}
MODULE = "crossfade.envs.treasurehunt.pettingzoo_env"


@pytest.mark.parametrize("settings", [{}, SMALL, TAG], ids=["default", "small", "tag"])
def test_pettingzoo_has_nothing_to_say(settings, capsys):
    """Neither an error nor, warnings being errors, a warning."""
    parallel_api_test(parallel_env(**settings), num_cycles=120)
    api_test(aec_env(**settings), num_cycles=120)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [SMALL, TAG], ids=["small", "tag"])
def test_seeds_decide_everything(settings):
    parallel_seed_test(lambda: parallel_env(**settings))
    seed_test(lambda: aec_env(**settings))


def numbers(seed, episode, params):
    """What the module's docstring says of an episode's randomness."""
    start, turn, chance = random.split(random.fold_in(random.key(seed), episode), 3)
    each = lambda key, n: [random.uniform(random.fold_in(key, t), (n,)) for t in range(params.turns)]
    return random.uniform(start, (params.inner,)), each(turn, params.inner), each(chance, params.agents)


@pytest.mark.parametrize("settings", [SMALL, TAG], ids=["small", "tag"])
def test_parallel_steps_are_those_of_the_game(settings):
    params, env, rng = TreasurehuntParams(**settings), parallel_env(**settings), np.random.default_rng(0)
    game, order = Treasurehunt(params), np.arange(params.agents, dtype=np.int32)
    for episode in range(2):
        start, items, chance = numbers(5, episode, params)
        seen, infos = env.reset(seed=5) if episode == 0 else env.reset()
        state = game.begin(start)
        for t in range(params.turns):
            state = game.start_turn(state, items[t])
            np.testing.assert_array_equal(env.state(), state.grid)
            for k, agent in enumerate(env.agents):
                np.testing.assert_array_equal(seen[agent], game.observe(state, k))
            action = rng.integers(4, size=params.agents).astype(np.int32)
            seen, reward, terminated, truncated, infos = env.step(dict(zip(env.agents, action, strict=True)))
            state, expected = game.move_together(state, action, order, chance[t])
            assert list(reward.values()) == expected.tolist()
            assert set(truncated.values()) == {t == params.turns - 1} and not any(terminated.values())
        assert env.agents == [] and len(seen) == params.agents
        for k, agent in enumerate(env.possible_agents):  # what is seen last is not of a turn that never comes
            np.testing.assert_array_equal(seen[agent], game.observe(state, k))


@pytest.mark.parametrize("settings", [SMALL, TAG], ids=["small", "tag"])
def test_turns_are_taken_as_the_game_takes_them(settings):
    params, env, rng = TreasurehuntParams(**settings), aec_env(**settings), np.random.default_rng(0)
    game = Treasurehunt(params)
    start, items, chance = numbers(5, 0, params)
    env.reset(seed=5)
    state, earned = game.begin(start), np.zeros(params.agents)
    for t in range(params.turns):
        state = game.start_turn(state, items[t])
        for k in range(params.agents):
            assert env.agent_selection == f"agent_{k}"
            seen, reward, terminated, truncated, _ = env.last()
            np.testing.assert_array_equal(seen, game.observe(state, k))
            assert reward == earned[k] and not terminated and not truncated
            action = np.int32(rng.integers(4))
            env.step(action)
            state, got = game.move(state, k, action, chance[t][k])
            earned[k] = got
    assert env.truncations == dict.fromkeys(env.possible_agents, True) and not any(env.terminations.values())
    for k in range(params.agents):
        assert env.last()[1] == earned[k]
        env.step(None)
    assert env.agents == []


def test_both_faces_begin_alike_and_seeds_differ():
    one, other = parallel_env(**SMALL), aec_env(**SMALL)
    one.reset(seed=3)
    other.reset(seed=3)
    np.testing.assert_array_equal(one.state(), other.state())
    first = one.state()
    one.reset()
    assert (one.state() != first).any()
    one.reset(seed=3)
    np.testing.assert_array_equal(one.state(), first)
    fresh = [parallel_env(**SMALL) for _ in range(2)]
    for env in fresh:
        env.reset()
    assert (fresh[0].state() != fresh[1].state()).any()


def test_the_map_is_shown_as_text():
    env = aec_env(render_mode="ansi", height=4, width=5, agents=2, radius=1, items=("gem:1:1",))
    env.reset(seed=0)
    rows = env.render().split("\n")
    assert rows[0] == rows[3] == "#####" and all(row[0] == row[-1] == "#" and len(row) == 5 for row in rows)
    assert sorted("".join(rows).replace("#", "")) == ["0", "1", "g", "g", "g", "g"]
    row, column = divmod(int(env._state.place[1]), env.params.columns)
    assert rows[row - 1][column - 1] == "1"
    assert parallel_env().render() is None


@pytest.mark.parametrize(
    ("act", "hint"),
    [
        (lambda: parallel_env(render_mode="human"), "render_mode: expected 'ansi' or None, got 'human'"),
        (lambda: parallel_env(agents=0), "agents: expected an integer from 1"),
        (lambda: parallel_env().reset(seed=-1), "seed: expected an integer from 0"),
        (lambda: aec_env().state(), "expected reset\\(\\) first"),
        (lambda: stepped(parallel_env(**SMALL), {"agent_0": 1}), "expected an action of each of"),
        (
            lambda: stepped(parallel_env(**SMALL), dict.fromkeys(["agent_0", "agent_1", "agent_2"], 4)),
            "from 0 to 3, got 4",
        ),
        (lambda: stepped(aec_env(**SMALL), -1), "agent_0: expected an action from 0 to 3, got -1"),
    ],
)
def test_wrong_use_is_answered_in_words(act, hint):
    with pytest.raises(UsageError, match=hint):
        act()


def stepped(env, action):
    env.reset(seed=0)
    env.step(action)


def test_neither_framework_is_imported():
    code = f"import sys, {MODULE} as m; m.aec_env().reset(); assert not {{'torch', 'jax'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_pettingzoo_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(UsageError, match=r"pip install 'crossfade\[pettingzoo\]'"):
        importlib.import_module(MODULE)
