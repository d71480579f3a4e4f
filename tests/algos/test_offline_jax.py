"""Distribution, networks, shared pieces, and the terms of IQL and ReBRAC in JAX against arithmetic by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from offline_cases_jax import (
    ACTION,
    BATCH,
    OBSERVATION,
    actor,
    batch_of,
    expectile,
    log_prob,
    mlp,
    parameters_of,
    policy_of,
    small,
    value,
)
from offline_judge_jax import judge, judge_sum
from scipy.integrate import quad
from scipy.stats import norm as normal

from crossfade.algos.offline import modules, terms_jax as pieces
from crossfade.algos.offline.distribution_jax import Normal
from crossfade.algos.offline.iql import agent_jax as iql
from crossfade.algos.offline.networks_jax import make_policy
from crossfade.algos.offline.parameters import laws
from crossfade.errors import UsageError

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(3)
S, A, G = RNG.normal(size=(BATCH, OBSERVATION)), RNG.normal(size=(BATCH, ACTION)), RNG.normal(size=(BATCH, 3))


# The distribution


def test_log_prob_is_that_of_independent_normal_numbers():
    mean, log_std, action = RNG.normal(size=(3, BATCH, ACTION))
    found = Normal(jnp.asarray(mean), jnp.asarray(log_std)).log_prob(jnp.asarray(action))
    np.testing.assert_allclose(found, normal.logpdf(action, mean, np.exp(log_std)).sum(-1), rtol=1e-13)


def test_a_squashed_density_integrates_to_1_and_is_that_of_tanh():
    one = Normal(jnp.array([0.3]), jnp.array([-0.5]), squashed=True)
    density = lambda a: float(jnp.exp(one.log_prob(jnp.array([a]))))
    assert quad(density, -1, 1)[0] == pytest.approx(1, abs=1e-8)
    u = 0.8
    expected = normal.logpdf(u, 0.3, np.exp(-0.5)) - np.log(1 - np.tanh(u) ** 2)
    assert float(one.log_prob(jnp.array([np.tanh(u)]))) == pytest.approx(expected, rel=1e-12)


def test_modes_and_samples():
    mean, log_std, noise = RNG.normal(size=(3, BATCH, ACTION))
    for squashed, f in ((False, lambda x: x), (True, np.tanh)):
        one = Normal(jnp.asarray(mean), jnp.asarray(log_std), squashed)
        np.testing.assert_allclose(one.mode(), f(mean), rtol=1e-14)
        np.testing.assert_allclose(one.sample(jnp.asarray(noise)), f(mean + np.exp(log_std) * noise), rtol=1e-14)


# Networks


def on(*parts):
    return map(jnp.asarray, parts)


def made(spec):
    rng = np.random.default_rng(5)
    p = {name: rng.normal(size=shape) for name, (_, shape) in laws({"x": spec}).items()}
    return make_policy({"x": spec}, p, "float64")["x"], p


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
def test_values(members, layer_norm, outputs):
    spec = modules.Value(OBSERVATION, (5, 4), ACTION, outputs, layer_norm, members)
    module, p = made(spec)
    expected = mlp(p, "x.value_net", S, A)
    found = module(jnp.asarray(S), jnp.asarray(A))
    assert found.shape == (*(() if members == 1 else (members,)), BATCH, *(() if outputs == 1 else (outputs,)))
    np.testing.assert_allclose(found, expected[..., 0] if outputs == 1 else expected, rtol=1e-12)


def test_values_of_goals_read_observation_goal_action():
    module, p = made(modules.GCValue(OBSERVATION, (5, 4), 3, ACTION, members=2))
    np.testing.assert_allclose(module(*on(S, G, A)), value(p, "x", S, G, A), rtol=1e-12)
    module, p = made(modules.GCValue(OBSERVATION, (5, 4), outputs=3))
    np.testing.assert_allclose(module(*on(S)), mlp(p, "x.value_net", S), rtol=1e-12)


@pytest.mark.parametrize("std", ["const", "free", "state"])
@pytest.mark.parametrize("goals", [False, True])
def test_actors(std, goals):
    settings = {"const_std": std == "const", "state_dependent_std": std == "state", "tanh_squash": goals}
    if goals:
        module, p = made(modules.GCActor(OBSERVATION, (5, 4), ACTION, 3, layer_norm=True, **settings))
    else:
        module, p = made(modules.Actor(OBSERVATION, (5, 4), ACTION, **settings))
    parts = (S, G) if goals else (S,)
    found = module(*on(*parts))
    mean, log_std = actor(p, "x", *parts)
    if std == "state":
        features = mlp(p, "x.actor_net", *parts, final=True)
        log_std = np.clip(features @ p["x.log_std_net.weight"].T + p["x.log_std_net.bias"], -5, 2)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.log_std, log_std, rtol=1e-12)
    assert found.squashed == goals


def test_log_std_is_clipped():
    spec = modules.Actor(OBSERVATION, (5, 4), ACTION, const_std=False)
    _, p = made(spec)
    p["x.log_stds"] = np.array([-9.0, 3.0])
    module = make_policy({"x": spec}, p, "float64")["x"]
    assert module(*on(S)).log_std.tolist() == [[-5.0, 2.0]] * BATCH


@pytest.mark.parametrize("value_exp", [False, True])
def test_bilinear_values_of_all_pairs(value_exp):
    module, p = made(modules.GCBilinearValue(OBSERVATION, (5, 4), ACTION, 3, value_exp=value_exp))
    goals = RNG.normal(size=(BATCH + 1, OBSERVATION))
    phi, psi = mlp(p, "x.phi", S, A), mlp(p, "x.psi", goals)
    expected = np.zeros((2, BATCH, BATCH + 1))
    for e, i, j in np.ndindex(expected.shape):
        expected[e, i, j] = phi[e, i] @ psi[e, j] / np.sqrt(3)
    np.testing.assert_allclose(
        module(*on(S, goals, A)), np.exp(expected) if value_exp else expected, rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(module.encode_states(*on(S, A)), phi, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(module.encode_goals(*on(goals)), psi, rtol=1e-12, atol=1e-13)


def test_metric_values_and_their_floor():
    module, p = made(modules.GCMetricValue(OBSERVATION, (5, 4), 3))
    other = RNG.normal(size=S.shape)
    gap = mlp(p, "x.phi", S) - mlp(p, "x.phi", other)
    np.testing.assert_allclose(module(*on(S, other)), -np.sqrt((gap**2).sum(-1)), rtol=1e-12)
    np.testing.assert_allclose(module(*on(S, S)), np.full((2, BATCH), -1e-6), rtol=1e-12)
    gradient = jax.grad(lambda s: module(s, jnp.asarray(S)).sum())(jnp.asarray(S))
    assert not gradient.any()


def test_intentions_and_vector_fields():
    module, p = made(modules.IntentionEncoder(OBSERVATION, (5, 4), ACTION, 3))
    features = mlp(p, "x.trunk_net", S, A, final=True)
    for found, net in zip(module(*on(S, A)), ("mean_net", "log_std_net"), strict=True):
        np.testing.assert_allclose(found, features @ p[f"x.{net}.weight"].T + p[f"x.{net}.bias"], rtol=1e-12)
    module, p = made(modules.VectorField(OBSERVATION, (5, 4), OBSERVATION, ACTION, 3))
    x, t = RNG.normal(size=(6, BATCH, OBSERVATION)), RNG.uniform(size=(6, BATCH))
    s, a, z = (np.broadcast_to(part, (6, *part.shape)) for part in (S, A, G))
    expected = mlp(p, "x.vector_field_net", x, t[..., None], s, a, z)
    np.testing.assert_allclose(module(*on(x, t, s, a, z)), expected, rtol=1e-12)


def test_an_array_by_itself():
    module, p = made(modules.Param((3,)))
    assert module().tolist() == p["x.array"].tolist()


def test_parameters_that_do_not_fit_are_named():
    config = small("iql")
    p = parameters_of(config)
    p["critic.value_net.layers.0.weight"] = p.pop("value.value_net.layers.0.bias")
    with pytest.raises(UsageError, match=r"critic.value_net.layers.0.weight: expected \(2, 5, 5\), got \(5,\)"):
        make_policy(config.agent.modules(config.sizes((OBSERVATION,), ACTION)), p, "float64")


# Shared pieces


def test_frozen_modules_pass_gradients_to_their_inputs_alone():
    module, _ = made(modules.Value(OBSERVATION, (5, 4), ACTION, members=2))
    by_module, by_action = jax.grad(lambda m, a: pieces.frozen(m)(*on(S), a).sum(), argnums=(0, 1))(
        module, jnp.asarray(A)
    )
    plain = jax.grad(lambda a: module(*on(S), a).sum())(jnp.asarray(A))
    assert not any(leaf.any() for leaf in jax.tree.leaves(by_module))
    assert by_action.any() and (by_action == plain).all()


def test_expectiles():
    u, x = np.array([-2.0, 0.0, 3.0]), np.array([5.0, 6.0, -7.0])
    np.testing.assert_allclose(pieces.expectile_loss(*on(u, x), 0.9), [2.5, 32.4, 44.1], rtol=1e-14)


def test_minima_share_the_gradient_at_ties():
    values = jnp.array([[1.0, 2.0], [1.0, 3.0]])
    gradient = lambda how: jax.grad(lambda v: pieces.aggregate(v, how).sum())(values).tolist()
    assert pieces.aggregate(values, "min").tolist() == [1, 2] and pieces.aggregate(values, "mean").tolist() == [1, 2.5]
    assert gradient("min") == [[0.5, 1], [0.5, 0]] and gradient("mean") == [[0.5] * 2] * 2


def test_policy_actions_are_clipped():
    one = Normal(jnp.array([[0.5, -3.0]]), jnp.zeros((1, 2)))
    assert pieces.policy_action(one, None).tolist() == [[0.5, -1]]
    assert pieces.policy_action(one, jnp.array([[2.0, 2.5]])).tolist() == [[1, -0.5]]


def test_the_size_of_q_is_a_constant():
    q = jnp.array([1.0, -3.0, 4.0])
    assert float(pieces.q_loss(q, False)) == pytest.approx(-2 / 3)
    found, gradient = jax.value_and_grad(lambda q: pieces.q_loss(q, True))(q)
    assert float(found) == pytest.approx(-2 / 8) and np.allclose(gradient, -1 / 8)


def test_vectors_on_the_sphere():
    v = RNG.normal(size=(BATCH, 5))
    found = np.asarray(pieces.on_sphere(jnp.asarray(v)))
    np.testing.assert_allclose((found**2).sum(-1), 5, rtol=1e-13)
    np.testing.assert_allclose(found / found[:, :1], v / v[:, :1], rtol=1e-12)


def test_weights_of_regression_end_at_100():
    log_prob, advantage = jnp.array([-1.0, -2.0]), jnp.array([0.5, 4.0])
    value, gradient = jax.value_and_grad(lambda a: pieces.awr_loss(a, log_prob, 2.0))(advantage)
    assert float(value) == pytest.approx((np.e + 200) / 2) and not gradient.any()


# IQL


def iql_bc(p, c, b, config):
    mean, log_std = actor(p, "actor", b.observations)
    told = log_prob(mean, log_std, b.actions).mean()
    return -told, {"log_prob": told, "mse": ((mean - b.actions) ** 2).mean()}


def iql_value(p, c, b, config):
    q, v = value(c, "target_critic", b.observations, b.actions).min(0), value(p, "value", b.observations)
    return expectile(q - v, q - v, config.agent.expectile).mean(), {"v": v.mean()}


def iql_critic(p, c, b, config):
    q, v = value(p, "critic", b.observations, b.actions), value(c, "value", b.next_observations)
    y = b.rewards + 0.9 * b.masks * v
    return ((q[0] - y) ** 2 + (q[1] - y) ** 2).mean(), {"q": q.mean()}


def iql_actor(p, c, b, config):
    mean, log_std = actor(p, "actor", b.observations)
    own, told = log_prob(mean, log_std, b.actions), iql_bc(p, c, b, config)[1]
    if config.agent.actor_loss == "awr":
        advantage = value(c, "critic", b.observations, b.actions).min(0) - value(c, "value", b.observations)
        weight = np.minimum(np.exp(config.agent.alpha * advantage), 100)
        return -(weight * own).mean(), {"advantage": advantage.mean(), **told}
    action = mean + np.exp(log_std) * b.noise["action"] if b.noise else mean
    q = value(c, "critic", b.observations, np.clip(action, -1, 1)).min(0)
    mean_c, log_std_c = actor(c, "actor", b.observations)
    action_c = mean_c + np.exp(log_std_c) * b.noise["action"] if b.noise else mean_c
    size = np.abs(value(c, "critic", b.observations, np.clip(action_c, -1, 1)).min(0)).mean()
    return -q.mean() / size - config.agent.alpha * own.mean(), {"q": q.mean(), **told}


IQL = {"bc_loss": iql_bc, "value_loss": iql_value, "critic_loss": iql_critic, "actor_loss": iql_actor}
IQL_CASES = [
    ("pretraining", "bc_loss", {}),
    ("pretraining", "bc_loss", {"const_std": False}),
    ("finetuning", "value_loss", {"expectile": 0.7}),
    ("finetuning", "critic_loss", {}),
    ("finetuning", "actor_loss", {"alpha": 0.8}),
    ("finetuning", "actor_loss", {"actor_loss": "ddpgbc", "alpha": 0.3}),
    ("finetuning", "actor_loss", {"actor_loss": "ddpgbc", "alpha": 0.3, "const_std": False}),
]


@pytest.mark.parametrize(("phase", "term", "settings"), IQL_CASES)
def test_terms_of_iql(phase, term, settings):
    judge(small("iql", **settings), phase, term, IQL[term])


@pytest.mark.parametrize("agent", ["iql", "rebrac"])
@pytest.mark.parametrize("phase", ["pretraining", "finetuning"])
def test_the_loss_is_the_sum_of_its_terms(agent, phase):
    judge_sum(small(agent), phase)


def test_acting_is_the_clipped_mode():
    config = small("iql")
    policy = policy_of(config)
    found = iql.act(policy, *on(9 * S), None, config)
    np.testing.assert_allclose(found, np.clip(actor(parameters_of(config), "actor", 9 * S)[0], -1, 1), rtol=1e-12)
    assert (np.abs(found) == 1).any() and not (np.abs(found) == 1).all()


# ReBRAC


def rebrac_bc(p, c, b, config):
    mean, log_std = actor(p, "actor", b.observations)
    own = log_prob(mean, log_std, np.arctanh(b.actions)) - np.log(1 - b.actions**2).sum(-1)
    return -own.mean(), {"log_prob": own.mean(), "mse": ((np.tanh(mean) - b.actions) ** 2).mean()}


def rebrac_critic(p, c, b, config):
    noise = np.clip(0.2 * b.noise["target_action"], -config.agent.noise_clip, config.agent.noise_clip)
    action = np.clip(np.tanh(actor(c, "target_actor", b.next_observations)[0]) + noise, -1, 1)
    penalty = config.agent.alpha_critic * ((action - b.next_actions) ** 2).sum(-1)
    y = b.rewards + 0.9 * b.masks * (value(c, "target_critic", b.next_observations, action).min(0) - penalty)
    q = value(p, "critic", b.observations, b.actions)
    return ((q - y) ** 2).mean(), {"q": q.mean()}


def rebrac_actor(p, c, b, config):
    of = lambda p: np.tanh(actor(p, "actor", b.observations)[0])
    q = value(c, "critic", b.observations, of(p)).min(0)
    size = np.abs(value(c, "critic", b.observations, of(c)).min(0)).mean() if config.agent.normalize_q_loss else 1
    error = (of(p) - b.actions) ** 2
    told = {"q": q.mean(), "mse": error.mean()}
    return -q.mean() / size + config.agent.alpha_actor * error.sum(-1).mean(), told


REBRAC = {"bc_loss": rebrac_bc, "critic_loss": rebrac_critic, "actor_loss": rebrac_actor}


@pytest.mark.parametrize(
    ("phase", "term", "settings"),
    [
        ("pretraining", "bc_loss", {}),
        ("finetuning", "critic_loss", {"alpha_critic": 0.7, "noise_clip": 0.1}),
        ("finetuning", "actor_loss", {"alpha_actor": 0.6}),
        ("finetuning", "actor_loss", {"alpha_actor": 0.6, "normalize_q_loss": False}),
    ],
)
def test_terms_of_rebrac(phase, term, settings):
    config = small("rebrac", **settings)
    judge(config, phase, term, REBRAC[term])
    if term == "critic_loss":  # some noise is cut, some is not
        noise = np.abs(0.2 * batch_of(config, phase).noise["target_action"])
        assert (noise > 0.1).any() and (noise < 0.1).any()
