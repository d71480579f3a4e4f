"""Trading in JAX: any number of accounts at once; `TradingParams` states the rules, trading_numpy.py is the twin.

A position is closed at most once per bar, so a step first decides whether, why and at what price, and books once.
Market columns are read at [market, t] and never copied: hand a `Market` to a compiled function as an argument.
"""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32, Num

from ..world import Discrete
from .market import Market, Outcome, Settings, State
from .params import START_NUMBERS, Action, Reason, TradingParams
from .published_rewards import Facts, published_reward


class _Bar(NamedTuple):
    """The prices of one bar, in ticks."""

    open: Int32[Array, "*batch"]
    high: Int32[Array, "*batch"]
    low: Int32[Array, "*batch"]
    close: Int32[Array, "*batch"]


@dataclass(frozen=True)
class Trading:
    """See `TradingParams`. Methods take accounts of any batch shape, also a single one."""

    params: TradingParams

    @property
    def observation_dim(self) -> int:
        return self.params.observation_dim

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.params.n_actions)

    @property
    def start_numbers(self) -> int:
        return START_NUMBERS

    def draw_start(
        self, market: Market, uniform: Float[Array, "*batch 2"]
    ) -> tuple[Int32[Array, "*batch"], Int32[Array, "*batch"]]:
        """A market and a bar after which an episode may begin, from two uniform numbers."""
        markets = jnp.int32(len(market.n_start))
        m = _floor(uniform[..., 0], markets)
        return m, _at(market.start, m, _floor(uniform[..., 1], _at(market.n_start, m)))

    def reset(self, market: Market, settings: Settings, m: Int32[Array, "*batch"], t: Int32[Array, "*batch"]) -> State:
        """Flat accounts after bar `t` of market `m`."""
        initial = jnp.broadcast_to(jnp.asarray(settings.initial_cents, jnp.int32), m.shape)
        state = State(**{field: jnp.zeros_like(m) for field in State._fields})
        return state._replace(market=m, t=t, began=t, balance=initial, high_water=initial)

    def begin(self, market: Market, settings: Settings, uniform: Float[Array, "*batch 5"]) -> State:
        """Accounts as episodes begin, from five uniform numbers each: flat, or with a position."""
        m, t = self.draw_start(market, uniform[..., :2])
        flat = self.reset(market, settings, m, t)
        forced = _once(_floor(uniform[..., 2], jnp.int32(1024)) < settings.forced)
        side = jnp.where(uniform[..., 3] < 0.5, 1, -1)
        distance = self._stop_distance(market, settings, flat)
        furthest = distance * settings.target_ratio
        reach = _ticks(_at(market.atr64, m, t), settings.forced_64)
        profit = jnp.clip(_floor(uniform[..., 4], 2 * reach + 1) - reach, 1 - distance, furthest - 1)
        entry = _at(market.close, m, t) - side * profit
        size = self.size(market, settings, flat)
        placed = {
            "position": side,
            "contracts": size,
            "entry": entry,
            "stop": entry - side * distance,
            "target": entry + side * furthest,
            "entry_t": t,
            "balance": flat.balance - profit * _at(market.tick_cents, m) * size,
            "trades": 1,
        }
        return flat._replace(**{name: jnp.where(forced, new, getattr(flat, name)) for name, new in placed.items()})

    def equity(self, market: Market, state: State) -> Int32[Array, "*batch"]:
        """Balance and the worth of the open position at the close, in cents."""
        return state.balance + _worth(market, state, _at(market.close, state.market, state.t))

    def size(self, market: Market, settings: Settings, state: State) -> Int32[Array, "*batch"]:
        """Contracts of a position that is entered after this bar."""
        at_risk = self._stop_distance(market, settings, state) * _at(market.tick_cents, state.market)
        afforded = jnp.maximum(1, _quotient(settings.risk_cents, at_risk))
        most = jnp.where(jnp.asarray(settings.risk_cents) > 0, afforded, settings.contracts)
        return jnp.minimum(most, settings.contracts)

    def mask(self, market: Market, settings: Settings, state: State) -> Bool[Array, "*batch actions"]:
        """Which actions are legal."""
        return jnp.stack(self._legal(market, settings, state), -1)

    def observe(self, market: Market, settings: Settings, state: State) -> Float32[Array, "*batch observation"]:
        """The window of features, the position and, from phase 2 on, its management."""
        return jnp.concatenate([self._window(market, state), self._account(market, settings, state)], -1)

    def step(
        self, market: Market, settings: Settings, state: State, action: Int32[Array, "*batch"]
    ) -> tuple[State, Outcome]:
        """Accounts after the bar that follows the action, and what came of it."""
        rules = self.params.rules
        before, equity_before, b = state, self.equity(market, state), state.t + 1
        allowed = reduce(or_, (ok & (action == a) for a, ok in enumerate(self._legal(market, settings, state))))
        action = _once(jnp.where(allowed, action, Action.HOLD))
        bar = _Bar(*(_at(column, state.market, b) for column in market[:4]))
        last = _at(market.last, state.market, b)
        fee = _fee(market, settings, state)

        state, opened = self._order(market, settings, state, action, bar)  # 1
        state = state._replace(stop=self._trailed_stop(market, settings, state, bar))  # 2
        side, holds, trailing = state.position, state.position != 0, state.trailing != 0

        floor = jnp.minimum(state.high_water - settings.drawdown_cents, settings.initial_cents + settings.lock_cents)
        reason, level = self._touched(market, state, bar, floor)  # 3, 4
        if self.params.phase == 3:
            leaves = action == Action.CLOSE
            reason, level = jnp.where(leaves, Reason.CLOSED, reason), jnp.where(leaves, bar.open, level)
        at_level = reason != Reason.NONE
        reason = jnp.where(holds & last & ~at_level, Reason.SESSION_END, reason)  # 5
        slips = (reason != Reason.STOP) & (reason != Reason.TARGET)
        slippage = jnp.where(slips, _slippage(market, settings, state), 0)
        price = jnp.where(at_level, level, bar.close) - side * slippage
        exit_fees = state.contracts * fee * (1 if rules.commission == "per_side" else 2)
        exit_result = _worth(market, state, price) - exit_fees

        at_close = _worth(market, state, bar.close)
        thin = (settings.liquidation_cents > 0) & (state.balance + at_close - floor < settings.liquidation_cents)
        forced = jnp.where(thin, Reason.LIQUIDATED, Reason.NONE)
        kept = holds & (reason == Reason.NONE)  # 6
        if rules.drawdown == "at_floor":
            reason = jnp.where(kept, forced, reason)
            bust = ~(kept & ~thin) & (state.balance + exit_result < floor)
        else:
            extreme = jnp.where(side > 0, bar.low, bar.high) if rules.drawdown == "worst_in_bar" else bar.close
            bust = state.balance + jnp.where(kept, _worth(market, state, extreme), exit_result) < floor
            reason = jnp.where(kept, jnp.where(bust, Reason.BUST, forced), reason)

        reason, exit_result, bust = _once(reason), _once(exit_result), _once(bust)
        closes = reason != Reason.NONE
        result = jnp.where(closes, exit_result - state.contracts * fee, 0)
        lost = slippage * _at(market.tick_cents, state.market) * state.contracts
        unrealised = jnp.where(closes, 0, at_close)
        balance = state.balance + jnp.where(closes, exit_result, 0)
        equity = balance + unrealised
        state = _flat_where(closes, state)._replace(
            t=b,
            balance=balance,
            high_water=jnp.maximum(state.high_water, equity),  # 7
            wins=state.wins + (closes & (result > 0)),
            losses=state.losses + (closes & (result <= 0)),
            commissions=state.commissions + jnp.where(closes, exit_fees, 0),
            slippages=state.slippages + jnp.where(closes, lost, 0),
            illegal=state.illegal + ~allowed,
        )
        first, here = (jnp.where(last, t, 0) for t in (state.began, b))  # bar 0, for the others, is in the cache
        seen = _at(market.session, state.market, here) - _at(market.session, state.market, first) + 1
        over = last & ((seen >= settings.days) | _at(market.final, state.market, here))
        over |= (b - state.began >= settings.max_bars) | (b + 1 >= _at(market.length, state.market))
        truncated = _once(over & ~bust)
        if rules.reward == "equity":
            reward = (equity - equity_before).astype(jnp.float32) * _at(market.reward_scale, state.market)
        else:
            facts = Facts(
                held=before.position,
                holds=state.position,
                opened=opened,
                moved=action == Action.BREAK_EVEN,
                trailed=(action == Action.TRAIL) & trailing,
                trailing=trailing,
                unrealised=unrealised,
                reason=reason,
                exit_result=jnp.where(closes, exit_result, 0),
                equity=equity,
                bust=bust,
            )
            reward = published_reward(self.params, settings, facts, jnp)
        return state, Outcome(reward, terminated=bust, truncated=truncated, reason=reason, result=result)

    def _legal(self, market: Market, settings: Settings, state: State) -> list[Bool[Array, "*batch"]]:
        """Whether each action is legal."""
        rules, flat = self.params.rules, state.position == 0
        enter = flat & _at(market.may_enter, state.market, state.t) if rules.entries == "session" else flat
        if self.params.phase == 1:
            return [jnp.ones_like(flat), enter, enter]
        limit = settings.drawdown_cents
        enter &= state.high_water - self.equity(market, state) < limit - limit // 4  # 3/4 of it, without overflow
        profit = self._profit(market, state)
        atr64 = _at(market.atr64, state.market, state.t)
        move = ~flat & (state.break_even == 0) & (profit > _ticks(atr64, settings.break_even_64))
        if rules.break_even == "never_lowers":
            move &= state.position * (state.entry - state.stop) > 0
        trail = ~flat & (state.trailing == 0)
        if rules.trail_mask == "in_profit":
            trail &= profit > 0
        legal = [jnp.ones_like(flat), enter, enter, move, trail, state.trailing != 0]
        return legal if self.params.phase == 2 else [*legal, ~flat]

    def _profit(self, market: Market, state: State) -> Int32[Array, "*batch"]:
        """Ticks that the position is in profit at the close; 0 when flat."""
        return state.position * (_at(market.close, state.market, state.t) - state.entry)

    def _order(
        self, market: Market, settings: Settings, state: State, action: Int32[Array, "*batch"], bar: _Bar
    ) -> tuple[State, Bool[Array, "*batch"]]:
        """Step 1: positions are opened, stops moved, trailing switched; and which positions were opened."""
        rules, now = self.params.rules, (state.market, state.t)
        opens = ((action == Action.BUY) | (action == Action.SELL)) & ~_at(market.last, *now)
        if rules.entries == "any_time":
            opens &= _at(market.may_enter, *now)
        side = jnp.where(action == Action.BUY, 1, -1)
        slippage, size = _slippage(market, settings, state), self.size(market, settings, state)
        distance = self._stop_distance(market, settings, state)
        entry = (bar.open if rules.fill == "next_open" else _at(market.close, *now)) + side * slippage
        fees = size * _fee(market, settings, state)
        opened = state._replace(
            position=side,
            contracts=size,
            entry=entry,
            stop=entry - side * distance,
            target=entry + side * distance * settings.target_ratio,
            entry_t=state.t + 1,
            balance=state.balance - fees,
            trades=state.trades + 1,
            commissions=state.commissions + fees,
            slippages=state.slippages + slippage * _at(market.tick_cents, state.market) * size,
        )
        if self.params.phase != 1:
            moved = action == Action.BREAK_EVEN  # and legal: by the sound rules only where the entry is the better stop
            trails = (action == Action.TRAIL) & (self._profit(market, state) > 0)
            state = state._replace(
                stop=jnp.where(moved, state.entry, state.stop),
                break_even=state.break_even + moved,
                trailing=jnp.where(trails, 1, jnp.where(action == Action.STOP_TRAILING, 0, state.trailing)),
            )
        return State(*(jnp.where(opens, new, old) for new, old in zip(opened, state, strict=True))), opens

    def _stop_distance(self, market: Market, settings: Settings, state: State) -> Int32[Array, "*batch"]:
        """Ticks from an entry decided after this bar to its stop."""
        distance = _distance(_at(market.atr64, state.market, state.t), settings.stop_64)
        most = _quotient(settings.stop_cap_cents, _at(market.tick_cents, state.market))
        return jnp.minimum(distance, jnp.maximum(1, most))

    def _trailed_stop(self, market: Market, settings: Settings, state: State, bar: _Bar) -> Int32[Array, "*batch"]:
        """Step 2: the stop of a trailing position follows the close."""
        if self.params.phase == 1:
            return state.stop
        before = self.params.rules.trail == "before"
        close = _at(market.close, state.market, state.t) if before else bar.close
        atr64 = _at(market.atr64, state.market, state.t if before else state.t + 1)
        distance, side = _distance(atr64, settings.trail_64), state.position
        follows = side * jnp.maximum(side * state.stop, side * close - distance)
        return jnp.where(state.trailing != 0, follows, state.stop)

    def _touched(
        self, market: Market, state: State, bar: _Bar, floor: Int32[Array, "*batch"]
    ) -> tuple[Int32[Array, "*batch"], Int32[Array, "*batch"]]:
        """Steps 3 and 4: STOP, BUST, TARGET or NONE, and the price touched. A short is a long with negated prices."""
        rules, side = self.params.rules, state.position
        open_, guard, target = side * bar.open, side * state.stop, side * state.target
        busts = jnp.zeros_like(side, bool)
        if rules.drawdown == "at_floor":
            unit = jnp.maximum(1, _at(market.tick_cents, state.market) * state.contracts)
            level = side * state.entry + _quotient(floor - state.balance - 1, unit)
            busts, guard = level >= guard, jnp.maximum(level, guard)
        worst, best = jnp.where(side > 0, bar.low, -bar.high), jnp.where(side > 0, bar.high, -bar.low)
        hit_guard, hit_target = worst <= guard, best >= target
        match rules.intrabar:
            case "pessimistic":
                target_first = jnp.zeros_like(hit_guard)
            case "optimistic":
                target_first = jnp.ones_like(hit_guard)
            case "nearest":
                target_first = best - open_ < open_ - worst
            case "path":
                target_first = _at(market.high_first, state.market, state.t + 1) == (side > 0)
        guarded = hit_guard & ~(hit_target & target_first)
        price = jnp.where(guarded, side * guard, state.target)
        named = guarded & (~hit_target | busts) if rules.label == "target_first" else guarded
        of_guard = jnp.where(busts, Reason.BUST, Reason.STOP)
        reason = jnp.where(named, of_guard, jnp.where(hit_target | hit_guard, Reason.TARGET, Reason.NONE))
        if rules.gaps == "open":
            gap_guard, gap_target = open_ <= guard, open_ >= target
            price = jnp.where(gap_guard | gap_target, bar.open, price)
            reason = jnp.where(gap_guard, of_guard, jnp.where(gap_target, Reason.TARGET, reason))
        reason = jnp.where(side != 0, reason, Reason.NONE)
        return reason.astype(jnp.int32), price  # with 64 bits on, numbers alone are int64

    def _window(self, market: Market, state: State) -> Float32[Array, "*batch features"]:
        """The features of the last `window` bars, oldest first: one contiguous slice per account.

        It is NaN where it would begin before the data: a slice cannot, and would show later bars instead.
        """
        width = self.params.n_features
        rows = jnp.asarray(market.features).reshape(len(market.features), -1)
        cut = lambda m, first: jax.lax.dynamic_slice(rows, (m, first), (1, self.params.window * width))[0]
        first = (state.t - self.params.window + 1) * width
        batch = state.t.shape
        seen = jax.vmap(cut)(state.market.reshape(-1), first.reshape(-1)).reshape(*batch, -1)
        return jnp.where(first[..., None] >= 0, seen.astype(jnp.float32), jnp.nan)

    def _account(self, market: Market, settings: Settings, state: State) -> Float32[Array, "*batch numbers"]:
        """What is said of the position and, from phase 2 on, of its management and the actions it allows."""
        flat = state.position == 0
        close = _at(market.close, state.market, state.t)
        atr = _at(market.atr64, state.market, state.t).astype(jnp.float32) / 64  # a power of two: exact
        numbers = [
            state.position,
            self._profit(market, state) / atr,
            jnp.where(flat, 0, jnp.abs(state.stop - close)) / atr,
            jnp.where(flat, 0, jnp.abs(state.target - close)) / atr,
            jnp.where(flat, 0, state.t - state.entry_t + 1) * jnp.float32(1 / 390),
        ]
        if self.params.phase != 1:
            limit, drawdown = settings.drawdown_cents, state.high_water - self.equity(market, state)
            legal = self._legal(market, settings, state)
            numbers += [
                state.trailing,
                _worth(market, state, close) * jnp.float32(1e-5),
                state.break_even,
                jnp.clip(drawdown * (jnp.float32(1) / limit), 0, 2),
                jnp.clip((limit - drawdown) * jnp.float32(1e-5), -2.5, 2.5),
                legal[Action.BUY],
                legal[Action.BREAK_EVEN],
                legal[Action.TRAIL],
            ]
        return jnp.stack([number.astype(jnp.float32) for number in numbers], -1)


def _at(column: Num[Array, "..."] | Bool[Array, "..."], *index: Int32[Array, "*batch"]) -> Array:
    """`column[index]` without the arithmetic that negative and excessive indices would need."""
    return jnp.asarray(column).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _once(decided: Num[Array, "*batch"] | Bool[Array, "*batch"]) -> Array:
    """The same numbers, gathered: XLA computes anew in each kernel what it fuses into several, but never a gather.

    There is a kernel for every field of the state, and without this each of them would decide the whole bar by itself.
    """
    return _at(decided.reshape(-1), jnp.arange(decided.size, dtype=jnp.int32)).reshape(decided.shape)


def _floor(uniform: Float[Array, "*batch"], n: Int32[Array, "*#batch"]) -> Int32[Array, "*batch"]:
    """One of 0 .. n - 1; rounding may take a uniform number just below 1 up to n."""
    return jnp.minimum(jnp.floor(uniform * n).astype(jnp.int32), n - 1)


def _quotient(a: Int32[Array, "*#batch"] | int, b: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """a // b where b is above 0, by one division, whose result nothing corrects; `//` makes two and corrects."""
    a = jnp.broadcast_to(jnp.asarray(a, jnp.int32), b.shape)
    return jax.lax.div(a - jnp.where(a < 0, b - 1, 0), b)


def _ticks(
    atr64: Int32[Array, "*batch"], multiple_64: Int32[Array, "*#batch"] | int, more: int = 0
) -> Int32[Array, "*batch"]:
    """(atr64 multiple_64 + more) // 4096, in two parts: the product alone may have more than 32 bits."""
    return (atr64 >> 12) * multiple_64 + (((atr64 & 4095) * multiple_64 + more) >> 12)


def _distance(atr64: Int32[Array, "*batch"], multiple_64: Int32[Array, "*#batch"] | int) -> Int32[Array, "*batch"]:
    """A multiple of the ATR in ticks, rounded, at least 1."""
    return jnp.maximum(1, _ticks(atr64, multiple_64, 2048))


def _worth(market: Market, state: State, price: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """What leaving the position at `price` would bring, before commission; 0 when flat."""
    size = state.position * state.contracts * _at(market.tick_cents, state.market)
    return size * (price - state.entry)


def _fee(market: Market, settings: Settings, state: State) -> Int32[Array, "*batch"]:
    """Commission per contract and side."""
    own = _at(market.commission_cents, state.market)
    return jnp.where(jnp.asarray(settings.commission_cents) < 0, own, settings.commission_cents)


def _slippage(market: Market, settings: Settings, state: State) -> Int32[Array, "*batch"]:
    """Ticks that an order at the market loses."""
    own = _at(market.slippage, state.market)
    return jnp.where(jnp.asarray(settings.slippage) < 0, own, settings.slippage)


def _flat_where(closes: Bool[Array, "*batch"], state: State) -> State:
    """The state with its position removed."""
    fields = ("position", "contracts", "entry", "stop", "target", "entry_t", "trailing", "break_even")
    return state._replace(**{field: jnp.where(closes, 0, getattr(state, field)) for field in fields})
