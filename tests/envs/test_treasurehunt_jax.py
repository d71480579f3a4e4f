"""Treasurehunt in JAX keeps the rules of its params; expected values are worked out by hand.

Games are drawn: # is a wall, . an empty cell, a digit an agent, other letters are items by the first of their name.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.envs.game import Game
from crossfade.envs.treasurehunt.params import AGENT, EMPTY, FIRST_ITEM, WALL, State, TreasurehuntParams
from crossfade.envs.treasurehunt.treasurehunt_jax import Treasurehunt

UP, DOWN, LEFT, RIGHT = range(4)
ITEMS = ("gem:10:0.1", "iowa:-2:0.25:0.5:-7", "bone:3:0.125")
PARAMS = TreasurehuntParams(height=5, width=6, agents=3, radius=1, turns=7, items=ITEMS)
TAG = TreasurehuntParams(height=5, width=6, agents=3, radius=1, items=("gem:10:0.1",), rule="tag", tag_reward=4.0)
begin = jax.jit(Treasurehunt.begin, static_argnums=0)
start_turn = jax.jit(Treasurehunt.start_turn, static_argnums=0)
observe = jax.jit(Treasurehunt.observe, static_argnums=0)
move = jax.jit(Treasurehunt.move, static_argnums=0)
move_together = jax.jit(Treasurehunt.move_together, static_argnums=0)


def game(params: TreasurehuntParams, *rows: str, it: int | None = None) -> State:
    """The game that is drawn by its inner rows."""
    codes = {".": EMPTY, "#": WALL} | {item.name[0]: FIRST_ITEM + k for k, item in enumerate(params.table)}
    walls, r = "#" * params.width, params.radius
    drawn = [walls, *(f"#{row}#" for row in rows), walls]
    grid = np.pad([[codes.get(c, AGENT) for c in row] for row in drawn], r, constant_values=params.pad)
    stands = {
        int(c): (y + r) * params.columns + x + r
        for y, row in enumerate(drawn)
        for x, c in enumerate(row)
        if c.isdigit()
    }
    place = [stands[k] for k in range(params.agents)]
    role = [k == it for k in range(params.agents)]
    return State(jnp.asarray(grid, jnp.int8), jnp.asarray(place, jnp.int32), jnp.asarray(role, jnp.int8))


def drawn(params: TreasurehuntParams, state: State) -> list[str]:
    """The inner rows of a game; walls, margin and the places of agents are checked."""
    state = jax.tree.map(np.asarray, state)
    letters = ".#?" + "".join(item.name[0] for item in params.table)
    outer = params.empty_map != EMPTY
    np.testing.assert_array_equal(state.grid[outer], params.empty_map[outer])
    cells = np.array([[letters[code] for code in row] for row in params.crop(state.grid)])
    assert (cells == "?").sum() == params.agents
    for agent, place in enumerate(state.place):
        row, column = place // params.columns - params.radius, place % params.columns - params.radius
        assert cells[row, column] == "?"
        cells[row, column] = str(agent)
    return ["".join(row[1:-1]) for row in cells[1:-1]]


def numbers(*values: float) -> Any:
    return jnp.asarray(values, jnp.float32)


def play(
    params: TreasurehuntParams, state: State, *moves: tuple[int, int], u: float = 0.9
) -> tuple[State, list[float]]:
    """Moves of single agents, one after the other."""
    rewards = []
    for agent, action in moves:
        state, reward = move(Treasurehunt(params), state, jnp.int32(agent), jnp.int32(action), jnp.float32(u))
        rewards.append(float(reward))
    return state, rewards


def together(
    params: TreasurehuntParams, state: State, action: str, order: str, u: float = 0.9
) -> tuple[State, list[float]]:
    """A move of all agents, actions by the letters u, d, l, r."""
    actions = jnp.asarray(["udlr".index(a) for a in action], jnp.int32)
    ranks = jnp.asarray([int(agent) for agent in order], jnp.int32)
    state, reward = move_together(Treasurehunt(params), state, actions, ranks, jnp.full(params.agents, u, jnp.float32))
    return state, reward.tolist()


def test_it_is_a_game_of_the_sizes_that_its_params_say():
    env, same = Treasurehunt(PARAMS), Treasurehunt(replace(PARAMS))
    assert isinstance(env, Game) and env == same and hash(env) == hash(same) and env != Treasurehunt(TAG)
    sizes = env.agents, env.observation_dim, env.n_actions, env.turns, env.start_numbers, env.turn_numbers
    assert sizes == (3, 9 * 7, 4, 7, 12, 12)  # empty, wall, sand, three items, agent
    assert Treasurehunt(TAG).observation_dim == 9 * 5 + 1


def test_agents_begin_where_the_numbers_are_smallest_and_of_equal_ones_at_the_first():
    env = Treasurehunt(PARAMS)
    uniform = numbers(0.9, 0.8, 0.3, 0.7, 0.1, 0.6, 0.5, 0.95, 0.4, 0.2, 0.85, 0.75)
    state = begin(env, uniform)
    assert drawn(PARAMS, state) == ["..2.", "0...", ".1.."]
    # with a margin of 1, 8 columns: inner cell 4 is row 3, column 2
    assert state.place.tolist() == [3 * 8 + 2, 4 * 8 + 3, 2 * 8 + 4] and state.role.tolist() == [0, 0, 0]
    tied = begin(env, numbers(0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5))
    assert drawn(PARAMS, tied) == ["12..", ".0..", "...."]
    assert drawn(PARAMS, begin(env, jnp.zeros(12, jnp.float32))) == ["012.", "....", "...."]
    assert begin(Treasurehunt(TAG), uniform).role.tolist() == [1, 0, 0]


def test_items_appear_between_their_thresholds_and_only_in_empty_cells():
    """Thresholds are 0.1, 0.35 and 0.475, in float32."""
    env, below = Treasurehunt(PARAMS), lambda x: np.nextafter(np.float32(x), np.float32(0))
    state = game(PARAMS, "....", "....", "g012")
    uniform = numbers(0, below(0.1), 0.1, 0.2, below(0.35), 0.35, below(0.475), 0.475, 0.2, 0, 0.2, 0.4)
    after = start_turn(env, state, uniform)
    assert drawn(PARAMS, after) == ["ggii", "ibb.", "g012"]
    np.testing.assert_array_equal(after.place, state.place)
    assert drawn(PARAMS, start_turn(env, after, jnp.zeros(12, jnp.float32))) == ["ggii", "ibbg", "g012"]


def test_without_items_nothing_appears():
    params = TreasurehuntParams(height=5, width=6, agents=3, radius=1, items=())
    state = start_turn(Treasurehunt(params), game(params, "....", "..2.", "01.."), jnp.zeros(12, jnp.float32))
    assert drawn(params, state) == ["....", "..2.", "01.."]


@pytest.mark.parametrize(
    ("agent", "action", "reward", "after"),
    [
        (0, UP, -1, ["01g.", ".i2b", "...."]),
        (0, LEFT, -1, ["01g.", ".i2b", "...."]),
        (0, RIGHT, 0, ["01g.", ".i2b", "...."]),
        (0, DOWN, 0, [".1g.", "0i2b", "...."]),
        (1, RIGHT, 10, ["0.1.", ".i2b", "...."]),
        (1, DOWN, -2, ["0.g.", ".12b", "...."]),
        (2, RIGHT, 3, ["01g.", ".i.2", "...."]),
        (2, UP, 10, ["012.", ".i.b", "...."]),
    ],
)
def test_a_move_brings_what_lay_in_the_cell(agent: int, action: int, reward: float, after: list[str]):
    state, rewards = play(PARAMS, game(PARAMS, "01g.", ".i2b", "...."), (agent, action))
    assert rewards == [reward] and drawn(PARAMS, state) == after


def test_lower_and_right_walls_and_their_value():
    params = TreasurehuntParams(height=5, width=6, agents=3, radius=1, items=ITEMS, wall_value=-0.25)
    state, rewards = play(params, game(params, "0...", "....", "1..2"), (2, DOWN), (2, RIGHT), (1, DOWN), (0, UP))
    assert rewards == [-0.25] * 4 and drawn(params, state) == ["0...", "....", "1..2"]


def test_what_is_taken_is_gone_and_a_cell_that_was_left_is_free_in_the_same_turn():
    state, rewards = play(PARAMS, game(PARAMS, "01g.", "....", "..2."), (1, RIGHT), (0, RIGHT), (1, LEFT), (1, RIGHT))
    assert rewards == [10, 0, 0, 0] and drawn(PARAMS, state) == [".0.1", "....", "..2."]
    state, rewards = play(PARAMS, state, (1, LEFT), (0, LEFT))
    assert rewards == [0, 0] and drawn(PARAMS, state) == ["0.1.", "....", "..2."]


def test_agents_cannot_swap():
    state, rewards = play(PARAMS, game(PARAMS, "01..", "....", "..2."), (0, RIGHT), (1, LEFT))
    assert rewards == [0, 0] and drawn(PARAMS, state) == ["01..", "....", "..2."]


@pytest.mark.parametrize(("u", "reward"), [(0.0, -9), (0.49999997, -9), (0.5, -2), (0.9, -2)])
def test_a_reward_left_to_chance_is_changed_below_the_chance(u: float, reward: float):
    drawing = ("0i..", "1...", "2...")
    state, rewards = play(PARAMS, game(PARAMS, *drawing), (0, RIGHT), u=u)
    assert rewards == [reward] and drawn(PARAMS, state) == [".0..", "1...", "2..."]
    assert together(PARAMS, game(PARAMS, *drawing), "rrr", "012", u)[1] == [reward, 0, 0]
    assert play(PARAMS, game(PARAMS, "0g..", "1...", "2..."), (0, RIGHT), u=u)[1] == [10]


@pytest.mark.parametrize(
    ("before", "action", "order", "rewards", "after"),
    [
        # two name an empty cell, an item, the cell of an agent: none of them moves, each gets 0
        (["0.1.", "....", "...2"], "rll", "012", [0, 0, 0], ["0.1.", "....", "..2."]),
        (["0g1.", "....", "...2"], "rll", "210", [0, 0, 0], ["0g1.", "....", "..2."]),
        (["021.", "....", "...."], "rld", "201", [0, 0, 0], ["0.1.", ".2..", "...."]),
        (["021.", "....", "...."], "rld", "012", [0, 0, 0], ["0.1.", ".2..", "...."]),
        (["0g1.", ".2..", "...."], "rlu", "012", [0, 0, 0], ["0g1.", ".2..", "...."]),
        # a cell of the wall can be named by one agent only, as it has one inner neighbour; in the corner are two cells
        (["0...", "1...", "..2."], "ull", "012", [-1, -1, 0], ["0...", "1...", ".2.."]),
        # rewards of items and of bumping into one agent
        (["0g.b", "...1", "..2."], "ruu", "012", [10, 3, 0], [".0.1", "..2.", "...."]),
        (["012.", "....", "...."], "rrl", "012", [0, 0, 0], ["012.", "....", "...."]),
        # followers enter what was left if those before them move first
        (["012.", "....", "...."], "rrr", "210", [0, 0, 0], [".012", "....", "...."]),
        (["012.", "....", "...."], "rrr", "012", [0, 0, 0], ["01.2", "....", "...."]),
        (["012.", "....", "...."], "rrr", "021", [0, 0, 0], ["0.12", "....", "...."]),
        (["012.", "....", "...."], "rrr", "120", [0, 0, 0], ["01.2", "....", "...."]),
        # behind one that bumps into the wall nobody moves on
        ([".012", "....", "...."], "rrr", "210", [0, 0, -1], [".012", "....", "...."]),
        # two in conflict stay, and whoever follows them stays too
        (["01.2", "....", "...."], "rrl", "120", [0, 0, 0], ["01.2", "....", "...."]),
    ],
)
def test_moves_made_together(before: list[str], action: str, order: str, rewards: list[float], after: list[str]):
    state, found = together(PARAMS, game(PARAMS, *before), action, order)
    assert found == rewards and drawn(PARAMS, state) == after


def test_two_agents_that_name_one_cell_of_a_wall_get_nothing():
    """A wall within the map, as no map of ours has it, can be named by two."""
    state = game(PARAMS, "0#1.", "....", "...2")
    after, rewards = together(PARAMS, state, "rld", "012")
    assert rewards == [0, 0, -1]
    np.testing.assert_array_equal(after.grid, state.grid)
    assert together(PARAMS, state, "rrd", "012")[1] == [-1, 0, -1]


def plain_together(cells: dict, stands: list, actions: list, order: list, values: list) -> tuple[list, list]:
    """The rule for moves made together, word by word."""
    wanted = [(y + (-1, 1, 0, 0)[a], x + (0, 0, -1, 1)[a]) for (y, x), a in zip(stands, actions, strict=True)]
    single = [wanted.count(cell) == 1 for cell in wanted]
    rewards = [values[cells[cell]] if one else 0 for cell, one in zip(wanted, single, strict=True)]
    for agent in order:
        if single[agent] and cells[wanted[agent]] not in (WALL, AGENT):
            cells[stands[agent]], cells[wanted[agent]] = EMPTY, AGENT
            stands[agent] = wanted[agent]
    return stands, rewards


def test_crowds_that_move_together_follow_the_rule_word_by_word():
    """12 agents on 4 x 5 inner cells, 300 games at once."""
    params, games = TreasurehuntParams(height=6, width=7, agents=12, radius=0, items=("gem:10:0.3",)), 300
    env, rng = Treasurehunt(params), np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.random((games, *shape)), jnp.float32)
    state = start_turn(env, begin(env, draw(20)), draw(20))
    actions = rng.integers(0, 4, (games, 12)).astype(np.int32)
    order = rng.permuted(np.tile(np.arange(12, dtype=np.int32), (games, 1)), axis=1)
    after, rewards = move_together(env, state, jnp.asarray(actions), jnp.asarray(order), draw(12))
    grid, place = np.asarray(state.grid), np.asarray(state.place)
    moved = np.asarray(after.place) != place
    assert 0.1 < moved.mean() < 0.9 and (np.asarray(rewards) == 10).any()
    for k in range(games):
        cells = dict(np.ndenumerate(grid[k]))
        stands, expected = plain_together(
            cells, [divmod(int(at), 7) for at in place[k]], actions[k].tolist(), order[k].tolist(), [0, -1, 0, 10]
        )
        assert rewards[k].tolist() == expected
        assert after.place[k].tolist() == [y * 7 + x for y, x in stands]
        np.testing.assert_array_equal(after.grid[k], np.reshape(list(cells.values()), (6, 7)))


@pytest.mark.parametrize(
    ("before", "it", "moves", "rewards", "after", "then"),
    [
        # it moves beside an agent and passes the role, so it is paid; an agent that is not it does not pass anything
        (["0..1", "....", "2..."], 0, [(0, RIGHT)], [0], [".0.1", "....", "2..."], 0),
        (["0.1.", "....", "2..."], 0, [(0, RIGHT)], [4], [".01.", "....", "2..."], 1),
        (["0.1.", "....", "2..."], 1, [(0, RIGHT)], [4], [".01.", "....", "2..."], 1),
        # it passes the role where it stays too: bumping into an agent, into a wall
        (["01..", "....", "2..."], 0, [(0, RIGHT)], [4], ["01..", "....", "2..."], 1),
        (["01..", "....", "2..."], 0, [(0, UP)], [3], ["01..", "....", "2..."], 1),
        # the role goes back and forth: who receives it is judged when it acts
        (["01..", "....", "2..."], 0, [(0, LEFT), (1, UP), (2, DOWN)], [3, 3, 3], ["01..", "....", "2..."], 0),
        # it walks away and keeps the role
        (["01..", "....", "..2."], 0, [(0, DOWN)], [0], [".1..", "0...", "..2."], 0),
        # first of up, down, left, right
        (["1...", "0...", "2..."], 0, [(0, LEFT)], [3], ["1...", "0...", "2..."], 1),
        ([".0..", ".21.", "...."], 2, [(2, RIGHT)], [4], [".0..", ".21.", "...."], 0),
        (["....", "12..", ".0.."], 2, [(2, RIGHT)], [0], ["....", "1.2.", ".0.."], 2),
        (["....", "12..", ".0.."], 2, [(2, LEFT)], [4], ["....", "12..", ".0.."], 0),
        (["....", "120.", "...."], 2, [(2, LEFT)], [4], ["....", "120.", "...."], 1),
        # on top of an item
        (["0g1.", "....", "2..."], 0, [(0, RIGHT)], [14], [".01.", "....", "2..."], 1),
    ],
)
def test_tag(before: list[str], it: int, moves: list, rewards: list[float], after: list[str], then: int):
    state, found = play(TAG, game(TAG, *before, it=it), *moves)
    assert found == rewards and drawn(TAG, state) == after
    assert state.role.tolist() == [int(agent == then) for agent in range(3)]


@pytest.mark.parametrize(
    ("before", "it", "action", "rewards", "after", "then"),
    [
        # agent 0 would have passed the role to 1 where that stood; all move first, and then nobody is beside it
        (["01..", "....", "2..."], 0, "urd", [-1, 4, 3], ["0.1.", "....", "2..."], 0),
        # the role is passed once, to the agent that has come; who was it is paid, who is it now is not
        (["0..1", "....", "2..."], 0, "rll", [4, 0, 3], [".01.", "....", "2..."], 1),
        # two in conflict get tag_reward on top of 0
        (["0.1.", "....", "..2."], 2, "rlr", [4, 4, 0], ["0.1.", "....", "...2"], 2),
        # the agent that is it is beside both: up before left
        ([".1..", "2..0", "...."], 0, "lll", [0, 4, 3], ["1...", "2.0.", "...."], 0),
        ([".1..", ".0..", "2..."], 0, "rru", [4, 0, 4], ["..1.", "2.0.", "...."], 1),
    ],
)
def test_tag_played_together(
    before: list[str], it: int, action: str, rewards: list[float], after: list[str], then: int
):
    state, found = together(TAG, game(TAG, *before, it=it), action, "012")
    assert found == rewards and drawn(TAG, state) == after
    assert state.role.tolist() == [int(agent == then) for agent in range(3)]


def test_an_observation_in_the_corner_by_hand():
    params = TreasurehuntParams(height=6, width=6, agents=2, radius=2, items=("gem:10:0.1", "bone:3:0.1"))
    state = game(params, "0g..", ".1b.", "g...", "...b")
    seen = np.reshape(observe(Treasurehunt(params), state, jnp.int32(0)), (6, 5, 5))
    empty = np.zeros((5, 5))
    wall = [[1, 1, 1, 1, 1], [1, 2, 2, 2, 2], [1, 2, 0, 0, 0], [1, 2, 0, 0, 0], [1, 2, 0, 0, 0]]
    sand = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]]
    gem = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    bone = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    agent = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(seen, np.array([empty, wall, sand, gem, bone, agent]))


def test_an_observation_without_sand_with_walls_of_one_layer_and_the_role_by_hand():
    params = TreasurehuntParams(
        height=5, width=6, agents=3, radius=1, items=("gem:10:0.1",), sand=False, wall_layers=1, rule="tag"
    )
    env, state = Treasurehunt(params), game(params, "..g0", "..12", "....", it=2)
    seen = np.asarray(observe(env, state, jnp.int32(0)))
    wall = [1, 1, 1, 0, 0, 1, 0, 0, 1]
    assert seen.tolist() == [0] * 9 + wall + [0, 0, 0, 1, 0, 0, 0, 0, 0] + [0, 0, 0, 0, 1, 0, 1, 1, 0] + [0]
    assert [int(observe(env, state, jnp.int32(agent))[-1]) for agent in range(3)] == [0, 0, 1]


def test_a_window_of_one_cell_shows_the_agent_on_sand():
    params = TreasurehuntParams(height=3, width=3, agents=1, radius=0)
    state = begin(Treasurehunt(params), jnp.zeros(1, jnp.float32))
    assert observe(Treasurehunt(params), state, jnp.int32(0)).tolist() == [0, 0, 1, 0, 1]


def turn(env: Treasurehunt, start: Any, appear: Any, agent: Any, action: Any, uniform: Any, order: Any) -> Any:
    """All functions of a game: a beginning, a turn, the move of one agent and then of all."""
    state = env.start_turn(env.begin(start), appear)
    seen = env.observe(state, agent)
    moved, reward = env.move(state, agent, action[..., 0], uniform[..., 0])
    return state, seen, moved, reward, env.move_together(moved, action, order, uniform), env.observe(moved, 1)


compiled = jax.jit(turn, static_argnums=0)


def draws(*batch: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    uniform = lambda n: jnp.asarray(rng.random((*batch, n)), jnp.float32)
    integers = lambda high, *n: jnp.asarray(rng.integers(0, high, (*batch, *n)), jnp.int32)
    order = jnp.asarray(rng.permuted(np.broadcast_to(np.arange(3), (*batch, 3)), axis=-1), jnp.int32)
    return [uniform(12), uniform(12), integers(3), integers(4, 3), uniform(3), order]


def equal(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("params", [PARAMS, TAG], ids=["none", "tag"])
def test_games_side_by_side_are_single_games(params: TreasurehuntParams):
    """Batches of any shape and mapped functions agree, to the last number."""
    env, given = Treasurehunt(params), draws(2, 3)
    found = compiled(env, *given)
    row = lambda tree: jax.tree.map(lambda a: a[1], tree)
    equal(compiled(env, *row(given)), row(found))
    equal(jax.jit(jax.vmap(partial(turn, env)))(*row(given)), row(found))
    for y, x in np.ndindex(2, 3):
        one = partial(jax.tree.map, lambda a, at=(y, x): a[at])
        equal(compiled(env, *one(given)), one(found))


def test_operations_one_by_one_are_the_compiled_program():
    equal(turn(Treasurehunt(TAG), *draws()), compiled(Treasurehunt(TAG), *draws()))


def test_an_agent_is_an_int_a_scalar_or_one_of_each_game():
    env, (start, appear, _, action, uniform, _) = Treasurehunt(PARAMS), draws(3, seed=1)
    state = start_turn(env, begin(env, start), appear)
    given, each = (action[:, 0], uniform[:, 0]), jnp.full(3, 2, jnp.int32)
    expected = observe(env, state, each), move(env, state, each, *given)
    equal(jax.jit(lambda state: (env.observe(state, 2), env.move(state, 2, *given)))(state), expected)
    equal((observe(env, state, jnp.int32(2)), move(env, state, jnp.int32(2), *given)), expected)
    mixed = observe(env, state, jnp.arange(3, dtype=jnp.int32))
    for k in range(3):
        equal(mixed[k], observe(env, state, jnp.int32(k))[k])


def check_dtypes(params: TreasurehuntParams, *batch: int) -> None:
    state, seen, moved, reward, (after, rewards), _ = jax.eval_shape(
        partial(turn, Treasurehunt(params)), *draws(*batch)
    )
    for found in (state, moved, after):
        assert (found.grid.shape, found.grid.dtype) == ((*batch, 7, 8), jnp.int8)
        assert (found.place.shape, found.place.dtype) == ((*batch, 3), jnp.int32)
        assert (found.role.shape, found.role.dtype) == ((*batch, 3), jnp.int8)
    assert (seen.shape, seen.dtype) == ((*batch, params.observation_dim), jnp.int8)
    assert (reward.shape, reward.dtype) == (batch, jnp.float32)
    assert (rewards.shape, rewards.dtype) == ((*batch, 3), jnp.float32)


@pytest.mark.parametrize("params", [PARAMS, TAG], ids=["none", "tag"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_dtypes_and_shapes(params: TreasurehuntParams, batch: tuple[int, ...]):
    check_dtypes(params, *batch)


@pytest.mark.parametrize("params", [PARAMS, TAG], ids=["none", "tag"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_dtypes_and_shapes_in_float64(x64: None, params: TreasurehuntParams, batch: tuple[int, ...]):
    check_dtypes(params, *batch)


def test_games_are_the_same_in_float64(x64: None):
    found = compiled(Treasurehunt(TAG), *draws())
    with jax.enable_x64(False):
        equal(found, compiled(Treasurehunt(TAG), *draws()))


def test_a_state_goes_through_a_scan():
    """30 turns of all agents in one program: as the same moves made one by one."""
    env, rng = Treasurehunt(PARAMS), np.random.default_rng(2)
    start = numbers(*rng.random(12))
    appear, uniform = (jnp.asarray(rng.random(shape), jnp.float32) for shape in ((30, 12), (30, 3)))
    action = jnp.asarray(rng.integers(0, 4, (30, 3)), jnp.int32)

    def one_turn(state: State, given: Any) -> tuple[State, Any]:
        def act(state: State, given: Any) -> tuple[State, Any]:
            agent, action, uniform = given
            seen = env.observe(state, agent)
            state, reward = env.move(state, agent, action, uniform)
            return state, (seen, reward)

        return jax.lax.scan(act, env.start_turn(state, given[0]), (jnp.arange(3), *given[1:]))

    last, (seen, rewards) = jax.jit(lambda *given: jax.lax.scan(one_turn, env.begin(given[0]), given[1:]))(
        start, appear, action, uniform
    )
    state = begin(env, start)
    for t in range(30):
        state = start_turn(env, state, appear[t])
        for agent in range(3):
            equal(seen[t, agent], observe(env, state, jnp.int32(agent)))
            state, reward = move(env, state, jnp.int32(agent), action[t, agent], uniform[t, agent])
            assert reward == rewards[t, agent]
    equal(last, state)


def test_other_values_do_not_compile_anew():
    traced = []

    def counted(env: Treasurehunt, *given: Any) -> Any:
        traced.append(env)
        return turn(env, *given)

    run = jax.jit(counted, static_argnums=0)
    for seed in range(3):
        run(Treasurehunt(replace(PARAMS)), *draws(seed=seed))
    assert len(traced) == 1
