"""Trading behind the faces of Gymnasium and gymnax is the same trading."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trading_cases import random_market

from crossfade.envs.trading.gymnax_env_jax import EnvParams, TradingEnv
from crossfade.envs.trading.market import Settings
from crossfade.envs.trading.params import Action, TradingParams
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.envs.trading.trading_jax import Trading
from crossfade.errors import UsageError

PARAMS, MARKET = TradingParams(2, window=3), random_market()
MODULE = "crossfade.envs.trading.gymnasium_env"


class StandIn:
    """The part of `gymnasium.Env` that the wrapper uses."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = np.random.default_rng(seed)


@pytest.fixture
def gymnasium_env(monkeypatch):
    """The wrapper on the real Gymnasium, or on a stand-in where it is not installed."""
    if importlib.util.find_spec("gymnasium") is None:
        module = ModuleType("gymnasium")
        module.Env, module.spaces = StandIn, SimpleNamespace(Discrete=SimpleSpace, Box=SimpleSpace)
        monkeypatch.setitem(sys.modules, "gymnasium", module)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


class SimpleSpace:
    def __init__(self, *given):
        self.given = given


def test_gymnasium_steps_are_those_of_the_account(gymnasium_env):
    env = gymnasium_env.TradingEnv(PARAMS, MARKET)
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


def test_gymnasium_seeds_give_the_same_start(gymnasium_env):
    env = gymnasium_env.TradingEnv(PARAMS, MARKET)
    starts = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        starts.append((env.account.m, env.account.t))
    assert starts[0] == starts[1] != starts[2]
    with pytest.raises(UsageError, match="expected 'market' and 't', got \\['bar'\\]"):
        env.reset(options={"bar": 3})


def test_gymnasium_episodes_begin_with_a_position_when_they_are_told_to(gymnasium_env):
    env = gymnasium_env.TradingEnv(PARAMS, MARKET, Settings(forced=1024))
    env.reset(seed=0)
    assert env.account.position != 0 and env.account.equity == Settings().initial_cents
    env.reset(options={"market": 1, "t": 30})
    assert (env.account.position, env.account.m, env.account.t) == (0, 1, 30)


@pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")  # features have no bound, and it is right to say so
def test_gymnasium_approves_of_the_environment(gymnasium_env):
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    checker.check_env(gymnasium_env.TradingEnv(PARAMS, MARKET), skip_render_check=True)


def test_without_gymnasium_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(UsageError, match="pip install gymnasium"):
        importlib.import_module(MODULE)


def test_gymnax_steps_many_accounts_and_keeps_the_final_observation():
    env, inside, n = TradingEnv(PARAMS), Trading(PARAMS), 8
    params = EnvParams(*jax.tree.map(jnp.asarray, (MARKET, Settings(max_bars=2))))
    seen, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), n), params)
    assert seen.shape == (n, *env.obs_shape) and env.num_actions == 6
    step, ended = jax.jit(jax.vmap(env.step, (0, 0, 0, None))), np.zeros(n, bool)
    for k in range(1, 4):
        action = jnp.full(n, Action.BUY, jnp.int32)
        after, outcome = inside.step(*params, state, action)
        final = np.asarray(inside.observe(*params, after))
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
