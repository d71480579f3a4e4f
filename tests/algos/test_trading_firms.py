"""Chances in a firm's evaluation: against closed forms of random walks, and an account led bar by bar."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from crossfade.envs.trading.market import Market, Settings, State
from crossfade.envs.trading.params import Reason
from crossfade.errors import UsageError
from crossfade.systems.trading.judging import firms
from crossfade.systems.trading.judging.firms import Days, Firm
from crossfade.systems.trading.judging.record import Record

COIN = np.array([[-1.0], [1.0]])  # two days: one loses a dollar, one gains one


def tosses(up: float, accounts: int = 4000, horizon: int = 600) -> np.ndarray:
    return (np.random.default_rng(0).random((accounts, horizon)) < up).astype(int)


def rules(target: float, drawdown: float, trailing: str, **more) -> Firm:
    return Firm(50_000.0, float(target), float(drawdown), trailing, **more)


def days(close: np.ndarray) -> Days:
    return Days(np.minimum(close, 0.0), np.maximum(close, 0.0), close, np.ones(len(close), bool))


@pytest.mark.parametrize(("up", "floor", "target"), [(0.5, 5, 7), (0.6, 4, 9), (0.45, 6, 3)])
def test_a_static_floor_is_the_gamblers_ruin(up, floor, target):
    """P(pass) = (1 - r^floor) / (1 - r^(floor + target)) with r = (1 - up) / up; a fair walk lasts floor x target days,
    any other ((floor + target) P(pass) - floor) / (2 up - 1)."""
    firm = rules(target, floor, "none", maximum_days=600)
    found, r = firms.simulate(firm, days(COIN), tosses(up)), (1 - up) / up
    expected = floor / (floor + target) if up == 0.5 else (1 - r**floor) / (1 - r ** (floor + target))
    lasts = floor * target if up == 0.5 else ((floor + target) * expected - floor) / (2 * up - 1)
    assert found.passed == pytest.approx(expected, abs=4 * found.passed_se)
    assert found.passed_se == pytest.approx(math.sqrt(expected * (1 - expected) / 4000), rel=0.1)
    assert found.days == pytest.approx(lasts, rel=0.06) and found.undecided < 0.001
    assert found.passed + found.lost + found.undecided == pytest.approx(1)


@pytest.mark.parametrize("trailing", ["intraday", "end_of_day"])
@pytest.mark.parametrize(("drawdown", "target", "lock"), [(3, 4, None), (2, 6, None), (3, 9, 0.0)])
def test_a_trailing_threshold_is_a_chain_of_ruins(trailing, drawdown, target, lock):
    """From each high a fair walk gains a dollar before it loses `drawdown` with probability drawdown / (drawdown + 1);
    once the threshold is locked at 0, from a profit of `drawdown`, the rest is one ruin between 0 and the target."""
    firm = rules(target, drawdown, trailing, lock=lock, maximum_days=600)
    found = firms.simulate(firm, days(COIN), tosses(0.5))
    steps = target if lock is None else drawdown
    expected = (drawdown / (drawdown + 1)) ** steps * (1 if lock is None else drawdown / target)
    assert found.passed == pytest.approx(expected, abs=4 * found.passed_se + 1e-3)
    assert abs(firms.simulate(rules(target, drawdown, "none"), days(COIN), tosses(0.5)).passed - expected) > 0.03


def led(firm: Firm, of: Days, today: list[int]) -> tuple[str, int]:
    """One account, bar by bar, as the rules read."""
    profit = peak = best = traded = 0.0
    for number, day in enumerate(today[: firm.maximum_days], 1):
        begin, gain = profit, 0.0
        for low, high, close in zip(of.low[day], of.high[day], of.close[day], strict=True):
            threshold = peak - firm.drawdown
            if firm.lock is not None:
                threshold = min(threshold, firm.lock)
            over = firm.daily_loss is not None and low <= -firm.daily_loss
            if begin + low <= threshold or (over and firm.daily_loss_ends == "account"):
                return "lost", number
            if firm.trailing == "intraday":
                peak = max(peak, begin + high)
            gain = low if over else close
            if over:
                break
        profit, best, traded = begin + gain, max(best, gain), traded + of.traded[day]
        if firm.trailing == "end_of_day":
            peak = max(peak, profit)
        steady = firm.consistency is None or best <= firm.consistency * profit
        if profit >= firm.target and traded >= firm.minimum_days and steady:
            return "passed", number
    return "undecided", min(len(today), firm.maximum_days)


@pytest.mark.parametrize("trailing", ["intraday", "end_of_day", "none"])
def test_accounts_together_end_as_each_does_bar_by_bar(trailing):
    rng = np.random.default_rng(1)
    steps = rng.integers(-3, 4, (30, 12)).astype(float)
    steps[rng.random(30) < 0.2] = 0
    close = steps.cumsum(1)
    of = Days(close - rng.integers(0, 3, close.shape), close + rng.integers(0, 3, close.shape), close, steps.any(1))
    drawn = rng.integers(0, 30, (40, 25))
    seen = set()
    for lock, loss, ends, consistency in product((None, 2.0), (None, 6.0), ("day", "account"), (None, 0.6)):
        limits = {"lock": lock, "daily_loss": loss, "daily_loss_ends": ends, "consistency": consistency}
        firm = rules(12, 11, trailing, **limits, minimum_days=3, maximum_days=20)
        each = [led(firm, of, row.tolist()) for row in drawn]
        found = firms.simulate(firm, of, drawn)
        words = [word for word, _ in each]
        assert [found.passed, found.lost, found.undecided] == pytest.approx(
            [words.count(word) / 40 for word in ("passed", "lost", "undecided")]
        )
        assert found.days == pytest.approx(np.mean([n for _, n in each]))
        passed = [n for word, n in each if word == "passed"]
        assert found.days_to_pass == pytest.approx(np.mean(passed) if passed else math.nan, nan_ok=True)
        seen |= set(words)
    assert seen >= {"passed", "lost"}


def test_a_rule_less_never_lowers_the_chance_of_passing():
    """Guard: each rule is felt on days that can break it."""
    rng = np.random.default_rng(2)
    close = rng.integers(-4, 5, (50, 20)).astype(float).cumsum(1)
    of, drawn = days(close), rng.integers(0, 50, (2000, 40))
    limits = {"daily_loss": 20.0, "daily_loss_ends": "account", "consistency": 0.5, "minimum_days": 6}
    base = rules(30, 25, "intraday", **limits)
    strict = firms.simulate(base, of, drawn).passed
    for change in (
        {"trailing": "none"},
        {"daily_loss": None},
        {"consistency": None},
        {"minimum_days": 1},
        {"lock": -20.0},
    ):
        assert firms.simulate(replace(base, **change), of, drawn).passed > strict, change


@pytest.mark.parametrize("reason", [Reason.STOP, Reason.BUST])
def test_paths_of_a_day_by_hand(reason):
    """Two accounts of one day: one long 2 MES over two bars, closed in the third; the other flat. Ticks are $1.25."""
    ints = lambda *rows: np.array(rows, np.int32)
    market = dict.fromkeys(Market._fields, np.zeros(1, np.int32))
    market |= {
        "tick_cents": ints(125),
        "high": ints([0, 9, 14, 14]),
        "low": ints([0, -2, 6, -9]),
        "close": ints([0, 8, 10, -8]),
    }
    equity = ints([5_010_000, 5_000_000], [5_012_500, 5_000_000], [4_990_000, 5_000_000])
    state = State(*(np.zeros(2, np.int32) for _ in State._fields))._replace(t=ints(3, 3), trades=ints(1, 0))
    blank = np.zeros((3, 2), np.int32)
    shown = dict.fromkeys(Record._fields, blank) | {
        "equity": equity,
        "position": ints([1, 0], [1, 0], [0, 0]),
        "contracts": ints([2, 0], [2, 0], [2, 0]),
        "reason": ints([0, 0], [0, 0], [reason, 0]),
        "bust": np.zeros(2, bool),
        "state": state,
    }
    found = firms.days(
        Record(**shown), Market(**market), Settings(contracts=12), ints(0, 0), ints(0, 0), np.zeros(2, int)
    )
    assert found.close.tolist() == [[100.0, 125.0, -100.0]]
    assert found.low.tolist() == [[100 - 10 * 2.5, 125 - 4 * 2.5, -100.0]]  # the fill is the lowest of its bar
    assert found.high.tolist() == [[100 + 2.5, 125 + 4 * 2.5, 125.0]]
    assert found.traded.tolist() == [True]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("mine:\n  account: 1\n  target: 1\n", "drawdown"),
        ("mine:\n  account: 1\n  target: 1\n  drawdown: 1\n  trailling: none\n", "trailing"),
        ("mine:\n  account: 1\n  target: -1\n  drawdown: 1\n", "target"),
        ("mine:\n  account: 1\n  target: 1\n  drawdown: 1\n  trailing: weekly\n", "end_of_day"),
        ("- 1\n", "name"),
        ("a: [", "YAML"),
    ],
)
def test_a_file_of_firms_that_makes_no_sense_is_refused(tmp_path, text, hint):
    (tmp_path / "firms.yaml").write_text(text)
    with pytest.raises(UsageError, match=hint):
        firms.load(tmp_path / "firms.yaml")


def test_a_file_that_is_not_there_is_refused_and_the_shipped_one_is_read(tmp_path):
    with pytest.raises(UsageError, match="found none"):
        firms.load(tmp_path / "none.yaml")
    assert {firm.trailing for firm in firms.load().values()} == {"intraday", "end_of_day", "none"}
