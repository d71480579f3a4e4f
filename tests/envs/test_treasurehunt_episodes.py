"""Whole episodes of treasurehunt: NumPy against objects, every broken rule noticed, any batch of games."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from treasurehunt_cases import LEFT, RIGHT, NumpyGame, f32

from crossfade.envs.game import MOVES, ORDERS
from crossfade.envs.treasurehunt import treasurehunt_numpy
from crossfade.envs.treasurehunt.params import AGENT, FIRST_ITEM, WALL, State, TreasurehuntParams
from crossfade.envs.treasurehunt.scalar import ScalarGame
from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt
from crossfade.random import random_numpy as random
from default_run import few

# Whole episodes: NumPy against objects


class Noise(NamedTuple):
    """What decides an episode of several games."""

    start: np.ndarray  # (games, inner)
    turn: np.ndarray  # (turns, games, inner)
    order: np.ndarray  # (turns, games, agents)
    action: np.ndarray  # (turns, games, agents)
    reward: np.ndarray  # (turns, games, agents)


def draw(params, order, games, turns, seed=0):
    """Numbers are multiples of 1/32 now and then, so that they meet each other and thresholds."""
    rng, agents = np.random.default_rng(seed), params.agents
    shapes = (games, params.inner), (turns, games, params.inner), (turns, games, agents)
    start, turn, reward = (rng.random(shape, f32) for shape in shapes)
    coarse = lambda x: np.where(rng.random(x.shape) < 0.5, np.floor(x * 32) / 32, x).astype(f32)
    ranks = np.broadcast_to(np.arange(agents), (turns, games, agents))
    orders = {
        "fixed": ranks,
        "rotated": (ranks + np.arange(turns)[:, None, None]) % agents,
        "shuffled": rng.permuted(ranks, axis=-1),
    }
    action = rng.integers(0, 4, (turns, games, agents), np.int32)
    return Noise(coarse(start), coarse(turn), orders[order].astype(np.int32), action, coarse(reward))


def walk_numpy(params, moves, noise):
    """All games at once."""
    game = Treasurehunt(params)
    state = game.begin(noise.start)
    everyone = lambda state: np.stack([game.observe(state, agent) for agent in range(params.agents)], -2)
    pick = lambda x, agent: np.take_along_axis(x, agent[:, None], -1)[:, 0]
    states, seen, rewards = [state], [], []
    for turn, order, action, uniform in zip(noise.turn, noise.order, noise.action, noise.reward, strict=True):
        state = game.start_turn(state, turn)
        states.append(state)
        observation = everyone(state)
        if moves == "simultaneous":
            state, reward = game.move_together(state, action, order, uniform)
        else:
            reward = np.zeros(action.shape, f32)
            for agent in order.T:
                at = (np.arange(len(agent)), agent)
                if moves == "sequential":
                    observation[at] = game.observe(state, agent)
                state, reward[at] = game.move(state, agent, pick(action, agent), pick(uniform, agent))
        states.append(state)
        seen.append(observation)
        rewards.append(reward)
    record = {name: np.stack(column) for name, column in zip(State._fields, zip(*states, strict=True), strict=True)}
    return record | {"observation": np.stack([*seen, everyone(state)]), "reward": np.stack(rewards)}


def walk_scalar(params, moves, noise):
    """One game after the other."""
    games = [_walk_one(ScalarGame(params), moves, Noise(*map(np.asarray, one))) for one in _each_game(noise)]
    return {name: np.stack([game[name] for game in games], 1) for name in games[0]}


def _each_game(noise):
    for game in range(len(noise.start)):
        yield noise.start[game], *(x[:, game] for x in noise[1:])


def _walk_one(game, moves, noise):
    game.begin(noise.start)
    agents = range(game.params.agents)
    states, seen, rewards = [game.state], [], []
    for turn, order, action, uniform in zip(noise.turn, noise.order, noise.action, noise.reward, strict=True):
        game.start_turn(turn)
        states.append(game.state)
        observation = [game.observe(agent) for agent in agents]
        if moves == "simultaneous":
            reward = game.move_together(action, order, uniform)
        else:
            reward = np.zeros(len(agents), f32)
            for agent in order.tolist():
                if moves == "sequential":
                    observation[agent] = game.observe(agent)
                reward[agent] = game.move(agent, int(action[agent]), uniform[agent])
        states.append(game.state)
        seen.append(observation)
        rewards.append(reward)
    record = {name: np.stack(column) for name, column in zip(State._fields, zip(*states, strict=True), strict=True)}
    seen.append([game.observe(agent) for agent in agents])
    return record | {"observation": np.array(seen), "reward": np.stack(rewards)}


def assert_equal(got, expected):
    assert got.keys() == expected.keys()
    for name in got:
        assert got[name].dtype == expected[name].dtype and got[name].shape == expected[name].shape, name
        assert (got[name] == expected[name]).all(), name


THREE = ("gem:10:0.03125", "food:5:0.03125", "bone:-10:0.0625")

DECKS = ("bad:100:0.0625:0.5:-250", "good:50:0.0625:0.1:-125", "plain:1:0.02")

CASES = {
    **{f"10x10 radius {r}": TreasurehuntParams(radius=r) for r in (2, 3, 4)},
    **{f"9x9 radius {r}": TreasurehuntParams(9, 9, radius=r, items=THREE) for r in (2, 3, 4)},
    **{f"11x8 radius {r}": TreasurehuntParams(11, 8, radius=r, wall_value=-0.1) for r in (2, 3)},
    **{
        f"21x21 radius {r}": TreasurehuntParams(21, 21, 4, radius=r, items=THREE, sand=False, wall_layers=1)
        for r in (2, 3, 4)
    },
    "crowd": TreasurehuntParams(5, 6, agents=8, radius=1, items=THREE),
    "tag": TreasurehuntParams(6, 5, agents=4, radius=2, rule="tag", tag_reward=0.3),
    "tag without items": TreasurehuntParams(10, 10, agents=5, radius=2, rule="tag", items=()),
    "decks": TreasurehuntParams(7, 7, agents=4, radius=3, items=DECKS),
    "tag with decks": TreasurehuntParams(5, 5, agents=5, radius=1, items=DECKS, rule="tag"),
    "one cell": TreasurehuntParams(3, 3, agents=1, radius=1, rule="tag"),
    "blind": TreasurehuntParams(4, 7, agents=3, radius=0),
}


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("name", few(CASES, *list(CASES)[::3]))
def test_numpy_and_objects_play_the_same_episodes(name, moves):
    params = CASES[name]
    for seed, order in enumerate(ORDERS):
        noise = draw(params, order, games=2, turns=12, seed=seed)
        assert_equal(walk_numpy(params, moves, noise), walk_scalar(params, moves, noise))


@pytest.mark.parametrize("moves", MOVES)
def test_a_whole_episode_from_numbers_of_a_key(moves):
    params, games = TreasurehuntParams(), 4
    keys = random.split(random.key(7), 4)
    shape = (params.turns, games, params.agents)
    noise = Noise(
        random.uniform(keys[0], (games, params.inner)),
        random.uniform(keys[1], (params.turns, games, params.inner)),
        np.broadcast_to(np.arange(params.agents, dtype=np.int32), shape),
        (4 * random.uniform(keys[2], shape)).astype(np.int32),
        random.uniform(keys[3], shape),
    )
    walked = walk_numpy(params, moves, noise)
    assert_equal(walked, walk_scalar(params, moves, noise))
    assert set(np.unique(walked["reward"])) == {-1, 0, 10}


def test_the_three_kinds_of_turns_differ():
    params = CASES["crowd"]
    noise = draw(params, "shuffled", games=3, turns=15)
    sequential, stale, simultaneous = (walk_numpy(params, moves, noise) for moves in MOVES)
    assert (sequential["grid"] == stale["grid"]).all() and (sequential["reward"] == stale["reward"]).all()
    assert (sequential["observation"] != stale["observation"]).any()
    assert (sequential["grid"] != simultaneous["grid"]).any()


def test_episodes_show_what_can_happen():
    noise = draw(CASES["decks"], "shuffled", games=8, turns=15, seed=2)
    for moves in MOVES:
        rewards = walk_numpy(CASES["decks"], moves, noise)["reward"]
        assert set(np.unique(rewards)) >= {-150, 100, -75, 50, -1, 0}
    noise = draw(CASES["tag"], "shuffled", games=8, turns=15, seed=2)
    for moves in MOVES:
        walked = walk_numpy(CASES["tag"], moves, noise)
        assert (walked["role"].sum(-1) == 1).all() and len(np.unique(walked["role"].argmax(-1))) == 4
        assert {-1, 0, f32(-1) + f32(0.3), f32(0.3)} <= set(np.unique(walked["reward"]))


# A broken rule is noticed


def _replace(table, name, *entries):
    """Another value in a table that NumPy reads, of params or of the game."""

    def broken(game, patch):
        holder = game.params if table == "params" else game
        array = getattr(holder, name).copy()
        for where, value in entries:
            array[where] = value
        patch.setitem(vars(holder), name, array)

    return broken


def _nobody_passes(game, patch):
    patch.setattr(Treasurehunt, "_passed", lambda self, place, role, agent: role)


def _last_neighbour(game, patch):
    passed = Treasurehunt._passed

    def reversed_order(self, place, role, agent):
        other = Treasurehunt(self.params)
        vars(other)["_steps"] = self._steps[::-1].copy()
        return passed(other, place, role, agent)

    patch.setattr(Treasurehunt, "_passed", reversed_order)


def _conflicts_are_settled_by_order(game, patch):
    enter = Treasurehunt._enter
    patch.setattr(Treasurehunt, "_enter", lambda *arguments: enter(*arguments[:-1], True))


def _unstable_order(game, patch):
    argsort = np.argsort
    last = lambda x, axis, kind: x.shape[-1] - 1 - argsort(x[..., ::-1], axis=axis, kind=kind)
    patch.setattr(treasurehunt_numpy.np, "argsort", last)


BROKEN = {
    "rarer items": ("crowd", MOVES, _replace("params", "thresholds", (2, 0.1))),
    "ties of thresholds": (
        "crowd",
        MOVES,
        _replace("params", "thresholds", (slice(None), np.nextafter([1 / 32, 2 / 32, 4 / 32], 1, dtype=f32))),
    ),
    "ties of places": ("crowd", MOVES, _unstable_order),
    "left is right": ("crowd", MOVES, _replace("game", "_steps", (LEFT, 1), (RIGHT, -1))),
    "one column on": ("crowd", MOVES, _replace("game", "_window", (3, 0))),
    "transposed places": ("crowd", MOVES, _replace("game", "_inner", ([0, 1], [22, 21]))),
    "single walls": ("crowd", MOVES, _replace("params", "appearance", ((WALL, 1), 1))),
    "sand under walls": ("crowd", MOVES, _replace("params", "appearance", ((WALL, 2), 1))),
    "walls are free": ("crowd", MOVES, _replace("params", "values", (WALL, 0))),
    "agents give way": ("crowd", MOVES, _replace("game", "_passable", (AGENT, True))),
    "items block": ("crowd", MOVES, _replace("game", "_passable", (FIRST_ITEM, False))),
    "conflicts": ("crowd", ("simultaneous",), _conflicts_are_settled_by_order),
    "chance": ("decks", MOVES, _replace("params", "chances", (FIRST_ITEM, 0.75))),
    "change": ("decks", MOVES, _replace("params", "changes", (FIRST_ITEM, -251))),
    "nobody passes": ("tag", MOVES, _nobody_passes),
    "last neighbour": ("tag", MOVES, _last_neighbour),
}


@cache
def _sound(name, moves):
    """Noise, and the episodes that objects play by it, as NumPy does."""
    noise = draw(CASES[name], "shuffled", games=4, turns=12, seed=2)
    expected = walk_scalar(CASES[name], moves, noise)
    assert_equal(walk_numpy(CASES[name], moves, noise), expected)
    return noise, expected


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_noticed(broken, monkeypatch):
    name, noticed, change = BROKEN[broken]
    params, sound = CASES[name], {moves: _sound(name, moves) for moves in noticed}
    game = Treasurehunt(params)
    change(game, monkeypatch)
    monkeypatch.setitem(globals(), "Treasurehunt", lambda params: game)
    for noise, expected, moves in ((*sound[moves], moves) for moves in noticed):
        broken_walk = walk_numpy(params, moves, noise)
        with pytest.raises(AssertionError):
            assert_equal(broken_walk, expected)


# Batches


@pytest.mark.parametrize("name", ["crowd", "tag with decks"])
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (0,)])
def test_any_batch_shape_agrees_with_single_games(name, batch):
    params = CASES[name]
    game, rng, n = Treasurehunt(params), np.random.default_rng(3), int(np.prod(batch))
    uniform = lambda *shape: rng.random((n, *shape), f32)
    shaped = lambda x: x.reshape((*batch, *x.shape[1:]))
    same = lambda got, single: _same_in_every_game(got, single, batch)

    numbers = uniform(params.inner)
    state, single = game.begin(shaped(numbers)), [game.begin(one) for one in numbers]
    same(state, single)
    for _ in range(12):
        numbers = uniform(params.inner)
        state, single = game.start_turn(state, shaped(numbers)), list(map(game.start_turn, single, numbers))
        same(state, single)
        for agent in range(params.agents):
            same(game.observe(state, agent), [game.observe(one, agent) for one in single])
        each = rng.integers(0, params.agents, n, np.int32)
        same(game.observe(state, shaped(each)), list(map(game.observe, single, each)))
        action, numbers = rng.integers(0, 4, n, np.int32), uniform()
        moved = game.move(state, shaped(each), shaped(action), shaped(numbers))
        alone = list(map(game.move, single, each, action, numbers))
        same((*moved[0], moved[1]), [(*after, reward) for after, reward in alone])
        state, single = moved[0], [after for after, _ in alone]
        action, numbers = rng.integers(0, 4, (n, params.agents), np.int32), uniform(params.agents)
        order = rng.permuted(np.broadcast_to(np.arange(params.agents, dtype=np.int32), action.shape), axis=-1)
        moved = game.move_together(state, shaped(action), shaped(order), shaped(numbers))
        alone = list(map(game.move_together, single, action, order, numbers))
        same((*moved[0], moved[1]), [(*after, reward) for after, reward in alone])
        state, single = moved[0], [after for after, _ in alone]


def _same_in_every_game(got, single, batch):
    """Arrays of all games, one or several, against those of each game."""
    got, single = (got, single) if isinstance(got, tuple) else ((got,), [(one,) for one in single])
    for field, array in enumerate(got):
        assert array.shape[: len(batch)] == batch
        flat = array.reshape(-1, *array.shape[len(batch) :])
        assert len(flat) == len(single)
        for one, other in zip(flat, single, strict=True):
            assert one.dtype == other[field].dtype and one.shape == other[field].shape
            assert (one == other[field]).all()


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_never_changed(name):
    params, agents = CASES[name], CASES[name].agents
    game, rng = NumpyGame(params), np.random.default_rng(4)  # its arrays cannot be written to
    fixed = lambda x: (x.setflags(write=False), x)[1]
    game.begin(fixed(rng.random(params.inner, f32)))
    for _ in range(3):
        before = [array.copy() for array in game.state]
        state = game.state
        game.start_turn(fixed(rng.random(params.inner, f32)))
        game.move(0, RIGHT, 0.5)
        everyone = fixed(np.arange(agents, dtype=np.int32))
        game.move_together(fixed(rng.integers(0, 4, agents, np.int32)), everyone, fixed(rng.random(agents, f32)))
        assert all((a == b).all() for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_objects_go_on_from_a_state(name):
    params = CASES[name]
    noise = draw(params, "fixed", games=1, turns=8)
    states = walk_numpy(params, "sequential", noise)
    state = State(*(states[field][-1, 0] for field in State._fields))
    game = ScalarGame(params)
    game.resume(state)
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(game.state, state, strict=True))
