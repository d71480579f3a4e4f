"""More scenarios of trading, in the words of trading_scenarios.py: what ends an account, and managed positions."""

from typing import Any

from trading_scenarios import BUY, FALLS, HOLD, LOST, NONE, QUIET, RISES, SELL, STOP, Scenario, long, short

from crossfade.envs.trading.params import Action, Reason

BREAK_EVEN, TRAIL, STOP_TRAILING = Action.BREAK_EVEN, Action.TRAIL, Action.STOP_TRAILING
BUST, LIQUIDATED = Reason.BUST, Reason.LIQUIDATED


def managed(name: str, bars: list[tuple[int, int, int, int]], actions: list[int], expect: Any, **more: Any) -> Scenario:
    """A BUY after a quiet bar 0, then phase 2."""
    return Scenario(name, [QUIET, *bars], [BUY, *actions], expect, phase=2, **more)


FAR = {"stop_64": 640}  # a stop 40 ticks away
WORST = {"drawdown": "worst_in_bar"}

ACCOUNTS = [
    long(
        "drawdown=worst_in_bar: below the floor within the bar",
        (100, 100, 95, 99),
        rules=WORST,
        settings=FAR | {"drawdown_cents": 5000},
        **dict(
            reason=BUST, result=-3100, balance=4_996_900, terminated=True, truncated=False, slippages=2000, losses=1
        ),
    ),
    short(
        "drawdown=worst_in_bar: bust of a short, at the high",
        (100, 105, 100, 101),
        rules=WORST,
        settings=FAR | {"drawdown_cents": 5000},
        reason=BUST,
        result=-3100,
        terminated=True,
    ),
    long(
        "at the floor is not below it",
        (100, 100, 95, 99),
        settings=FAR | {"drawdown_cents": 6050},
        reason=NONE,
        terminated=False,
        position=1,
    ),
    long(
        "drawdown=close: only the close counts",
        (100, 100, 95, 99),
        rules={"drawdown": "close"},
        settings=FAR | {"drawdown_cents": 5000},
        reason=NONE,
        terminated=False,
    ),
    long(
        "drawdown=worst_in_bar: bust by a stop",
        FALLS,
        rules=WORST,
        settings={"drawdown_cents": 4000},
        **LOST,
        terminated=True,
        truncated=False,
    ),
    long(
        "bust in the last bar is no truncation",
        FALLS,
        settings={"drawdown_cents": 4060},
        market={"last": [2]},
        **LOST,
        terminated=True,
        truncated=False,
    ),
    Scenario(
        "a range after the exit is no drawdown",
        [QUIET, QUIET, (100, 100, 50, 60), QUIET],
        [BUY, HOLD],
        {2: LOST | dict(terminated=False)},
        settings={"drawdown_cents": 4100},
    ),
    Scenario(
        "drawdown=worst_in_bar: the floor follows the high water",
        [QUIET, (100, 110, 100, 110), (110, 110, 103, 105), QUIET],
        [BUY, HOLD],
        {1: dict(high_water=5_008_950, terminated=False), 2: dict(reason=BUST, result=2900, terminated=True, wins=1)},
        rules=WORST,
        settings=FAR | {"drawdown_cents": 5000, "lock_cents": 1_000_000},
    ),
    Scenario(
        "until it is locked",
        [QUIET, (100, 110, 100, 110), (110, 110, 103, 105), QUIET],
        [BUY, HOLD],
        {2: dict(reason=NONE, terminated=False, position=1)},
        settings=FAR | {"drawdown_cents": 5000, "lock_cents": 1000},
    ),
    Scenario(
        "a high water of closes alone",
        [QUIET, (100, 112, 100, 100), QUIET],
        [BUY],
        {1: dict(high_water=5_000_000, cents=-1050)},
        settings=FAR,
    ),
    Scenario(
        "a close raises the floor of later bars only",
        [QUIET, (100, 112, 97, 112), QUIET],
        [BUY],
        {1: dict(terminated=False, high_water=5_010_950)},
        settings=FAR | {"drawdown_cents": 5000},
    ),
    Scenario(
        "liquidation",
        [QUIET, (100, 101, 99, 99), QUIET, QUIET],
        [BUY, BUY],
        {
            1: dict(reason=LIQUIDATED, result=-3100, balance=4_996_900, terminated=False, truncated=False, mask="HBS"),
            2: dict(trades=2),
        },
        settings=FAR | {"drawdown_cents": 5000, "liquidation_cents": 2951},
    ),
    Scenario(
        "liquidation is below its margin, not at it",
        [QUIET, (100, 101, 99, 99), QUIET],
        [BUY],
        {1: dict(reason=NONE, position=1)},
        settings=FAR | {"drawdown_cents": 5000, "liquidation_cents": 2950},
    ),
    long("phase 2: no entry from 3/4 of the limit", FALLS, 2, settings={"drawdown_cents": 5466}, mask="H"),
    long("phase 2: entry just before it", FALLS, 2, settings={"drawdown_cents": 5467}, mask="HBS"),
    long("phase 1: entry all the same", FALLS, 1, settings={"drawdown_cents": 5466}, mask="HBS"),
]

MANAGEMENT = [
    managed(
        "break-even",
        [RISES, (104, 105, 102, 104), (104, 105, 101, 102), QUIET],
        [BREAK_EVEN, HOLD],
        {
            1: dict(mask="HET"),
            2: dict(stop=101, break_even=1, mask="HT", illegal=0),
            3: dict(reason=STOP, result=-100, losses=1, break_even=0),
        },
    ),
    managed(
        "break-even holds in the bar after the decision",
        [RISES, (104, 105, 101, 102), QUIET],
        [BREAK_EVEN],
        {2: dict(reason=STOP, result=-100)},
    ),
    managed(
        "break-even needs more than half an ATR",
        [(100, 104, 99, 103), QUIET, QUIET],
        [BREAK_EVEN],
        {1: dict(mask="HT"), 2: dict(stop=97, break_even=0, illegal=1)},
    ),
    managed(
        "break-even once",
        [RISES, (104, 106, 102, 106), (106, 107, 105, 106), QUIET],
        [BREAK_EVEN, BREAK_EVEN],
        {2: dict(mask="HT"), 3: dict(break_even=1, illegal=1)},
    ),
    Scenario(
        "break-even of a short",
        [QUIET, (100, 101, 95, 96), (96, 98, 95, 97), QUIET],
        [SELL, BREAK_EVEN],
        {1: dict(mask="HET"), 2: dict(stop=99, position=-1)},
        phase=2,
    ),
    managed(
        "trailing: the stop follows the closes",
        [(100, 105, 100, 105), (105, 108, 103, 107), (107, 108, 103, 104), QUIET],
        [TRAIL, HOLD],
        {
            1: dict(mask="HET", stop=97),
            2: dict(stop=101, trailing=1, mask="HX", reason=NONE),
            3: dict(reason=STOP, result=1900, wins=1, trailing=0),
        },
    ),
    Scenario(
        "trailing of a short",
        [QUIET, (100, 100, 95, 95), (95, 96, 92, 93), (93, 97, 92, 95), QUIET],
        [SELL, TRAIL, HOLD],
        {2: dict(stop=99, trailing=1), 3: dict(reason=STOP, result=1900)},
        phase=2,
    ),
    managed(
        "trailing never gives way",
        [(100, 105, 100, 105), (105, 106, 102, 102), (103, 104, 102, 103), QUIET],
        [TRAIL, HOLD],
        {2: dict(stop=101), 3: dict(stop=101, reason=NONE)},
    ),
    managed(
        "trailing is not of the same bar",
        [(100, 105, 100, 105), (105, 111, 102, 111), QUIET],
        [TRAIL],
        {2: dict(stop=101, reason=NONE)},
    ),
    managed(
        "trail=same_bar: a stop from a close yet to come",
        [(100, 105, 100, 105), (105, 111, 102, 111), QUIET],
        [TRAIL],
        {2: dict(reason=STOP, result=5900)},
        rules={"trail": "same_bar", "gaps": "ignored"},
    ),
    managed(
        "trail=same_bar with gaps: the open is beyond that stop",
        [(100, 105, 100, 105), (105, 111, 102, 111), QUIET],
        [TRAIL],
        {2: dict(reason=STOP, result=3900)},
        rules={"trail": "same_bar"},
    ),
    managed(
        "trailing by the ATR of the bar before",
        [(100, 105, 100, 105), (105, 106, 104, 105), QUIET],
        [TRAIL],
        {2: dict(stop=103)},
        market={"atr": [4, 2, 8, 4]},
    ),
    managed(
        "trailing off: the stop stays where it is",
        [(100, 105, 100, 105), (105, 108, 103, 107), (107, 109, 103, 108), QUIET],
        [TRAIL, STOP_TRAILING],
        {3: dict(stop=101, trailing=0, reason=NONE, mask="HT")},
    ),
    managed(
        "no trailing out of profit",
        [(100, 102, 99, 101), QUIET, QUIET],
        [TRAIL],
        {1: dict(mask="H"), 2: dict(trailing=0, illegal=1)},
    ),
    managed(
        "trail_mask=in_position: legal and ignored",
        [(100, 102, 99, 101), QUIET, QUIET],
        [TRAIL],
        {1: dict(mask="HT"), 2: dict(trailing=0, illegal=0, mask="HT")},
        rules={"trail_mask": "in_position"},
    ),
    managed(
        "break-even does not lower a better stop",
        [(100, 110, 100, 110), (110, 112, 108, 111), (111, 112, 108, 111), QUIET],
        [TRAIL, STOP_TRAILING],
        {2: dict(stop=106, mask="HX"), 3: dict(stop=106, mask="HT")},
    ),
    managed(
        "break_even=sets: it does",
        [(100, 110, 100, 110), (110, 112, 108, 111), (111, 112, 108, 111), (111, 112, 108, 111), QUIET],
        [TRAIL, STOP_TRAILING, BREAK_EVEN],
        {2: dict(stop=106, mask="HEX"), 3: dict(stop=106, mask="HET"), 4: dict(stop=101, mask="HT", illegal=0)},
        rules={"break_even": "sets"},
    ),
    Scenario(
        "nothing to manage when flat",
        [QUIET] * 5,
        [BREAK_EVEN, TRAIL, STOP_TRAILING],
        {3: dict(illegal=3, position=0, trailing=0, break_even=0, mask="HBS", cents=0)},
        phase=2,
    ),
    managed(
        "observation",
        [RISES, (104, 105, 102, 102), QUIET],
        [HOLD],
        {
            0: dict(seen=[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]),
            1: dict(seen=[1, 1, 0.75, 1.75, 2.25, 1 / 390, 0, 0.03, 0, 0, 2, 0, 1, 1]),
            2: dict(seen=[2, 1, 0.25, 1.25, 2.75, 2 / 390, 0, 0.01, 0, 0.01, 1.98, 0, 0, 1]),
        },
        settings={"drawdown_cents": 200_000},
    ),
    Scenario(
        "what is left of the limit is clipped",
        [QUIET] * 3,
        [HOLD],
        {1: dict(seen=[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2.5, 1, 0, 0])},
        phase=2,
    ),
]


def forced(name: str, bar: tuple[int, int, int, int], *expect: dict[str, Any], u: Any, **more: Any) -> Scenario:
    """An account that begins by the numbers u2, u3 and u4; `expect` after bars 0 and 1. It may enter 4 ticks away."""
    settings = {"forced": 512} | more.pop("settings", {})
    return Scenario(
        name, [QUIET, bar, QUIET], [HOLD], dict(enumerate(expect)), begins=(0, 0, *u), settings=settings, **more
    )


NO_POSITION = dict(position=0, contracts=0, entry=0, stop=0, target=0, trades=0, balance=5_000_000)
NOTHING_PAID = dict(commissions=0, slippages=0, high_water=5_000_000, entry_t=0, trades=1, wins=0, losses=0)

BEGINNINGS = [
    forced("nobody is forced", QUIET, NO_POSITION, u=(0, 0, 0), settings={"forced": 0}),
    forced("512 of 1024: u2 of one half is flat", QUIET, NO_POSITION, u=(0.5, 0, 0)),
    forced("512 of 1024: u2 below is not", QUIET, dict(position=1, trades=1), u=(0.4999, 0, 0)),
    forced("1024 of 1024: everybody", QUIET, dict(position=1), u=(0.9999999, 0, 0), settings={"forced": 1024}),
    forced(
        "a long at its worst: its stop is a tick away",
        QUIET,
        NOTHING_PAID | dict(position=1, contracts=1, entry=103, stop=99, target=115, balance=5_003_000, mask="H"),
        u=(0, 0.4999, 0),
    ),
    forced(
        "a short at its worst",
        (100, 100, 98, 99),
        NOTHING_PAID | dict(position=-1, entry=97, stop=101, target=85, balance=5_003_000),
        dict(position=-1, cents=1000, reason=NONE),
        u=(0, 0.5, 0.1),
    ),
    forced("half way is even", QUIET, dict(entry=100, stop=96, target=112, balance=5_000_000), u=(0, 0, 0.5)),
    forced(
        "a long at its best",
        QUIET,
        NOTHING_PAID | dict(entry=96, stop=92, target=108, balance=4_996_000, mask="HET"),
        dict(cents=0, high_water=5_000_000, reason=NONE, mask="HET"),
        u=(0, 0, 0.9999999),
        phase=2,
    ),
    forced(
        "never as far as the target",
        QUIET,
        dict(entry=97, stop=93, target=101, balance=4_997_000),
        u=(0, 0, 0.99),
        settings={"target_ratio": 1},
    ),
    forced(
        "two contracts owe twice as much",
        QUIET,
        dict(contracts=2, balance=4_994_000),
        u=(0, 0, 0.8),
        settings={"contracts": 2},
    ),
    forced("entered at the close", QUIET, dict(entry=100), u=(0, 0, 0.99), settings={"forced_64": 0}),
    forced("two ATRs away", QUIET, dict(entry=92, stop=88), u=(0, 0, 0.9999999), settings={"forced_64": 128}),
    forced(
        "a stop of a tick leaves it two ticks of profit at most",
        (100, 100, 100, 100),
        dict(entry=98, stop=97, target=101),
        dict(reason=NONE),
        u=(0, 0, 0.99),
        settings={"stop_64": 1},
    ),
    forced(
        "its exit pays one side, its result counts two",
        (100, 100, 98, 98),
        dict(balance=5_003_000),
        dict(
            reason=STOP, result=-4100, balance=4_998_950, cents=-1050, commissions=50, slippages=0, losses=1, trades=1
        ),
        u=(0, 0, 0),
    ),
    forced(
        "what it sees at the beginning",
        QUIET,
        dict(seen=[0, 1, 0.5, 1.5, 2.5, 1 / 390]),
        dict(seen=[1, 1, 0.5, 1.5, 2.5, 2 / 390]),
        u=(0, 0, 0.7),
    ),
]
