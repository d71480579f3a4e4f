"""Scenarios of orders and accounts, in the words of trading_scenarios.py: leaving at the market, sizes, slippage of the
settings, and accounts that live several sessions."""

from typing import Any

from trading_scenarios import BUY, FALLS, HOLD, LOST, QUIET, RISES, SELL, SESSION_END, STOP, Scenario, long
from trading_scenarios_floor import AT_96, BUST, FAR, LIQUIDATED

from crossfade.envs.trading.params import Action, Reason

BREAK_EVEN, TRAIL, CLOSE = Action.BREAK_EVEN, Action.TRAIL, Action.CLOSE
CLOSED = Reason.CLOSED


def leave(name: str, bar: tuple[int, int, int, int], *, side: int = BUY, **given: Any) -> Scenario:
    """A position after bar 0, three ticks in profit after bar 1, left at the open of bar 2."""
    more = {kind: given.pop(kind) for kind in ("rules", "settings", "market") if kind in given}
    first = RISES if side == BUY else (100, 101, 95, 96)
    expect = {1: dict(mask="HETC"), 2: dict(reason=CLOSED, position=0, illegal=0) | given}
    return Scenario(name, [QUIET, first, bar, QUIET], [side, CLOSE], expect, 3, **more)


LEAVING = [
    leave(
        "leaving: at the open, a tick worse, whatever comes after",
        (104, 120, 90, 100),
        **dict(result=1900, balance=5_001_900, slippages=2000, commissions=100, wins=1, losses=0, cents=-1050),
        **dict(contracts=0, entry=0, stop=0, target=0, terminated=False, truncated=False, trades=1),
        mask="HBS",
    ),
    leave("leaving a short", (96, 110, 80, 100), side=SELL, result=1900, balance=5_001_900, wins=1),
    leave("leaving without gain is a loss", (102, 103, 101, 102), result=-100, wins=0, losses=1),
    leave("leaving at a gap through the stop", (90, 95, 89, 94), result=-12_100, losses=1),
    leave("leaving at a gap through the target", (120, 121, 119, 120), result=17_900, wins=1),
    leave("leaving with three contracts", (104, 105, 103, 104), settings={"contracts": 3}, result=5700, slippages=6000),
    leave("leaving in the last bar", (104, 105, 103, 104), market={"last": [2]}, result=1900, truncated=True),
    leave("fill=close: leaving is at the open", (106, 107, 105, 106), rules={"fill": "close"}, result=3900),
    leave("leaving by three commissions", (104, 105, 103, 104), rules={"commission": "three_sides"}, result=1850),
    leave(
        "leaving makes bust",
        (97, 110, 97, 110),
        settings=FAR | {"drawdown_cents": 7950},
        **dict(result=-5100, balance=4_994_900, terminated=True, truncated=False, losses=1),
    ),
    leave(
        "drawdown=worst_in_bar: leaving makes bust",
        (97, 110, 97, 110),
        rules={"drawdown": "worst_in_bar"},
        settings=FAR | {"drawdown_cents": 7950},
        result=-5100,
        terminated=True,
    ),
    leave(
        "leaving early enough does not",
        (98, 98, 50, 60),
        settings=FAR | {"drawdown_cents": 7950},
        result=-4100,
        terminated=False,
    ),
    Scenario(
        "nothing to leave when flat",
        [QUIET] * 4,
        [CLOSE, HOLD],
        {0: dict(mask="HBS"), 1: dict(illegal=1, trades=0, reason=Reason.NONE, cents=0, balance=5_000_000)},
        phase=3,
    ),
    Scenario("phase 2 cannot leave", [QUIET, RISES, QUIET], [BUY], {1: dict(mask="HET")}, phase=2),
    Scenario(
        "a loss can be left too",
        [QUIET, (100, 101, 98, 98), QUIET, QUIET],
        [BUY, CLOSE],
        {1: dict(mask="HC"), 2: dict(reason=CLOSED, result=-2100)},
        phase=3,
    ),
    Scenario(
        "phase 3 manages as phase 2 does, and leaves a trailing position",
        [QUIET, RISES, (104, 106, 102, 105), (105, 106, 104, 105), (105, 106, 104, 105), QUIET],
        [BUY, BREAK_EVEN, TRAIL, CLOSE],
        {
            2: dict(stop=101, break_even=1, mask="HTC"),
            3: dict(stop=101, trailing=1, mask="HXC"),
            4: dict(reason=CLOSED, trailing=0, break_even=0, result=2900, mask="HBS"),
        },
        phase=3,
    ),
    Scenario(
        "phase 3 sees what phase 2 sees",
        [QUIET, RISES, QUIET],
        [BUY],
        {1: dict(seen=[1, 1, 0.75, 1.75, 2.25, 1 / 390, 0, 0.03, 0, 0, 2, 0, 1, 1])},
        phase=3,
        settings={"drawdown_cents": 200_000},
    ),
    Scenario(
        "entry again after leaving",
        [QUIET, RISES, QUIET, QUIET, QUIET],
        [BUY, CLOSE, SELL],
        {3: dict(position=-1, entry=99, trades=2, illegal=0)},
        phase=3,
    ),
]


def sized(name: str, size: int, **settings: int) -> Scenario:
    """A BUY whose stop is 4 ticks, 4000 cents away; 5 contracts at most."""
    atr = settings.pop("atr", 4)
    return Scenario(
        name,
        [QUIET] * 3,
        [BUY],
        {1: dict(contracts=size, commissions=50 * size, slippages=1000 * size)},
        settings={"contracts": 5} | settings,
        market={"atr": [atr, 4, 4]},
    )


SIZES = [
    sized("without risk all contracts", 5),
    sized("the risk allows three", 3, risk_cents=12_500),
    sized("exactly two", 2, risk_cents=8000),
    sized("a cent less", 1, risk_cents=7999),
    sized("one at least", 1, risk_cents=1),
    sized("not more than are allowed", 5, risk_cents=10**8),
    sized("a wide stop: fewer", 1, risk_cents=12_500, atr=8),
    sized("a narrow stop: more", 4, risk_cents=12_500, atr=3),
    sized("a capped stop: more", 4, risk_cents=12_500, stop_cap_cents=3000),
    sized("a single contract is one", 1, risk_cents=12_500, contracts=1),
    long(
        "each of them pays",
        FALLS,
        settings={"contracts": 5, "risk_cents": 12_500},
        **LOST | dict(result=-12_300, balance=4_987_700, commissions=300, contracts=0),
    ),
    Scenario(
        "two positions of two sizes",
        [QUIET, FALLS, QUIET, QUIET],
        [BUY, SELL],
        {1: dict(reason=STOP, result=-12_300), 2: dict(position=-1, contracts=1)},
        settings={"contracts": 5, "risk_cents": 12_500},
        market={"atr": [4, 8, 8, 8]},
    ),
    Scenario(
        "a position that it begins with has its size, too",
        [QUIET, (100, 100, 97, 98), QUIET],
        [HOLD],
        {0: dict(contracts=2, entry=97, stop=93, balance=4_994_000), 1: dict(contracts=2, cents=-4000)},
        begins=(0, 0, 0, 0, 0.8),
        settings={"forced": 1024, "contracts": 5, "risk_cents": 8000},
    ),
]

THREE = {"slippage": 3, "stop_64": 112}  # and a stop 7 ticks away
SLIPPAGES = [
    Scenario("slippage=0", [QUIET] * 3, [BUY], {1: dict(entry=100, slippages=0)}, settings={"slippage": 0}),
    Scenario("slippage=3", [QUIET] * 3, [SELL], {1: dict(entry=97, slippages=3000)}, settings=THREE),
    long(
        "slippage=3 at the end of a session",
        (100, 103, 99, 103),
        settings=THREE,
        market={"last": [2]},
        **dict(reason=SESSION_END, result=-3100, slippages=6000),
    ),
    long(
        "slippage=3 at the floor",
        (100, 100, 97, 99),
        settings=FAR | AT_96 | {"slippage": 3},
        **dict(reason=BUST, result=-8100, slippages=6000, terminated=True),
    ),
    long(
        "slippage=0 at the floor",
        (100, 100, 95, 99),
        settings=FAR | AT_96 | {"slippage": 0},
        **dict(reason=BUST, result=-5100, slippages=0, terminated=True),
    ),
    long(
        "drawdown=close with slippage=3",
        (100, 100, 90, 90),
        rules={"drawdown": "close"},
        settings=FAR | AT_96 | {"slippage": 3},
        **dict(reason=BUST, result=-16_100, slippages=6000, terminated=True),
    ),
    Scenario(
        "slippage=3 of a liquidation",
        [QUIET] * 3,
        [BUY],
        {1: dict(reason=LIQUIDATED, result=-6100, slippages=6000, terminated=False)},
        settings=FAR | {"slippage": 3, "drawdown_cents": 20_000, "liquidation_cents": 16_951},
    ),
    long("slippage=3 and none at the stop", FALLS, settings=THREE, result=-7100),
    Scenario(
        "slippage=3 of leaving",
        [QUIET, (100, 106, 99, 106), (106, 107, 105, 106), QUIET],
        [BUY, CLOSE],
        {2: dict(reason=CLOSED, result=-100, slippages=6000)},
        phase=3,
        settings=THREE,
    ),
]

TWO_DAYS = {"last": [2, 5]}
DAYS = [
    Scenario(
        "an account of one day",
        [QUIET] * 8,
        [HOLD] * 2,
        {1: dict(truncated=False), 2: dict(truncated=True)},
        market=TWO_DAYS,
    ),
    Scenario(
        "an account of two days",
        [QUIET] * 8,
        [HOLD] * 5,
        {2: dict(truncated=False, terminated=False), 4: dict(truncated=False), 5: dict(truncated=True)},
        settings={"days": 2},
        market=TWO_DAYS,
    ),
    Scenario(
        "what it has is carried to the next day, its position is not",
        [QUIET] * 8,
        [BUY, HOLD, HOLD, BUY, HOLD],
        {
            2: dict(reason=SESSION_END, result=-2100, balance=4_997_900, position=0, truncated=False, mask="H"),
            3: dict(balance=4_997_900, high_water=5_000_000, cents=0, mask="HBS"),
            4: dict(position=1, entry=101, trades=2, balance=4_997_850),
            5: dict(reason=SESSION_END, balance=4_995_800, truncated=True, losses=2, commissions=200),
        },
        settings={"days": 2},
        market=TWO_DAYS,
    ),
    Scenario(
        "an order after a feed has died is not filled the next day",
        [QUIET] * 8,
        [HOLD, HOLD, BUY, BUY],
        {
            2: dict(truncated=False, mask="HBS"),
            3: dict(position=0, trades=0, illegal=0, balance=5_000_000, mask="HBS"),
            4: dict(position=1, trades=1),
        },
        settings={"days": 2},
        market=TWO_DAYS | {"broken": [2]},
    ),
    Scenario(
        "the floor of the second day is that of the first",
        [QUIET, QUIET, QUIET, QUIET, (100, 100, 98, 99), QUIET, QUIET],
        [BUY, HOLD, HOLD, BUY],
        {3: dict(terminated=False), 4: dict(reason=BUST, result=-4100, balance=4_993_800, terminated=True)},
        settings=FAR | AT_96 | {"days": 2},
        market=TWO_DAYS,
    ),
    Scenario(
        "two days of three",
        [QUIET] * 10,
        [HOLD] * 5,
        {2: dict(truncated=False), 5: dict(truncated=False)},
        settings={"days": 3},
        market=TWO_DAYS,
    ),
    Scenario(
        "a final session ends the account",
        [QUIET] * 8,
        [HOLD] * 2,
        {1: dict(truncated=False), 2: dict(truncated=True)},
        settings={"days": 9},
        market=TWO_DAYS | {"final": [0, 1, 2]},
    ),
    Scenario(
        "the session after a final one does not",
        [QUIET] * 8,
        [HOLD] * 5,
        {2: dict(truncated=False), 5: dict(truncated=True)},
        settings={"days": 9},
        market=TWO_DAYS | {"final": [3, 4, 5]},
    ),
    Scenario(
        "the data end an account of many days",
        [QUIET] * 5,
        [HOLD] * 4,
        {2: dict(truncated=False), 4: dict(truncated=True)},
        settings={"days": 9},
        market={"last": [2]},
    ),
    Scenario(
        "max_bars are counted over the days",
        [QUIET] * 8,
        [HOLD] * 4,
        {3: dict(truncated=False), 4: dict(truncated=True)},
        settings={"days": 2, "max_bars": 4},
        market=TWO_DAYS,
    ),
    Scenario(
        "bust at the end of a first day is no truncation",
        [QUIET, QUIET, FALLS, QUIET, QUIET],
        [BUY, HOLD],
        {2: dict(reason=BUST, terminated=True, truncated=False)},
        settings={"days": 2, "drawdown_cents": 3000},
        market=TWO_DAYS,
    ),
]

SCALES = [
    Scenario(
        f"one tick of {name} is an eighth",
        [QUIET, (100, 103, 99, 102), QUIET],
        [BUY],
        {1: dict(reward=0.125)},
        market={"tick_cents": tick_cents, "commission": 0},
    )
    for name, tick_cents in (("ES", 1250), ("MES", 125))
]
