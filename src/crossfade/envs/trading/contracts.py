"""The futures contracts by name: what a tick is worth and what a trade costs. More may be defined: definitions.py."""

from dataclasses import dataclass

from ...errors import UsageError, nearest
from .sessions import USUAL, Session


@dataclass(frozen=True)
class Contract:
    """One futures contract. Prices are counted in ticks, money in cents."""

    tick: float
    """Points per tick."""
    tick_cents: int
    """Worth of one tick of one contract."""
    slippage: int
    """Ticks that a market order loses."""
    max_contracts: int
    """Largest position."""
    commission_cents: int = 50
    """Per contract and side."""
    price: tuple[float, float] = (0.0, 1e7)
    """Points between which its price may lie, so that another contract is noticed."""
    months: str = "FGHJKMNQUVXZ"
    """Codes of the months in which it is delivered."""
    jump: float = 0.2
    """The largest change between bars at most days apart, in shares of the price: beyond it, it is something else."""
    currency: str = "USD"
    """Of the worth of a tick; what is called dollars elsewhere is this."""
    session: Session = USUAL
    """When it is traded."""


_QUARTERS = "HMUZ"
CONTRACTS = {
    "ES": Contract(0.25, 1250, 1, 1, price=(300.0, 2e4), months=_QUARTERS),
    "NQ": Contract(0.25, 500, 1, 1, price=(500.0, 8e4), months=_QUARTERS),
    "YM": Contract(1.0, 500, 2, 1, price=(3000.0, 15e4), months=_QUARTERS),
    "RTY": Contract(0.10, 500, 2, 1, price=(200.0, 8e3), months=_QUARTERS),
    "MES": Contract(0.25, 125, 1, 12, price=(300.0, 2e4), months=_QUARTERS),
    "MNQ": Contract(0.25, 50, 1, 12, price=(500.0, 8e4), months=_QUARTERS),
    "MYM": Contract(1.0, 50, 2, 12, price=(3000.0, 15e4), months=_QUARTERS),
    "M2K": Contract(0.10, 50, 2, 12, price=(200.0, 8e3), months=_QUARTERS),
    "GC": Contract(0.10, 1000, 1, 1, price=(200.0, 15e3)),
    "MGC": Contract(0.10, 100, 2, 12, price=(200.0, 15e3)),
    "CL": Contract(0.01, 1000, 1, 1, price=(5.0, 400.0), jump=0.6),
    "MCL": Contract(0.01, 100, 2, 12, price=(5.0, 400.0), jump=0.6),
}


def contract(name: str) -> Contract:
    """The named contract, or an error with the nearest name."""
    if name not in CONTRACTS:
        raise UsageError(f"unknown contract {name!r}.{nearest(name, CONTRACTS)} Known: {', '.join(CONTRACTS)}.")
    return CONTRACTS[name]
