"""The rules of treasurehunt by hand, in NumPy and as objects."""

from itertools import product

import numpy as np
import pytest
from treasurehunt_cases import DOWN, LEFT, RIGHT, UP, NumpyGame, f32

from crossfade.envs.game import Game
from crossfade.envs.treasurehunt.params import AGENT, EMPTY, FIRST_ITEM, WALL, State, TreasurehuntParams
from crossfade.envs.treasurehunt.scalar import ScalarGame
from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt
from crossfade.errors import UsageError

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
