"""A curriculum is data: knots of progress in words, and the settings of every update read from them."""

import numpy as np
import pytest

from crossfade.config import apply, from_yaml, to_yaml
from crossfade.errors import UsageError
from crossfade.registry import find
from crossfade.systems.trading import world
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.curriculum import Curriculum

VALUES = [  # knots, progress, value
    ("0:2,1:1", 0.0, 2.0),
    ("0:2,1:1", 0.25, 1.75),
    ("0:2,1:1", 1.0, 1.0),
    ("0.2:3,0.4:1", 0.0, 3.0),  # before the first knot
    ("0.2:3,0.4:1", 0.9, 1.0),  # after the last
    ("0:1,0.5:1,0.5:4,1:4", 0.499, 1.0),
    ("0:1,0.5:1,0.5:4,1:4", 0.5, 4.0),  # a jump: the second one holds
    ("0:1,0.5:2,0.5:4,1:6", 0.25, 1.5),
    ("0:1,0.5:2,0.5:4,1:6", 0.75, 5.0),
    ("1:1,1:2", 1.0, 2.0),
    ("0.5:7", 0.1, 7.0),
    ("", 0.5, 1.5),  # the config's own
]


@pytest.mark.parametrize(("knots", "progress", "value"), VALUES)
def test_values_lie_on_straight_lines_between_knots(knots, progress, value):
    config = apply(TradingConfig(), [f"curriculum.stop_atr={knots}"])
    assert config.curriculum.at("stop_atr", progress, config.stop_atr) == pytest.approx(value, abs=1e-12)


BAD = [
    ("drawdown=15000", "expected knots progress:value"),
    ("drawdown=0:much", "expected knots progress:value, for example 0:2,0.5:1.5, got '0:much'"),
    ("drawdown=0:1:2", "expected knots progress:value"),
    ("drawdown=0:0", "above 0"),
    ("stop_atr=0:-1", "above 0"),
    ("stop_atr=0:nan", "above 0"),
    ("commission=0:-0.1", "from 0 to 10,000, got -0.1"),
    ("commission=0:inf", "from 0 to 10,000, got inf"),
    ("forced=0:70", "a probability from 0 to 1, got 70"),
    ("forced=0.5:1,0.2:1", "in order, got \\[0.5, 0.2\\]"),
    ("forced=0:1,1.5:0", "progress from 0 to 1"),
    ("forced=nan:1", "progress from 0 to 1"),
    ("forced=0:1,0:0.5,0:0", "at most two knots at one progress"),
    ("entropy=0:1", "unknown key 'curriculum.entropy'"),
]


@pytest.mark.parametrize(("word", "message"), BAD)
def test_knots_that_mean_nothing_are_refused(word, message):
    with pytest.raises(UsageError, match=message):
        apply(TradingConfig(), [f"curriculum.{word}"])


WRONG = [("floor=0.34", "floor"), ("floor=-0.1", "floor"), ("forced=1.1", "forced"), ("forced_atr=-1", "forced_atr")]
WRONG += [("commission=-1", "commission"), ("stop_cap=-1", "stop_cap"), ("liquidation=1e9", "liquidation")]
WRONG += [
    ("drawdown=0", "drawdown"),
    ("drawdown=1e7", "above 0 and at most 1,000,000, got 1"),
    ("stop_atr=nan", "above 0"),
    ("max_bars=1e10", "max_bars"),
]
WRONG += [("fold=0 folds=-1", "folds"), ("folds=3 fold=3", "fold: expected less than")]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_settings_that_mean_nothing_are_refused(words, message):
    with pytest.raises(UsageError, match=message):
        apply(TradingConfig(), words.split())


def test_a_curriculum_is_read_back_from_yaml():
    config = apply(TradingConfig(), find("trading").presets["curriculum"])
    assert from_yaml(to_yaml(config), TradingConfig) == config != TradingConfig()


def published_commission(p: float) -> float:
    """Phase 1: a quarter of a dollar until a quarter of the training, then 1 to 2.5 dollars within half of the rest."""
    return 0.25 if p < 0.25 else 1 + 1.5 * min(1, 2 * (p - 0.25) / 0.75)


def published_phase_2(p: float) -> tuple[float, float]:
    """Share of forced positions and commission."""
    part = (p - 0.2) / 0.6
    return (0.7, 0.25) if p < 0.2 else (0.7 - 0.5 * part, 2.5 * (0.1 + 0.7 * part)) if p < 0.8 else (0.1, 2.5)


def test_presets_are_the_published_schedules():
    first, second = (
        apply(TradingConfig(), ["steps=200", *find("trading").presets[p]]) for p in ("curriculum", "phase2")
    )
    assert second.params.n_actions == 6
    for update in range(201):
        p, one, two = update / 200, world.settings(first, update), world.settings(second, update)
        assert one.drawdown_cents == round(100 * np.interp(p, [0, 0.5, 1], [15_000, 5000, 2500]))
        assert one.stop_64 == round(64 * np.interp(p, [0, 1], [2, 1.5]))
        assert abs(one.commission_cents - 100 * published_commission(p)) < 0.51
        forced, commission = published_phase_2(p)
        assert abs(two.forced - 1024 * forced) < 0.51 and abs(two.commission_cents - 100 * commission) < 0.51
        assert two.drawdown_cents == 250_000 and one.forced == 0


def test_the_published_accounts_have_their_own_limits():
    limits = lambda found: (found.liquidation_cents, found.stop_cap_cents, found.lock_cents)
    ours, jax, pandas = (
        limits(world.settings(apply(TradingConfig(), words), 0))
        for words in ((), find("trading").presets["seed_jax"], find("trading").presets["seed_pandas"])
    )
    assert ours == (0, 50_000, 10_000) and jax == (100_000, 50_000, 10_000)
    assert pandas == (0, world.UNLIMITED, world.UNLIMITED)


def test_settings_keep_their_form_through_a_curriculum():
    config = apply(TradingConfig(), ["steps=10", *find("trading").presets["curriculum"], "curriculum.forced=0:1,1:0"])
    forms = {tuple((v.shape, v.dtype) for v in world.settings(config, update)) for update in range(12)}
    assert len(forms) == 1
    assert world.settings(config, 11) == world.settings(config, 10) != world.settings(config, 9)


def test_without_knots_the_constants_hold():
    config = apply(TradingConfig(), ["forced=0.25", "forced_atr=0.5", "commission=2", "drawdown=1000"])
    assert config.curriculum == Curriculum()
    for update in (0, 300, 10_000):
        found = world.settings(config, update)
        assert (found.forced, found.forced_64, found.commission_cents, found.drawdown_cents) == (256, 32, 200, 100_000)
    assert world.settings(TradingConfig(), 0).commission_cents == -1  # the market's own
