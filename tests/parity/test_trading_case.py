"""Trading with PPO is one system in both frameworks: its accounts to the last bit, its learner but for rounding."""

from dataclasses import replace

import pytest

from crossfade import parity
from crossfade.envs.trading.params import Rules
from crossfade.envs.trading.trading_numpy import Trading
from crossfade.systems.trading.twin import trading
from crossfade.verdict import Verdict

LEARNER = ["forward", "loss", "grad", "update"]


def test_the_learner_is_the_same_but_for_rounding():
    report = parity.check(trading(), LEARNER, dtype="float64", steps=(1,))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} == set(LEARNER)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("env.phase=1", "rules=seed_jax")])
def test_accounts_are_equal_to_the_last_bit(words):
    report = parity.check(trading(*words), ["env"], dtype="float64")
    rewards = "seed" in " ".join(words)  # the published rewards are floats throughout
    assert report.verdict <= (Verdict.ROUNDING if rewards else Verdict.EQUAL), report.text()
    assert next(row for row in report.rows if row.quantity == "state").verdict is Verdict.EQUAL


def test_another_rule_on_one_side_is_found():
    twin = trading()
    twin.env[0].env = Trading(replace(twin.env[0].env.params, rules=Rules(gaps="ignored")))
    report = parity.check(twin, ["env"], dtype="float64")
    assert report.verdict is Verdict.DIFFERENT and report.first.level == "env"


@pytest.mark.slow
def test_every_level_is_proved():
    report = parity.check(trading())
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert all(row.status != "not given" for row in report.rows)
