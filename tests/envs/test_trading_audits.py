"""The audits of trading hold for the sound rules, and fail where they should."""

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest

from crossfade.cli import main
from crossfade.envs.trading import audits, build, features, synthetic
from crossfade.envs.trading.market import Settings
from crossfade.envs.trading.params import RULES, Action, Rules, TradingParams
from crossfade.envs.trading.sessions import within
from crossfade.envs.trading.trading_numpy import Trading
from crossfade.systems.trading import learnability_jax as learnability, world
from crossfade.systems.trading.judging import record
from crossfade.systems.trading.learnability_jax import CONFIG, Learned
from default_run import few

SHORT = replace(CONFIG, steps=16)


@pytest.fixture(autouse=True)
def unchecked():
    """No type checks at run time: they take most of the time of a step of few accounts."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("costs", few((False, True), True))
def test_scripted_policies_earn_minus_their_costs(costs):
    findings = audits.martingale(days=200, costs=costs)
    assert [finding.policy for finding in findings if not finding.fair] == []
    assert all((finding.costs > 0) == costs for finding in findings)


def test_commissions_are_all_that_is_paid_to_the_cent(monkeypatch):
    found = audits.commissions(days=8)
    assert all(one.exact for one in found) and len(found) == len(audits.SCRIPTS)
    step = Trading.step

    def one_cent_more(env, market, settings, state, action):
        after, outcome = step(env, market, settings, state, action)
        paid = (after.commissions > state.commissions).astype(np.int32)
        return after._replace(balance=after.balance - paid), outcome

    monkeypatch.setattr(Trading, "step", one_cent_more)
    assert not any(one.exact for one in audits.commissions(days=8))


@pytest.mark.parametrize(
    ("rule", "policy", "wins"),
    [
        pytest.param({"gaps": "ignored"}, "random", True, marks=pytest.mark.slow),
        ({"trail": "same_bar"}, "always trail", False),
    ],
)
def test_published_fills_are_found_unfair(rule, policy, wins):
    finding = next(f for f in audits.martingale(replace(Rules(), **rule), days=200) if f.policy == policy)
    assert not finding.fair and (finding.mean > 0) == wins


def test_the_future_stays_unseen():
    assert audits.causality(TradingParams(phase=2), days=2, cuts=3) == []


def features_of_the_next_bar(monkeypatch):
    """What is seen after bar t is bar t + 1."""
    honest = build.market

    def leaky(*args, **kwargs):
        market = honest(*args, **kwargs)
        return market._replace(features=np.roll(market.features, -1, axis=1))

    monkeypatch.setattr(build, "market", leaky)


def no_entry_before_the_last_bar_in_the_data(monkeypatch):
    """As it was once: the mask closes a bar before the feed dies."""
    honest = build.sessions

    def leaky(*args):
        found = honest(*args)
        next_is_last = np.append(found.last[1:], True)
        return found._replace(may_enter=found.may_enter & ~found.last & ~next_is_last)

    monkeypatch.setattr(build, "sessions", leaky)


def time_to_the_last_bar_in_the_data(monkeypatch):
    """Instead of that to the scheduled close."""

    def leaky(bars, session):
        ends = dict(zip(bars.date.tolist(), bars.minute.tolist(), strict=True))  # the last of a day stays
        return np.array([ends[day] for day in bars.date.tolist()], np.int32)

    monkeypatch.setattr(features, "scheduled_close", leaky)


def tomorrow_known_at_the_close(monkeypatch):
    """What is seen tells whether another session follows."""
    honest = build.market

    def leaky(*args, **kwargs):
        market = honest(*args, **kwargs)
        return market._replace(features=market.features + market.final[..., None].astype(np.float32))

    monkeypatch.setattr(build, "market", leaky)


@pytest.mark.parametrize(
    ("leak", "shown", "by"),
    [
        (features_of_the_next_bar, "observation", {"scrambled", "bars missing"}),
        (no_entry_before_the_last_bar_in_the_data, "mask", {"the feed dies"}),
        pytest.param(time_to_the_last_bar_in_the_data, "observation", {"the feed dies"}, marks=pytest.mark.slow),
        pytest.param(tomorrow_known_at_the_close, "observation", {"later days missing"}, marks=pytest.mark.slow),
    ],
)
def test_a_planted_look_ahead_is_found(leak, shown, by, monkeypatch):
    leak(monkeypatch)
    problems = audits.causality(TradingParams(), days=3, cuts=2)
    assert {how for how in audits.CHANGES for problem in problems if f"({how}," in problem} == by
    assert any(problem.startswith(shown) for problem in problems)


def test_the_known_optimum_is_what_an_oracle_makes():
    """It enters on the side of the drift whenever it is flat. Beyond noise it lacks what is left of bars it is stopped
    out in, half a bar of drift each time."""
    bars = synthetic.bars(("ES",), 400, 5, "planted")["ES"]
    market, env = build.market({"ES": bars}, costs=False), Trading(TradingParams(rules=Rules(intrabar="path")))
    days, of = np.unique(bars.date, return_inverse=True)
    up = (volume := np.bincount(of, np.log(bars.volume))) > volume.mean()
    m, t = world.sessions(market)
    side = np.where(up[np.searchsorted(days, within(bars).date[t])], Action.BUY, Action.SELL)
    decide = lambda row, state, mask: np.where(mask[:, Action.BUY], side, Action.HOLD)
    far = Settings(drawdown_cents=200_000_000, lock_cents=200_000_000)
    state = record.trade(env, market, far, m, t, decide, record.longest(market, m, t)).state
    daily = (state.balance - far.initial_cents) / 1250
    lacking = synthetic.PLANTED_DRIFT / 2 * state.trades.mean()
    error = daily.std(ddof=1) / np.sqrt(len(daily))
    assert abs(daily.mean() + lacking - synthetic.planted_optimum(within(bars))) < 4 * error < 40


@pytest.mark.slow
def test_a_planted_signal_is_learned_and_its_absence_noticed():
    found = {one.market: one for one in learnability.learnability(SHORT)}
    assert [name for name, one in found.items() if not one.passed] == []
    assert found["planted"].share > 0.7 > 0.6 > found["exchanged"].share
    # what prices alone tell is no pass where the signal should have been learned, nor where nothing should be earned
    assert not found["exchanged"]._replace(market="planted").passed
    assert not found["planted"]._replace(market="null").passed


@pytest.mark.parametrize(
    ("market", "mean", "passed"),
    [
        ("planted", 104.0, True),
        ("planted", 99.0, False),
        ("exchanged", 99.0, True),
        ("exchanged", 104.0, False),
        ("null", 39.0, True),
        ("null", 41.0, False),
        ("null", -41.0, False),
    ],
)
def test_learning_is_judged_four_standard_errors_on_the_safe_side(market, mean, passed):
    assert Learned(market, 100, 1.0, mean, 10.0, 0.0 if market == "null" else 105.0, 1.0).passed == passed


def test_the_verb_prints_every_audit_and_fails_when_one_does(monkeypatch, capsys):
    told = [Learned("planted", 9, 2.0, 90.0, 1.0, 100.0, 1.0), Learned("null", 9, 2.0, 5.0, 1.0, 0.0, 1.0)]
    monkeypatch.setattr(learnability, "learnability", lambda seed: told)
    problems = ["mask of bar 7 changes with bars after 3"]
    monkeypatch.setattr(audits, "causality", lambda params: problems[params.phase - 1 :])
    monkeypatch.setattr(audits, "martingale", lambda rules, *rest: [audits.Finding("churn", 9, 4, -5.0, 5.0, 1.0)])
    monkeypatch.setattr(audits, "commissions", lambda rules, *rest: [audits.Exact("revenge", 9, 4.0, 0)])
    assert main(["audit", "trading", "--quiet"]) == 1
    printed = capsys.readouterr().out
    assert "ok      churn" in printed and "BROKEN  phase 1: mask of bar 7" in printed and "ok      phase 2" in printed
    assert "90%" in printed and "BROKEN  null" in printed
    assert main(["audit", "trading", "--martingale", "--quiet"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_learnability_holds_in_full(seed):
    assert [one for one in learnability.learnability(seed=seed) if not one.passed] == []


@pytest.mark.slow
def test_the_published_rules_are_unfair():
    assert not all(finding.fair for finding in audits.martingale(RULES["seed_jax"]))
