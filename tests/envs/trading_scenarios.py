"""Scenarios of trading with the numbers worked out by hand; test_trading_rules.py plays them.

A tick is worth 1000 cents, the ATR is 4 ticks, slippage 1 tick, commission 50 cents: a BUY that fills at an open of 100
has its entry at 101, its stop at 97 and its target at 113, a SELL 99, 103 and 87. The account begins with 5 000 000.
"""

from dataclasses import dataclass, field
from typing import Any

from crossfade.envs.trading.params import Action, Reason, Rules, TradingParams

HOLD, BUY, SELL = Action.HOLD, Action.BUY, Action.SELL
NONE, STOP, TARGET, SESSION_END = Reason.NONE, Reason.STOP, Reason.TARGET, Reason.SESSION_END

QUIET = (100, 101, 99, 100)
FALLS = (100, 100, 96, 98)  # through the stop of a long
BOTH = (100, 114, 96, 105)  # through stop and target of a long
BOTH_SHORT = (100, 104, 86, 95)
RISES = (100, 105, 99, 104)  # 3 ticks in profit for a long


@dataclass
class Scenario:
    """Bars, the action after each of them, and what must be true after some of them, by number of the bar.

    `mask` is given by the letters of the legal actions (Hold, Buy, Sell, break-Even, Trail, X for stop trailing,
    Close), `cents` is the reward in cents, `seen` the observation.
    """

    name: str
    bars: list[tuple[int, int, int, int]]
    actions: list[int]
    expect: dict[int, dict[str, Any]]
    phase: int = 1
    rules: dict[str, str] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)
    market: dict[str, Any] = field(default_factory=dict)
    begins: tuple[float, ...] = ()
    """Five uniform numbers that draw the beginning; without them it is flat after bar 0."""

    @property
    def params(self) -> TradingParams:
        return TradingParams(self.phase, window=1, n_features=1, rules=Rules(**self.rules))


def long(name: str, bar: tuple[int, int, int, int], phase: int = 1, **given: Any) -> Scenario:
    """A BUY after bar 0, a quiet bar 1, and what bar 2 does to the position."""
    return _position(BUY, name, bar, phase, given)


def short(name: str, bar: tuple[int, int, int, int], phase: int = 1, **given: Any) -> Scenario:
    return _position(SELL, name, bar, phase, given)


def _position(side: int, name: str, bar: tuple[int, int, int, int], phase: int, given: dict[str, Any]) -> Scenario:
    more = {kind: given.pop(kind) for kind in ("rules", "settings", "market") if kind in given}
    return Scenario(name, [QUIET, QUIET, bar, QUIET], [side, HOLD], {2: given}, phase, **more)


HELD = dict(reason=NONE, position=1, stop=97, result=0)
LOST = dict(reason=STOP, result=-4100, balance=4_995_900, losses=1, wins=0, position=0)
WON = dict(reason=TARGET, result=11_900, balance=5_011_900, wins=1, losses=0, position=0)

ENTRIES = [
    Scenario("nothing happens", [QUIET, FALLS, QUIET], [HOLD], {1: dict(balance=5_000_000, cents=0, reason=NONE, t=1)}),
    Scenario(
        "a buy fills at the next open, a tick worse",
        [QUIET, (100, 103, 99, 102), QUIET],
        [BUY],
        {
            1: dict(position=1, contracts=1, entry=101, stop=97, target=113, entry_t=1, trades=1, mask="H", cents=950)
            | dict(balance=4_999_950, commissions=50, slippages=1000, high_water=5_000_950, wins=0, losses=0)
        },
    ),
    Scenario(
        "a sell is its mirror image",
        [QUIET, (100, 101, 97, 98), QUIET],
        [SELL],
        {1: dict(position=-1, entry=99, stop=103, target=87, cents=950, balance=4_999_950, high_water=5_000_950)},
    ),
    Scenario(
        "fill=close: at the close before",
        [QUIET, (110, 111, 109, 110), QUIET],
        [BUY],
        {1: dict(entry=101, stop=97, target=113, cents=8950)},
        rules={"fill": "close"},
    ),
    Scenario(
        "the same at the next open",
        [QUIET, (110, 111, 109, 110), QUIET],
        [BUY],
        {1: dict(entry=111, stop=107, target=123, cents=-1050)},
    ),
    Scenario("6.5 ticks are 7", [QUIET] * 3, [BUY], {1: dict(stop=94, target=122)}, settings={"stop_64": 104}),
    Scenario("less than 6.5 are 6", [QUIET] * 3, [BUY], {1: dict(stop=95, target=119)}, settings={"stop_64": 103}),
    Scenario(
        "a stop is a tick away at least",
        [QUIET, (100, 101, 100, 101), QUIET],
        [BUY],
        {1: dict(entry=100, stop=99, target=103)},
        settings={"stop_64": 1},
        market={"slippage": 0},
    ),
    Scenario("distances come from the bar before the fill", [QUIET] * 3, [BUY], {1: HELD}, market={"atr": [4, 9, 9]}),
    Scenario(
        "the stop is capped, and the target with it",
        [QUIET, (100, 101, 100, 101), QUIET],
        [BUY],
        {1: dict(stop=99, target=107)},
        settings={"stop_cap_cents": 2999},
    ),
    Scenario(
        "a cap below a tick leaves a tick",
        [QUIET, (100, 101, 100, 101), QUIET],
        [BUY],
        {1: dict(entry=100, stop=99)},
        settings={"stop_cap_cents": 999},
        market={"slippage": 0},
    ),
    Scenario(
        "the target is as many stops away as it is told",
        [QUIET] * 3,
        [SELL],
        {1: dict(stop=103, target=91)},
        settings={"target_ratio": 2},
    ),
    long(
        "three contracts", FALLS, settings={"contracts": 3}, result=-12_300, commissions=300, slippages=3000, trades=1
    ),
    long("two slippages in and none at the stop", FALLS, market={"slippage": 2}, result=-4100, slippages=2000),
    Scenario(
        "slippage beyond the stop closes at the open",
        [QUIET] * 3,
        [BUY],
        {1: dict(reason=STOP, result=-2100, trades=1, losses=1)},
        settings={"stop_64": 16},
        market={"slippage": 2},
    ),
]

EXITS = [
    long("stop", FALLS, **LOST, entry=0, stop=0, target=0, contracts=0, entry_t=0, commissions=100, cents=-3050),
    long("stop touched to the tick", (100, 101, 97, 100), **LOST),
    long("stop missed by a tick", (100, 101, 98, 100), **HELD),
    long("target", (105, 114, 104, 110), **WON, slippages=1000),
    long("target touched to the tick", (105, 113, 104, 110), **WON),
    long("target missed by a tick", (105, 112, 104, 110), **HELD),
    short("stop of a short", (100, 103, 99, 101), **LOST),
    short("stop of a short missed by a tick", (100, 102, 99, 101), reason=NONE, position=-1),
    short("target of a short", (95, 96, 87, 90), **WON),
    short("target of a short missed by a tick", (95, 96, 88, 90), reason=NONE, position=-1),
    Scenario("stop in the bar of the entry", [QUIET, FALLS, QUIET], [BUY], {1: LOST | dict(trades=1, mask="HBS")}),
    Scenario("target in the bar of the entry", [QUIET, (100, 113, 99, 110), QUIET], [BUY], {1: WON}),
    long("both, pessimistic", BOTH, **LOST),
    long("both, optimistic", BOTH, rules={"intrabar": "optimistic"}, **WON),
    long("both, the low nearer to the open", BOTH, rules={"intrabar": "nearest"}, **LOST),
    long("both, the high nearer to the open", (108, 114, 96, 105), rules={"intrabar": "nearest"}, **WON),
    long("both, equally near", (105, 114, 96, 105), rules={"intrabar": "nearest"}, **LOST),
    short("both, equally near, short", (95, 104, 86, 95), rules={"intrabar": "nearest"}, **LOST),
    long("both, the high first", BOTH, rules={"intrabar": "path"}, **WON),
    long("both, the low first", BOTH, rules={"intrabar": "path"}, market={"high_first": False}, **LOST),
    short("both, the high first, short", BOTH_SHORT, rules={"intrabar": "path"}, **LOST),
    short(
        "both, the low first, short",
        BOTH_SHORT,
        rules={"intrabar": "path"},
        market={"high_first": False},
        **WON,
    ),
    long("both, named by the target", BOTH, rules={"label": "target_first"}, reason=TARGET, result=-4100, losses=1),
    long("gap through the stop", (90, 95, 89, 94), reason=STOP, result=-11_100, balance=4_988_900),
    long("gap to the stop", (97, 99, 97, 98), **LOST),
    long("gap through the target", (120, 121, 118, 119), reason=TARGET, result=18_900, balance=5_018_900),
    short("gap through the stop of a short", (110, 111, 108, 109), reason=STOP, result=-11_100),
    short("gap through the target of a short", (80, 84, 79, 81), reason=TARGET, result=18_900),
    long("gap through the stop, then up to the target", (95, 115, 94, 110), reason=STOP, result=-6100),
    long(
        "no order within the bar undoes a gap",
        (95, 115, 94, 110),
        rules={"intrabar": "optimistic"},
        reason=STOP,
        result=-6100,
    ),
    long("gaps=ignored: the stop that never traded", (90, 95, 89, 94), rules={"gaps": "ignored"}, **LOST),
    long("gaps=ignored: the target that never traded", (120, 121, 118, 119), rules={"gaps": "ignored"}, **WON),
    Scenario(
        "entry again after the bar of the exit",
        [QUIET, QUIET, FALLS, (98, 99, 97, 98), QUIET],
        [BUY, HOLD, SELL],
        {2: dict(mask="HBS", trades=1), 3: dict(position=-1, entry=97, stop=101, target=85, trades=2, illegal=0)},
    ),
    long("commission of the settings", FALLS, settings={"commission_cents": 200}, result=-4400, commissions=400),
    long("no commission at all", FALLS, settings={"commission_cents": 0}, result=-4000, commissions=0),
    long("three commissions", FALLS, rules={"commission": "three_sides"}, result=-4150, commissions=150),
    long(
        "a win is one after both commissions",
        (100, 103, 99, 103),
        settings={"commission_cents": 500},
        market={"last": [2]},
        reason=SESSION_END,
        result=0,
        wins=0,
        losses=1,
    ),
]

SESSIONS = [
    long(
        "session end: at the close, a tick worse",
        (100, 103, 99, 103),
        market={"last": [2]},
        **dict(reason=SESSION_END, result=900, wins=1, position=0, slippages=2000, truncated=True, terminated=False),
    ),
    short("session end of a short", (100, 101, 97, 97), market={"last": [2]}, reason=SESSION_END, result=900, wins=1),
    long("a stop in the last bar comes first", FALLS, market={"last": [2]}, **LOST, truncated=True),
    Scenario(
        "a half-day ends when its bars do",
        [QUIET] * 6,
        [HOLD, HOLD, HOLD],
        {
            0: dict(mask="HBS"),
            1: dict(mask="H", truncated=False),
            2: dict(mask="H", truncated=True, reason=NONE),
            3: dict(mask="HBS", truncated=False),
        },
        market={"last": [2], "closed": [1]},
    ),
    Scenario(
        "no entry outside the session",
        [QUIET] * 3,
        [BUY],
        {0: dict(mask="H"), 1: dict(position=0, trades=0, illegal=1, balance=5_000_000)},
        market={"closed": [0]},
    ),
    Scenario(
        "entries=any_time: legal and not filled",
        [QUIET] * 3,
        [BUY],
        {0: dict(mask="HBS"), 1: dict(position=0, trades=0, illegal=0, balance=5_000_000)},
        rules={"entries": "any_time"},
        market={"closed": [0]},
    ),
    Scenario(
        "no entry on top of another",
        [QUIET] * 5,
        [BUY, BUY, SELL],
        {3: dict(illegal=2, trades=1, position=1, contracts=1)},
    ),
    Scenario(
        "max_bars",
        [QUIET] * 5,
        [BUY, HOLD],
        {1: dict(truncated=False), 2: dict(truncated=True, terminated=False, position=1, reason=NONE)},
        settings={"max_bars": 2},
    ),
    Scenario("end of the data", [QUIET] * 3, [BUY, HOLD], {1: dict(truncated=False), 2: HELD | dict(truncated=True)}),
]
