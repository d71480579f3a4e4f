"""Treasurehunt: the rules by hand, in NumPy and as objects, and both equal over whole episodes."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from crossfade.envs.game import MOVES, ORDERS, Game
from crossfade.envs.treasurehunt import treasurehunt_numpy
from crossfade.envs.treasurehunt.params import AGENT, EMPTY, FIRST_ITEM, WALL, State, TreasurehuntParams
from crossfade.envs.treasurehunt.scalar import ScalarGame
from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt
from crossfade.errors import UsageError
from crossfade.random import random_numpy as random

UP, DOWN, LEFT, RIGHT = range(4)
f32 = np.float32


class NumpyGame:
    """One game in NumPy with the face of `ScalarGame`; states cannot be written to."""

    def __init__(self, params):
        self.game = Treasurehunt(params)

    def resume(self, state):
        for array in state:
            array.flags.writeable = False
        self.state = state

    def begin(self, uniform):
        self.resume(self.game.begin(uniform))

    def start_turn(self, uniform):
        self.resume(self.game.start_turn(self.state, uniform))

    def observe(self, agent):
        return self.game.observe(self.state, agent)

    def move(self, agent, action, uniform):
        state, reward = self.game.move(self.state, agent, np.int32(action), f32(uniform))
        self.resume(state)
        return reward

    def move_together(self, action, order, uniform):
        state, reward = self.game.move_together(self.state, action, order, uniform)
        self.resume(state)
        return reward


ENGINES = [NumpyGame, ScalarGame]
both = pytest.mark.parametrize("engine", ENGINES)


def read(params, picture, it=None):
    """The state that a picture shows: # wall, . empty, agents by number, items by the first letter of their names."""
    lines = picture.split()
    assert len(lines) == params.height and {len(line) for line in lines} == {params.width}
    letters = {"#": WALL, ".": EMPTY} | {item.name[0]: FIRST_ITEM + k for k, item in enumerate(params.table)}
    columns, margin = params.width + 2 * params.radius, params.radius
    grid = np.full((params.height + 2 * margin, columns), FIRST_ITEM + len(params.table), np.int8)
    place = np.zeros(params.agents, np.int32)
    for (i, line), j in product(enumerate(lines, margin), range(params.width)):
        letter = line[j]
        grid[i, margin + j] = AGENT if letter.isdigit() else letters[letter]
        if letter.isdigit():
            place[int(letter)] = i * columns + margin + j
    return State(grid, place, (np.arange(params.agents) == (-1 if it is None else it)).astype(np.int8))


def play(engine, params, picture, it=None):
    """A game as a picture shows it."""
    game = engine(params)
    game.resume(read(params, picture, it))
    return game


def assert_shows(game, params, picture, it=None):
    for name, got, expected in zip(State._fields, game.state, read(params, picture, it), strict=True):
        assert got.dtype == expected.dtype and (got == expected).all(), name


def together(game, action, order=None, uniform=None):
    n = len(action)
    order = np.array(range(n) if order is None else order, np.int32)
    uniform = np.full(n, 0.99, f32) if uniform is None else np.array(uniform, f32)
    reward = game.move_together(np.array(action, np.int32), order, uniform)
    assert reward.dtype == f32
    return reward.tolist()


# Beginnings


@both
def test_agents_stand_on_the_smallest_numbers_and_of_equal_ones_on_the_first(engine):
    params = TreasurehuntParams(height=4, width=5, agents=3, radius=1)
    game = engine(params)
    game.begin(np.array([0.5, 0.2, 0.9, 0.2, 0.1, 0.7], f32))
    assert_shows(
        game,
        params,
        """
        #####
        #.1.#
        #20.#
        #####
        """,
    )
    assert game.state.place.tolist() == [3 * 7 + 3, 2 * 7 + 3, 3 * 7 + 2]  # a margin of one cell, 7 columns


@both
def test_agent_0_is_it_at_the_start_of_tag_and_nobody_is_elsewhere(engine):
    for rule, role in (("tag", [1, 0, 0]), ("none", [0, 0, 0])):
        game = engine(TreasurehuntParams(height=4, width=5, agents=3, radius=1, rule=rule))
        game.begin(np.array([0.5, 0.2, 0.9, 0.2, 0.1, 0.7], f32))
        assert game.state.role.tolist() == role and game.state.role.dtype == np.int8


@both
def test_a_map_may_be_full_of_agents(engine):
    params = TreasurehuntParams(height=3, width=4, agents=2, radius=1)
    game = engine(params)
    game.begin(np.array([0.5, 0.25], f32))
    assert_shows(game, params, "#### #10# ####")


# Items


@both
def test_items_appear_between_their_thresholds(engine):
    params = TreasurehuntParams(
        height=4, width=6, agents=1, radius=1, items=("apple:1:0.25", "bone:2:0.5", "never:9:0", "coin:3:0.125")
    )
    game = play(engine, params, "###### #0...# #....# ######")
    below = lambda x: np.nextafter(f32(x), f32(0))
    game.start_turn(np.array([0, 0, below(0.25), 0.25, below(0.75), 0.75, below(0.875), 0.875], f32))
    assert_shows(game, params, "###### #0aab# #bcc.# ######")


@both
def test_items_and_agents_stay_when_others_appear(engine):
    params = TreasurehuntParams(height=4, width=5, agents=1, radius=1, items=("apple:1:0.25", "bone:2:0.5"))
    game = play(engine, params, "##### #0ab# #..a# #####")
    game.start_turn(np.array([0, 0.5, 0, 0.5, 0, 0.9], f32))
    assert_shows(game, params, "##### #0ab# #baa# #####")


@both
def test_thresholds_are_float32(engine):
    params = TreasurehuntParams(height=3, width=5, agents=1, radius=1)
    assert float(f32(0.02)) < 0.02  # a comparison in float64 would let a gem appear
    game = play(engine, params, "##### #0..# #####")
    game.start_turn(np.array([0, 0.02, np.nextafter(f32(0.02), f32(0))], f32))
    assert_shows(game, params, "##### #0.g# #####")


@both
def test_a_game_may_have_no_items(engine):
    params = TreasurehuntParams(height=3, width=5, agents=1, radius=1, items=())
    game = play(engine, params, "##### #0..# #####")
    game.start_turn(np.zeros(3, f32))
    assert_shows(game, params, "##### #0..# #####")
    assert params.channels == ("empty", "wall", "sand", "agent")


# Moves


@both
def test_rewards_are_read_before_the_move(engine):
    params = TreasurehuntParams(height=4, width=6, agents=2, radius=1, wall_value=-1.5)
    game = play(engine, params, "###### #0g..# #.1..# ######")
    reward = game.move(0, RIGHT, 0.5)
    assert reward == 10 and np.asarray(reward).dtype == f32
    assert_shows(game, params, "###### #.0..# #.1..# ######")
    assert game.move(0, UP, 0.5) == -1.5
    assert game.move(1, UP, 0.5) == 0  # another agent
    assert_shows(game, params, "###### #.0..# #.1..# ######")
    assert [game.move(0, action, 0.5) for action in (LEFT, DOWN, LEFT)] == [0, 0, -1.5]
    assert_shows(game, params, "###### #....# #01..# ######")


@both
def test_a_cell_that_was_left_can_be_entered_in_the_same_turn(engine):
    params = TreasurehuntParams(height=3, width=6, agents=2, radius=1)
    game = play(engine, params, "###### #01.g# ######")
    assert [game.move(agent, RIGHT, 0.5) for agent in (1, 0)] == [0, 0]
    assert_shows(game, params, "###### #.01g# ######")
    assert [game.move(agent, RIGHT, 0.5) for agent in (0, 1)] == [0, 10]  # the first of the train bumps
    assert_shows(game, params, "###### #.0.1# ######")


@both
def test_agents_do_not_swap(engine):
    params = TreasurehuntParams(height=3, width=6, agents=2, radius=1)
    game = play(engine, params, "###### #.01.# ######")
    assert [game.move(0, RIGHT, 0.5), game.move(1, LEFT, 0.5)] == [0, 0]
    assert together(game, [RIGHT, LEFT]) == [0, 0]
    assert_shows(game, params, "###### #.01.# ######")


@both
def test_a_reward_changes_by_chance(engine):
    params = TreasurehuntParams(height=3, width=6, agents=1, radius=1, items=("deck:100:0.25:0.7:-250",))
    assert float(f32(0.7)) < 0.7  # a comparison in float64 would change the reward
    for uniform, reward in ((0.0, -150), (np.nextafter(f32(0.7), f32(0)), -150), (f32(0.7), 100), (0.9, 100)):
        game = play(engine, params, "###### #0d..# ######")
        assert game.move(0, RIGHT, uniform) == reward
        assert game.move(0, RIGHT, uniform) == 0  # nothing there to change
        assert game.move(0, UP, uniform) == -1


@both
def test_changed_rewards_are_summed_in_float32(engine):
    params = TreasurehuntParams(height=3, width=6, agents=1, radius=1, items=("deck:0.1:0.25:1:16777216",))
    game = play(engine, params, "###### #0d..# ######")
    assert game.move(0, RIGHT, 0.5) == 16777216


# Moves made together


@both
@pytest.mark.parametrize("between", ["g", "#", "."])
def test_of_two_agents_that_want_one_cell_none_gets_it(engine, between):
    params = TreasurehuntParams(height=4, width=6, agents=3, radius=1)
    picture = f"###### #0{between}1.# #...2# ######"
    game = play(engine, params, picture)
    assert together(game, [RIGHT, LEFT, RIGHT]) == [0, 0, -1]
    assert_shows(game, params, picture)
    alone = {"g": 10, "#": -1, ".": 0}[between]
    assert together(game, [RIGHT, DOWN, RIGHT]) == [alone, 0, -1]
    assert_shows(
        game,
        params,
        f"###### #0{between}..# #..12# ######" if between == "#" else "###### #.0..# #..12# ######",
    )


@both
def test_two_agents_that_want_the_cell_of_a_third_stay_when_it_leaves(engine):
    params = TreasurehuntParams(height=4, width=6, agents=3, radius=1)
    for order in ([1, 0, 2], [0, 1, 2]):
        game = play(engine, params, "###### #012.# #.g..# ######")
        assert together(game, [RIGHT, DOWN, LEFT], order) == [0, 10, 0]
        assert_shows(game, params, "###### #0.2.# #.1..# ######")


@both
def test_followers_move_in_the_given_order(engine):
    params = TreasurehuntParams(height=3, width=7, agents=3, radius=1)
    after = {(0, 1, 2): "#01.2.#", (2, 1, 0): "#.012.#", (2, 0, 1): "#0.12.#", (1, 2, 0): "#01.2.#"}
    for order, row in after.items():
        game = play(engine, params, "####### #012g.# #######")
        assert together(game, [RIGHT] * 3, order) == [0, 0, 10]
        assert_shows(game, params, f"####### {row} #######")


@both
def test_an_agent_that_bumps_blocks_and_a_ring_does_not_turn(engine):
    params = TreasurehuntParams(height=4, width=4, agents=4, radius=1)
    game = play(engine, params, "#### #01# #23# ####")
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        assert together(game, [RIGHT, DOWN, UP, LEFT], order) == [0, 0, 0, 0]
    assert together(game, [RIGHT, UP, RIGHT, DOWN], [1, 3, 0, 2]) == [0, -1, 0, -1]
    assert_shows(game, params, "#### #01# #23# ####")


@both
def test_each_agent_has_a_chance_of_its_own(engine):
    params = TreasurehuntParams(height=4, width=5, agents=3, radius=1, items=("deck:100:0.25:0.5:-250",))
    for uniform, reward in (((0.5, 0.4, 0), [100, -150, -1]), ((0.4, 0.5, 0), [-150, 100, -1])):
        game = play(engine, params, "##### #0d.# #1d2# #####")
        assert together(game, [RIGHT, RIGHT, RIGHT], uniform=uniform) == reward
    game = play(engine, params, "##### #0d.# #1d2# #####")
    assert together(game, [RIGHT, RIGHT, LEFT], uniform=(0, 0, 0)) == [-150, 0, 0]  # no chance in a conflict
    assert_shows(game, params, "##### #.0.# #1d2# #####")


# Tag


TAG = TreasurehuntParams(height=4, width=6, agents=3, radius=1, rule="tag")


@both
def test_the_agent_that_is_it_passes_the_role_when_it_has_acted(engine):
    game = play(engine, TAG, "###### #01..# #..2.# ######", it=0)
    assert game.move(0, LEFT, 0.5) == -1 + 10  # it bumps, passes the role and is not it any more
    assert_shows(game, TAG, "###### #01..# #..2.# ######", it=1)
    assert [game.observe(agent)[-1] for agent in range(3)] == [0, 1, 0]
    assert game.move(2, UP, 0.5) == 10
    assert game.move(1, UP, 0.5) == -1 + 10  # left comes before right
    assert_shows(game, TAG, "###### #012.# #....# ######", it=0)


@both
def test_up_comes_before_down(engine):
    params = TreasurehuntParams(height=5, width=5, agents=4, radius=1, rule="tag")
    game = play(engine, params, "##### #.2.# #.03# #.1.# #####", it=0)
    assert game.move(0, RIGHT, 0.5) == 10
    assert_shows(game, params, "##### #.2.# #.03# #.1.# #####", it=2)
    game = play(engine, params, "##### #...# #203# #.1.# #####", it=0)
    assert game.move(0, RIGHT, 0.5) == 10
    assert_shows(game, params, "##### #...# #203# #.1.# #####", it=1)


@both
def test_the_role_is_passed_from_where_the_agent_now_stands(engine):
    game = play(engine, TAG, "###### #01..# #..2.# ######", it=0)
    assert game.move(0, DOWN, 0.5) == 0  # away from agent 1, and diagonally is not beside
    assert_shows(game, TAG, "###### #.1..# #0.2.# ######", it=0)
    assert game.move(0, RIGHT, 0.5) == 10  # up comes before right
    assert_shows(game, TAG, "###### #.1..# #.02.# ######", it=1)


@both
def test_whoever_is_not_it_passes_nothing(engine):
    game = play(engine, TAG, "###### #0g.2# #1...# ######", it=2)
    assert game.move(0, RIGHT, 0.5) == 10 + 10
    assert game.move(1, DOWN, 0.5) == -1 + 10
    assert game.move(2, UP, 0.5) == -1
    assert_shows(game, TAG, "###### #.0.2# #1...# ######", it=2)


@both
def test_together_all_move_then_the_role_is_passed_once_then_each_is_judged(engine):
    game = play(engine, TAG, "###### #0.1.# #...2# ######", it=0)
    assert together(game, [RIGHT, UP, RIGHT]) == [10, -1, -1 + 10]  # agent 1 is it now, and does not pass it on
    assert_shows(game, TAG, "###### #.01.# #...2# ######", it=1)
    game = play(engine, TAG, "###### #0.1.# #...2# ######", it=0)
    assert together(game, [RIGHT, LEFT, RIGHT]) == [0, 10, -1 + 10]  # the 0 of a conflict, and the reward of tag
    assert_shows(game, TAG, "###### #0.1.# #...2# ######", it=0)
    game = play(engine, TAG, "###### #01..# #...2# ######", it=0)
    assert together(game, [LEFT, RIGHT, LEFT]) == [-1, 10, 10]  # agent 1 has left when the role would be passed
    assert_shows(game, TAG, "###### #0.1.# #..2.# ######", it=0)


def test_tag_has_one_more_number_in_the_observation():
    plain = TreasurehuntParams(height=4, width=6, agents=3, radius=1)
    assert Treasurehunt(plain).observation_dim == 5 * 9
    assert Treasurehunt(TAG).observation_dim == 5 * 9 + 1


# Observations


@both
def test_an_observation_by_hand(engine):
    params = TreasurehuntParams(height=5, width=5, agents=2, radius=2)
    game = play(engine, params, "##### #0g.# #...# #..1# #####")
    wall = [[1, 1, 1, 1, 1], [1, 2, 2, 2, 2], [1, 2, 0, 0, 0], [1, 2, 0, 0, 0], [1, 2, 0, 0, 0]]
    sand = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]]
    gem = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    agent = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    expected = np.array([np.zeros((5, 5)), wall, sand, gem, agent], np.int8).reshape(-1)
    got = game.observe(0)
    assert got.dtype == np.int8 and got.shape == (125,) and (got == expected).all()


@both
def test_an_observation_without_sand_and_with_single_walls(engine):
    params = TreasurehuntParams(
        height=4, width=5, agents=2, radius=1, sand=False, wall_layers=1, items=("gem:10:0.1", "bone:-10:0.1")
    )
    game = play(engine, params, "##### #.g0# #1b.# #####")
    wall = [[1, 1, 1], [0, 0, 1], [0, 0, 1]]
    gem = [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    bone = [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    agent = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    expected = np.array([np.zeros((3, 3)), wall, gem, bone, agent], np.int8).reshape(-1)
    assert (game.observe(0) == expected).all()
    lower_left = np.array([[[1, 0, 0], [1, 0, 0], [1, 1, 1]]], np.int8)
    assert (game.observe(1)[9:18] == lower_left.reshape(-1)).all()


@both
def test_an_agent_with_radius_0_sees_itself(engine):
    params = TreasurehuntParams(height=3, width=5, agents=1, radius=0)
    game = play(engine, params, "##### #.0.# #####")
    assert game.observe(0).tolist() == [0, 0, 1, 0, 1]
    assert game.move(0, LEFT, 0.5) == 0 and game.move(0, LEFT, 0.5) == -1


# Params


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(height=4, width=4, agents=5, radius=1), "agents: expected at most 4"),
        (dict(agents=0), "agents: expected"),
        (dict(height=2), "height: expected"),
        (dict(radius=5), "At most 4"),
        (dict(height=11, width=8, radius=4), "At most 3"),
        (dict(items=("gem",)), "name:value:spawn"),
        (dict(items=("gem:10",)), "name:value:spawn"),
        (dict(items=("gem:10:0.1:0.5",)), "name:value:spawn"),
        (dict(items=("gem:ten:0.1",)), "name:value:spawn"),
        (dict(items=("gem:10:1.5",)), "probabilities"),
        (dict(items=("gem:10:0.1:-0.5:1",)), "probabilities"),
        (dict(items=("gem:inf:0.1",)), "finite"),
        (dict(items=("gem:nan:0.1",)), "finite"),
        (dict(items=("wall:10:0.1",)), "other than"),
        (dict(items=("two words:10:0.1",)), "A name is a word"),
        (dict(items=("gem:10:0.1", "gem:5:0.1")), "'gem' twice"),
        (dict(items=("gem:10:0.6", "bone:5:0.6")), "sum to at most 1"),
        (dict(items=tuple(f"item{k}:1:0" for k in range(101))), "at most 100"),
        (dict(wall_value=float("nan")), "wall_value: expected"),
    ],
)
def test_bad_params_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        TreasurehuntParams(**wrong)


def test_a_game_has_the_face_of_a_game():
    game = Treasurehunt(TreasurehuntParams(height=6, width=9, agents=3, turns=7))
    assert isinstance(game, Game)
    assert (game.agents, game.n_actions, game.turns, game.observation_dim) == (3, 4, 7, 125)
    assert game.start_numbers == game.turn_numbers == 4 * 7
    assert game == Treasurehunt(game.params) and len({game, Treasurehunt(game.params)}) == 1
    assert game != Treasurehunt(TreasurehuntParams())


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
@pytest.mark.parametrize("name", CASES)
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
