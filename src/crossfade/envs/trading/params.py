"""The rules of trading, stated once: framework-free. The twins are trading_numpy.py and trading_jax.py, the oracle
scalar.py."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ...ranges import Range, check

START_NUMBERS = 5  # uniform numbers from which the beginning of an episode is drawn
POSITION_FEATURES, MANAGEMENT_FEATURES, LEGALITY_FEATURES = 5, 5, 3


class Action:
    """What an account may do; the first three are those of phase 1, the first six those of phase 2."""

    HOLD, BUY, SELL, BREAK_EVEN, TRAIL, STOP_TRAILING, CLOSE = range(7)


class Reason:
    """Why a position was closed."""

    NONE, STOP, TARGET, SESSION_END, LIQUIDATED, BUST, CLOSED = range(7)


@dataclass(frozen=True)
class Rules:
    """One switch per deviation of the published systems from the sound rules, which are the defaults."""

    fill: Literal["next_open", "close"] = "next_open"
    """An entry decided after bar t is filled at the open of bar t + 1, or at the close of bar t."""
    gaps: Literal["open", "ignored"] = "open"
    """A bar that opens beyond a stop or target fills at the open, or at the level although it never traded there."""
    trail: Literal["before", "same_bar"] = "before"
    """The trailing stop of a bar is known before it, or made from the bar's own close and tested on its range."""
    intrabar: Literal["pessimistic", "optimistic", "nearest", "path"] = "pessimistic"
    """Stop and target in one bar: the stop, the target, the extreme nearer to the open, or the one that came first."""
    label: Literal["what_filled", "target_first"] = "what_filled"
    """The exit reason of a bar that touches both."""
    commission: Literal["per_side", "three_sides"] = "per_side"
    """One commission on entry and one on exit, or one and two."""
    entries: Literal["session", "any_time"] = "session"
    """Whether the mask closes entries outside the session; `any_time` masks nothing and fills nothing there."""
    break_even: Literal["never_lowers", "sets"] = "never_lowers"
    """Moving the stop to break-even keeps a better stop, or replaces it."""
    trail_mask: Literal["in_profit", "in_position"] = "in_profit"
    """Where ENABLE_TRAIL is legal; with `in_position` it is legal in every position, and does nothing at a loss."""
    drawdown: Literal["at_floor", "worst_in_bar", "close"] = "at_floor"
    """A position is closed where prices cross the floor; or the worst equity of a bar, or the one at its close, is held
    against the floor, and the position is closed at the close, wherever that is."""
    reward: Literal["equity", "seed_jax", "seed_pandas"] = "equity"
    """Change of equity in the worth of eight ticks, of ES $100; or the published rewards."""


RULES = {
    "sound": Rules(),
    "seed_jax": Rules(
        fill="close",
        gaps="ignored",
        trail="same_bar",
        label="target_first",
        commission="three_sides",
        entries="any_time",
        break_even="sets",
        trail_mask="in_position",
        drawdown="worst_in_bar",
        reward="seed_jax",
    ),
    "seed_pandas": Rules(
        fill="close", gaps="ignored", trail="same_bar", entries="any_time", drawdown="close", reward="seed_pandas"
    ),
}


@dataclass(frozen=True)
class TradingParams:
    """Intraday trading of one futures contract at a time, flat at the end of every session.

    Ledger: prices are int32 ticks, money int32 cents, time int32 bars. Floats appear in observations and rewards alone.
    Costs: `slippage` ticks and `commission` cents per contract and side are the market's, unless the settings have
        their own (0 or more).
    Begin, by five uniform numbers u0 .. u4 in [0, 1) of float32; floor(u n) is in float32 and at most n - 1. Market
        m = floor(u0 markets), bar t = start[m, floor(u1 n_start[m])], flat, with initial_cents. But if
        floor(u2 1024) < forced it begins with a position: long if u3 < 0.5, else short, side = 1 or -1, of the size of
        rule 1 below. With r = (atr64[t] forced_64) // 4096 ticks and d the stop distance of that rule, it is
        o = floor(u4 (2 r + 1)) - r ticks in profit, then at least 1 - d and at most target_ratio d - 1, so that neither
        level is touched yet: entry = close[t] - side o, stop = entry - side d, target = entry + side target_ratio d,
        entry_t = t, trades = 1. Balance is initial_cents - o tick_cents size: neither gift nor debt, the equity is
        initial_cents, and so is high_water. The entry cost nothing, neither commission nor slippage; its exit pays as
        ever, and its result counts both commissions as ever.
    Actions, decided after bar t has closed: HOLD, BUY, SELL; in phase 2 also BREAK_EVEN (move the stop to the entry),
        TRAIL and STOP_TRAILING; in phase 3 also CLOSE. An action the mask forbids is HOLD, and is counted.
    Bar b = t + 1, in this order:
        1. Orders. BUY and SELL fill at the open, `slippage` ticks worse, for one commission per contract; after the
           last bar of a session, as where a feed has died, they are not filled.
           Stop distance d = max(1, (atr64[t] stop_64 + 2048) // 4096) ticks, at most stop_cap_cents // tick_cents
           but not below 1; the target is target_ratio d away. Size: `contracts`, or with risk_cents > 0
           min(contracts, max(1, risk_cents // (d tick_cents))). BREAK_EVEN puts the stop at the entry unless it is
           better already. TRAIL and STOP_TRAILING set the flag. CLOSE closes the position at the open, `slippage`
           ticks worse; rules 2 to 5 then find none.
        2. Trailing, from what was known at t: the stop of a long is raised to close[t] - e where that is higher,
           e = max(1, (atr64[t] trail_64 + 2048) // 4096); a short's likewise mirrored.
        3. Levels. The floor is min(high_water - drawdown_cents, initial_cents + lock_cents), high_water being the
           highest equity at a close so far, before this bar. The floor level of a position is the first price against
           it at which equity is below the floor: side (level - entry) = (floor - balance - 1) // (tick_cents size),
           floor division, balance after the orders. Of stop and floor level the one that prices reach first guards
           the position (of a long the higher one), the floor level if they are equal.
           Gap: a bar that opens at or beyond the guard, or else at or beyond the target, closes the position there.
        4. Range: low <= guard and high >= target of a long (mirrored for a short) close it at the level;
           `rules.intrabar` decides when both are touched, a tie of `nearest` being the guard.
           Closed by the floor level, at the open or at the level, it is BUST and fills `slippage` ticks worse; stop and
           target suffer no slippage.
        5. Session end: on the last bar of a session a position is closed at the close, `slippage` ticks worse.
        6. An account whose balance, being flat, is below the floor is bust, and the episode is terminated. With
           liquidation_cents > 0 a position whose equity at the close is less than that above the floor is closed at the
           close, `slippage` ticks worse (LIQUIDATED), and the episode goes on unless this makes it bust.
        7. high_water = max(high_water, equity at the close).
        With drawdown=worst_in_bar there is no floor level, the stop is the guard, and rule 6 first holds the worst
        equity of the bar against the floor (of a position still open at the low, of a short at the high; of a closed
        one the balance; with drawdown=close the equity at the close): below it the account is bust, and a position is
        closed at the close, `slippage` ticks worse. Being liquidated there never makes an account bust.
    An exit pays one commission per contract. A win is an exit whose result, both commissions included, is above 0.
    Reward: change of equity at the close, in cents, times the market's reward_scale, 1 / (8 tick_cents): one is the
        worth of eight ticks of one contract, of ES $100. Over an episode it adds up to the result.
    Ends: terminated when bust; else truncated on the last bar of a session if the account has seen `days` of them,
        session[b] - session[began] + 1 >= days, or if the market's `final` says so; after max_bars bars; or at the end
        of the data.
    Legal: BUY and SELL when flat and `may_enter[t]`, in phase 2 also only while 4 (high_water - equity) is below
        3 drawdown_cents. BREAK_EVEN once per position, when close[t] is more than (atr64[t] break_even_64) // 4096
        ticks in profit and the stop is worse than the entry; TRAIL in profit and not trailing; STOP_TRAILING when
        trailing; CLOSE in every position. Phase 3 has all of phase 2.
    Observation: the features of bars t - window + 1 .. t, oldest first, then 5 numbers: position (-1, 0, 1), and with
        c = close[t] and a = atr64[t] / 64: side (c - entry) / a, |stop - c| / a, |target - c| / a, bars held (that of
        the entry included) / 390; all 0 when flat. Phases 2 and 3 add trailing, unrealised dollars / 1000,
        break-even moves, drawdown / limit clipped to [0, 2], (limit - drawdown) / $1000 clipped to [-2.5, 2.5]; then
        whether BUY, BREAK_EVEN and TRAIL are legal.
    """

    numpy: ClassVar[str] = "crossfade.envs.trading.trading_numpy:Trading"
    jax: ClassVar[str] = "crossfade.envs.trading.trading_jax:Trading"

    phase: Literal[1, 2, 3] = 1
    """1: HOLD, BUY, SELL. 2: also management of the stop. 3: also leaving at the market."""
    window: Annotated[int, Range(1, 61)] = 20
    """Bars that a policy sees; an episode begins after 60 at the earliest."""
    n_features: Annotated[int, Range(1, 10_000)] = 11
    """Features per bar."""
    rules: Rules = Rules()
    """The switches."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def n_actions(self) -> int:
        return {1: 3, 2: 6, 3: 7}[self.phase]

    @property
    def action_names(self) -> tuple[str, ...]:
        """As logs call them."""
        return tuple(name.lower() for name in vars(Action) if name.isupper())[: self.n_actions]

    @property
    def observation_dim(self) -> int:
        more = 0 if self.phase == 1 else MANAGEMENT_FEATURES + LEGALITY_FEATURES
        return self.window * self.n_features + POSITION_FEATURES + more
