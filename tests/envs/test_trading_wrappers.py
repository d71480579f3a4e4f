"""Trading behind the faces of Gymnasium and gymnax is the same trading."""

import importlib
import re
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env as check_gymnasium
from stable_baselines3.common.env_checker import check_env as check_stable_baselines
from trading_cases import random_market

from crossfade.envs.trading import TradingEnv as GymnasiumEnv
from crossfade.envs.trading.gymnasium_env import ID
from crossfade.envs.trading.gymnax_env_jax import EnvParams, TradingEnv
from crossfade.envs.trading.market import Settings
from crossfade.envs.trading.params import Action, TradingParams
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.envs.trading.trading_jax import Trading
from crossfade.errors import UsageError

PARAMS, MARKET = TradingParams(2, window=3), random_market()
MODULE = "crossfade.envs.trading.gymnasium_env"


def test_gymnasium_steps_are_those_of_the_account():
    env = GymnasiumEnv(PARAMS, MARKET)
    account = ScalarTrading(PARAMS, MARKET, Settings())
    seen, info = env.reset(seed=0, options={"market": 1, "t": 30})
    account.reset(1, 30)
    rng, ended = np.random.default_rng(0), False
    while not ended:
        np.testing.assert_array_equal(seen, account.observation())
        np.testing.assert_array_equal(info["action_mask"], account.mask())
        action = rng.integers(6)
        seen, reward, terminated, truncated, info = env.step(action)
        outcome = account.step(int(action))
        told = reward, terminated, truncated, info["reason"], info["result"], info["equity"]
        assert told == (*outcome, account.equity)
        ended = terminated or truncated
    assert seen.shape == (PARAMS.observation_dim,) and isinstance(terminated, bool)


def test_gymnasium_seeds_give_the_same_start():
    env = GymnasiumEnv(PARAMS, MARKET)
    starts = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        starts.append((env.account.m, env.account.t))
    assert starts[0] == starts[1] != starts[2]
    with pytest.raises(UsageError, match="expected 'market' and 't', got \\['bar'\\]"):
        env.reset(options={"bar": 3})


def test_gymnasium_episodes_begin_with_a_position_when_they_are_told_to():
    env = GymnasiumEnv(PARAMS, MARKET, Settings(forced=1024))
    env.reset(seed=0)
    assert env.account.position != 0 and env.account.equity == Settings().initial_cents
    env.reset(options={"market": 1, "t": 30})
    assert (env.account.position, env.account.m, env.account.t) == (0, 1, 30)


@pytest.mark.parametrize("features", ["session", "seed8"])
@pytest.mark.parametrize("phase", [1, 2, 3])
def test_both_checkers_have_nothing_to_say(phase, features):
    """Neither an error nor, warnings being errors, a warning."""
    env = gymnasium.make(ID, phase=phase, window=3, days=2, features=features)
    check_gymnasium(env.unwrapped)
    check_stable_baselines(env.unwrapped)


@pytest.mark.parametrize("phase", [1, 2, 3])
def test_observations_stay_within_their_bounds(phase):
    wild = {"stop_64": 6400, "trail_64": 1, "forced": 512, "drawdown_cents": 10_000_000, "target_ratio": 100}
    env = gymnasium.make(ID, phase=phase, window=2, days=2, markets=("ES", "CL"), settings=wild)
    assert np.isfinite([env.observation_space.low, env.observation_space.high]).all()
    env.action_space.seed(phase)
    seen, info = env.reset(seed=phase)
    for _ in range(600):
        assert env.observation_space.contains(seen)
        seen, _, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"].astype(np.int8)))
        if terminated or truncated:
            seen, info = env.reset()


def test_features_are_bounded_as_they_are_clipped():
    env = gymnasium.make(ID, window=2, days=2)
    np.testing.assert_array_equal(env.observation_space.high[: 2 * 11], np.float32(10))
    raw = gymnasium.make(ID, window=2, days=2, features="seed8")
    np.testing.assert_array_equal(raw.observation_space.high[: 2 * 11], np.finfo(np.float32).max)


def test_copies_share_their_market_and_may_be_made_from_their_spec():
    envs = gymnasium.make_vec(ID, num_envs=3, vectorization_mode="sync", phase=2, window=2, days=2)
    seen, info = envs.reset(seed=0)
    assert seen.shape == (3, 2 * 11 + 13) and info["action_mask"].shape == (3, 6)
    assert envs.envs[0].unwrapped.market is envs.envs[1].unwrapped.market
    spec = EnvSpec.from_json(gymnasium.make(ID, markets=("ES", "NQ"), days=2, settings={"contracts": 1}).spec.to_json())
    assert gymnasium.make(spec).unwrapped.market.n_start.shape == (2,)


def test_an_account_is_shown_in_a_line():
    env = gymnasium.make(ID, phase=2, days=2, settings={"forced": 1024}, render_mode="ansi")
    env.reset(seed=0)
    assert re.fullmatch(
        r"market 0, bar \d+, \d\d:\d\d, (long|short) 1 at \d+, stop \d+, target \d+, equity \$50,000.00, 1 trades",
        env.render(),
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"phase": 4}, "phase: expected one of 1 | 2 | 3, got 4"),
        ({"window": 0}, "window: expected an integer from 1 to 61, got 0"),
        ({"rules": "seed_jaxx"}, "rules: expected one of sound, seed_jax, .*Did you mean 'seed_jax'"),
        ({"markets": "ES"}, "markets: expected the names of contracts"),
        ({"markets": ("ESS",)}, "unknown contract 'ESS'"),
        ({"days": 0}, "days: expected an integer from 1"),
        ({"market": "plantd"}, "market: expected one of .*Did you mean 'planted'"),
        ({"features": "raw"}, "features: expected one of session | sound | seed8, got 'raw'"),
        ({"data": "nowhere"}, "nowhere"),
        ({"settings": {"drawdown": 5}}, "settings: unknown 'drawdown'.*drawdown_cents"),
        ({"settings": {"contracts": 1.5}}, "settings.contracts: expected an integer, got 1.5"),
        ({"render_mode": "human"}, "render_mode: expected 'ansi' or None, got 'human'"),
    ],
)
def test_bad_arguments_are_answered_in_words(given, hint):
    with pytest.raises(UsageError, match=hint.replace(" | ", " \\| ")):
        gymnasium.make(ID, **({"days": 2} | given))


def test_other_features_than_the_rules_count_are_refused():
    with pytest.raises(UsageError, match="expected n_features=12 features of a bar, got 11"):
        GymnasiumEnv(TradingParams(n_features=12), MARKET)


def test_importing_the_package_imports_neither_a_framework_nor_gymnasium():
    code = (
        "import sys, crossfade.envs.trading as trading\n"
        "trading.TradingParams, trading.build_market(trading.synthetic_bars(('ES',), 2))\n"
        "assert not {'torch', 'jax', 'gymnasium'} & set(sys.modules)\n"
        "import gymnasium\n"
        "gymnasium.make('crossfade.envs.trading.gymnasium_env:crossfade/Trading-v0', days=2).reset()\n"
        "assert not {'torch', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_gymnasium_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(UsageError, match="pip install gymnasium"):
        importlib.import_module(MODULE)


@pytest.mark.slow
def test_gymnax_steps_many_accounts_and_keeps_the_final_observation():
    env, inside, n = TradingEnv(PARAMS), Trading(PARAMS), 8
    params = EnvParams(*jax.tree.map(jnp.asarray, (MARKET, Settings(max_bars=2))))
    seen, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(jax.random.key(0), n), params)
    inner_step, observe = jax.jit(inside.step), jax.jit(inside.observe)
    assert seen.shape == (n, *env.obs_shape) and env.num_actions == 6
    step, ended = jax.jit(jax.vmap(env.step, (0, 0, 0, None))), np.zeros(n, bool)
    for k in range(1, 4):
        action = jnp.full(n, Action.BUY, jnp.int32)
        after, outcome = inner_step(*params, state, action)
        final = np.asarray(observe(*params, after))
        keys = jax.random.split(jax.random.key(k), n)
        seen, state, reward, terminated, truncated, info = step(keys, state, action, params)
        over = np.asarray(terminated | truncated)
        np.testing.assert_array_equal(info["final_observation"], final)
        np.testing.assert_array_equal(np.asarray(seen)[~over], final[~over])
        np.testing.assert_array_equal(info["action_mask"], inside.mask(*params, state))
        np.testing.assert_array_equal([reward, terminated, truncated], outcome[:3])
        np.testing.assert_array_equal(state.t == state.began, over)
        ended |= over
    assert ended.all()
