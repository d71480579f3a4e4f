"""The game as the published system computes it: the same game, at a different cost."""

import numpy as np
import pytest

from crossfade.envs.treasurehunt.one_by_one import OneByOne
from crossfade.envs.treasurehunt.params import State, TreasurehuntParams
from crossfade.envs.treasurehunt.published import PublishedGame
from crossfade.envs.treasurehunt.scalar import ScalarGame

ITEMS = ("gem:10:0.05", "bone:-10:0.05", "deck:1:0.1:0.5:-3")
CASES = {
    "published": TreasurehuntParams(),
    **{f"radius {r}": TreasurehuntParams(9, 12, radius=r, items=ITEMS) for r in (0, 1, 4)},
    "single walls, no sand": TreasurehuntParams(7, 6, 3, items=ITEMS, sand=False, wall_layers=1),
    "single walls, sand": TreasurehuntParams(7, 6, 3, items=ITEMS, wall_layers=1),
    "double walls, no sand": TreasurehuntParams(7, 6, 3, items=ITEMS, sand=False),
    "tag": TreasurehuntParams(6, 5, agents=4, rule="tag", items=()),
    "one cell": TreasurehuntParams(3, 3, agents=1, radius=1),
}


def assert_same(published, lean):
    for agent in range(lean.params.agents):
        ours, theirs = published.observe(agent), lean.observe(agent)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and (ours == theirs).all()
    for name, ours, theirs in zip(State._fields, published.state, lean.state, strict=True):
        assert ours.dtype == theirs.dtype and (ours == theirs).all(), name


@pytest.mark.parametrize("name", CASES)
def test_the_same_game_is_seen(name):
    params, rng = CASES[name], np.random.default_rng(0)
    games = [PublishedGame(params), ScalarGame(params)]
    numbers = lambda n: rng.random(n, np.float32)
    for _ in range(2):
        start = numbers(params.inner)
        for game in games:
            game.begin(start)
        assert_same(*games)
        for _ in range(8):
            spawn, chance = numbers(params.inner), numbers(params.agents)
            actions, order = rng.integers(0, 4, (2, params.agents)), rng.permutation(params.agents)
            for game in games:
                game.start_turn(spawn)
            for agent in order.tolist():
                assert_same(*games)
                first, second = (game.move(agent, int(actions[0, agent]), chance[agent]) for game in games)
                assert first == second
            first, second = (game.move_together(actions[1], order, chance) for game in games)
            assert (first == second).all()
    resumed = PublishedGame(params)
    resumed.resume(games[1].state)
    assert_same(resumed, games[1])


def test_an_observation_by_hand():
    """From the corner: beyond the map a single wall, its border a double one, sand below all that stands inside."""
    params = TreasurehuntParams(height=5, width=5, agents=2)
    game = PublishedGame(params)
    game.begin(np.array([0.1, 0.2, *[0.9] * 7], np.float32))
    game.start_turn(np.array([0.5, 0.5, 0.5, 0.0, *[0.5] * 5], np.float32))
    empty, wall, sand, gem, agent = game.observe(0).reshape(5, 5, 5).tolist()
    nothing = [0] * 5
    assert empty == [nothing] * 5
    assert wall == [[1, 1, 1, 1, 1], [1, 2, 2, 2, 2], *[[1, 2, 0, 0, 0]] * 3]
    assert sand == [nothing, nothing, *[[0, 0, 1, 1, 1]] * 3]
    assert gem == [nothing, nothing, nothing, [0, 0, 1, 0, 0], nothing]
    assert agent == [nothing, nothing, [0, 0, 1, 1, 0], nothing, nothing]


def test_every_cell_has_an_entity_of_its_own_and_every_game_new_ones():
    params = TreasurehuntParams()
    game, start = PublishedGame(params), np.linspace(0, 0.9, 64, dtype=np.float32)
    game.begin(start)
    before = game.map
    game.begin(start)
    entities = [entity for world in (before, game.map) for entity in world.reshape(-1)]
    assert len(set(map(id, entities))) == 2 * 200


def test_mode_torch_steps_it():
    games = OneByOne(TreasurehuntParams()).begin(np.random.default_rng(0).random((2, 64), np.float32))
    assert [type(game) for game in games] == [PublishedGame] * 2
