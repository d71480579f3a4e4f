"""Cube and torus: moves that can be undone, intervals that cover, normalisers, twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.envs.dag import continuous_jax, continuous_numpy
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.registry import make
from crossfade.envs.dag.torus.params import TorusParams
from crossfade.errors import UsageError
from default_run import few

CASES = [CubeParams(), CubeParams(n_dim=3, min_increment=0.25), TorusParams(), TorusParams(n_dim=3, n_turns=3, alpha=2)]
WALKS = 50


def noise(params, seed=0):
    """Ratios and coins, for both directions."""
    rng = np.random.default_rng(seed)
    shape = (2, params.max_steps, WALKS)
    return rng.uniform(size=(*shape, params.n_dim)), rng.uniform(size=shape) < 0.2


def choose(moves, coin):
    """Jump by the coin where there is a choice."""
    return moves.can_jump & (coin | ~moves.can_move)


def walk(env, ratios, coins):
    """Forward until all are done, then back to the source."""
    state = env.reset((WALKS,), ratios.dtype)
    there, back = [state], []
    for ratio, coin in zip(ratios[0], coins[0], strict=True):
        state = env.step(state, ratio, choose(env.forward(state), coin))
        there.append(state)
    for ratio, coin in zip(ratios[1], coins[1], strict=True):
        back.append(state)
        state = env.unstep(state, ratio, choose(env.backward(state), coin))
    return there, [*back, state]


@pytest.mark.parametrize("params", CASES, ids=str)
def test_walks_end_and_lead_back_to_the_source(params):
    there, back = walk(make(params, "numpy"), *noise(params))
    assert there[-1].done.all()
    assert (back[-1].x == params.source).all() and (back[-1].t == 0).all() and not back[-1].done.any()


@pytest.mark.parametrize("params", CASES, ids=str)
def test_a_cube_or_torus_can_always_go_on_until_done(params):
    env = make(params, "numpy")
    for state in walk(env, *noise(params))[0]:
        moves = env.forward(state)
        assert ((moves.can_move | moves.can_jump) == ~state.done).all()
        back = env.backward(state)
        assert ((back.can_move | back.can_jump) == (~state.done & (state.t > 0))).all()


@pytest.mark.parametrize("params", CASES, ids=str)
def test_moves_can_be_undone_and_ratios_found_again(params):
    env = make(params, "numpy")
    ratios, coins = noise(params)
    there, back = walk(env, ratios, coins)
    for before, after, ratio in zip(there[:-1], there[1:], ratios[0], strict=True):
        moved = ~after.done
        np.testing.assert_allclose(env.ratio(before, after)[moved], ratio[moved], atol=1e-9)
        by_move = moved & (before.t > 0)
        assert env.backward(after).can_move[by_move].all()
        undone = env.unstep(after, env.ratio_back(after, before), ~by_move)
        np.testing.assert_allclose(undone.x[moved], before.x[moved], atol=1e-9)
        np.testing.assert_array_equal(undone.t[moved], before.t[moved])
    for after, before, ratio in zip(back[:-1], back[1:], ratios[1], strict=True):
        moved = ~after.done & (before.t > 0)
        np.testing.assert_allclose(env.ratio_back(after, before)[moved], ratio[moved], atol=1e-9)
        assert env.forward(before).can_move[moved].all()


@pytest.mark.parametrize("params", CASES, ids=str)
def test_widths_are_the_jacobian_of_the_moves(params):
    env = make(params, "numpy")
    there, back = walk(env, *noise(params))
    r, step = np.full((WALKS, params.n_dim), 0.3), 1e-6
    for state in there[:3]:
        moves = env.forward(state)
        slope = (env.move(state, r + step) - env.move(state, r)) / step
        slope = slope % (2 * np.pi / step)  # a wrapped angle may jump by a turn
        np.testing.assert_allclose(slope[moves.can_move], moves.width[moves.can_move], rtol=1e-6)
    for state in back[1:3]:
        moves = env.backward(state)
        slope = (env.move_back(state, r) - env.move_back(state, r + step)) / step % (2 * np.pi / step)
        np.testing.assert_allclose(slope[moves.can_move], moves.width[moves.can_move], rtol=1e-6)


@pytest.mark.parametrize("params", few(CASES, CASES[1], CASES[3]), ids=str)
def test_twins_are_equal(params, x64):
    ours, theirs = make(params, "numpy"), make(params, "jax")
    ratios, coins = noise(params)

    @jax.jit
    def facts(ratios, coins):
        there, back = walk(theirs, ratios, coins)
        return [
            (s, theirs.forward(s), theirs.backward(s), theirs.observe(s), theirs.log_reward(s)) for s in there + back
        ]

    there, back = walk(ours, ratios, coins)
    expected = [(s, ours.forward(s), ours.backward(s), ours.observe(s), ours.log_reward(s)) for s in there + back]
    found = facts(jnp.asarray(ratios), jnp.asarray(coins))
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11)


def test_float32_stays_float32():
    for params in CASES:
        env = make(params, "numpy")
        state = env.reset((3,))
        state = env.step(state, np.full((3, params.n_dim), 0.5, np.float32), np.zeros(3, bool))
        assert state.x.dtype == env.observe(state).dtype == np.float32
        assert env.observe(state).shape == (3, params.observation_dim)
        assert state.t.dtype == np.int32
        assert env.ended(state.x).done.all()


@pytest.mark.parametrize("params", [CubeParams(n_dim=2), TorusParams(n_dim=2, alpha=2, beta=3), TorusParams(n_dim=1)])
def test_normalisers_are_the_integral_of_the_reward(params):
    top = 1.0 if isinstance(params, CubeParams) else 2 * np.pi
    cells = 400
    axis = (np.arange(cells) + 0.5) / cells * top
    x = np.stack(np.meshgrid(*[axis] * params.n_dim), axis=-1).reshape(-1, params.n_dim)
    total = np.exp(make(params, "numpy").log_reward(make(params, "numpy").ended(x))).mean() * top**params.n_dim
    assert np.log(total) == pytest.approx(params.log_z, abs=1e-4)


def test_cube_rules():
    env = make(CubeParams(n_dim=2, min_increment=0.1), "numpy")
    x = np.array([[0.95, 0.2], [0.5, 0.5], [0.05, 0.5]])
    state = env.ended(x)._replace(done=np.zeros(3, bool))
    assert env.forward(state).can_move.tolist() == [False, True, True]
    assert env.forward(state).can_jump.all()
    assert env.backward(state).can_move.tolist() == [True, True, False]
    assert not env.forward(env.reset((1,))).can_jump.any()
    np.testing.assert_allclose(env.forward(state).width[1], 0.4)
    np.testing.assert_array_equal(env.step(env.reset(()), np.array([0.25, 0.75]), np.array(False)).x, [0.25, 0.75])


def test_bad_params_are_refused():
    with pytest.raises(UsageError, match="min_increment: expected a finite number of at least 0.0001 and below 1"):
        CubeParams(min_increment=1.0)
    with pytest.raises(UsageError, match="floor: expected a finite number above 0"):
        TorusParams(floor=0.0)


def test_states_of_the_twins_have_the_same_fields():
    assert continuous_numpy.State._fields == continuous_jax.State._fields
    assert continuous_numpy.Moves._fields == continuous_jax.Moves._fields
