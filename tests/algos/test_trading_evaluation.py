"""What is said of a trader: records, trades, baselines, fill rules, each against brute force or worked by hand."""

import csv
import io
import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from crossfade.config import apply
from crossfade.envs.trading import build, synthetic
from crossfade.envs.trading.bars import DAY, Bars
from crossfade.envs.trading.market import Settings, State
from crossfade.envs.trading.params import Action, Reason
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.envs.trading.sessions import within
from crossfade.envs.trading.trading_numpy import Trading
from crossfade.systems.trading import data, evaluation
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.judging import (
    baselines,
    firms,
    hindsight,
    ledger,
    record,
    sensitivity,
    stage,
    study,
    tearsheet,
    verdict,
)
from crossfade.systems.trading.judging.stage import Stage, StudyEffort

SMALL = {"days": "2", "eval_days": "4", "env.window": "3", "hidden": "8", "dtype": "float64"}
FEW = StudyEffort(resamples=50)


def config(*words: str) -> TradingConfig:
    given = SMALL | dict(word.split("=") for word in words)
    return apply(TradingConfig(), [f"{name}={value}" for name, value in given.items()])


@lru_cache
def mornings(chosen: TradingConfig) -> dict[str, Bars]:
    """Days that break off at 11:00 and at 10:30 in turn: sessions of two lengths, and tests that take seconds."""
    whole = synthetic.bars(chosen.markets, chosen.eval_days, chosen.data_seed, chosen.market)
    return {name: of.where(of.minute < 660 - 30 * (of.date % 2)) for name, of in whole.items()}


@pytest.fixture(autouse=True, scope="module")
def short_days():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "held_out", lambda chosen: build.market(mornings(chosen), chosen.features, chosen.costs))
        patch.setattr(data, "dates", lambda chosen: tuple(within(of).date for of in mornings(chosen).values()))
        yield


def following(decide: record.Decide) -> stage.Trader:
    """A script as a policy."""

    def trade(params, market, settings, m, t, n_bars):
        return record.trade(Trading(params), market, settings, m, t, decide, n_bars)

    return trade


def by_dice(seed: int, rate: float = 0.1) -> record.Decide:
    def decide(row, state, mask):
        dice = np.random.default_rng([seed, row]).random((len(mask), mask.shape[1]))
        wish = np.where(mask, dice, -1.0).argmax(1)
        return np.where(np.random.default_rng([seed, row, 1]).random(len(mask)) < rate, wish, Action.HOLD)

    return decide


def sell_always(row, state, mask) -> np.ndarray:
    return np.where(mask[:, Action.SELL], Action.SELL, Action.HOLD)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("env.phase=2", "markets=NQ,ES", "drawdown=600"),
        ("contracts=3", "markets=MES", "commission=1.25"),
        ("rules=seed_jax", "drawdown=900"),
        ("env.phase=3", "markets=MES,MNQ", "contracts=12", "risk=45", "slippage=2", "drawdown=60", "account_days=3"),
    ],
    ids=["plain", "phase 2, two markets, bust", "three contracts", "published rules", "phase 3, sizes, slippage, bust"],
)
def test_records_and_trades_are_what_an_account_bar_by_bar_says(words):
    """The scalar oracle is led through every session by the recorded actions and keeps its own list of trades."""
    where = Stage(config(*words))
    params, market = where.config.params, where.market
    plain = Settings(*(np.asarray(value).item() for value in where.settings))
    found = where.trade(by_dice(3))
    lows = firms.days(found, market, where.settings, *where.at, np.arange(len(where.dates))).low
    rows, held = [], 0
    for session, (m, t) in enumerate(zip(*where.at, strict=True)):
        account, cost, ended = ScalarTrading(params, market, plain), 0, False
        account.reset(int(m), int(t))
        for row in range(where.n_bars):
            assert found.running[row, session] == (not ended)
            if ended:
                assert found.equity[row, session] == account.equity and not found.cost[row, session]
                continue
            assert found.could_enter[row, session] == account.mask()[Action.BUY]
            was, side = account.position, 1 if found.action[row, session] == Action.BUY else -1
            trades, path = account.trades, [account.equity]
            outcome = account.step(int(found.action[row, session]))
            if account.trades > trades:
                base = market.open[m, t + 1 + row] if params.rules.fill == "next_open" else market.close[m, t + row]
                held = risked(market, plain, int(m), int(t + row))
                rows.append([session, m, t + 1 + row, None, side, held, base + side * account.slippage])
                assert was == 0
            if outcome.reason != Reason.NONE:
                rows[-1][3] = t + 1 + row
                rows[-1] += [outcome.result, outcome.reason]
            else:
                worth = account.position * account.tick_cents * account.contracts
                path = [account.balance + worth * (int(side[m, account.t]) - account.entry) for side in market[1:4]]
            assert lows[session, row] == (min(*path, account.equity) - plain.initial_cents) / 100
            in_position = account.position or outcome.reason
            assert found.contracts[row, session] == (held if in_position else 0)
            assert account.contracts == (held if account.position else 0)
            paid, cost = account.commissions + account.slippages - cost, account.commissions + account.slippages
            expected = account.equity, account.position, outcome.reason, outcome.result, paid
            mine = [getattr(found, name)[row, session] for name in ("equity", "position", "reason", "result", "cost")]
            assert mine == list(expected)
            ended = outcome.terminated or outcome.truncated
        assert ended and found.bust[session] == outcome.terminated
        assert [int(field[session]) for field in found.state] == list(account.state)
    listed = ledger.trades(found, market, where.settings, params.rules, *where.at)
    assert rows and [list(row) for row in zip(*listed, strict=True)] == [
        [*row[:7], exit_, *row[7:]] for row, exit_ in zip(rows, listed.exit.tolist(), strict=True)
    ]
    worth = market.tick_cents[listed.market] * listed.contracts
    fees = (3 if params.rules.commission == "three_sides" else 2) * account.commission * listed.contracts
    assert np.array_equal(listed.side * (listed.exit - listed.entry) * worth - fees, listed.result)
    at_stop = listed.reason == Reason.STOP
    inside = (market.low[listed.market, listed.left] <= listed.exit) & (
        listed.exit <= market.high[listed.market, listed.left]
    )
    assert inside[at_stop].all() or params.rules.gaps == "ignored"
    if params.phase == 3:
        assert {Reason.BUST, Reason.CLOSED} <= set(listed.reason) and len(set(listed.contracts)) > 2
        assert (listed.contracts > 1)[listed.entered == listed.left].any()  # whose size no bar's end shows


def risked(market: build.Market, settings: Settings, m: int, t: int) -> int:
    """Contracts of a position entered after bar t."""
    tick = int(market.tick_cents[m])
    distance = max(1, (int(market.atr64[m, t]) * settings.stop_64 + 2048) // 4096)
    loss = tick * min(distance, max(1, settings.stop_cap_cents // tick))
    return min(settings.contracts, max(1, settings.risk_cents // loss)) if settings.risk_cents else settings.contracts


def test_a_policy_is_judged_session_by_session():
    """However many days accounts live in training, and however few bars."""
    usual, long = Stage(config()), Stage(config("account_days=5", "max_bars=10"))
    assert all(np.array_equal(a, b) for a, b in zip(usual.settings, long.settings, strict=True))
    assert np.array_equal(usual.trade(by_dice(2)).equity, long.trade(by_dice(2)).equity)


def test_a_record_may_be_longer_than_any_session():
    where = Stage(config())
    short, n = where.trade(by_dice(0)), where.n_bars
    long = record.trade(Trading(where.config.params), where.market, where.settings, *where.at, by_dice(0), n + 5)
    assert not long.running[n:].any() and np.array_equal(long.equity[n:], np.repeat(short.equity[-1:], 5, 0))
    assert all(np.array_equal(a[:n], b) for a, b in zip(long[:9], short[:9], strict=True))


def test_who_never_trades_earns_nothing_and_neither_do_those_who_trade_as_often():
    found = evaluation.evaluate(config(), following(baselines.flat), FEW)
    assert {name: value for name, value in found.metrics.items() if value and not np.isnan(value)} == {}
    assert np.isnan(found.metrics["eval/sharpe"]) and found.study is not None
    assert found.study["headline"]["value"] == 0 and not found.study["headline"]["refused"]
    assert found.study["firms"]["static_floor"]["undecided"] == 1
    assert found.files["trades.csv"].count("\n") == 1


def test_who_always_sells_is_the_short_trader():
    chosen = replace(config("market=planted"), drawdown=1e6)
    found = evaluation.evaluate(chosen, following(sell_always))
    metrics, daily = found.metrics, found.arrays["daily"]
    assert np.array_equal(daily, found.arrays["short_daily"])  # at a rate of 1 nothing is left to chance
    assert metrics["eval/daily"] == metrics["eval/short"] != metrics["eval/long"]
    assert metrics["eval/trades"] > 1 and metrics["eval/costs"] > 0 and metrics["eval/bust"] == 0
    assert found.study == {} and not found.files


def test_those_who_see_nothing_enter_as_often_as_the_policy():
    where = Stage(config("eval_days=5"))
    n, rate = len(where.dates), 0.07
    by_chance = where.trade(baselines.blind(0, rate, n), repeats=3 * baselines.REPEATS)
    entered, could = by_chance.state.trades.sum(), by_chance.could_enter.sum()
    assert entered / could == pytest.approx(rate, abs=4 * (rate * (1 - rate) / could) ** 0.5)
    sides = by_chance.position.reshape(where.n_bars, 3, -1)
    assert (sides[:, 1] >= 0).all() and (sides[:, 2] <= 0).all()
    assert (sides[:, 0] > 0).any() and (sides[:, 0] < 0).any()


def test_holding_is_the_day_from_open_to_close_less_costs():
    where = Stage(config("markets=ES,NQ,YM,RTY,GC,CL", "drawdown=1000000"))
    found = where.trade(baselines.hold, baselines.out_of_reach(where.market, where.settings))
    (m, t), market = where.at, where.market
    ticks = market.close[m, found.state.t] - market.open[m, t + 1] - 2 * market.slippage[m]
    assert market.last[m, found.state.t].all() and (found.state.trades == 1).all()
    expected = ticks * market.tick_cents[m] - 2 * market.commission_cents[m]
    assert np.array_equal(100 * where.dollars(found), expected)


def test_a_breakout_is_bought_or_sold_once_on_the_first_close_beyond_the_first_half_hour():
    where = Stage(config("eval_days=6", "markets=ES,CL"))
    found, market = where.trade(baselines.breakout(where.market, *where.at)), where.market
    sides = []
    for session, (m, t) in enumerate(zip(*where.at, strict=True)):
        bars = range(t + 1, int(found.state.t[session]) + 1)
        first = [b for b in bars if 570 <= market.minute[m, b] < 600]
        top, bottom = max(market.high[m, b] for b in first), min(market.low[m, b] for b in first)
        out = [b for b in bars if market.minute[m, b] >= 600 and not bottom <= market.close[m, b] <= top]
        expected = next(((b, 1 if market.close[m, b] > top else -1) for b in out if market.may_enter[m, b]), None)
        orders = [(int(r), int(found.action[r, session])) for r in np.flatnonzero(found.action[:, session])]
        assert orders == ([] if expected is None else [(expected[0] - t, 1 if expected[1] > 0 else 2)])
        sides.append(0 if expected is None else expected[1])
    assert {1, -1} <= set(sides)


def hand_made(*days: list[tuple[int, int, int, int]]) -> build.Market:
    """A market of ES without costs: an hour of calm before the open, then these bars (open, high, low, close in ticks
    above 1000), then calm at the last close until 11:00. The average true range is 4 ticks at the open."""
    columns = []
    for number, shaped in enumerate(days):
        calm = [(0, 2, -2, 0)] * 60
        rest = [(shaped[-1][3],) * 4] * (90 - len(shaped))
        for minute, (o, h, lo, c) in enumerate([*calm, *shaped, *rest]):
            columns.append((19_000 * DAY + number * DAY + 510 + minute, o, h, lo, c))
    stamp, o, h, lo, c = np.array(columns).T
    ticks = [(1000 + side).astype(np.int32) for side in (o, h, lo, c)]
    bars = Bars(stamp.astype(np.int64), *ticks, np.ones(len(stamp), np.int64), np.zeros(len(stamp), bool))
    return build.market({"ES": bars}, "sound", costs=False)


BOTH = [(0, 40, -40, 0)]  # stop and target in one bar, the low first
GAP = [(0, 0, 0, 0), (-30, -30, -30, -30)]  # the second bar opens far below the stop


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        # Bought at 0 with the stop 6 ticks below and the target 18 above; a tick is $12.50.
        (BOTH, {"pessimistic": -75, "nearest": -75, "path": -75, "optimistic": 225, "gaps ignored": -75}),
        (GAP, {"pessimistic": -375, "nearest": -375, "path": -375, "optimistic": -375, "gaps ignored": -75}),
    ],
)
def test_other_fill_rules_give_what_they_give_by_hand(monkeypatch, day, expected):
    market = hand_made([(0, 0, 0, 0)], day, day)  # the first session begins after an hour of warm-up
    where = Stage(config())
    monkeypatch.setitem(where.__dict__, "market", market)
    monkeypatch.setitem(where.__dict__, "dates", np.array([19_000, 19_001, 19_002]))
    once = lambda row, state, mask: np.where(mask[:, 1] & (row == 0), Action.BUY, Action.HOLD)
    again = sensitivity.fills(where, following(once), where.trade(once))
    assert {name: daily.tolist() for name, daily in again.daily.items()} == {
        name: [0, dollars, dollars] for name, dollars in expected.items()
    }
    assert again.straddles == (min(expected.values()) < 0 < max(expected.values()))


@pytest.mark.parametrize(
    "words", [(), ("env.rules.gaps=ignored",), ("env.rules.fill=close", "env.rules.trail=same_bar")]
)
def test_the_interval_over_fill_rules_does_not_depend_on_the_rules_of_the_config(monkeypatch, words):
    """Gaps cost $375 a day by the sound rules, whatever the config ignores."""
    where = Stage(config(*words))
    monkeypatch.setitem(where.__dict__, "market", hand_made([(0, 0, 0, 0)], GAP, GAP))
    monkeypatch.setitem(where.__dict__, "dates", np.array([19_000, 19_001, 19_002]))
    once = lambda row, state, mask: np.where(mask[:, 1] & (row == 0), Action.BUY, Action.HOLD)
    assert sensitivity.fills(where, following(once), where.trade(once)).interval == (-250.0, -250.0)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), []),
        (("env.rules.gaps=ignored",), ["gaps=ignored"]),
        (("env.rules.intrabar=optimistic", "costs=false"), ["intrabar=optimistic", "no costs"]),
        (("commission=0", "env.rules.break_even=sets"), ["no commission"]),
        (("slippage=0",), ["no slippage"]),
        (("slippage=0", "commission=0"), ["no commission", "no slippage"]),
        (("slippage=1", "commission=1"), []),
        (("costs=false", "slippage=0"), ["no costs"]),
        (("env.rules.drawdown=worst_in_bar",), ["drawdown=worst_in_bar"]),
        (("env.rules.drawdown=close",), ["drawdown=close"]),
    ],
)
def test_what_flatters_a_result_is_named(words, named):
    assert sensitivity.unsound(config(*words)) == named


def best_by_search(where: Stage, session: int) -> int:
    """Cents of a session by forward search: of all accounts that are in the same position the richest lives on."""
    env, market, (m, t) = Trading(where.config.params), where.market, where.at
    settings = where.settings._replace(drawdown_cents=hindsight.NO_FLOOR)
    state = env.reset(market, settings, m[session : session + 1], t[session : session + 1])
    while True:
        mask = env.mask(market, settings, state)
        who, action = np.nonzero(mask[:, :3])
        state, outcome = env.step(market, settings, State(*(f[who] for f in state)), action.astype(np.int32))
        if outcome.truncated.all():
            return int(state.balance.max()) - int(settings.initial_cents)
        kept: dict[tuple, int] = {}
        for i in np.argsort(state.balance, kind="stable"):
            kept[state.position[i], state.entry[i], state.stop[i], state.target[i]] = i
        state = State(*(f[list(kept.values())] for f in state))


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("markets=CL,NQ", "target_ratio=1", "stop_atr=0.7"),
        ("env.phase=3", "markets=MES", "contracts=5", "risk=60", "balance=1e7", "lock=none", "account_days=2"),
    ],
)
def test_the_best_in_hindsight_is_found_by_search_too_and_no_one_earns_more(words):
    where = Stage(config("drawdown=100000", *words))
    most = hindsight.best(where)
    assert (100 * most).round().astype(int).tolist() == [best_by_search(where, i) for i in range(len(most))]
    for seed in range(3 if where.config.params.phase == 1 else 0):  # who leaves in time may earn more
        assert (where.dollars(where.trade(by_dice(seed))) <= most).all()
    assert (most > 0).all()


def test_there_is_no_headline_when_the_fill_rule_decides_about_gain_or_loss():
    made = {"value": 20.0, "low": -5.0, "high": 45.0, "fills_low": -3.0, "fills_high": 31.0, "refused": True}
    assert tearsheet.headline({"headline": made}).startswith("No headline: -$3 to $31")
    kept = tearsheet.headline({"headline": {**made, "fills_low": 3.0, "refused": False}})
    assert kept == "$20 per day (-$5 to $45 with 95 % confidence, $3 to $31 over the fill rules)."
    flattered = tearsheet.headline({"headline": {**made, "refused": False, "unsound": ["gaps=ignored", "no costs"]}})
    assert flattered.startswith("UNSOUND (gaps=ignored, no costs): $20 per day")


@pytest.fixture(scope="module")
def studied() -> tuple[Stage, evaluation.Evaluation]:
    chosen = config("eval_days=25", "markets=ES,NQ", "balance=40000")
    return Stage(chosen), evaluation.evaluate(chosen, following(by_dice(1, 0.02)), FEW)


def test_a_study_adds_up(studied):
    where, found = studied
    tree, rows = found.study, list(csv.DictReader(io.StringIO(found.files["trades.csv"])))
    total = sum(float(row["result"]) for row in rows)
    figures, costs = tree["figures"], tree["costs"]
    for other in (costs["net"], sum(tree["months"].values()), sum(of["dollars"] for of in tree["exits"].values())):
        assert other == pytest.approx(total)
    assert figures["total"]["value"] == pytest.approx(total)
    assert figures["return"]["value"] == pytest.approx(total / 40_000)
    assert figures["per_day"]["value"] == pytest.approx(total / 25)
    assert figures["expectancy"]["value"] == pytest.approx(total / len(rows))
    assert costs["gross"] - costs["commission"] - costs["slippage"] == pytest.approx(costs["net"])
    assert costs["commission"] == pytest.approx(len(rows) * 2 * 0.5)
    assert {row["contracts"] for row in rows} == {"1"}
    assert tree["trades"]["number"] == len(rows) == sum(of["trades"] for of in tree["exits"].values())
    won = [float(row["result"]) for row in rows if float(row["result"]) > 0]
    lost = [float(row["result"]) for row in rows if float(row["result"]) <= 0]
    assert figures["win_rate"]["value"] == pytest.approx(len(won) / len(rows))
    assert figures["profit_factor"]["value"] == pytest.approx(-sum(won) / sum(lost))
    assert tree["trades"]["average_win"] == pytest.approx(np.mean(won))
    by_date: dict[str, float] = {}
    for row in rows:
        by_date[row["entered"][:10]] = by_date.get(row["entered"][:10], 0.0) + float(row["result"])
    daily = [by_date.get(str(np.datetime64(int(day), "D")), 0.0) for day in found.arrays["days"]]
    np.testing.assert_allclose(found.arrays["daily"], daily, atol=1e-9)  # both markets of a day together
    assert tree["hindsight"]["share"] == pytest.approx(total / 25 / tree["hindsight"]["per_day"])
    assert tree["days"] == 25 and tree["sessions"] == 50


def test_intervals_hold_their_value_and_are_drawn_from_the_same_days(studied):
    _, found = studied
    for name, of in found.study["figures"].items():
        assert of["low"] <= of["high"], name
    assert found.study["figures"]["per_day"]["low"] < found.study["figures"]["per_day"]["value"]
    flat = found.study["baselines"]["flat"]
    per_day = found.study["figures"]["per_day"]
    assert flat["difference"] == pytest.approx(per_day)  # who does nothing is beaten by exactly the result
    assert found.study["headline"]["low"] == pytest.approx(per_day["low"])


def test_a_policy_is_not_better_than_itself(studied):
    where, found = studied
    daily = found.arrays["daily"]
    drawn = np.random.default_rng(0).integers(0, len(daily), (20, len(daily)))
    same = study._compare(daily, daily[None], drawn, 1.0)
    nothing = {"value": 0.0, "low": float("nan"), "high": float("nan")}  # no spread, so nothing to measure it by
    assert same["difference"] == pytest.approx(nothing, nan_ok=True)


def test_who_never_trades_is_studied_without_a_warning_and_what_is_unknown_is_left_empty():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluation.evaluate(config(), following(baselines.flat), FEW)
    tree = found.study
    assert tree["figures"]["per_day"]["value"] == 0 and np.isnan(tree["figures"]["per_day"]["low"])
    assert tearsheet.headline(tree) == "$0 per day ($0 to $0 over the fill rules)."
    assert "nan" not in "\n".join(verdict.sheet("days", tree))


def test_every_number_of_a_study_has_a_line_on_the_sheet(studied):
    _, found = studied
    picked = study.selection(found.study["moments"], 7, [0.1, -0.4, 1.2])
    tables = tearsheet.tables({**found.study, "selection": {**picked, "opened": 3}})
    assert {table.title for table in tables} >= {"Result", "Costs", "Compared with", "Fill rules", "Firms", "Selection"}
    text = "\n".join(line for table in tables for line in tearsheet.lines(table))
    for label in (*tearsheet.LABELS.values(), *tearsheet.BASELINES.values(), *sensitivity.FILLS):
        assert label in text, label
    assert max(map(len, text.splitlines())) <= 120


def test_selection_takes_the_larger_of_the_spread_of_trials_and_chance():
    made = {"sharpe": 0.1, "skewness": 0.0, "kurtosis": 3.0, "sessions": 101}
    alone, alike, apart = (study.selection(made, 50, sharpes) for sharpes in ([], [1.0, 1.0], [-3.0, 3.0]))
    assert alone == pytest.approx(alike, nan_ok=True)
    assert apart["deflated_sharpe"] < alone["deflated_sharpe"] < alone["probabilistic_sharpe"]
    assert study.selection(made, 1, [])["deflated_sharpe"] == alone["probabilistic_sharpe"]


def test_test_sets_are_named_apart():
    names = {
        chosen.test_set
        for chosen in (
            config(),
            config("data_seed=1"),
            config("eval_days=5"),
            config("markets=NQ"),
            config("folds=3"),
            config("folds=3", "fold=1"),
            config("data=bars"),
        )
    }
    assert len(names) == 7
    assert config("seed=3", "hidden=16", "drawdown=100").test_set == config().test_set


def test_the_rules_of_the_config_are_those_that_are_varied():
    seen = []
    where = Stage(config("env.rules.break_even=sets", "env.rules.intrabar=path", "env.rules.drawdown=close"))

    def trade(params, *rest):
        seen.append(params.rules)
        return following(baselines.flat)(params, *rest)

    sensitivity.fills(where, trade, where.trade(baselines.flat))
    assert all(rules.break_even == "sets" and rules.drawdown == "at_floor" for rules in seen) and len(seen) == 5
    seen.clear()
    where = Stage(config("env.rules.intrabar=path"))
    sensitivity.fills(where, trade, where.trade(baselines.flat))
    assert len(seen) == 4 and where.config.params.rules not in seen  # that one is known
