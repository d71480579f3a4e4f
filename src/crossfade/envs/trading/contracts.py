"""The futures contracts by name: what a tick is worth and what a trade costs."""

from dataclasses import dataclass

from ...errors import UsageError, nearest


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


CONTRACTS = {
    "ES": Contract(0.25, 1250, 1, 1),
    "NQ": Contract(0.25, 500, 1, 1),
    "YM": Contract(1.0, 500, 2, 1),
    "RTY": Contract(0.10, 500, 2, 1),
    "MES": Contract(0.25, 125, 1, 12),
    "MNQ": Contract(0.25, 50, 1, 12),
    "MYM": Contract(1.0, 50, 2, 12),
    "M2K": Contract(0.10, 50, 2, 12),
    "GC": Contract(0.10, 1000, 1, 1),
    "MGC": Contract(0.10, 100, 2, 12),
    "CL": Contract(0.01, 1000, 1, 1),
    "MCL": Contract(0.01, 100, 2, 12),
}


def contract(name: str) -> Contract:
    """The named contract, or an error with the nearest name."""
    if name not in CONTRACTS:
        raise UsageError(f"unknown contract {name!r}.{nearest(name, CONTRACTS)} Known: {', '.join(CONTRACTS)}.")
    return CONTRACTS[name]
