"""Continuous GFlowNets in JAX: densities, draws, trajectories, terms, compiled training, learning."""

import functools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gflownet_small import with_optimizers
from scipy import integrate, stats

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.continuous import (
    acting_jax,
    density_jax,
    learner_jax,
    noise_jax,
    training_jax,
    vectorized,
)
from crossfade.algos.gflownet.continuous.batch import NO_MOVE, Noise
from crossfade.algos.gflownet.continuous.policy_jax import Choice
from crossfade.envs.dag.continuous_jax import State as EnvState
from crossfade.envs.dag.continuous_numpy import State
from crossfade.envs.dag.continuous_params import EDGE
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.torus.params import TorusParams
from crossfade.errors import UsageError
from crossfade.random import random_numpy, streams_jax
from crossfade.systems.gflownet.continuous_jax import System
from default_run import few

CUBE, TORUS = CubeParams(min_increment=0.25), TorusParams(n_turns=3, harmonics=2)
WORLDS = pytest.mark.parametrize("params", [CUBE, TORUS], ids=["cube", "torus"])
ONE_WORLD = pytest.mark.parametrize("params", few((CUBE, TORUS), CUBE), ids=["cube", "torus"])
KINDS = pytest.mark.parametrize("kind", ["beta", "von_mises"])


def tiny(params, **settings):
    settings = {"hidden": 8, "layers": 1, "components": 2, "batch_size": 16, "dtype": "float64", **settings}
    return GFlowNetConfig(env=params, **settings)


def started(params, flat=False, **settings):
    """A system and its first policy; where `flat`, ratios are almost uniform and the way back is short."""
    system = System(tiny(params, **settings))
    parameters = system.parameters()
    if flat:
        for head, jump in {"forward_head.bias": 0, "backward_head.bias": 2}.items():
            if head in parameters:
                parameters[head][:-1], parameters[head][-1] = -8, jump
    return system, system.make_policy(parameters)


def component(kind, a, b):
    """SciPy's density of a ratio, given raw numbers."""
    if kind == "beta":
        alpha, beta = (1 + 100 / (1 + np.exp(-raw)) for raw in (a, b))
        return stats.beta(alpha, beta).pdf
    return lambda r: 2 * np.pi * stats.vonmises(np.exp(b) + 1e-3, loc=a).pdf(2 * np.pi * r)


def mixture(kind, raw):
    """SciPy's density of one ratio under the mixture of one dimension, raw (c, 3)."""
    weight = np.exp(raw[:, 0]) / np.exp(raw[:, 0]).sum()
    return lambda r: sum(w * component(kind, a, b)(r) for w, (_, a, b) in zip(weight, raw, strict=True))


@KINDS
def test_log_densities_are_those_of_scipy(x64, kind):
    rng = np.random.default_rng(0)
    raw, ratio = 2 * rng.normal(size=(50, 2, 3, 3)), rng.uniform(0.01, 0.99, (50, 2))
    found = jax.jit(partial(density_jax.log_prob, kind))(raw, ratio)
    expected = [sum(np.log(mixture(kind, raw[i, d])(ratio[i, d])) for d in range(2)) for i in range(50)]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


SHAPES = {  # raw numbers of two components; a weight of -50 is none
    "blunt": [[0.0, -8.0, -8.0], [-50.0, 0.0, 0.0]],
    "sharp": [[0.0, 8.0, 8.0], [-50.0, 0.0, 0.0]],
    "lopsided": [[0.0, 8.0, -8.0], [-50.0, 0.0, 0.0]],
    "two": [[0.5, 1.0, -3.0], [0.0, -3.0, 1.0]],
}


@KINDS
def test_draws_follow_the_density(kind):
    raw, n = np.array(list(SHAPES.values()), np.float32), 4000
    noise = noise_jax.draw(jax.random.key(0), 1, n, len(raw), 2, kind).at(0)
    ratio = np.asarray(jax.jit(partial(density_jax.draw, kind))(jnp.broadcast_to(raw, (n, *raw.shape)), noise))
    assert ratio.min() >= 0 and ratio.max() <= 1
    grid = np.linspace(1e-6, 1 - 1e-6, 40001)
    for name, numbers, drawn in zip(SHAPES, raw.astype(np.float64), ratio.T, strict=True):
        mass = integrate.cumulative_trapezoid(mixture(kind, numbers)(grid), grid, initial=0)
        assert mass[-1] == pytest.approx(1, abs=1e-3), name
        cdf = lambda r, mass=mass: np.interp(r, grid, mass / mass[-1])
        assert stats.kstest(drawn, cdf).pvalue > 1e-3, name
        assert stats.kstest(drawn**1.2, cdf).pvalue < 1e-3, name  # the test notices


@pytest.mark.parametrize("dtype", few(("float32", "float64"), "float32"))
def test_streams_are_those_of_jax_random(dtype):
    with jax.enable_x64(dtype == "float64"):
        for name in ("uniform", "normal", "gumbel"):
            key, shape = jax.random.key(3), (3, 5)
            found = jax.jit(partial(getattr(streams_jax, name), shape=shape, dtype=dtype))(key)
            expected = jax.jit(partial(getattr(jax.random, name), shape=shape, dtype=dtype))(key)
            np.testing.assert_array_equal(found, expected)


def test_a_row_acts_as_its_noise_says():
    numbers = jnp.array([0.2, 0.7, 0.2, 0.7, 0.2, 0.2])
    rows = len(numbers)
    noise = Noise(
        component=jnp.zeros((rows, 1, 1)),
        normal=jnp.zeros((rows, 1, 2, 12)),
        accept=jnp.full((rows, 1, 2, 12), 0.5),
        circle=None,
        jump=numbers,
        explore=jnp.array([0.9, 0.9, 0.1, 0.1, 0.9, 0.9]),
        ratio=jnp.full((rows, 1), 1e-9),
    )
    can_move, can_jump = jnp.array([True] * 5 + [False]), jnp.array([True] * 4 + [False, True])
    choice = Choice(jnp.zeros((rows, 1, 1, 3)), jnp.full(rows, -0.4))  # jumps with probability 0.4, or 0.5 at random
    ratio, jump = jax.jit(partial(acting_jax.choose, "beta"))(choice, can_move, can_jump, noise, 0.5)
    assert jump.tolist() == [True, False, True, False, False, True]
    np.testing.assert_allclose(ratio[:, 0], [0.5, 0.5, EDGE, EDGE, 0.5, 0.5], rtol=1e-5)
    ratio, jump = acting_jax.choose("beta", None, can_move, can_jump, noise, 0.0)
    assert jump.tolist() == [True, False, True, False, False, True]
    np.testing.assert_allclose(ratio, EDGE, rtol=1e-5)


def check_trajectories(trajectories, env):
    """Each trajectory leads from the source to one stop by the moves that it states, and back by those backwards."""
    x, t, ratio, back, jump, valid = map(np.asarray, trajectories)
    assert (valid.sum(0) == 1 + (~jump).sum(0)).all() and jump[-1].all()
    assert (np.diff(jump.astype(int), axis=0) >= 0).all()
    state = env.reset(x.shape[1:2], x.dtype)
    np.testing.assert_array_equal(x[0], state.x)
    for k in range(len(jump)):
        moves = env.forward(state)
        assert np.where(jump[k], moves.can_jump | state.done, moves.can_move).all()
        after = env.step(state, ratio[k], jump[k])
        np.testing.assert_allclose(after.x, x[k + 1], atol=1e-12)
        np.testing.assert_array_equal(after.t, t[k + 1])
        before = env.unstep(after, back[k], state.t == 0)
        np.testing.assert_allclose(before.x, state.x, atol=1e-12)
        state = after
    assert (ratio[jump] == NO_MOVE).all() and (back[jump | (t[:-1] == 0)] == NO_MOVE).all()


@functools.cache
def walked(params):
    """Trajectories of a policy in both directions, and what it says of the forward ones, in NumPy's float64."""
    with jax.enable_x64(True):
        system, policy = started(params, flat=True, loss="db", backward="shared" if params is CUBE else "fixed")
        forwards = jax.device_get(system.sample(policy, random_numpy.key(1), 8192))
        backwards = jax.device_get(system.sample_back(policy, forwards.x[-1], random_numpy.key(1)))
        said = policy(system.env.observe(EnvState(jnp.array(forwards.x[:, :8]), jnp.array(forwards.t[:, :8]), None)))
        return system, policy, forwards, backwards, system.terms(policy, forwards), jax.device_get(said)


@ONE_WORLD
def test_trajectories_are_ways_through_the_world(params):
    system, _, forwards, backwards, *_ = walked(params)
    check_trajectories(forwards, system.host_env)
    check_trajectories(backwards, system.host_env)
    np.testing.assert_array_equal(backwards.x[-1], forwards.x[-1])
    if params is CUBE:
        assert min(len(set(found.valid.sum(0))) for found in (forwards, backwards)) >= 3


def log_density(kind, choice, moves, ratio, jumped):
    """Of one transition, from the definitions; `choice` is of its state alone, None for the fixed P_B."""
    p_jump = float(moves.can_jump)
    if moves.can_move and moves.can_jump:
        p_jump = 0.5 if choice is None else 1 / (1 + np.exp(-choice.jump))
    if jumped:
        return np.log(p_jump)
    densities = 1.0 if choice is None else [mixture(kind, raw)(r) for raw, r in zip(choice.raw, ratio, strict=True)]
    return np.log(1 - p_jump) + np.sum(np.log(densities)) - np.log(moves.width).sum()


@ONE_WORLD
def test_terms_are_what_the_definitions_say(params):
    system, policy, found, _, terms, said = walked(params)
    env, state = system.host_env, State(found.x, found.t, np.zeros(found.t.shape, bool))
    at = lambda tree, *index: jax.tree.map(lambda array: array[index], tree)
    for k, b in np.argwhere(found.valid[:, :8]):
        stops, first = found.jump[k, b], found.t[k, b] == 0
        forward, backward = at(said.forward, k, b), at(said.backward, k + 1, b)
        moves, moves_back = env.forward(at(state, k, b)), env.backward(at(state, k + 1, b))
        log_pf = log_density(policy.kind, forward, moves, found.ratio[k, b], stops)
        log_pb = 0 if stops else log_density(policy.kind, backward, moves_back, found.ratio_back[k, b], first)
        assert terms.log_pf[k, b] == pytest.approx(log_pf, abs=1e-10)
        assert terms.log_pb[k, b] == pytest.approx(log_pb, abs=1e-10)
        assert terms.log_flow[k, b] == pytest.approx(said.log_flow[k, b])
    assert not terms.log_pf[~found.valid].any() and not terms.log_pb[~found.valid].any()
    np.testing.assert_allclose(terms.log_reward, env.log_reward(env.ended(found.x[-1])))


@ONE_WORLD
def test_importance_weights_integrate_the_reward(params):
    """E exp(log R + log P_B - log P_F) = Z whatever the policy, if it samples what it says it does."""
    *_, terms, _ = walked(params)

    def z_score(terms):
        weight = np.exp(terms.log_reward + (terms.log_pb - terms.log_pf).sum(0) - params.log_z)
        return (weight.mean() - 1) / (weight.std() / np.sqrt(len(weight)))

    assert abs(z_score(terms)) < 4
    assert abs(z_score(terms._replace(log_pf=terms.log_pf + 0.05 * terms.valid))) > 4


def test_times_after_the_last_stop_change_nothing(x64):
    system, policy = started(CUBE, flat=True)
    found = jax.device_get(system.sample(policy, random_numpy.key(4), 8))
    longest = int(found.valid.sum(0).max())
    assert longest < CUBE.max_steps
    cut = found._replace(
        x=found.x[: longest + 1],
        t=found.t[: longest + 1],
        **{name: getattr(found, name)[:longest] for name in ("ratio", "ratio_back", "jump", "valid")},
    )
    gradient = jax.jit(jax.value_and_grad(lambda policy, batch: learner_jax.loss(policy, batch, system.config)[0]))
    whole, whole_gradient = gradient(policy, vectorized.to_batch(found, system.host_env))
    part, part_gradient = gradient(policy, vectorized.to_batch(cut, system.host_env))
    assert float(whole) == pytest.approx(float(part), rel=1e-13)
    assert any(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(whole_gradient))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-13), whole_gradient, part_gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    "params, loss, backward",
    [(CUBE, "tb", "shared"), (TORUS, "fldb", "learned")],
)
def test_compiled_training_is_training_on_the_host_in_chunks_of_any_size(x64, params, loss, backward):
    system, policy = started(params, loss=loss, backward=backward, epsilon=0.2, clip_norm=1.0)
    optimizers = system.make_optimizers(policy)

    def on_host():
        policy_, (_, states), losses = policy, with_optimizers(system, policy), []
        update = jax.jit(lambda policy, states, batch: system.update(policy, optimizers, states, batch))
        for step in range(6):
            batch, _ = system.collect(policy_, None, step)
            policy_, states, info = update(policy_, states, batch)
            losses.append(info["loss"])
        return losses

    def compiled(*chunks):
        policy_, losses, step = jax.tree.map(jnp.copy, policy), [], 0
        states = with_optimizers(system, policy_)[1]
        for n in chunks:
            policy_, states, _, metrics = system.train(policy_, optimizers, states, None, step, n)
            losses, step = [*losses, *metrics["loss"]], step + n
        return losses

    before = training_jax.train._cache_size()
    losses = compiled(3, 3)
    assert training_jax.train._cache_size() == before + 1
    np.testing.assert_allclose(losses, on_host(), rtol=1e-10)
    assert losses[-1] != losses[0]


def test_what_makes_no_sense_is_refused():
    for settings in ({"loss": "fm"}, {"backward": "maxent"}, {"replay_batch": 4}, {"temperature": 2.0}):
        with pytest.raises(UsageError, match="cube is continuous"):
            System(tiny(CUBE, **settings))
    system = System(tiny(CUBE, dtype="float32"))
    with pytest.raises(UsageError, match=r"forward_head.weight: expected \(13, 8\), got \(25, 8\)"):
        system.make_policy(System(tiny(CUBE, components=4)).parameters())
    with pytest.raises(UsageError, match="64-bit mode"):
        System(tiny(CUBE)).make_policy(system.parameters())


LEARNING = {
    "cube": GFlowNetConfig(env=CubeParams(), epsilon=0.3, lr=3e-3, clip_norm=10.0, steps=2000),
    "torus": GFlowNetConfig(env=TorusParams(), steps=2000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_the_target_is_learned(name):
    system = System(replace(LEARNING[name], mode="jax_full"))
    policy = system.make_policy(system.parameters())
    assert system.evaluate(policy).metrics["eval/gap"] > 0.5
    policy, *_ = system.train(policy, *with_optimizers(system, policy), None, 0, system.config.steps)
    found = system.evaluate(policy).metrics
    assert found["eval/log_z_error"] < 0.05
    assert 0 <= found["eval/gap"] + 3 * found["eval/gap_se"] < 0.1
