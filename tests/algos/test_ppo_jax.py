"""PPO in JAX: formulas against oracles written out, the compiled loop against a loop in Python."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppo_toy import DATA, WORLD, Place, PublishedConfig, actions, optimizer, parameters, rates, settings, small, started

from crossfade.algos.ppo import learner_jax, losses_jax, rollout_jax, rollout_numpy, train_jax
from crossfade.algos.ppo.acting_jax import Actor
from crossfade.algos.ppo.batch import Minibatch
from crossfade.algos.ppo.gae_jax import gae
from crossfade.envs.trading.params import TradingParams
from crossfade.envs.trading.synthetic import bars, planted_optimum
from crossfade.envs.world import BoundWorld
from crossfade.errors import UsageError
from crossfade.nn import normalizer_jax as normalizer
from crossfade.random import random_numpy
from crossfade.random.shuffling_jax import shuffled
from crossfade.systems.trading import data
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_jax import System

MODES = ("bootstrap", "mask", "terminal")


def quadratic_gae(reward, value, next_value, terminated, truncated, gamma, gae_lambda, mode):
    """Every advantage as its own sum of discounted errors, up to the end of its episode."""
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for t, n in product(range(steps), range(envs)):
        for later in range(t, steps):
            at = later, n
            cut, final = truncated[at], terminated[at] or (truncated[at] and mode == "terminal")
            error = reward[at] + (0 if final else gamma * next_value[at]) - value[at]
            if not (cut and mode == "mask"):
                advantage[t, n] += (gamma * gae_lambda) ** (later - t) * error
            if cut or terminated[at]:
                break
    return advantage


def test_gae_equals_its_definition_in_every_truncation_mode(x64):
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(3, 20, 5))
    terminated = rng.random((20, 5)) < 0.15
    truncated = (rng.random((20, 5)) < 0.15) & ~terminated
    found = {}
    for mode in MODES:
        args = (*arrays, terminated, truncated, 0.9, 0.8, mode)
        found[mode] = gae(*map(jnp.asarray, args[:5]), *args[5:])
        np.testing.assert_allclose(found[mode], quadratic_gae(*args), rtol=1e-12, atol=1e-13)
    assert all(np.abs(found[a] - found[b]).max() > 0.1 for a, b in combinations(MODES, 2))
    assert not np.any(found["mask"][truncated])


def test_a_gumbel_number_is_finite_where_its_uniform_number_is_zero():
    config = small(n_steps=64, n_envs=256, dtype="float32", epochs=1, minibatches=1)
    key = jax.random.fold_in(jax.random.key(0), 5)
    noise = jax.jit(rollout_jax.draw, static_argnums=(1, 2, 3))(key, config, actions(config), 4)
    gumbel, start, order = jax.random.split(key, 3)
    assert np.any(jax.random.uniform(gumbel, (64, 256, 3)) == 0)
    np.testing.assert_array_equal(noise.action, jax.random.gumbel(gumbel, (64, 256, 3)))
    np.testing.assert_array_equal(noise.start, jax.random.uniform(start, (64, 256, 4)))
    np.testing.assert_array_equal(noise.order[0], shuffled(jax.random.fold_in(order, 0), 64 * 256))


NAMES = {
    False: {"trunk.0", "trunk.1", "actor.0", "critic.0"},
    True: {"trunk.0", "trunk.1", "norms.0", "norms.1", "actor.0", "actor.1", "critic.0", "critic.1"},
}


def minibatch(n, observation_dim=3, seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.random((n, 3)) < 0.6
    mask[:, 0] = True
    action = np.argmax(mask * rng.random((n, 3)), -1).astype(np.int32)
    columns = (
        rng.normal(size=(n, observation_dim)),
        mask,
        action,
        -rng.random(n),
        *rng.normal(size=(3, n)),
    )
    return Minibatch(*map(jnp.asarray, columns))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 2, "floor": 0.02, "clip_value": 0.2},
        pytest.param({"kind": PublishedConfig, "clip_value": None}, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_the_loss_equal_finite_differences(x64, changes):
    config = small(entropy_coef=0.1, **changes)
    start, batch = parameters(config), minibatch(8)
    assert {name.rsplit(".", 1)[0] for name in start} == NAMES[config.architecture.layer_norm]
    make = lambda values: learner_jax.make_policy(config, 3, actions(config), values)
    value = jax.jit(lambda policy: losses_jax.loss(policy, batch, actions(config), config)[0])
    policy = make(start)
    gradient = jax.jit(jax.grad(lambda policy: losses_jax.loss(policy, batch, actions(config), config)[0]))(policy)
    for seed in range(4):
        direction = parameters(config, seed=seed + 1)
        slope = sum(map(lambda a, b: jnp.vdot(a, b), jax.tree.leaves(gradient), jax.tree.leaves(make(direction))))
        ahead, behind = (make({k: v + eps * direction[k] for k, v in start.items()}) for eps in (1e-6, -1e-6))
        np.testing.assert_allclose(slope, (value(ahead) - value(behind)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_losses_equal_numbers_worked_out_by_hand(x64):
    log_ratio, advantage = jnp.log(jnp.array([1.5, 1.5, 0.5, 1.1])), jnp.array([1.0, -1.0, -2.0, 2.0])
    assert losses_jax.policy_loss(log_ratio, advantage, 0.2) == pytest.approx(-(1.2 - 1.5 - 1.6 + 2.2) / 4)
    value, old, returns = jnp.array([2.0, 0.1]), jnp.array([1.0, 0.0]), jnp.array([3.0, 1.0])
    assert losses_jax.value_loss(value, old, returns, None) == pytest.approx((1.0 + 0.81) / 4)
    assert losses_jax.value_loss(value, old, returns, 0.2) == pytest.approx((1.8**2 + 0.81) / 4)
    np.testing.assert_allclose(learner_jax.normalized(jnp.array([1.0, 3.0]), small()), [-1, 1], rtol=1e-7)
    np.testing.assert_array_equal(
        learner_jax.normalized(jnp.array([1.0, 3.0]), small(normalize_advantages=False)), [1, 3]
    )


def test_statistics_are_those_of_all_rows_and_never_stall(x64):
    rng = np.random.default_rng(0)
    rows = 1000 + 3 * rng.normal(size=(60, 2))
    statistics = normalizer.start(2, "float64")
    np.testing.assert_allclose(normalizer.normalize(statistics, jnp.array([[0.5, -50.0]])), [[0.5, -10]], rtol=1e-7)
    for part in np.split(rows, [10, 11, 40]):
        statistics = normalizer.merge(statistics, jnp.asarray(part))
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-13)
    np.testing.assert_allclose(statistics.var, rows.var(0), rtol=1e-10)
    assert statistics.count == 60
    full_up = normalizer.Statistics(jnp.zeros(1, "float32"), jnp.ones(1, "float32"), jnp.array(2.0**25, "float32"))
    moved = normalizer.merge(full_up, jnp.full((1, 1), 1000.0, "float32"))
    assert moved.count == full_up.count and moved.mean > 0 and moved.var > 1


def by_hand(policy, config, carry, noise, limits):
    """The rollout of one environment after another, one step after another."""
    columns = {name: [] for name in ("x", "t", "action", "log_prob", "value", "next_value", "reward", "advantage")}
    see = lambda place, stats: normalizer.normalize(stats, WORLD.observe(DATA, limits, place))
    last, ended = [], []
    for n in range(config.n_envs):
        place, rows = Place(*(column[n] for column in carry.state)), []
        for t in range(config.n_steps):
            logits, value = policy(see(place, carry.statistics))
            chance = np.where(WORLD.mask(DATA, limits, place), np.exp(logits), 0)
            legal = chance > 0
            chance = (1 - config.floor * legal.sum()) * chance / chance.sum() + config.floor * legal
            with np.errstate(divide="ignore"):
                log_p = np.log(chance)
            action = jnp.argmax(log_p + noise.action[t, n])
            after, outcome = WORLD.step(DATA, limits, place, action)
            next_value = policy(see(after, carry.statistics))[1]
            flags = outcome.terminated, outcome.truncated
            rows.append((*place, action, log_p[action], value, next_value, outcome.reward, *flags))
            place = WORLD.begin(DATA, limits, noise.start[t, n]) if any(flags) else after
        rows = [np.array(column) for column in zip(*rows, strict=True)]
        *rows, terminated, truncated = rows
        cols = [c[:, None] for c in (rows[6], rows[4], rows[5], terminated, truncated)]
        rows.append(quadratic_gae(*cols, config.gamma, config.gae_lambda, config.truncation)[:, 0])
        for name, row in zip(columns, rows, strict=True):
            columns[name].append(row)
        last.append(place)
        ended.append((terminated, truncated))
    ends = np.stack([np.array(e) for e in ended], -1)  # (2, steps, envs)
    return {name: np.stack(rows, -1) for name, rows in columns.items()}, last, ends


@cache
def rolled():
    """A rollout of the toy world, with all that led to it."""
    config = small(floor=0.25)
    policy, _, _, carry = started(config)
    limits = jax.tree.map(lambda s: s[0], settings(1))
    draw = jax.jit(rollout_jax.draw, static_argnums=(1, 2, 3))
    noise = draw(jax.random.key(3), config, actions(config), WORLD.start_numbers)
    raw = jnp.asarray(np.random.default_rng(0).normal(size=(9, 3)))
    carry = carry._replace(statistics=normalizer.merge(carry.statistics, raw))
    envs, actor = BoundWorld(WORLD, DATA, limits), Actor(policy, actions(config))
    taken, after, told = jax.jit(lambda actor, *given: rollout_jax.collect(actor, envs, *given, config))(
        actor, carry, noise
    )
    minibatch, _ = train_jax.minibatch_of(envs, taken, carry.statistics, config)
    return config, policy, limits, noise, raw, carry, taken, after, told, minibatch


@pytest.mark.parametrize(("rollout", "key"), [(rollout_jax, jax.random.key), (rollout_numpy, random_numpy.key)])
def test_every_epoch_visits_every_step_once_in_an_order_of_its_own(rollout, key, x64):
    config = small(epochs=4)
    first, second = (
        np.asarray(rollout.draw(key(seed), config, actions(config), WORLD.start_numbers).order) for seed in (3, 4)
    )
    assert (np.sort(first, axis=1) == np.arange(config.n_steps * config.n_envs)).all()
    assert len({row.tobytes() for row in np.concatenate([first, second])}) == 2 * config.epochs


def test_a_rollout_equals_one_made_step_by_step(x64):
    config, policy, limits, noise, raw, carry, taken, after, told, _ = rolled()
    expected, last, (terminated, truncated) = by_hand(policy, config, carry, noise, limits)
    assert terminated.any() and truncated.any()
    np.testing.assert_array_equal(taken.terminated, terminated)
    np.testing.assert_array_equal(taken.truncated, truncated)
    np.testing.assert_array_equal(taken.state.x, expected["x"])
    np.testing.assert_array_equal(taken.state.t, expected["t"])
    np.testing.assert_array_equal(after.state.x, [place.x for place in last])
    np.testing.assert_array_equal(taken.action, expected["action"])
    for name in ("log_prob", "value", "reward"):
        np.testing.assert_allclose(getattr(taken, name), expected[name], rtol=1e-12)
    next_value = np.where(terminated, 0, expected["next_value"])
    np.testing.assert_allclose(np.where(terminated, 0, taken.next_value), next_value, rtol=1e-12)
    advantage, _ = learner_jax.advantages(taken, config)
    np.testing.assert_allclose(advantage, expected["advantage"], rtol=1e-10)

    seen = np.concatenate([raw, WORLD.observe(DATA, limits, taken.state).reshape(-1, 3)])
    np.testing.assert_allclose(after.statistics.mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(after.statistics.var, seen.var(0), rtol=1e-12)
    assert told["illegal"] == 0 and told["episodes"] == (terminated | truncated).sum()
    assert told["mean_reward"] == pytest.approx(expected["reward"].mean())
    legal = np.array([(expected["x"] > 0).sum(), 24, 24])  # not left at 0
    assert 0 < legal[0] < 24
    shares = [told[f"action_{a}"] for a in range(3)]
    np.testing.assert_allclose(shares, np.bincount(expected["action"].ravel(), minlength=3) / legal)
    ended_at = [(t, n) for t, n in np.argwhere(terminated | truncated)]
    assert told["mean_episode_length"] == pytest.approx(np.mean([expected["t"][at] + 1 for at in ended_at]))


def test_a_rollout_is_minibatched_as_it_was_seen(x64):
    config, policy, _, _, _, _, taken, *_, minibatch = rolled()
    batch = minibatch(jnp.arange(24)[::-1])
    np.testing.assert_allclose(policy(batch.observation)[1][::-1].reshape(6, 4), taken.value, rtol=1e-12)
    np.testing.assert_allclose(batch.returns, batch.value + batch.advantage, rtol=1e-12)
    _, info = losses_jax.loss(policy, batch, actions(config), config)
    assert abs(info["approx_kl"]) < 1e-14 and info["clip_fraction"] == 0


def run(config, *chunks, **limits):
    """The metrics of a run made in chunks, and where it ended."""
    policy, tx, opt_state, carry = started(config)
    metrics, step = [], 0
    for n in chunks:
        policy, opt_state, carry, told = train_jax.train(
            policy, tx, opt_state, carry, WORLD, DATA, settings(n, **limits), rates(config, step, n), KEY, step, config
        )
        metrics.append(jax.device_get(told))
        step += n
    joined = {name: np.concatenate([part[name] for part in metrics]) for name in metrics[0]}
    return joined, (policy, opt_state, carry)


KEY = jax.random.key(7)


def test_a_run_in_chunks_equals_one_in_a_single_call(x64):
    whole, end = run(small(), 4)
    cut, same_end = run(small(), 2, 2)
    assert len(set(whole["loss"])) == 4
    for name, column in whole.items():
        np.testing.assert_allclose(cut[name], column, rtol=1e-11, atol=1e-13, err_msg=name)
    for a, b in zip(jax.tree.leaves(end), jax.tree.leaves(same_end), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_neither_chunks_nor_settings_nor_data_compile_anew(x64):
    before = train_jax.train._cache_size()
    config = small(seed=1)
    first, _ = run(config, 2, 2, 2)
    other, _ = run(config, 2, last=2, prize=3.0)
    assert train_jax.train._cache_size() == before + 1
    assert not np.array_equal(first["mean_reward"][:2], other["mean_reward"])
    assert np.all(other["mean_episode_length"] <= 2)


@pytest.mark.parametrize("target, steps", [pytest.param(None, 6, marks=pytest.mark.slow), (1e-6, 2)])
def test_an_update_is_its_gradient_steps_and_stops_at_the_target(x64, target, steps):
    """The minibatch that finds the policy too far away is still used, those after it are not."""
    config, policy, _, noise, *_, minibatch = rolled()
    config, tx, lr = replace(config, target_kl=target), optimizer(config), jnp.array(0.05)
    whole = lambda policy, state: learner_jax.update_epochs(
        policy, tx, state, minibatch, noise.order, lr, actions(config), config
    )
    single = jax.jit(
        lambda policy, state, index: learner_jax.update(
            policy, tx, state, minibatch, index, lr, actions(config), config
        )
    )
    state, losses = tx.init(policy), []
    *found, info = jax.jit(whole)(policy, state)
    for index in noise.order.reshape(6, 8)[:steps]:
        policy, state, part = single(policy, state, index)
        losses.append(part["loss"])
    assert info["gradient_steps"] == steps
    assert info["loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves((policy, state)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def test_parameters_of_another_network_are_refused(x64):
    config = small()
    with pytest.raises(UsageError, match="norms.0.weight: expected None"):
        learner_jax.make_policy(config, 3, actions(config), parameters(small(PublishedConfig)))


PLANTED = TradingConfig(
    market="planted",
    costs=False,
    days=20,
    env=TradingParams(window=1),
    n_envs=128,
    n_steps=64,
    epochs=2,
    minibatches=2,
    hidden=16,
    layers=1,
    lr=0.01,
    entropy_coef=0.003,
    steps=48,
)


def learned(market, optimizers):
    """The mean rewards of a run on a market, and what the policy earns on days of it that are held out."""
    system = System(PLANTED)
    system.use(data.market(replace(PLANTED, market=market)))
    policy, rewards = system.make_policy(system.parameters()), []
    opt_states = {name: tx.init(policy) for name, tx in optimizers.items()}
    carry = system.start_buffer()
    for step in range(0, PLANTED.steps, 16):
        policy, opt_states, carry, told = system.train(policy, optimizers, opt_states, carry, step, 16)
        assert not told["illegal"].any()
        rewards.append(told["mean_reward"])
    return np.concatenate(rewards), System(replace(PLANTED, market=market)).evaluate(policy, None, carry).metrics


@pytest.mark.slow
def test_a_planted_signal_is_learned_and_nothing_where_there_is_none():
    """One program for both markets: they are data. The signal is worth half a tick of 12.50 dollars per bar."""
    optimizers = System(PLANTED).make_optimizers(System(PLANTED).make_policy(System(PLANTED).parameters()))
    before = train_jax.train._cache_size()
    rewards, earned = learned("planted", optimizers)
    _, null = learned("martingale", optimizers)
    assert train_jax.train._cache_size() == before + 1
    assert rewards[:4].mean() < 0.3 * 0.0625 < 0.8 * 0.0625 < rewards[-16:].mean()
    optimum = 12.5 * planted_optimum(bars(days=PLANTED.eval_days, mode="planted")["ES"])
    assert earned["eval/daily"] > 0.6 * optimum
    assert abs(null["eval/daily"]) < 4 * null["eval/daily_se"]


MEASURE = """
import jax
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_jax import System
system = System(TradingConfig(n_envs=10_000, n_steps=128, chunk=1))
policy = system.make_policy(system.parameters())
optimizers = system.make_optimizers(policy)
state = policy, {name: tx.init(policy) for name, tx in optimizers.items()}, system.start_buffer()
for step in range(2):
    *state, told = jax.block_until_ready(system.train(state[0], optimizers, *state[1:], step, 1))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss is the parent's too
print(int(peak.split()[1]) / 2**20)
"""


@pytest.mark.slow
def test_ten_thousand_accounts_learn_in_well_under_two_gigabytes():
    """States: 128 x 10,000 x 19 x 4 bytes, 0.1 GB. Windows of a minibatch: 320,000 x 225 x 4 bytes, 0.3 GB, twice."""
    found = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True)
    assert float(found.stdout) < 1.5
