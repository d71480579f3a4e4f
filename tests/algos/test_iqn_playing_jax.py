"""Noise, attitudes to risk and episodes in JAX."""

import math
from dataclasses import replace
from functools import partial
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_jax_cases import (
    Tiny,
    Toy,
)

from crossfade.algos.iqn import noise_jax, replay_jax, risk_jax, rollout_jax
from crossfade.algos.iqn.batch import Episode, Noise
from crossfade.envs.game import MOVES
from crossfade.random import random_numpy

draw = jax.jit(noise_jax.draw, static_argnums=(1, 2, 3))

# Noise


@pytest.mark.parametrize("x", [False, True])
def test_fields_of_the_noise_are_those_of_jax_random(x):
    game = Toy(3, 5)
    config = Tiny(players=3, worlds=2, order="shuffled", batch_size=4, quantiles=3, acting_quantiles=6, memory=16)
    with jax.enable_x64(x):
        key = jax.random.key(7)
        found = draw(key, game, 11, config)
        field = lambda i: random_numpy.fold_in(random_numpy.key(7), i)  # proven elsewhere to be jax.random's numbers
        u = lambda i, *shape: random_numpy.uniform(field(i), shape)
        expected = Noise(
            start=u(0, 2, 3),
            turn=u(1, 5, 2, 1),
            order=np.argsort(u(2, 5, 3), axis=-1, kind="stable").astype(np.int32),
            explore=u(3, 5, 2, 3),
            action=np.floor(u(4, 5, 2, 3) * np.float32(4)).astype(np.int32),
            reward=u(5, 5, 2, 3),
            acting=u(6, 5, 2, 3, 6),
            choice=u(7, 3, 32),
            fractions=u(8, 3, 3, 4, 3),
            noise=random_numpy.normal(field(9), (3, 3, 11)),
        )
    for name, ours, theirs in zip(Noise._fields, found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
        assert (np.asarray(ours) == theirs).all(), name
    assert len(set(map(tuple, found.order.tolist()))) > 1 and 0 <= found.action.min() < found.action.max() <= 3


def test_orders_of_the_agents():
    config = Tiny(players=3, memory=16)
    order_of = jax.jit(
        lambda key, order: noise_jax.draw(key, Toy(3, 5), 0, replace(config, order=order)).order, static_argnums=1
    )
    drawn = lambda order: order_of(jax.random.key(0), order)
    assert drawn("fixed").tolist() == [[0, 1, 2]] * 5
    assert drawn("rotated").tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]
    assert drawn("fixed").dtype == drawn("rotated").dtype == jnp.int32


# Risk


def distorted(fractions, attitudes):
    """Each number distorted by each attitude, (attitudes, n)."""
    each = lambda x: jnp.stack([risk_jax.distort(x, *attitude) for attitude in attitudes])
    return jax.jit(each)(jnp.asarray(fractions))


def test_distortions_by_hand():
    cases = [
        (0.3, "neutral", 5.0, 0.3),
        (0.8, "cvar", 0.25, 0.2),
        (0.5, "wang", 1.0, 0.8413447),
        (0.8413447, "wang", -1.0, 0.5),
        (0.25, "power", 1.0, 0.5),  # a square root
        (0.25, "power", 0, 0.25),
        (0.75, "power", -1.0, 0.5),
        (0.271, "power", -2.0, 0.1),  # 1 - 0.9 ** 3
    ]
    tau, expected = (np.array([case[i] for case in cases], np.float32) for i in (0, 3))
    found = distorted(tau, [case[1:3] for case in cases])
    assert np.allclose(np.diag(found), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distortions_stay_fractions_of_their_type(dtype, x64):
    fractions = np.array([0, 2.0**-23, 2.0**-12, 0.1, 0.5, 0.9, 1 - 2.0**-23], dtype)
    attitudes = [("neutral", 0.0), ("cvar", 0.1), ("cvar", 1.0), ("power", -9.5), ("power", 30), ("power", -1e6)]
    attitudes += [("wang", eta) for eta in (-1e39, -40.0, -0.75, 0.0, 0.75, 40.0, 1e39)]
    found = np.asarray(distorted(fractions, attitudes))
    assert found.dtype == dtype and np.isfinite(found).all()
    assert (found[:, 0] == 0).all() and (found >= 0).all() and (found <= 1).all() and (np.diff(found) >= 0).all()


def test_every_agent_distorts_by_its_own_attitude(x64):
    risk, level = ("cvar", "neutral", "wang", "power"), (0.25, 0.0, -0.75, -2.0)
    config = Tiny(players=4, risk=risk, risk_level=level)
    tau = np.random.default_rng(0).random((2, 3, 4, 5))
    normal, distort_all = NormalDist(), jax.jit(risk_jax.distort_all, static_argnums=1)
    rules = (
        lambda t: t / 4,
        lambda t: t,
        lambda t: normal.cdf(normal.inv_cdf(t) - 0.75),
        lambda t: 1 - (1 - t) ** (1 / 3),
    )
    expected = np.stack([np.vectorize(rule)(tau[:, :, i]) for i, rule in enumerate(rules)], 2)
    assert np.allclose(distort_all(jnp.asarray(tau), config), expected, rtol=1e-12, atol=1e-14)
    alike = replace(config, risk=("wang",), risk_level=(-0.75,))
    all_wang = np.vectorize(rules[2])(tau)
    assert np.allclose(distort_all(jnp.asarray(tau), alike), all_wang, rtol=1e-12, atol=1e-14)


# Episodes


PLAYED = Tiny(
    players=3,
    worlds=2,
    frames=3,
    acting_quantiles=4,
    memory=32,
    batch_size=4,
    risk=("cvar", "neutral", "power"),
    risk_level=(0.5, 0.0, 2.0),
)

GAME = Toy(3, 6)

EPSILON = jnp.array([0.0, 0.5, 1.0], jnp.float32)

WEIGHTS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2], [1, 6, 1, 8, 0, 3, 3, 9, 8]], np.float32)


def act(agent, stack, fractions):
    """Whole numbers of what is seen, and one more where a fraction is above 0.4."""
    score = (stack * jnp.asarray(WEIGHTS)[agent][None]).sum(-1) + (fractions.max(-1) > 0.4)
    return score.astype(jnp.int32) % 4


play = jax.jit(partial(rollout_jax.play, GAME, act), static_argnums=3)


def randomness(order):
    """The noise of an episode, drawn by NumPy; `order` is data, so that one compiled program serves all orders."""
    rng = np.random.default_rng(5)
    u = lambda *shape: rng.random(shape, np.float32)
    return Noise(
        start=u(2, 3),
        turn=u(6, 2, 1),
        order=np.array(order, np.int32),
        explore=u(6, 2, 3),
        action=rng.integers(0, 4, (6, 2, 3), np.int32),
        reward=u(6, 2, 3),
        acting=u(6, 2, 3, 4),
        choice=None,
        fractions=None,
        noise=None,
    )


FIXED = [[0, 1, 2]] * 6

ORDERS = {
    "fixed": FIXED,
    "rotated": [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2,
    "shuffled": [[2, 0, 1], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 1, 0], [1, 0, 2]],
}


def played_by_hand(history, noise, epsilon, moves):
    """One world after the other in plain Python."""
    turns, worlds, agents = noise.explore.shape
    distort = [lambda t: t / 2, lambda t: t, lambda t: t ** (1 / 3)]
    columns = [[[None] * worlds for _ in range(turns)] for _ in range(3)]
    lasts, finals = [], []
    for w in range(worlds):
        place, heap = [math.floor(np.float32(7) * u) for u in noise.start[w]], 0
        frames = history[w].tolist()

        def observe(i):
            return [place[i], heap, place[(i + 1) % agents]]  # noqa: B023

        def decide(t, i, seen):
            stack = [*frames[i][-2:], seen]  # noqa: B023
            frames[i].append(seen)  # noqa: B023
            if noise.explore[t, w, i] < epsilon[i]:  # noqa: B023
                return int(noise.action[t, w, i])  # noqa: B023
            score = sum(a * b for a, b in zip(sum(stack, []), WEIGHTS[i].tolist(), strict=True))
            return int(score + (max(map(distort[i], noise.acting[t, w, i].tolist())) > 0.4)) % 4  # noqa: B023

        for t in range(turns):
            heap += math.floor(4 * noise.turn[t, w, 0])
            order = noise.order[t].tolist()
            seen, action, reward = [None] * agents, [None] * agents, [0.0] * agents
            if moves != "sequential":
                seen = [observe(i) for i in range(agents)]
                action = [decide(t, i, seen[i]) for i in range(agents)]
            for i in order:
                if moves == "sequential":
                    seen[i] = observe(i)
                    action[i] = decide(t, i, seen[i])
                taken = min(heap, action[i]) if moves != "simultaneous" or i == order[0] else 0
                heap -= taken
                place[i] = (place[i] + action[i]) % 7
                reward[i] = taken + (0.5 if noise.reward[t, w, i] < 0.5 else 0.0)
            for column, value in zip(columns, (seen, action, reward), strict=True):
                column[t][w] = value
        lasts.append([observe(i) for i in range(agents)])
        finals.append((place, heap))
    return Episode(*columns, lasts), finals


@pytest.mark.parametrize("moves", MOVES)
def test_episodes_are_those_of_a_plain_loop(moves):
    config = replace(PLAYED, moves=moves)
    history = np.random.default_rng(3).integers(0, 5, (2, 3, 2, 3)).astype(np.int8)
    found = {}
    for order, agents in ORDERS.items():
        noise = randomness(agents)
        got, final = play(jnp.asarray(history), noise, EPSILON, config)
        expected, finals = played_by_hand(history, noise, EPSILON, moves)
        assert [str(x.dtype) for x in got] == ["int8", "int32", "float32", "int8"]
        for name, ours, theirs in zip(Episode._fields, got, expected, strict=True):
            assert ours.tolist() == np.array(theirs).tolist(), (order, name)
        assert list(zip(final.place.tolist(), final.heap.tolist(), strict=True)) == [(p, h) for p, h in finals]
        found[order] = got.action.tolist(), got.reward.tolist()
    assert found["fixed"] != found["rotated"] != found["shuffled"] != found["fixed"]


def test_turn_kinds_differ():
    noise = randomness(FIXED)
    history = jnp.zeros((2, 3, 2, 3), jnp.int8)
    played = [play(history, noise, EPSILON, replace(PLAYED, moves=moves))[0] for moves in MOVES]
    assert len({str([x.tolist() for x in one]) for one in played}) == 3


@pytest.mark.parametrize("moves", ["sequential", "stale_obs"])
def test_the_network_runs_only_where_some_world_does_not_explore(moves):
    ran = []

    def noted(agent, stack, fractions):
        jax.debug.callback(lambda i: ran.append(int(i)), agent)
        return act(agent, stack, fractions)

    config = replace(PLAYED, moves=moves)
    noise = randomness(FIXED)
    got, _ = jax.jit(partial(rollout_jax.play, GAME, noted), static_argnums=3)(
        jnp.zeros((2, 3, 2, 3), jnp.int8), noise, EPSILON, config
    )
    jax.block_until_ready(got)
    jax.effects_barrier()
    needed = (noise.explore >= np.asarray(EPSILON)[None, None]).any(1).sum(0).tolist()
    assert [ran.count(agent) for agent in range(3)] == needed
    assert needed[0] == 6 and 0 < needed[1] < 6 and needed[2] == 0


def test_returns_are_sums_over_turns_and_means_over_games():
    reward = jnp.array([[[1, 10], [2, 20]], [[4, 40], [8, 80]]], jnp.float32)  # turns, worlds, agents
    found = rollout_jax.returns(Episode(None, None, reward, None))
    assert {name: value.item() for name, value in found.items()} == {"return": 82.5, "return_0": 7.5, "return_1": 75}


def test_epochs_do_not_compile_anew():
    config = replace(PLAYED, memory=20)

    @partial(jax.jit, donate_argnums=0)
    def epoch(replay, key, epsilon):
        noise = noise_jax.draw(key, GAME, 2, config)
        replay, history = replay_jax.open_episode(replay, config)
        played, _ = rollout_jax.play(GAME, act, history, noise, epsilon, config)
        replay = replay_jax.store(replay, played, config)
        return replay, replay_jax.sample(replay, noise.choice, GAME.turns, config), rollout_jax.returns(played)

    replay = jax.tree.map(jnp.copy, replay_jax.start(config, GAME))
    for i in range(5):
        replay, (found, ready), logged = epoch(replay, jax.random.key(i), EPSILON * 0.5**i)
        assert ready and found.state.shape == (3, 4, 9) and logged["return"] >= 0
    assert epoch._cache_size() == 1
    assert (replay.index, replay.size, replay.filled) == (5 * 9 % 20, 20, 20)
