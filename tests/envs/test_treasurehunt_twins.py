"""Treasurehunt in NumPy and in JAX, written apart, is the same game: what is seen and what happens are equal."""

from dataclasses import replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.envs.game import MOVES, Game, Moves
from crossfade.envs.treasurehunt import treasurehunt_jax, treasurehunt_numpy
from crossfade.envs.treasurehunt.params import EMPTY, FIRST_ITEM, WALL, State, TreasurehuntParams
from crossfade.random import random_numpy as random

ITEMS = ("gem:10:0.02", "iowa:-2.3:0.03:0.3:-7.1", "bone:3:0.05")
DEFAULT = TreasurehuntParams()
IOWA = TreasurehuntParams(height=7, width=8, agents=6, turns=20, items=ITEMS, sand=False, wall_layers=1)
TAG = TreasurehuntParams(height=6, width=7, agents=6, turns=20, rule="tag", tag_reward=4.5)
MAPS = [
    TreasurehuntParams(height, width, radius=radius, items=ITEMS, sand=radius != 3, wall_layers=layers, rule=rule)
    for (height, width), layers, rule in (
        ((10, 10), 2, "none"),
        ((9, 9), 2, "tag"),
        ((11, 8), 1, "tag"),
        ((21, 21), 1, "none"),
    )
    for radius in (2, 3, 4)
    if 2 * radius + 1 <= min(height, width)
]
observe_all = jax.jit(
    lambda game, state: jax.vmap(game.observe, (None, 0), -2)(state, jnp.arange(game.agents, dtype=jnp.int32)),
    static_argnums=0,
)


def states(params: TreasurehuntParams, n: int) -> State:
    """Any grids at all, with walls within and agents that may have roles."""
    rng = np.random.default_rng(0)
    inner = np.flatnonzero(params.empty_map == EMPTY)
    codes = np.array([EMPTY, WALL, *range(FIRST_ITEM, params.pad)], np.int8)
    grid = np.broadcast_to(params.empty_map.reshape(-1), (n, params.empty_map.size)).copy()
    grid[:, inner] = rng.choice(codes, (n, len(inner)))
    place = np.stack([rng.permutation(inner)[: params.agents] for _ in range(n)]).astype(np.int32)
    np.put_along_axis(grid, place, 2, 1)
    role = (np.arange(params.agents) == rng.integers(0, params.agents, (n, 1))).astype(np.int8)
    return State(grid.reshape(n, params.rows, params.columns), place, role)


@pytest.mark.parametrize("params", MAPS, ids=lambda p: f"{p.height}x{p.width} radius {p.radius}")
def test_agents_see_the_same(params: TreasurehuntParams):
    state, ours = states(params, 1000), treasurehunt_numpy.Treasurehunt(params)
    seen = np.stack([ours.observe(state, agent) for agent in range(params.agents)], 1)
    found = np.asarray(observe_all(treasurehunt_jax.Treasurehunt(params), jax.tree.map(jnp.asarray, state)))
    assert found.dtype == seen.dtype == np.int8 and found.shape == seen.shape
    assert (found == seen).all()
    assert len(np.unique(seen.reshape(-1, seen.shape[-1]), axis=0)) > 4000  # of 5000: they show where they stand


class Numbers(NamedTuple):
    """All chance of some episodes; the first axis is that of the turns, but for `start`."""

    start: Any
    turn: Any
    order: Any
    action: Any
    reward: Any


class Turn(NamedTuple):
    """What a turn leaves behind; with an axis of turns in front, episodes."""

    seen: Any
    reward: Any
    grid: Any
    place: Any
    role: Any


@cache
def numbers(params: TreasurehuntParams, worlds: int) -> Numbers:
    uniform = lambda i, *shape: random.uniform(random.fold_in(random.key(5), i), shape)
    each = params.turns, worlds, params.agents
    return Numbers(
        start=uniform(0, worlds, params.inner),
        turn=uniform(1, params.turns, worlds, params.inner),
        order=np.argsort(uniform(2, params.turns, params.agents), -1).astype(np.int32),
        action=np.floor(4 * uniform(3, *each)).astype(np.int32),
        reward=uniform(4, *each),
    )


def play_turn(game: Game, moves: Moves, state: State, now: Numbers, xp: Any) -> tuple[State, Turn]:
    """A turn as game.py has it, in either framework."""
    state = game.start_turn(state, now.turn)
    seen: Any = [game.observe(state, agent) for agent in range(game.agents)]
    if moves == "simultaneous":
        state, reward = game.move_together(
            state, now.action, xp.broadcast_to(now.order[None], now.action.shape), now.reward
        )
    else:
        gains = []
        for k in range(game.agents):
            agent = now.order[k]
            if moves == "sequential":
                seen[k] = game.observe(state, agent)
            state, gain = game.move(state, agent, now.action[:, agent], now.reward[:, agent])
            gains.append(gain)
        reward = xp.stack(gains, 1)
    return state, Turn(xp.stack(seen, 1), reward, *state)


def played_numpy(game: Game, moves: Moves, drawn: Numbers) -> Turn:
    state, turns = game.begin(drawn.start), []
    for t in range(game.turns):
        now = Numbers(*(column[t] for column in drawn))._replace(order=drawn.order[t].tolist())
        if moves == "simultaneous":
            now = now._replace(order=drawn.order[t])
        state, turn = play_turn(game, moves, state, now, np)
        turns.append(turn)
    return Turn(*map(np.stack, zip(*turns, strict=True)))


@cache
def played_jax(params: TreasurehuntParams, moves: Moves, worlds: int) -> Turn:
    game = treasurehunt_jax.Treasurehunt(params)

    @jax.jit
    def play(drawn: Numbers) -> Turn:
        step = lambda state, now: play_turn(game, moves, state, now, jnp)
        return jax.lax.scan(step, game.begin(drawn.start), drawn._replace(start=None))[1]

    return jax.tree.map(np.asarray, play(jax.tree.map(jnp.asarray, numbers(params, worlds))))


def differing(ours: Game, params: TreasurehuntParams, moves: Moves, worlds: int) -> list[str]:
    """What differs in any turn of any episode."""
    found, expected = played_jax(params, moves, worlds), played_numpy(ours, moves, numbers(params, worlds))
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(found, expected, strict=True))
    return [name for name, a, b in zip(Turn._fields, found, expected, strict=True) if not (a == b).all()]


CASES = [
    *((DEFAULT, moves, 200) for moves in MOVES),
    *((params, moves, 40) for params in (IOWA, TAG) for moves in ("sequential", "simultaneous")),
]
NAMES = {DEFAULT: "default", IOWA: "iowa", TAG: "tag"}


@pytest.mark.parametrize("params, moves, worlds", CASES, ids=[f"{NAMES[p]}-{moves}" for p, moves, _ in CASES])
def test_episodes_are_the_same(params: TreasurehuntParams, moves: Moves, worlds: int):
    assert differing(treasurehunt_numpy.Treasurehunt(params), params, moves, worlds) == []


def test_the_episodes_have_all_that_the_rules_are_about():
    for moves in MOVES:
        assert set(np.unique(played_jax(DEFAULT, moves, 200).reward)) == {-1, 0, 10}
    iowa = played_jax(IOWA, "sequential", 40).reward
    assert set(np.unique(iowa)) == set(np.float32([-1, 0, 10, 3, -2.3])) | {np.float32(-2.3) + np.float32(-7.1)}
    for moves in ("sequential", "simultaneous"):
        role = played_jax(TAG, moves, 40).role
        assert (role.sum(-1) == 1).all() and (role[1:] != role[:-1]).any(-1).sum() > 100


class Broken(treasurehunt_numpy.Treasurehunt):
    """The game with one rule broken: each is a class of its own."""


class AgentsEnterAgents(Broken):
    @cached_property
    def _passable(self):
        return np.arange(self.params.pad + 1) != WALL


class TransposedWindow(Broken):
    @cached_property
    def _window(self):
        reach = np.arange(-self.params.radius, self.params.radius + 1)
        return (reach[:, None] + reach * self.params.columns).reshape(-1)


class LeftIsRight(Broken):
    @cached_property
    def _steps(self):
        return np.array([-self.params.columns, self.params.columns, 1, -1], np.int32)


class OtherThresholds(Broken):
    def start_turn(self, state, uniform):
        return super().start_turn(state, np.where(uniform < 0.001, np.float32(1), uniform).astype(np.float32))


class NoChance(Broken):
    _by_chance = False


class OrderOfNumbers(Broken):
    def move_together(self, state, action, order, uniform):
        return super().move_together(state, action, np.sort(order, -1), uniform)


class LastNeighbour(Broken):
    def _passed(self, place, role, agent):
        flipped = replace(self)
        flipped.__dict__["_steps"] = self._steps[::-1]
        return treasurehunt_numpy.Treasurehunt._passed(flipped, place, role, agent)


@pytest.mark.parametrize(
    "broken, params, moves, shows",
    [
        (AgentsEnterAgents, DEFAULT, "sequential", "grid"),
        (AgentsEnterAgents, DEFAULT, "simultaneous", "grid"),
        (TransposedWindow, DEFAULT, "stale_obs", "seen"),
        (LeftIsRight, DEFAULT, "stale_obs", "place"),
        (OtherThresholds, DEFAULT, "sequential", "grid"),
        (NoChance, IOWA, "sequential", "reward"),
        (OrderOfNumbers, DEFAULT, "simultaneous", "place"),
        (LastNeighbour, TAG, "sequential", "role"),
        (LastNeighbour, TAG, "simultaneous", "role"),
    ],
)
def test_a_broken_rule_is_noticed(broken: type[Broken], params: TreasurehuntParams, moves: Moves, shows: str):
    worlds = next(worlds for p, m, worlds in CASES if (p, m) == (params, moves))
    assert shows in differing(broken(params), params, moves, worlds)
