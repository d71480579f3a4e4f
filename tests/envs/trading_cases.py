"""Markets for tests of trading: random ones and ones written bar by bar; and one way to walk the three environments."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from crossfade.envs.trading import trading_jax, trading_numpy
from crossfade.envs.trading.contracts import contract
from crossfade.envs.trading.market import Market, Outcome, Settings, State
from crossfade.envs.trading.params import RULES, START_NUMBERS, Rules, TradingParams
from crossfade.envs.trading.scalar import ScalarTrading

Record = dict[str, np.ndarray]
"""What every step showed, by name: arrays (steps, accounts, ...)."""

_OPTIONS = {switch: get_args(kind) for switch, kind in get_type_hints(Rules).items()}
ONE_SWITCH = {
    f"{switch}={option}": replace(Rules(), **{switch: option})
    for switch, options in _OPTIONS.items()
    for option in options[1:]
}
"""The sound rules with one switch flipped."""
ALL_RULES = RULES | ONE_SWITCH


def random_market(
    seed: int = 0, names: Sequence[str] = ("ES", "NQ", "M2K"), bars: int = 400, session: int = 37, spread: int = 25
) -> Market:
    """Driftless bars with gaps between them, in sessions of uneven length; not every market has all the bars."""
    rng = np.random.default_rng(seed)
    shape = (len(names), bars)
    close = 20_000 + np.cumsum(rng.integers(-9, 10, shape), 1)
    open_ = np.roll(close, 1, 1) + rng.integers(-12, 13, shape) * (rng.random(shape) < 0.3)
    high = np.maximum(open_, close) + rng.integers(0, spread, shape)
    low = np.minimum(open_, close) - rng.integers(0, spread, shape)
    last = np.zeros(shape, bool)
    for row in last:
        ends = np.cumsum(rng.integers(session // 2, session, bars))
        row[ends[ends < bars - 1]] = True
    may_enter = rng.random(shape) < 0.9  # also after the last bar of a session, as where a feed dies
    number = np.cumsum(last, 1) - last
    length = bars - 11 * np.arange(len(names))
    first, final = 19, length - 3
    start = np.minimum(first + np.arange(bars), final[:, None])
    table = [contract(name) for name in names]
    return _market(
        (open_, high, low, close),
        high_first=rng.random(shape) < 0.5,
        atr64=rng.integers(64, 64 * 12, shape),
        minute=np.broadcast_to(np.arange(bars) % 510 + 510, shape),
        may_enter=may_enter,
        last=last,
        session=number,
        final=number % 3 == 2,
        features=rng.normal(size=(*shape, 11)),
        length=length,
        start=start,
        n_start=final - first + 1,
        tick_cents=[c.tick_cents for c in table],
        slippage=[c.slippage for c in table],
        commission_cents=[c.commission_cents for c in table],
    )


def written_market(
    bars: Sequence[tuple[int, int, int, int]],
    last: Iterable[int] = (),
    closed: Iterable[int] = (),
    broken: Iterable[int] = (),
    high_first: bool = True,
    atr: Sequence[int] | int = 4,
    tick_cents: int = 1000,
    slippage: int = 1,
    commission: int = 50,
    final: Iterable[int] = (),
    room: int = 12,
) -> Market:
    """A market of the given (open, high, low, close), padded to `room` bars.

    `last` bars end a session, `broken` ones of them unforeseen; after `closed` ones nobody may enter, after the session
    of `final` ones accounts end; `atr` is in ticks.
    """
    n, at = len(bars), np.arange(room)
    padded = np.array([*bars, *[bars[-1]] * (room - n)]).T[:, None, :]
    ranges = np.broadcast_to(np.atleast_1d(atr), n) if np.ndim(atr) == 0 else np.array(atr)
    return _market(
        padded,
        high_first=np.full((1, room), high_first),
        atr64=64 * np.pad(ranges, (0, room - n), mode="edge")[None],
        minute=(570 + at)[None],
        may_enter=~np.isin(at, [*closed, *(set(last) - set(broken))])[None],
        last=np.isin(at, [*last])[None],
        session=np.searchsorted(sorted(last), at)[None],
        final=np.isin(at, [*final])[None],
        features=np.arange(room)[None, :, None],
        length=[n],
        start=[[0]],
        n_start=[1],
        tick_cents=[tick_cents],
        slippage=[slippage],
        commission_cents=[commission],
    )


def _market(prices: Any, **columns: Any) -> Market:
    kinds = dict.fromkeys(("high_first", "may_enter", "last", "final"), np.bool_) | {"features": np.float32}
    cast = {name: np.asarray(column).astype(kinds.get(name, np.int32)) for name, column in columns.items()}
    scale = (1 / (8 * cast["tick_cents"])).astype(np.float32)
    return Market(*(np.asarray(price).astype(np.int32) for price in prices), **cast, reward_scale=scale)


def random_settings(n: int, seed: int = 0) -> Settings:
    """One curriculum per account: small and large limits, so that accounts go bust and positions are liquidated."""
    rng = np.random.default_rng(seed)
    pick = lambda *values: rng.choice(np.array(values, np.int32), n)
    return Settings(
        initial_cents=pick(5_000_000, 2_500_000),
        drawdown_cents=pick(4_000, 20_000, 60_000, 150_000, 1_500_000),
        lock_cents=pick(10_000, -40_000),
        liquidation_cents=pick(0, 25_000, 100_000),
        stop_64=pick(32, 96, 200),
        stop_cap_cents=pick(100, 5_000, 50_000),
        target_ratio=pick(1, 2, 3),
        trail_64=pick(1, 64, 128),
        break_even_64=pick(0, 32, 64),
        contracts=pick(1, 2, 5),
        risk_cents=pick(0, 0, 3_000, 15_000),
        commission_cents=pick(-1, 0, 120),
        slippage=pick(-1, -1, 0, 3),
        days=pick(1, 2, 3, 9),
        max_bars=pick(9, 25, 1_000_000),
        progress=rng.random(n).astype(np.float32),
        forced=pick(0, 300, 1024),
        forced_64=pick(0, 64, 700),
    )


def walk_numpy(params: TradingParams, market: Market, settings: Settings, steps: int, n: int, seed: int = 0) -> Record:
    """Random actions, a third of them drawn without looking at the mask; ended episodes begin anew elsewhere."""
    env, rng = trading_numpy.Trading(params), np.random.default_rng(seed)
    uniform = rng.random((steps + 1, n, START_NUMBERS), np.float32)
    rows: list[dict[str, Any]] = []
    state = env.begin(market, settings, uniform[0])
    for k in range(steps):
        mask, seen = env.mask(market, settings, state), env.observe(market, settings, state)
        blind = rng.random((n, 1)) < 1 / 3
        action = np.argmax((mask | blind) * rng.random((n, params.n_actions)), -1).astype(np.int32)
        state, outcome = env.step(market, settings, state, action)
        rows.append(_row(mask, seen, state, outcome) | {"action": action, "uniform": uniform[k + 1]})
        over = outcome.terminated | outcome.truncated
        fresh = env.begin(market, settings, uniform[k + 1])
        state = State(*(np.where(over, new, old) for new, old in zip(fresh, state, strict=True)))
    return {"first": uniform[0]} | {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def walk_jax(params: TradingParams, market: Market, settings: Settings, walked: Record, jit: bool = True) -> Record:
    """The same walk in JAX: the actions and starts of `walked`."""
    data = jax.tree.map(jnp.asarray, (market, settings, walked["first"], walked["action"], walked["uniform"]))
    if jit:
        return jax.tree.map(np.asarray, _scan(trading_jax.Trading(params), *data))
    market, settings, first, actions, uniform = data
    env = trading_jax.Trading(params)
    state, rows = env.begin(market, settings, first), []
    for action, u in zip(actions, uniform, strict=True):
        state, row = _step_jax(env, market, settings, state, (action, u))
        rows.append(row)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@partial(jax.jit, static_argnums=0)
def _scan(env: trading_jax.Trading, market: Market, settings: Settings, first: Any, actions: Any, uniform: Any) -> Any:
    state = env.begin(market, settings, first)
    return jax.lax.scan(partial(_step_jax, env, market, settings), state, (actions, uniform))[1]


def _step_jax(env: trading_jax.Trading, market: Market, settings: Settings, state: State, given: Any) -> Any:
    action, uniform = given
    mask, seen = env.mask(market, settings, state), env.observe(market, settings, state)
    state, outcome = env.step(market, settings, state, action)
    over = outcome.terminated | outcome.truncated
    fresh = env.begin(market, settings, uniform)
    begun = State(*(jnp.where(over, new, old) for new, old in zip(fresh, state, strict=True)))
    return begun, _row(mask, seen, state, outcome)


def walk_scalar(
    params: TradingParams, market: Market, settings: Settings, walked: Record, n: int, look: bool = True
) -> Record:
    """The same walk of the first `n` accounts, one by one, in plain Python; `look` at what a policy sees, too."""
    uniform = np.concatenate([walked["first"][None], walked["uniform"]])
    columns = []
    for i in range(n):
        own = Settings(*(value if np.ndim(value) == 0 else value[i].item() for value in settings))
        account, rows = ScalarTrading(params, market, own), []
        account.begin(uniform[0, i])
        for k, action in enumerate(walked["action"][:, i].tolist(), 1):
            seen = {"mask": account.mask(), "observation": account.observation()} if look else {}
            outcome = account.step(action)
            rows.append(seen | account.state._asdict() | outcome._asdict())
            if outcome.terminated or outcome.truncated:
                account.begin(uniform[k, i])
        columns.append({name: np.array([row[name] for row in rows]) for name in rows[0]})
    return {name: np.stack([column[name] for column in columns], 1) for name in columns[0]}


def _row(mask: Any, seen: Any, state: State, outcome: Outcome) -> dict[str, Any]:
    return {"mask": mask, "observation": seen} | state._asdict() | outcome._asdict()


def assert_equal(found: Record, expected: Record, published: bool = False) -> None:
    """Every number of two walks is the same; published rewards, which are floats throughout, to 1e-6."""
    for name, mine in found.items():
        theirs, mine = np.asarray(expected[name]), np.asarray(mine)
        assert mine.shape == theirs.shape, (name, mine.shape, theirs.shape)
        if name == "reward" and published:
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
            continue
        differs = np.argwhere(mine != theirs)
        where = tuple(differs[0]) if len(differs) else ()
        assert not len(differs), f"{name} at {where}: {mine[where]}, expected {theirs[where]}; {len(differs)} differ"
