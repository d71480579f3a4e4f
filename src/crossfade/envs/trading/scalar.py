"""One account, bar by bar, in plain Python integers: the oracle that the vectorised twins are held against.

Read it beside the docstring of `TradingParams`: the steps of a bar have the same numbers.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32

from ...errors import UsageError
from .market import Market, Outcome, Settings, State
from .params import Action, Reason, TradingParams
from .published_rewards import Facts, published_reward


class ScalarTrading:
    """A trading account with a state of its own, as an environment object."""

    def __init__(self, params: TradingParams, market: Market, settings: Settings):
        self.params, self.rules, self.bars, self.settings = params, params.rules, market, settings

    def reset(self, m: int, t: int) -> State:
        """A flat account after bar `t` of market `m`."""
        if t < self.params.window - 1:
            raise UsageError(f"expected a start after bar {self.params.window - 1} or later, got bar {t}.")
        self.m, self.t, self.began = m, t, t
        own = lambda given, column: given if given >= 0 else int(column[m])
        self.commission = own(self.settings.commission_cents, self.bars.commission_cents)
        self.slippage, self.tick_cents = own(self.settings.slippage, self.bars.slippage), int(self.bars.tick_cents[m])
        self.balance = self.high_water = self.settings.initial_cents
        self.trades = self.wins = self.losses = self.commissions = self.slippages = self.illegal = 0
        self._flatten()
        return self.state

    def begin(self, uniform: Float32[np.ndarray, " 5"]) -> State:
        """An account where and as five uniform numbers say: flat, or now and then with a position."""
        m = _floor(uniform[0], len(self.bars.n_start))
        self.reset(m, int(self.bars.start[m, _floor(uniform[1], int(self.bars.n_start[m]))]))
        if _floor(uniform[2], 1024) < self.settings.forced:
            self._force(1 if uniform[3] < 0.5 else -1, uniform[4])
        return self.state

    def resume(self, state: State) -> None:
        """Goes on from a state of plain integers."""
        self.reset(state.market, state.began)
        vars(self).update({"m" if name == "market" else name: value for name, value in state._asdict().items()})

    @property
    def state(self) -> State:
        return State(**{name: getattr(self, "m" if name == "market" else name) for name in State._fields})

    @property
    def equity(self) -> int:
        """Balance and open result at the close of bar t, in cents."""
        return self.balance + self._open_result(self._bar(self.bars.close, self.t))

    @property
    def floor(self) -> int:
        """Cents of equity below which the account is bust."""
        lock = self.settings.initial_cents + self.settings.lock_cents
        return min(self.high_water - self.settings.drawdown_cents, lock)

    def mask(self) -> Bool[np.ndarray, " actions"]:
        """Which actions are legal after bar t."""
        flat, profit = self.position == 0, self._profit()
        enter = flat and (bool(self.bars.may_enter[self.m, self.t]) or self.rules.entries == "any_time")
        if self.params.phase == 1:
            return np.array([True, enter, enter])
        enter = enter and 4 * (self.high_water - self.equity) < 3 * self.settings.drawdown_cents
        far_enough = profit > self._atr64() * self.settings.break_even_64 // 4096
        worse = self.position * (self.entry - self.stop) > 0 or self.rules.break_even == "sets"
        in_profit = profit > 0 or self.rules.trail_mask == "in_position"
        legal = [
            True,
            enter,
            enter,
            not flat and far_enough and self.break_even == 0 and worse,
            not flat and in_profit and not self.trailing,
            not flat and bool(self.trailing),
            not flat,
        ]
        return np.array(legal[: self.params.n_actions])

    def step(self, action: int) -> Outcome:
        """One action, decided after bar t, and bar t + 1."""
        before, held, mask = self.equity, self.position, self.mask()
        if not mask[action]:
            self.illegal += 1
            action = Action.HOLD
        t, b = self.t, self.t + 1
        open_, high, low, close = (self._bar(side, b) for side in self.bars[:4])
        last, floor, reason, result = bool(self.bars.last[self.m, b]), self.floor, Reason.NONE, 0
        opened, size = self._order(action, t, open_), self.contracts
        if action == Action.CLOSE:
            reason, result = Reason.CLOSED, self._close(open_, self.slippage)
        trailed = action == Action.TRAIL and bool(self.trailing)
        if self.trailing and self.rules.trail == "before":
            self._trail(t)
        if self.trailing and self.rules.trail == "same_bar" and not opened:
            self._trail(b)
        self.t = b
        was_trailing = self.trailing
        level, touched = self._touched(b, open_, high, low, floor)
        if touched != Reason.NONE:
            reason, result = touched, self._close(level, self.slippage if touched == Reason.BUST else 0)
        if self.position and last:
            reason, result = Reason.SESSION_END, self._close(close, self.slippage)
        at_floor, margin = self.rules.drawdown == "at_floor", self.settings.liquidation_cents
        bust = not at_floor and self._worst(low, high, close) < floor
        if self.position and (bust or (margin > 0 and self.equity < floor + margin)):
            reason, result = Reason.BUST if bust else Reason.LIQUIDATED, self._close(close, self.slippage)
        if at_floor:
            bust = not self.position and self.balance < floor
        self.high_water = max(self.high_water, self.equity)
        ended = (last and self._is_old(b)) or b >= self.bars.length[self.m] - 1
        truncated = not bust and (ended or b - self.began >= self.settings.max_bars)
        reward = np.float32(self.equity - before) * np.float32(self.bars.reward_scale[self.m])
        if self.rules.reward != "equity":
            entry_fee = self.commission * size if reason != Reason.NONE else 0
            facts = Facts(
                held,
                self.position,
                opened,
                action == Action.BREAK_EVEN,
                trailed,
                was_trailing,
                self._open_result(close),
                reason,
                result + entry_fee,
                self.equity,
                bust,
            )
            reward = published_reward(self.params, self.settings, facts, np)
        return Outcome(reward, bust, truncated, reason, result)

    def observation(self) -> Float[np.ndarray, " observation"]:
        """What a policy sees after bar t."""
        first = self.t - self.params.window + 1
        rows = self.bars.features[self.m, first : self.t + 1].astype(np.float32)
        f, position = np.float32, self.position
        close, atr = self._bar(self.bars.close, self.t), f(self._atr64()) * f(1 / 64)
        own = [f(position), f(0), f(0), f(0), f(0)]
        if position:
            distances = (position * (close - self.entry), abs(self.stop - close), abs(self.target - close))
            own[1:4] = [f(distance) / atr for distance in distances]
            own[4] = f(self.t - self.entry_t + 1) * f(1 / 390)
        if self.params.phase > 1:
            limit, drawdown = self.settings.drawdown_cents, self.high_water - self.equity
            own += [f(self.trailing), f(self._open_result(close)) * f(1e-5), f(self.break_even)]
            own += [np.clip(f(drawdown) * (f(1) / f(limit)), f(0), f(2))]
            own += [np.clip(f(limit - drawdown) * f(1e-5), f(-2.5), f(2.5))]
            own += [f(self.mask()[i]) for i in (Action.BUY, Action.BREAK_EVEN, Action.TRAIL)]
        return np.concatenate([rows.reshape(-1), np.array(own, np.float32)])

    def _force(self, side: int, uniform: np.float32) -> None:
        """A position that was entered some ticks away from the close, at no cost and with no debt."""
        reach, distance = self._atr64() * self.settings.forced_64 // 4096, self._distance()
        ahead = _floor(uniform, 2 * reach + 1) - reach
        ahead = min(max(ahead, 1 - distance), self.settings.target_ratio * distance - 1)
        self._open(side, self._bar(self.bars.close, self.t) - side * ahead, self.t)
        self.balance -= ahead * self.tick_cents * self.contracts

    # The parts of a bar.

    def _order(self, action: int, t: int, open_: int) -> bool:
        """1. Executes the order; whether it opened a position."""
        if action in (Action.BUY, Action.SELL) and self.bars.may_enter[self.m, t] and not self.bars.last[self.m, t]:
            side = 1 if action == Action.BUY else -1
            base = open_ if self.rules.fill == "next_open" else self._bar(self.bars.close, t)
            self._open(side, base + side * self.slippage, t + 1)
            self._pay(1)
            self.slippages += self.slippage * self.tick_cents * self.contracts
            return True
        if action == Action.BREAK_EVEN:
            better = max if self.position > 0 else min
            self.stop = self.entry if self.rules.break_even == "sets" else better(self.stop, self.entry)
            self.break_even += 1
        if action == Action.TRAIL and self._profit() > 0:
            self.trailing = 1
        if action == Action.STOP_TRAILING:
            self.trailing = 0
        return False

    def _open(self, side: int, entry: int, t: int) -> None:
        """A position from bar t on, with its stop and target."""
        distance = self._distance()
        self.position, self.contracts, self.entry = side, self._size(distance), entry
        self.stop = entry - side * distance
        self.target = entry + side * self.settings.target_ratio * distance
        self.entry_t, self.trades = t, self.trades + 1

    def _distance(self) -> int:
        """The distance of the stop in ticks, for an entry decided at bar t."""
        distance = max(1, (self._atr64() * self.settings.stop_64 + 2048) // 4096)
        return min(distance, max(1, self.settings.stop_cap_cents // self.tick_cents))

    def _size(self, distance: int) -> int:
        """Contracts of a position whose stop is so many ticks away."""
        most, risk = self.settings.contracts, self.settings.risk_cents
        return min(most, max(1, risk // (distance * self.tick_cents))) if risk > 0 else most

    def _trail(self, t: int) -> None:
        """2. Draws the stop after the close of bar t."""
        distance = max(1, (int(self.bars.atr64[self.m, t]) * self.settings.trail_64 + 2048) // 4096)
        close = self._bar(self.bars.close, t)
        self.stop = max(self.stop, close - distance) if self.position > 0 else min(self.stop, close + distance)

    def _touched(self, b: int, open_: int, high: int, low: int, floor: int) -> tuple[int, int]:
        """3, 4. Where and why bar b closes the position: (level, reason)."""
        side = self.position
        if not side:
            return 0, Reason.NONE
        guard, reason = self._guard(floor)
        if self.rules.gaps == "open" and side * (open_ - guard) <= 0:
            return open_, reason
        if self.rules.gaps == "open" and side * (open_ - self.target) >= 0:
            return open_, Reason.TARGET
        adverse, favourable = (low, high) if side > 0 else (high, low)
        guarded, reached = side * (adverse - guard) <= 0, side * (favourable - self.target) >= 0
        if guarded and reached:
            first = {
                "pessimistic": True,
                "optimistic": False,
                "nearest": abs(open_ - adverse) <= abs(open_ - favourable),
                "path": bool(self.bars.high_first[self.m, b]) != (side > 0),
            }[self.rules.intrabar]
            if not first:
                return self.target, Reason.TARGET
            misnamed = self.rules.label == "target_first" and reason == Reason.STOP
            return guard, Reason.TARGET if misnamed else reason
        if guarded:
            return guard, reason
        if reached:
            return self.target, Reason.TARGET
        return 0, Reason.NONE

    def _guard(self, floor: int) -> tuple[int, int]:
        """3. The level that prices reach first on their way against the position, and why it closes there."""
        if self.rules.drawdown == "at_floor":
            ticks = (floor - self.balance - 1) // (self.tick_cents * self.contracts)
            level = self.entry + self.position * ticks
            if self.position * (level - self.stop) >= 0:
                return level, Reason.BUST
        return self.stop, Reason.STOP

    def _close(self, price: int, slippage: int) -> int:
        """Closes the position; its result in cents, commissions of both sides included."""
        worth = self.tick_cents * self.contracts
        gross = self.position * (price - self.entry) * worth - slippage * worth
        self.balance += gross
        self.slippages += slippage * worth
        sides = 2 if self.rules.commission == "three_sides" else 1
        self._pay(sides)
        result = gross - (sides + 1) * self.commission * self.contracts
        self.wins, self.losses = self.wins + (result > 0), self.losses + (result <= 0)
        self._flatten()
        return result

    def _pay(self, sides: int) -> None:
        cost = sides * self.commission * self.contracts
        self.balance, self.commissions = self.balance - cost, self.commissions + cost

    def _flatten(self) -> None:
        self.position = self.contracts = self.entry = self.stop = self.target = self.entry_t = 0
        self.trailing = self.break_even = 0

    def _worst(self, low: int, high: int, close: int) -> int:
        """Cents of equity that are held against the floor where it is no level of the position."""
        worst_in_bar = self.rules.drawdown == "worst_in_bar"
        return self.balance + self._open_result({1: low, 0: close, -1: high}[self.position] if worst_in_bar else close)

    def _is_old(self, b: int) -> bool:
        """Whether the account ends with the session of bar b."""
        session, final = self.bars.session[self.m], self.bars.final[self.m]
        return bool(final[b] or session[b] - session[self.began] + 1 >= self.settings.days)

    def _open_result(self, price: int) -> int:
        return self.position * (price - self.entry) * self.tick_cents * self.contracts

    def _profit(self) -> int:
        """Ticks in profit at the close of bar t."""
        return self.position * (self._bar(self.bars.close, self.t) - self.entry)

    def _atr64(self) -> int:
        return int(self.bars.atr64[self.m, self.t])

    def _bar(self, side: np.ndarray, t: int) -> int:
        return int(side[self.m, t])


def _floor(uniform: np.float32, n: int) -> int:
    """One of 0 .. n - 1, in float32 as the twins draw it."""
    return min(int(uniform * np.float32(n)), n - 1)
