"""Noise, attitudes to risk and episodes in NumPy."""

import math
from dataclasses import replace
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_numpy_cases import Config, Toy

from crossfade.algos.iqn import noise_numpy, rollout_numpy
from crossfade.algos.iqn.batch import Episode, Noise
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.risk_numpy import distort
from crossfade.envs.game import MOVES, ORDERS, Game
from crossfade.random import random_numpy as random

# Noise and risk


def test_noise_has_the_shapes_of_its_page():
    game, config = Toy(), Config(players=3, worlds=2, memory=32, batch_size=5, quantiles=7, acting_quantiles=4)
    noise = noise_numpy.draw(random.key(0), game, 11, config)
    each = (6, 2, 3)
    assert [array.shape for array in noise] == [
        *((2, 3), (6, 2, 1), (6, 3), each, each, each),
        *((*each, 4), (3, 64), (3, 3, 5, 7), (3, 3, 11)),
    ]
    whole = {"order", "action"}
    for name, array in noise._asdict().items():
        assert array.dtype == (np.int32 if name in whole else np.float32)
        assert name in whole | {"noise"} or 0 <= array.min() <= array.max() < 1
    assert set(noise.action.ravel().tolist()) == {0, 1, 2}
    assert noise_numpy.draw(random.key(0), game, 0, config).noise.shape == (3, 3, 0)


def test_noise_is_that_of_jax():
    game, config = Toy(turns=20), Config(players=3, worlds=2, memory=32, batch_size=5, order="shuffled")
    noise = noise_numpy.draw(random.key(7), game, 11, config)
    key = lambda name: jax.random.fold_in(jax.random.key(7), Noise._fields.index(name))
    np.testing.assert_array_equal(noise.start, jax.random.uniform(key("start"), noise.start.shape))
    for name in ("turn", "explore", "reward", "acting", "choice", "fractions"):  # JAX compiles anew for every shape
        own = random.fold_in(random.key(7), Noise._fields.index(name))
        np.testing.assert_array_equal(getattr(noise, name), random.uniform(own, getattr(noise, name).shape))
    np.testing.assert_array_equal(noise.noise, jax.random.normal(key("noise"), (3, 3, 11)))
    np.testing.assert_array_equal(noise.action, jnp.floor(jax.random.uniform(key("action"), (20, 2, 3)) * 3))
    np.testing.assert_array_equal(noise.order, jnp.argsort(jax.random.uniform(key("order"), (20, 3)), stable=True))
    assert len({tuple(turn) for turn in noise.order.tolist()}) == 6


def test_orders_that_nobody_draws():
    game, config = Toy(turns=4), Config(players=3, memory=32)
    order = lambda kind: noise_numpy.draw(random.key(0), game, 0, replace(config, order=kind)).order.tolist()
    assert order("fixed") == [[0, 1, 2]] * 4
    assert order("rotated") == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_risk_by_hand(dtype):
    tau = np.array([0.0, 0.04, 0.25, 0.64, 0.99], dtype)
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    normal = NormalDist()
    wang = lambda eta: [0.0, *(normal.cdf(normal.inv_cdf(float(t)) + eta) for t in tau[1:])]
    for risk, level, expected in (
        ("neutral", 0.3, tau),
        ("cvar", 0.25, [0.0, 0.01, 0.0625, 0.16, 0.2475]),
        ("wang", 0.0, tau),
        ("wang", -0.75, wang(-0.75)),
        ("wang", 0.75, wang(0.75)),
        ("power", 1, [0.0, 0.2, 0.5, 0.8, math.sqrt(0.99)]),
        ("power", 0.0, tau),
        ("power", 0.25, [0.0, *(float(t) ** 0.8 for t in tau[1:])]),
        ("power", -1.0, [0.0, 1 - math.sqrt(0.96), 1 - math.sqrt(0.75), 0.4, 0.9]),
        ("power", -2.0, [0.0, *(1 - (1 - float(t)) ** (1 / 3) for t in tau[1:])]),
    ):
        found = distort(tau, risk, level)
        assert found.dtype == tau.dtype
        close(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [1e-30, 1.0, -3.0, 50.0, -50.0, 1e300, -1e300])
def test_risk_never_leaves_the_fractions(dtype, level):
    tau = np.array([0.0, 2.0**-23, 0.5, 1 - 2.0**-23], dtype)
    for risk in ("wang", "power", *(["cvar"] if 0 < level <= 1 else [])):
        found = distort(tau, risk, level)
        assert found.dtype == tau.dtype and ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found) >= 0).all()


# Playing


def greedy(game: Toy, agent: int, stack: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """An action that depends on the agent, on every place of the stack, and on the fractions."""
    weights = np.arange(1, stack.shape[-1] + 1) % 5 + agent
    return ((stack @ weights.astype(stack.dtype) + np.floor(100 * fractions.sum(-1))) % game.n_actions).astype(np.int32)


def play_plainly(game: Toy, history: np.ndarray, noise: Noise, epsilon: tuple[float, ...], config: IQNConfig):
    """One world after the other, with lists."""
    shape = (game.turns, config.worlds, game.agents)
    seen = np.zeros((*shape, game.observation_dim), np.int8)
    action, reward, last = np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros((*shape[1:], 3), np.int8)
    ends = []
    for w in range(config.worlds):
        frames = [[frame.tolist() for frame in history[w, k]] for k in range(game.agents)]
        state = game.begin(noise.start[w])

        def look(t, k, state, w=w, frames=frames):
            seen[t, w, k] = game.observe(state, k)

        def decide(t, k, w=w, frames=frames):
            stack = [*frames[k], seen[t, w, k].tolist()]
            frames[k] = stack[1:]
            fractions = noise.acting[t, w, k] * np.float32(config.risk_level[k] if config.risk[k] == "cvar" else 1)
            flat = np.array([x for frame in stack for x in frame], np.float32)
            choice = greedy(game, k, flat[None], fractions[None])[0]
            return noise.action[t, w, k] if noise.explore[t, w, k] < np.float32(epsilon[k]) else choice

        for t in range(game.turns):
            state = game.start_turn(state, noise.turn[t, w])
            order = noise.order[t].tolist()
            if config.moves == "sequential":
                for k in order:
                    look(t, k, state)
                    action[t, w, k] = decide(t, k)
                    state, reward[t, w, k] = game.move(state, k, action[t, w, k], noise.reward[t, w, k])
                continue
            for k in range(game.agents):
                look(t, k, state)
            for k in range(game.agents):
                action[t, w, k] = decide(t, k)
            if config.moves == "stale_obs":
                for k in order:
                    state, reward[t, w, k] = game.move(state, k, action[t, w, k], noise.reward[t, w, k])
            else:
                state, reward[t, w] = game.move_together(state, action[t, w], noise.order[t], noise.reward[t, w])
        last[w] = [game.observe(state, k) for k in range(game.agents)]
        ends.append(state)
    return Episode(seen, action, reward, last), ends


@pytest.mark.parametrize("worlds", [1, 4])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("moves", MOVES)
def test_an_episode_is_played_as_plainly(moves, order, worlds):
    game, epsilon = Toy(turns=12), (0.4, 0.0, 1.0)
    settings = {"risk": ("cvar", "neutral", "cvar"), "risk_level": (0.5, 0.0, 0.25), "acting_quantiles": 1}
    config = Config(players=3, worlds=worlds, memory=64, frames=3, moves=moves, order=order, **settings)
    noise = noise_numpy.draw(random.key(worlds), game, 0, config)
    history = np.random.default_rng(0).integers(1, 9, (worlds, 3, 2, 3)).astype(np.int8)
    before, asked = history.copy(), []

    def act(agent, stack, fractions):
        assert stack.shape == (worlds, 9) and fractions.shape == (worlds, 1)
        assert stack.dtype == fractions.dtype == np.float32
        asked.append(agent)
        return greedy(game, agent, stack, fractions)

    assert isinstance(game, Game)
    episode, end = rollout_numpy.play(game, act, history, noise, np.array(epsilon), config)
    expected, ends = play_plainly(game, history, noise, epsilon, config)
    for name, found, wanted in zip(Episode._fields, episode, expected, strict=True):
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    np.testing.assert_array_equal(end.place, [state.place for state in ends])
    np.testing.assert_array_equal(end.pot, [state.pot for state in ends])
    np.testing.assert_array_equal(history, before)
    explored = noise.explore < np.float32(0.4)
    assert asked.count(0) == int((~explored[:, :, 0].all(1)).sum()) and asked.count(1) == 12 and asked.count(2) == 0


def test_turn_kinds_and_orders_are_different_games():
    game, history = Toy(turns=12), np.zeros((2, 3, 4, 3), np.int8)
    act = lambda agent, stack, fractions: greedy(game, agent, stack, fractions)
    found = set()
    for moves in MOVES:
        for order in ORDERS:
            config = Config(players=3, worlds=2, memory=64, moves=moves, order=order)
            noise = noise_numpy.draw(random.key(0), game, 0, config)
            episode, _ = rollout_numpy.play(game, act, history, noise, np.zeros(3), config)
            found.add(episode.reward.tobytes())
    assert len(found) == 9


def test_epsilon_is_compared_in_float32():
    """0.7 in float32 lies below 0.7 in float64: a number equal to it is not below epsilon, the one before it is."""
    game, config = Toy(agents=1, turns=2), Config(memory=64, dtype="float64")
    noise = noise_numpy.draw(random.key(0), game, 0, config)
    limit = np.float32(0.7)
    explore = np.array([np.nextafter(limit, np.float32(0)), limit], np.float32).reshape(2, 1, 1)
    noise = noise._replace(explore=explore, action=np.full((2, 1, 1), 2, np.int32))
    assert float(limit) < 0.7

    def act(agent, stack, fractions):
        assert stack.dtype == fractions.dtype == np.float64
        return np.zeros(1, np.int32)

    episode, _ = rollout_numpy.play(game, act, np.zeros((1, 1, 4, 3), np.int8), noise, np.array([0.7]), config)
    assert episode.action.ravel().tolist() == [2, 0]


def test_returns_are_means_over_worlds():
    reward = np.array([[[1, 10], [3, 30]], [[0.5, 0], [0.5, -4]]], np.float32)  # 2 turns, 2 worlds, 2 agents
    episode = Episode(None, None, reward, None)
    assert rollout_numpy.returns(episode) == {"return": 20.5, "return_0": 2.5, "return_1": 18.0}
