"""Trading in NumPy, any number of accounts at once. The rules are in `TradingParams`; the twin is trading_jax.py."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int32

from ...errors import UsageError
from ..world import Discrete
from .market import Market, Outcome, Settings, State
from .params import START_NUMBERS, Action, Reason, TradingParams
from .published_rewards import Facts, published_reward

Ints = Int32[np.ndarray, "*batch"]
Bools = Bool[np.ndarray, "*batch"]


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

    def draw_start(self, market: Market, uniform: Float[np.ndarray, "*batch 2"]) -> tuple[Ints, Ints]:
        """A market and a bar after which an episode may begin, from two uniform numbers."""
        m = _floor(uniform[..., 0], _int(len(market.n_start)))
        return m, market.start[m, _floor(uniform[..., 1], market.n_start[m])]

    def reset(self, market: Market, settings: Settings, m: Ints, t: Ints) -> State:
        """Flat accounts after bar `t` of market `m`."""
        if (t < self.params.window - 1).any():
            raise UsageError(f"expected a start after bar {self.params.window - 1} or later, got bar {t.min()}.")
        zero = np.zeros_like(t)
        initial = zero + np.int32(settings.initial_cents)
        fields = dict.fromkeys(State._fields, zero)
        return State(**{**fields, "market": m, "t": t, "began": t, "balance": initial, "high_water": initial})

    def begin(self, market: Market, settings: Settings, uniform: Float[np.ndarray, "*batch 5"]) -> State:
        """Accounts as episodes begin, from five uniform numbers each: flat, or with a position."""
        state = self.reset(market, settings, *self.draw_start(market, uniform[..., :2]))
        forced = _floor(uniform[..., 2], _int(1024)) < _int(settings.forced)
        at, tick = (state.market, state.t), market.tick_cents[state.market]
        side = np.where(uniform[..., 3] < 0.5, 1, -1).astype(np.int32)
        reach, distance = market.atr64[at] * _int(settings.forced_64) // 4096, _distance(market, settings, state)
        away = _int(settings.target_ratio) * distance
        ahead = np.clip(_floor(uniform[..., 4], 2 * reach + 1) - reach, 1 - distance, away - 1)
        entry, contracts = market.close[at] - side * ahead, self.size(market, settings, state)
        position = {
            "position": side,
            "contracts": contracts,
            "entry": entry,
            "stop": entry - side * distance,
            "target": entry + side * away,
            "entry_t": state.t,
            "trades": 1,
            "balance": state.balance - ahead * tick * contracts,
        }
        choose = lambda name, value: np.where(forced, value, getattr(state, name)).astype(np.int32)
        return state._replace(**{name: choose(name, value) for name, value in position.items()})

    def equity(self, market: Market, state: State) -> Ints:
        """Balance and the worth of the open position at the close, in cents."""
        return state.balance + _open_result(market, state, market.close[state.market, state.t])

    def size(self, market: Market, settings: Settings, state: State) -> Ints:
        """Contracts of a position that is entered after this bar."""
        most, risk = _int(settings.contracts), _int(settings.risk_cents)
        if not (risk > 0).any():
            return most + np.zeros_like(state.t)
        loss = _distance(market, settings, state) * market.tick_cents[state.market]
        return np.where(risk > 0, np.minimum(most, np.maximum(1, risk // loss)), most).astype(np.int32)

    def mask(self, market: Market, settings: Settings, state: State) -> Bool[np.ndarray, "*batch actions"]:
        """Which actions are legal."""
        rules, at = self.params.rules, (state.market, state.t)
        flat = state.position == 0
        enter = flat & (market.may_enter[at] if rules.entries == "session" else True)
        always = np.ones_like(flat)
        if self.params.phase == 1:
            return np.stack([always, enter, enter], -1)
        enter &= 4 * (state.high_water - self.equity(market, state)) < 3 * _int(settings.drawdown_cents)
        profit = state.position * (market.close[at] - state.entry)
        move = ~flat & (state.break_even == 0) & (profit > market.atr64[at] * _int(settings.break_even_64) // 4096)
        if rules.break_even == "never_lowers":
            move &= state.position * (state.entry - state.stop) > 0
        trail = ~flat & (state.trailing == 0)
        if rules.trail_mask == "in_profit":
            trail &= profit > 0
        legal = [always, enter, enter, move, trail, ~flat & (state.trailing == 1), ~flat]
        return np.stack(legal[: self.params.n_actions], -1)

    def observe(self, market: Market, settings: Settings, state: State) -> Float[np.ndarray, "*batch observation"]:
        """The window of features, the position and, from phase 2 on, its management."""
        p, at = self.params, (state.market, state.t)
        bars = state.t[..., None] + np.arange(1 - p.window, 1, dtype=np.int32)
        rows = market.features[state.market[..., None], bars].astype(np.float32, copy=False)
        close, atr, held = (
            market.close[at],
            market.atr64[at].astype(np.float32) * np.float32(1 / 64),
            state.position != 0,
        )
        ticks = [state.position * (close - state.entry), np.abs(state.stop - close), np.abs(state.target - close)]
        own = [state.position.astype(np.float32)]
        own += [np.where(held, distance.astype(np.float32) / atr, np.float32(0)) for distance in ticks]
        own += [np.where(held, (state.t - state.entry_t + 1).astype(np.float32) * np.float32(1 / 390), np.float32(0))]
        if p.phase > 1:
            limit, f = _int(settings.drawdown_cents), np.float32
            drawdown = state.high_water - self.equity(market, state)
            own += [state.trailing.astype(f), _open_result(market, state, close).astype(f) * f(1e-5)]
            own += [state.break_even.astype(f), np.clip(drawdown.astype(f) * (f(1) / f(limit)), f(0), f(2))]
            own += [np.clip((limit - drawdown).astype(f) * f(1e-5), f(-2.5), f(2.5))]
            mask = self.mask(market, settings, state)
            own += [mask[..., i].astype(f) for i in (Action.BUY, Action.BREAK_EVEN, Action.TRAIL)]
        return np.concatenate([rows.reshape(*state.t.shape, -1), np.stack(own, -1)], -1)

    def step(self, market: Market, settings: Settings, state: State, action: Ints) -> tuple[State, Outcome]:
        """Accounts after the bar that follows the action, and what came of it."""
        rules, before = self.params.rules, self.equity(market, state)
        legal = np.take_along_axis(self.mask(market, settings, state), action[..., None].astype(np.int64), -1)[..., 0]
        action = np.where(legal, action, Action.HOLD)
        held, t, b = state.position, state.t, state.t + np.int32(1)
        bar = (state.market, b)
        open_, high, low, close = market.open[bar], market.high[bar], market.low[bar], market.close[bar]
        slippage, last = _slippage(market, settings, state), market.last[bar]
        lock = _int(settings.initial_cents) + _int(settings.lock_cents)
        floor = np.minimum(state.high_water - _int(settings.drawdown_cents), lock)

        state, opened = self._order(market, settings, state._replace(illegal=state.illegal + ~legal), action, open_)
        contracts, result, leaves = state.contracts, np.zeros_like(b), action == Action.CLOSE
        if self.params.phase == 3:
            state, result = self._close(market, settings, state, leaves, open_, slippage)
        if self.params.phase > 1:
            state = self._trail(market, settings, state, t if rules.trail == "before" else b)
        state = state._replace(t=b)
        trailing = state.trailing

        level, reason = self._touched(market, state, open_, high, low, floor)
        slips = np.where(reason == Reason.BUST, slippage, 0).astype(np.int32)
        state, more = self._close(market, settings, state, reason != Reason.NONE, level, slips)
        result, reason = result + more, np.where(leaves, Reason.CLOSED, reason).astype(np.int32)
        ends = last & (state.position != 0)
        reason = np.where(ends, Reason.SESSION_END, reason).astype(np.int32)
        state, more = self._close(market, settings, state, ends, close, slippage)
        result = result + more

        bust, worst = np.zeros_like(last), close
        if rules.drawdown == "worst_in_bar":
            worst = np.where(state.position > 0, low, np.where(state.position < 0, high, close))
        if rules.drawdown != "at_floor":
            bust = state.balance + _open_result(market, state, worst) < floor
        margin = _int(settings.liquidation_cents)
        near = (margin > 0) & (state.balance + _open_result(market, state, close) < floor + margin)
        sold = (state.position != 0) & (bust | near)
        reason = np.where(sold, np.where(bust, Reason.BUST, Reason.LIQUIDATED), reason).astype(np.int32)
        state, more = self._close(market, settings, state, sold, close, slippage)
        result = result + more
        if rules.drawdown == "at_floor":
            bust = (state.position == 0) & (state.balance < floor)

        equity = self.equity(market, state)
        state = state._replace(high_water=np.maximum(state.high_water, equity))
        over = last & self._is_old(market, settings, state) if last.any() else last
        ended = over | (b >= market.length[state.market] - 1) | (b - state.began >= _int(settings.max_bars))
        reward = (equity - before).astype(np.float32) * market.reward_scale[state.market]
        if rules.reward != "equity":
            fee = np.where(reason != Reason.NONE, _commission(market, settings, state) * contracts, 0)
            unrealised = _open_result(market, state, close)
            trailed = (action == Action.TRAIL) & (trailing == 1)
            happened = (held, state.position, opened, action == Action.BREAK_EVEN, trailed, trailing == 1, unrealised)
            facts = Facts(*happened, reason, result + fee, equity, bust)
            reward = published_reward(self.params, settings, facts, np)
        return state, Outcome(reward, bust, ended & ~bust, reason, result)

    def _order(
        self, market: Market, settings: Settings, state: State, action: Ints, open_: Ints
    ) -> tuple[State, Bools]:
        """Executes the orders; which of them opened a position."""
        rules, at = self.params.rules, (state.market, state.t)
        close = market.close[at]
        opens = ((action == Action.BUY) | (action == Action.SELL)) & market.may_enter[at] & ~market.last[at]
        side = np.where(action == Action.BUY, 1, -1).astype(np.int32)
        slippage, tick = _slippage(market, settings, state), market.tick_cents[state.market]
        entry = (open_ if rules.fill == "next_open" else close) + side * slippage
        distance = _distance(market, settings, state)
        contracts = np.where(opens, self.size(market, settings, state), 0).astype(np.int32)
        cost = contracts * _commission(market, settings, state)

        moves = action == Action.BREAK_EVEN
        better = np.where(state.position > 0, np.maximum(state.stop, state.entry), np.minimum(state.stop, state.entry))
        stop = np.where(moves, state.entry if rules.break_even == "sets" else better, state.stop)
        profit = state.position * (close - state.entry)
        trailing = np.where(
            (action == Action.TRAIL) & (profit > 0), 1, np.where(action == Action.STOP_TRAILING, 0, state.trailing)
        )
        choose = lambda new, old: np.where(opens, new, old).astype(np.int32)
        return state._replace(
            position=choose(side, state.position),
            contracts=choose(contracts, state.contracts),
            entry=choose(entry, state.entry),
            stop=choose(entry - side * distance, stop),
            target=choose(entry + side * _int(settings.target_ratio) * distance, state.target),
            entry_t=choose(state.t + 1, state.entry_t),
            trailing=trailing.astype(np.int32),
            break_even=state.break_even + moves,
            balance=state.balance - cost,
            commissions=state.commissions + cost,
            slippages=state.slippages + contracts * slippage * tick,
            trades=state.trades + opens,
        ), opens

    def _trail(self, market: Market, settings: Settings, state: State, t: Ints) -> State:
        """Draws the stops that trail after the close of bar t."""
        close = market.close[state.market, t]
        distance = np.maximum(1, (market.atr64[state.market, t] * _int(settings.trail_64) + 2048) // 4096)
        long, short = np.maximum(state.stop, close - distance), np.minimum(state.stop, close + distance)
        stop = np.where(state.trailing == 1, np.where(state.position > 0, long, short), state.stop)
        return state._replace(stop=stop.astype(np.int32))

    def _touched(
        self, market: Market, state: State, open_: Ints, high: Ints, low: Ints, floor: Ints
    ) -> tuple[Ints, Ints]:
        """Where and why the bar closes positions: (level, reason)."""
        rules, side, target = self.params.rules, state.position, state.target
        guard, fatal = self._guard(market, state, floor)
        adverse, favourable = np.where(side > 0, low, high), np.where(side > 0, high, low)
        guarded, reached = side * (adverse - guard) <= 0, side * (favourable - target) >= 0
        if rules.intrabar == "pessimistic":
            guard_first = np.ones_like(guarded)
        elif rules.intrabar == "optimistic":
            guard_first = np.zeros_like(guarded)
        elif rules.intrabar == "nearest":
            guard_first = np.abs(open_ - adverse) <= np.abs(open_ - favourable)
        else:
            guard_first = market.high_first[state.market, state.t] != (side > 0)
        at_guard = guarded & (guard_first | ~reached)
        named = at_guard & (fatal | ~reached) if rules.label == "target_first" else at_guard
        if rules.gaps == "open":
            gap_guard, gap_target = side * (open_ - guard) <= 0, side * (open_ - target) >= 0
            guard, target = np.where(gap_guard, open_, guard), np.where(gap_target, open_, target)
            at_guard, named = (gap_guard | ~gap_target & each for each in (at_guard, named))
        why = np.where(fatal, Reason.BUST, Reason.STOP)
        reason = np.where(named, why, np.where(guarded | reached, Reason.TARGET, Reason.NONE))
        return np.where(at_guard, guard, target), np.where(side != 0, reason, Reason.NONE).astype(np.int32)

    def _guard(self, market: Market, state: State, floor: Ints) -> tuple[Ints, Bools]:
        """The levels that prices reach first on their way against the positions, and whether the floor is there."""
        side, stop = state.position, state.stop
        if self.params.rules.drawdown != "at_floor":
            return stop, np.zeros(stop.shape, bool)
        worth = np.maximum(1, market.tick_cents[state.market] * state.contracts)
        level = state.entry + side * ((floor - state.balance - 1) // worth)
        fatal = side * (level - stop) >= 0
        return np.where(fatal, level, stop), fatal

    def _is_old(self, market: Market, settings: Settings, state: State) -> Bools:
        """Whether accounts end with the session of the bar."""
        days = market.session[state.market, state.t] - market.session[state.market, state.began] + 1
        return market.final[state.market, state.t] | (days >= _int(settings.days))

    def _close(
        self, market: Market, settings: Settings, state: State, closes: Bools, price: Ints, slippage: Ints
    ) -> tuple[State, Ints]:
        """Closes positions; their results in cents, commissions of both sides included."""
        if not closes.any():  # most reasons are rare: a seventh of a step's time
            return state, np.zeros_like(state.balance)
        worth = market.tick_cents[state.market] * state.contracts
        gross = state.position * (price - state.entry) * worth - slippage * worth
        sides = 2 if self.params.rules.commission == "three_sides" else 1
        fee = _commission(market, settings, state) * state.contracts
        result = gross - (sides + 1) * fee
        add = lambda old, amount: np.where(closes, old + amount, old).astype(np.int32)
        flat = ("position", "contracts", "entry", "stop", "target", "entry_t", "trailing", "break_even")
        return state._replace(
            **{name: np.where(closes, 0, getattr(state, name)).astype(np.int32) for name in flat},
            balance=add(state.balance, gross - sides * fee),
            commissions=add(state.commissions, sides * fee),
            slippages=add(state.slippages, slippage * worth),
            wins=add(state.wins, result > 0),
            losses=add(state.losses, result <= 0),
        ), np.where(closes, result, 0).astype(np.int32)


def _int(value: int | np.ndarray) -> np.ndarray:
    return np.asarray(value, np.int32)


def _floor(uniform: Float[np.ndarray, "*batch"], n: Int32[np.ndarray, "*#batch"]) -> Ints:
    """One of 0 .. n - 1. In the precision of the uniform numbers, as in the twin: int32 would widen it."""
    return np.minimum(np.asarray(uniform * n.astype(uniform.dtype)).astype(np.int32), n - 1)


def _distance(market: Market, settings: Settings, state: State) -> Ints:
    """The distance of the stop in ticks, for entries decided at bar t."""
    distance = np.maximum(1, (market.atr64[state.market, state.t] * _int(settings.stop_64) + 2048) // 4096)
    return np.minimum(distance, np.maximum(1, _int(settings.stop_cap_cents) // market.tick_cents[state.market]))


def _commission(market: Market, settings: Settings, state: State) -> Ints:
    """Cents per contract and side."""
    given = _int(settings.commission_cents)
    return np.where(given < 0, market.commission_cents[state.market], given)


def _slippage(market: Market, settings: Settings, state: State) -> Ints:
    """Ticks that an order at the market loses."""
    given = _int(settings.slippage)
    return np.where(given < 0, market.slippage[state.market], given)


def _open_result(market: Market, state: State, price: Ints) -> Ints:
    """Cents that the open position would bring at this price, before costs."""
    return state.position * (price - state.entry) * market.tick_cents[state.market] * state.contracts
