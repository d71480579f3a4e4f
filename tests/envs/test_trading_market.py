"""The columns of a market by hand: when entries are possible, which sessions are final, and features in 16 bits."""

import subprocess
import sys
from dataclasses import replace
from datetime import date

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from crossfade.envs.trading import build, sessions, synthetic
from crossfade.envs.trading.bars import DAY, Bars
from crossfade.envs.trading.contracts import CONTRACTS
from crossfade.envs.trading.market import Market, Settings
from crossfade.envs.trading.params import TradingParams
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.envs.trading.sessions import EPOCH
from crossfade.envs.trading.trading_jax import Trading as JaxTrading
from crossfade.envs.trading.trading_numpy import Trading
from crossfade.errors import UsageError
from crossfade.systems.trading import data, world
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.judging import hindsight
from crossfade.systems.trading.judging.stage import Stage
from crossfade.systems.trading.system_torch import System

USUAL_DAY, HALF_DAY = (2024, 11, 27), (2024, 11, 29)
BITS = {"float16": (np.float16, 2**-11, 2**-25), "bfloat16": (ml_dtypes.bfloat16, 2**-8, 0)}
"""Type, largest relative error, and the absolute one of numbers that are too small for it."""


def bars(*days: tuple[tuple[int, int, int], range]) -> Bars:
    """Calm bars at these minutes of these days."""
    stamp = np.concatenate([(date(*day) - EPOCH).days * DAY + np.array(minutes) for day, minutes in days])
    price, one = np.full(len(stamp), 20_000, np.int32), np.ones(len(stamp), np.int64)
    return Bars(stamp, price, price + 2, price - 2, price, one, one > 0)


@pytest.mark.parametrize(
    ("day", "minutes", "first", "last"),
    [
        (USUAL_DAY, range(510, 1020), 569, 1017),  # 09:29, for a fill at 09:30; 16:57, as 16:59 is the last bar
        (HALF_DAY, range(510, 780), 569, 777),
        (USUAL_DAY, range(510, 700), 569, 699),  # the feed dies at 11:39, and nobody knows
        (USUAL_DAY, range(600, 1000), 600, 999),
    ],
)
def test_entries_are_possible_by_clock_and_calendar(day, minutes, first, last):
    of = bars((day, minutes))
    found = of.minute[sessions.sessions(of, 0).may_enter]
    assert found.tolist() == list(range(first, last + 1))


def test_a_hole_does_not_open_the_session_early():
    of = bars((USUAL_DAY, range(510, 540)), (USUAL_DAY, range(600, 660)))
    assert of.minute[sessions.sessions(of, 0).may_enter].tolist() == list(range(600, 660))


WEEK = [(2024, 1, day) for day in (8, 9, 10, 11, 12)]
LENGTHS = [200, 90, 150, 65, 200]


def week() -> Bars:
    return bars(*((day, range(510, 510 + length)) for day, length in zip(WEEK, LENGTHS, strict=True)))


def test_sessions_are_numbered():
    np.testing.assert_array_equal(build.market({"ES": week()}).session[0], np.repeat(range(5), LENGTHS))


@pytest.mark.parametrize(
    ("chosen", "final"),
    [(None, [0, 0, 0, 0, 1]), ((0, 1, 2), [0, 0, 1, 1, 1]), ((1, 2, 4), [0, 0, 1, 0, 1]), ((0, 4), [1, 1, 1, 0, 1])],
)
def test_a_session_is_final_if_the_next_one_is_not_wanted(chosen, final):
    days = None if chosen is None else np.array([(date(*WEEK[i]) - EPOCH).days for i in chosen])
    market = build.market({"ES": week()}, days=days)
    np.testing.assert_array_equal(market.final[0], np.repeat(np.array(final, bool), LENGTHS))


def test_a_reward_of_one_is_eight_ticks():
    market = build.market(synthetic.bars(tuple(CONTRACTS), 2))
    ticks = np.array([8 * spec.tick_cents for spec in CONTRACTS.values()])
    np.testing.assert_allclose(market.reward_scale * ticks, 1, rtol=1e-7)
    assert market.reward_scale.dtype == np.float32 and ticks[0] == 100_00


def test_hindsight_enters_nothing_after_a_feed_has_died(monkeypatch):
    """What can be had of the second day, whose feed dies, is the same whatever the third day brings."""
    whole = synthetic.bars(("ES",), 3)["ES"]
    _, second, third = np.unique(whole.date)
    calm = whole.where((whole.date != second) | (whole.minute < 640))
    rise = np.where(calm.date == third, 9 * (calm.minute - 510), 0).astype(np.int32)
    rising = calm._replace(**{side: getattr(calm, side) + rise for side in ("open", "high", "low", "close")})
    best = []
    for of in (calm, rising):
        monkeypatch.setattr(data, "held_out", lambda chosen, of=of: build.market({"ES": of}, costs=False))
        monkeypatch.setattr(data, "dates", lambda chosen, of=of: (of.date,))
        best.append(hindsight.best(Stage(TradingConfig(eval_days=3))))
    assert (best[0][:2] == best[1][:2]).all() and best[0][2] != best[1][2]


@pytest.mark.parametrize("storage", BITS)
def test_features_in_16_bits_are_near_in_half_the_memory(storage):
    of = synthetic.bars(("ES", "CL"), 5)
    whole, stored = build.market(of), build.market(of, storage=storage)
    kind, bound, least = BITS[storage]
    assert stored.features.dtype == kind and 2 * stored.features.nbytes == whole.features.nbytes
    x, error = np.abs(whole.features), np.abs(stored.features.astype(np.float32) - whole.features)
    assert (error <= np.maximum(bound * x, least)).all() and (error > bound / 2 * x).any()
    for name, column in whole._asdict().items():
        if name != "features":
            np.testing.assert_array_equal(column, getattr(stored, name), name)


def observed(market: Market, phase: int) -> dict[str, np.ndarray]:
    """What each of the three worlds shows of some accounts that have just begun."""
    params, settings = TradingParams(phase=phase), Settings(forced=512)
    uniform = np.random.default_rng(0).random((5, 5)).astype(np.float32)
    on_host, compiled = Trading(params), JaxTrading(params)
    there = Market(*map(jnp.asarray, market)), settings
    one = ScalarTrading(params, market, settings)
    scalar = [(one.begin(numbers), one.observation())[1] for numbers in uniform]
    return {
        "scalar": np.stack(scalar),
        "numpy": on_host.observe(market, settings, on_host.begin(market, settings, uniform)),
        "jax": np.asarray(compiled.observe(*there, compiled.begin(*there, jnp.asarray(uniform)))),
    }


@pytest.mark.parametrize("storage", ["float32", *BITS])
def test_every_world_shows_the_stored_features_as_float32(storage):
    market = build.market(synthetic.bars(("ES", "NQ"), 3), storage=storage)
    scalar, numpy, jax = observed(market, phase=1).values()
    assert scalar.dtype == numpy.dtype == jax.dtype == np.float32
    np.testing.assert_array_equal(scalar, numpy)
    np.testing.assert_array_equal(jax, numpy)
    if storage != "float32":
        assert (numpy[:, :220] == numpy[:, :220].astype(BITS[storage][0])).all()


def test_a_config_chooses_the_storage_and_pays_for_it():
    config = TradingConfig(days=2, eval_days=2)
    small = replace(config, storage="bfloat16")
    assert data.market(config).features.dtype == np.float32  # of the same bars, kept apart
    assert data.market(small).features.dtype == data.held_out(small).features.dtype == ml_dtypes.bfloat16
    [of] = [name for name in config.footprint() if name.startswith("of days")]
    assert config.footprint()[of] - small.footprint()[of] == 2 * 11 * 390 * 4
    with pytest.raises(UsageError, match="storage: expected float32 with features=seed8"):
        replace(small, features="seed8")


def test_a_policy_hardly_notices_16_bits():
    """The figures of docs/trading.md: logits of a network drawn at random, on bars drawn from sixty days."""
    config = TradingConfig()
    system, env, settings = System(config), Trading(config.params), world.settings(config, 0)
    parameters = system.parameters()
    parameters["actor.0.weight"] = 100 * parameters["actor.0.weight"]  # a fresh policy is nearly indifferent
    policy, uniform = system.make_policy(parameters), np.random.default_rng(0).random((4096, 5)).astype(np.float32)
    logits = {}
    for storage in ("float32", *BITS):
        market = data.market(replace(config, storage=storage))
        seen = env.observe(market, settings, env.begin(market, settings, uniform))
        logits[storage] = policy(torch.from_numpy(seen))[0].detach().numpy()
    away = {storage: float(np.abs(logits[storage] - logits["float32"]).max()) for storage in BITS}
    print(f"\nlogits up to {np.abs(logits['float32']).max():.1f}, of stored features so far away: {away}")
    assert 0 < away["float16"] < 2e-3 and 8 * away["float16"] / 3 < away["bfloat16"] < 2e-2


def test_16_bits_need_no_jax():
    code = "import sys, crossfade.envs.trading.build; print('jax' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["False"] * 2
