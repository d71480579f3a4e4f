"""Scenarios of the floor, in the words of trading_scenarios.py: where it closes a position, and what else makes bust.

A BUY is entered at 101 for one commission, so the balance is 4 999 950 and a drawdown of 5000 leaves 4950: the equity
is below the floor from 96 on. Of 3000 it is so from 98 on, of 4000 from 97 on, where the stop is.
"""

from trading_scenarios import (
    BOTH,
    BOTH_SHORT,
    BUY,
    FALLS,
    HOLD,
    LOST,
    NONE,
    QUIET,
    SESSION_END,
    STOP,
    WON,
    Scenario,
    long,
    short,
)

from crossfade.envs.trading.params import Reason

BUST, LIQUIDATED = Reason.BUST, Reason.LIQUIDATED
FAR = {"stop_64": 640}  # a stop 40 ticks away
AT_96, AT_97, AT_98 = ({"drawdown_cents": cents} for cents in (5000, 4000, 3000))  # where the floor is
OVER = dict(reason=BUST, position=0, losses=1, wins=0, terminated=True, truncated=False, commissions=100)
GOES_ON = dict(terminated=False, truncated=False)

FLOOR = [
    long(
        "the floor closes at its level, a tick worse",
        (100, 100, 95, 99),
        settings=FAR | AT_96,
        **OVER,
        **dict(result=-6100, balance=4_993_900, slippages=2000, cents=-5050, high_water=5_000_000, contracts=0),
    ),
    short("and a short", (100, 105, 100, 101), settings=FAR | AT_96, **OVER, result=-6100, balance=4_993_900),
    long("touched to the tick", (100, 100, 96, 99), settings=FAR | AT_96, **OVER, result=-6100),
    long("missed by a tick", (100, 100, 97, 99), settings=FAR | AT_96, reason=NONE, position=1, **GOES_ON),
    short("touched by a short", (100, 104, 100, 101), settings=FAR | AT_96, **OVER, result=-6100),
    short("missed by a short", (100, 103, 100, 101), settings=FAR | AT_96, reason=NONE, position=-1, **GOES_ON),
    long("a cent below the floor is below it", (100, 100, 95, 99), settings=FAR | {"drawdown_cents": 6049}, **OVER),
    long(
        "three contracts reach it sooner",
        (100, 100, 98, 99),
        settings=FAR | {"contracts": 3, "drawdown_cents": 9000},
        **OVER | dict(commissions=300, result=-12_300, slippages=6000),
    ),
    long("gap through the floor", (90, 95, 89, 94), settings=FAR | AT_96, **OVER, result=-12_100, balance=4_987_900),
    long("gap to the floor", (96, 97, 95, 97), settings=FAR | AT_96, **OVER, result=-6100),
    short("gap through the floor of a short", (110, 111, 108, 109), settings=FAR | AT_96, **OVER, result=-12_100),
    long("gap through stop and floor", (90, 95, 89, 94), settings=AT_96, reason=STOP, result=-11_100, terminated=True),
    long("gap through floor and stop", (90, 95, 89, 94), settings=AT_98, **OVER, result=-12_100),
    long(
        "gaps=ignored: the floor that never traded",
        (90, 95, 89, 94),
        rules={"gaps": "ignored"},
        settings=FAR | AT_96,
        **OVER,
        result=-6100,
    ),
    long("the stop is nearer than the floor", FALLS, settings=AT_96, **LOST, **GOES_ON, slippages=1000),
    long("the floor is nearer than the stop", FALLS, settings=AT_98, **OVER, result=-4100, slippages=2000),
    long("both at one level: the floor", FALLS, settings=AT_97, **OVER, result=-5100, balance=4_994_900),
    short("both at one level, short", (100, 103, 99, 101), settings=AT_97, **OVER, result=-5100),
    long("commission makes bust after a stop", FALLS, settings={"drawdown_cents": 4099}, **LOST, terminated=True),
    long("or leaves the last cent", FALLS, settings={"drawdown_cents": 4100}, **LOST, terminated=False),
    Scenario(
        "commission of the entry makes bust at once",
        [QUIET] * 3,
        [BUY],
        {1: OVER | dict(trades=1, result=-2100, balance=4_997_900)},
        settings={"drawdown_cents": 49},
    ),
    long("floor and target, pessimistic", BOTH, settings=AT_98, **OVER, result=-4100),
    long("floor and target, optimistic", BOTH, settings=AT_98, rules={"intrabar": "optimistic"}, **WON, **GOES_ON),
    long("floor and target, the low nearer", BOTH, settings=AT_98, rules={"intrabar": "nearest"}, **OVER),
    long("the high nearer", (108, 114, 96, 105), settings=AT_98, rules={"intrabar": "nearest"}, **WON, **GOES_ON),
    long("equally near: floor", (105, 114, 96, 105), settings=AT_98, rules={"intrabar": "nearest"}, **OVER),
    long("target before floor", BOTH, settings=AT_98, rules={"intrabar": "path"}, **WON, **GOES_ON),
    long(
        "floor before target",
        BOTH,
        settings=AT_98,
        rules={"intrabar": "path"},
        market={"high_first": False},
        **OVER,
        result=-4100,
    ),
    short("floor before target, short", BOTH_SHORT, settings=AT_98, rules={"intrabar": "path"}, **OVER, result=-4100),
    short(
        "target before floor, short",
        BOTH_SHORT,
        settings=AT_98,
        rules={"intrabar": "path"},
        market={"high_first": False},
        **WON,
    ),
    long("a bust is named so by every label", BOTH, settings=AT_98, rules={"label": "target_first"}, **OVER),
    long("a bust that recovers is a loss", (100, 108, 94, 107), settings=FAR | AT_96, **OVER, result=-6100),
    long(
        "drawdown=worst_in_bar: it was a win",
        (100, 108, 94, 107),
        rules={"drawdown": "worst_in_bar"},
        settings=FAR | AT_96,
        **OVER | dict(result=4900, wins=1, losses=0),
    ),
    Scenario(
        "a bust above the entry is a win",
        [QUIET, (100, 110, 100, 110), (110, 110, 103, 105), QUIET],
        [BUY, HOLD],
        {
            1: dict(high_water=5_008_950, terminated=False),
            2: OVER | dict(result=1900, wins=1, losses=0, balance=5_001_900, high_water=5_008_950),
        },
        settings=FAR | AT_96 | {"lock_cents": 1_000_000},
    ),
    Scenario(
        "a floor that is locked",
        [QUIET, (100, 110, 100, 110), (110, 110, 102, 105), QUIET],
        [BUY, HOLD],
        {2: OVER | dict(result=-100, balance=4_999_900)},
        settings=FAR | AT_96 | {"lock_cents": 1000},
    ),
    long("bust in the last bar of a session", FALLS, settings=AT_98, market={"last": [2]}, **OVER, result=-4100),
    long(
        "the end of a session makes bust",
        (100, 100, 98, 98),
        settings=AT_97,
        market={"last": [2]},
        **OVER | dict(reason=SESSION_END, result=-4100, balance=4_995_900),
    ),
    long(
        "liquidation makes bust",
        (100, 100, 97, 97),
        settings=FAR | AT_96 | {"liquidation_cents": 1000},
        **OVER | dict(reason=LIQUIDATED, result=-5100, balance=4_994_900),
    ),
    long(
        "drawdown=close: liquidation does not",
        (100, 100, 97, 97),
        rules={"drawdown": "close"},
        settings=FAR | AT_96 | {"liquidation_cents": 1000},
        **OVER | dict(reason=LIQUIDATED, result=-5100, balance=4_994_900, terminated=False),
    ),
    Scenario(
        "a limit out of reach",
        [QUIET, QUIET, FALLS, QUIET],
        [BUY, HOLD],
        {2: LOST | GOES_ON | dict(balance=999_995_900)},
        phase=3,
        settings={"drawdown_cents": 2**29, "lock_cents": 10**9, "initial_cents": 10**9},
    ),
]
