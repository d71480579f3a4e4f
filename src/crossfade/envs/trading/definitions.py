"""Contracts that users define, in YAML:

FDAX:
  tick: 1.0            # points
  tick_value: 25.0     # what a tick of one contract is worth
  currency: EUR
  session: {zone: Europe/Berlin, open: "09:00", close: "17:29"}
  price: [3000, 40000]
  months: HMUZ
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import yaml

from ...config import from_yaml, read_tree
from ...errors import UsageError
from ...ranges import Count, Natural, Positive, Range, check
from ...reading import read_text
from .contracts import CONTRACTS, Contract
from .sessions import LEAST, NEW_YORK, OPEN, WARM_UP, Session, clock_time

NAME = re.compile(r"[A-Z0-9]{1,12}")
CODES = "FGHJKMNQUVXZ"
Time = str | int  # YAML reads 17:30 as the number of its minutes


@dataclass(frozen=True)
class Hours:
    """When the contract is traded, by the clock of its exchange. The hour before the open is seen, but not traded."""

    zone: str = NEW_YORK
    """The clock: Europe/Berlin."""
    open: Time = "09:30"
    """The time of the first bar."""
    close: Time = "16:59"
    """The time of the last bar."""


@dataclass(frozen=True)
class Definition:
    """A contract as a user defines it, in points and money."""

    tick: Positive
    """Points per tick."""
    tick_value: Positive
    """Worth of one tick of one contract, in whole cents."""
    currency: str = "USD"
    """Of that worth, three letters."""
    session: Hours = Hours()
    """When it is traded."""
    price: tuple[Annotated[float, Range(0, 1e7)], Annotated[float, Range(0, 1e7)]] = (0.0, 1e7)
    """Points between which its price may lie."""
    months: str = CODES
    """Codes of the months in which it is delivered: HMUZ for March, June, September, December."""
    slippage: Natural = 1
    """Ticks that a market order loses."""
    commission: Annotated[float, Range(0, 1e4)] = 0.5
    """Per contract and side."""
    max_contracts: Count = 1
    """Largest position."""
    jump: Annotated[float, Range(above=0, most=1)] = 0.2
    """The largest change between neighbouring bars, in shares of the price."""

    def __post_init__(self) -> None:
        check(self)

    def contract(self) -> Contract:
        """The same in ticks and cents; UsageError where it is none."""
        if not re.fullmatch("[A-Z]{3}", self.currency):
            raise UsageError(f"currency: expected three capital letters such as EUR, got {self.currency!r}.")
        if not self.months or set(self.months) - set(CODES) or len(set(self.months)) < len(self.months):
            raise UsageError(f"months: expected some of {CODES}, each once, got {self.months!r}.")
        if not self.price[0] < self.price[1]:
            raise UsageError(f"price: expected the lower bound first, got {list(self.price)}.")
        return Contract(
            tick=float(self.tick),
            tick_cents=_cents("tick_value", self.tick_value),
            slippage=self.slippage,
            max_contracts=self.max_contracts,
            commission_cents=_cents("commission", self.commission),
            price=(float(self.price[0]), float(self.price[1])),
            months=self.months,
            jump=float(self.jump),
            currency=self.currency,
            session=_session(self.session),
        )


def load(path: Path) -> dict[str, Contract]:
    """The contracts of a YAML file, each under its name."""
    tree = read_tree(read_text(path, "a YAML file of contracts"), str(path))
    if not tree or not all(isinstance(fields, dict) for fields in tree.values()):
        raise UsageError(f"{path}: expected `NAME:` and under it tick, tick_value and so on, got {_shown(tree)}.")
    return {name: read(name, fields, f"{path}: {name}") for name, fields in tree.items()}


def read(name: str, fields: Mapping[str, Any], source: str) -> Contract:
    """One contract by the fields of its definition."""
    if name in CONTRACTS:
        raise UsageError(f"{source}: {name} is built in. Give yours another name.")
    if not NAME.fullmatch(name):
        raise UsageError(f"{source}: expected a name of up to 12 capital letters and digits, got {name!r}.")
    definition = from_yaml(yaml.safe_dump(dict(fields)), Definition, source)
    try:
        return definition.contract()
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def fields(contract: Contract) -> dict[str, Any]:
    """The definition that `read` makes an equal contract of."""
    session = contract.session
    hours = Hours(session.zone, clock_time(session.open), clock_time(session.close))
    found = Definition(
        tick=contract.tick,
        tick_value=contract.tick_cents / 100,
        currency=contract.currency,
        session=hours,
        price=contract.price,
        months=contract.months,
        slippage=contract.slippage,
        commission=contract.commission_cents / 100,
        max_contracts=contract.max_contracts,
        jump=contract.jump,
    )
    return {**asdict(found), "price": list(contract.price)}


def _cents(name: str, money: float) -> int:
    cents = round(100 * money)
    if abs(100 * money - cents) > 1e-6 or cents > 2**31 - 1:
        raise UsageError(f"{name}: expected whole cents, up to 2**31 of them, got {money}.")
    return cents


def _session(hours: Hours) -> Session:
    try:
        ZoneInfo(hours.zone)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"session.zone: expected a zone such as Europe/Berlin, got {hours.zone!r}.") from None
    opens, closes = _minute("open", hours.open), _minute("close", hours.close)
    before = OPEN - WARM_UP
    if not before <= opens <= closes - LEAST:
        raise UsageError(
            f"session: expected an open from {clock_time(before)} on, and a close on the same day at least {LEAST} "
            f"minutes later, got {clock_time(opens)} to {clock_time(closes)}."
        )
    return Session(hours.zone, opens, closes)


def _minute(name: str, time: Time) -> int:
    if isinstance(time, int):
        time = clock_time(time)
    if not (found := re.fullmatch(r"(\d\d):(\d\d)", time)) or int(found[1]) > 23 or int(found[2]) > 59:
        raise UsageError(f"session.{name}: expected a time such as '09:30', got {time!r}.")
    return 60 * int(found[1]) + int(found[2])


def _shown(tree: Mapping[str, Any]) -> str:
    return f"{type(next(iter(tree.values()))).__name__} under {next(iter(tree))}" if tree else "nothing"
