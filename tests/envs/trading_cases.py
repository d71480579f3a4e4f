"""Markets for tests: random ones with gaps, short sessions and several contracts, and ones written bar by bar."""

from collections.abc import Sequence

import numpy as np

from crossfade.envs.trading.contracts import contract
from crossfade.envs.trading.market import Market


def random_market(
    seed: int = 0, names: Sequence[str] = ("ES", "NQ", "M2K"), bars: int = 400, session: int = 37
) -> Market:
    """Driftless bars with wide ranges, gaps between them and sessions of uneven length."""
    rng = np.random.default_rng(seed)
    shape = (len(names), bars)
    close = 20_000 + np.cumsum(rng.integers(-9, 10, shape), 1)
    open_ = np.roll(close, 1, 1) + rng.integers(-12, 13, shape) * (rng.random(shape) < 0.3)
    high = np.maximum(open_, close) + rng.integers(0, 25, shape)
    low = np.minimum(open_, close) - rng.integers(0, 25, shape)
    last = np.zeros(shape, bool)
    for row in last:
        ends = np.cumsum(rng.integers(session // 2, session, bars))
        row[ends[ends < bars - 1]] = True
    return _market(names, open_, high, low, close, last, rng)


def _market(names, open_, high, low, close, last, rng) -> Market:
    shape = open_.shape
    before_last = np.roll(last, -1, 1)
    may_enter = ~last & ~before_last & (rng.random(shape) < 0.9)
    may_enter[:, -2:] = False
    start = np.arange(5, shape[1] - 40)
    table = [contract(name) for name in names]
    column = lambda values: np.array(values, np.int32)
    return Market(
        *(array.astype(np.int32) for array in (open_, high, low, close)),
        high_first=rng.random(shape) < 0.5,
        atr64=rng.integers(64, 64 * 12, shape).astype(np.int32),
        minute=np.broadcast_to(np.arange(shape[1]) % 510 + 510, shape).astype(np.int32),
        may_enter=may_enter,
        last=last,
        features=rng.normal(size=(*shape, 11)).astype(np.float32),
        length=column([shape[1]] * shape[0]),
        start=np.broadcast_to(start, (shape[0], len(start))).astype(np.int32),
        n_start=column([len(start)] * shape[0]),
        tick_cents=column([c.tick_cents for c in table]),
        slippage=column([c.slippage for c in table]),
        commission_cents=column([c.commission_cents for c in table]),
    )
