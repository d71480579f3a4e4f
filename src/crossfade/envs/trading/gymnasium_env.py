"""Trading as a Gymnasium environment: one account, a step at a time, for the libraries that expect one.

Importing this file registers it, which Gymnasium does itself if it is named before the colon:

    gymnasium.make("crossfade.envs.trading.gymnasium_env:crossfade/Trading-v0", phase=2, markets=("ES",), days=20)

`info["action_mask"]` and `action_masks()` hold the legal actions; what the mask forbids is executed as HOLD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32

from ...errors import UsageError, nearest
from ...ranges import Count, Seed, check_value, kinds
from . import build, synthetic
from .contracts import contract
from .importers import store
from .market import Market, Settings
from .params import RULES, START_NUMBERS, Rules, TradingParams
from .scalar import ScalarTrading

try:
    gymnasium: Any = import_module("gymnasium")
except ModuleNotFoundError as error:
    raise UsageError("this environment needs Gymnasium: pip install gymnasium.") from error

ID = "crossfade/Trading-v0"
CLIPPED = 10.0  # to which features without a scale are clipped
FAR = 2.0**38  # ATR between two prices at most: they are int32 ticks, and it is 1/64 tick at least
LONG = 2.0**23  # bars held / 390 at most, bars being int32
RICH = 2.0**15  # thousands of dollars at most, money being int32 cents
POSITION = [(-1, 1), (-FAR, FAR), (0, FAR), (0, FAR), (0, LONG)]
MANAGEMENT = [(0, 1), (-RICH, RICH), (0, 1), (0, 2), (-2.5, 2.5), (0, 1), (0, 1), (0, 1)]


class RenderModeError(UsageError, TypeError):
    """A way of rendering that is not there. Stable-Baselines3 asks for pictures, and goes without on a TypeError."""


class TradingEnv(gymnasium.Env):
    """See `TradingParams`. An episode begins as it says, drawn at random, or where `reset`'s options say.

    Observations have true bounds, none of them infinite: those of the rules where they have some, else those of the
    integers that they are made of. Raw features, which are not clipped, may be any finite float32.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self, params: TradingParams, market: Market, settings: Settings | None = None, render_mode: str | None = None
    ):
        if (seen := market.features.shape[-1]) != params.n_features:
            raise UsageError(f"market: expected n_features={params.n_features} features of a bar, got {seen}.")
        if render_mode not in (None, "ansi"):
            raise RenderModeError(f"render_mode: expected 'ansi' or None, got {render_mode!r}.")
        self.params, self.market, self.render_mode = params, market, render_mode
        self.account = ScalarTrading(params, market, Settings() if settings is None else settings)
        self.action_space = gymnasium.spaces.Discrete(params.n_actions)
        self.observation_space = gymnasium.spaces.Box(*bounds(params, market), dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, int] | None = None
    ) -> tuple[Float32[np.ndarray, " observation"], dict[str, Any]]:
        """`options={"market": m, "t": t}` begins after bar t of market m, and flat."""
        super().reset(seed=seed)
        given = options or {}
        unknown = given.keys() - {"market", "t"}
        if unknown:
            raise UsageError(f"options: expected 'market' and 't', got {sorted(unknown)}.")
        began = self.account.begin(self.np_random.random(START_NUMBERS, dtype=np.float32))
        if given:
            place = {"market": began.market, "t": began.t} | given
            self.account.reset(place["market"], place["t"])
        return self._observation(), {"action_mask": self.action_masks()}

    def step(
        self, action: int | np.integer
    ) -> tuple[Float32[np.ndarray, " observation"], float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, info)."""
        outcome = self.account.step(int(action))
        info = {
            "action_mask": self.action_masks(),
            "equity": self.account.equity,
            "reason": outcome.reason,
            "result": outcome.result,
        }
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self._observation(), float(outcome.reward), *ends, info

    def action_masks(self) -> Bool[np.ndarray, " actions"]:
        """The legal actions, under the name that sb3-contrib's MaskablePPO asks for."""
        return self.account.mask()

    def render(self) -> str | None:
        """The account in one line, if the mode is `ansi`; prices in ticks."""
        if self.render_mode is None:
            return None
        own, state = self.account, self.account.state
        minute = int(self.market.minute[state.market, state.t])
        side = {1: "long", 0: "flat", -1: "short"}[state.position]
        held = (
            f" {state.contracts} at {state.entry}, stop {state.stop}, target {state.target}" if state.position else ""
        )
        return (
            f"market {state.market}, bar {state.t}, {minute // 60:02}:{minute % 60:02}, {side}{held}, "
            f"equity ${own.equity / 100:,.2f}, {state.trades} trades"
        )

    def _observation(self) -> Float32[np.ndarray, " observation"]:
        return self.account.observation().astype(np.float32)


def bounds(
    params: TradingParams, market: Market
) -> tuple[Float32[np.ndarray, " observation"], Float32[np.ndarray, " observation"]]:
    """The least and the largest value of every number that is observed."""
    clipped = np.abs(market.features).max() <= CLIPPED
    most = CLIPPED if clipped else float(np.finfo(np.float32).max)
    own = POSITION + (MANAGEMENT if params.phase > 1 else [])
    low, high = np.array([(-most, most)] * params.window * params.n_features + own, np.float32).T
    return low.copy(), high.copy()


def make(
    phase: int = 1,
    window: int = 20,
    rules: str | Rules = "sound",
    markets: Sequence[str] = ("ES",),
    days: int = 60,
    seed: int = 0,
    market: str = "default",
    data: str | None = None,
    features: str = "session",
    costs: bool = True,
    settings: Settings | Mapping[str, Any] | None = None,
    render_mode: str | None = None,
) -> TradingEnv:
    """What `gymnasium.make` calls: rules by name or switch by switch, the days of `Days`, the account's settings.

    Environments of the same days share them.
    """
    if isinstance(markets, str) or not markets:
        raise UsageError(f"markets: expected the names of contracts, such as ('ES',), got {markets!r}.")
    if isinstance(rules, str) and rules not in RULES:
        raise UsageError(
            f"rules: expected one of {', '.join(RULES)}, or Rules(), got {rules!r}.{nearest(rules, RULES)}"
        )
    check_value("phase", phase, kinds(TradingParams)["phase"])
    given: dict[str, Any] = dict(
        zip(kinds(Days), (tuple(markets), days, seed, market, data, features, costs), strict=True)
    )
    for name, kind in kinds(Days).items():
        check_value(name, given[name], kind)
    wanted = Days(**given)
    made = _market(wanted, wanted.version)
    switches = RULES[rules] if isinstance(rules, str) else rules
    params = TradingParams(phase, window, made.features.shape[-1], switches)  # pyright: ignore[reportArgumentType]
    return TradingEnv(params, made, _settings(settings), render_mode)


@dataclass(frozen=True)
class Days:
    """Which days are traded."""

    markets: tuple[str, ...] = ("ES",)
    """Contracts, one in each episode."""
    days: Count = 60
    """Days of the synthetic market; of imported bars all are taken."""
    seed: Seed = 0
    """Seed of the synthetic days; that of the episodes is `reset`'s."""
    market: synthetic.Mode = "default"
    """Which synthetic market."""
    data: str | None = None
    """Folder of imported bars; none takes the synthetic market."""
    features: Literal["session", "sound", "seed8"] = "session"
    """What is seen of a bar."""
    costs: bool = True
    """Whether trading costs slippage and commissions."""

    @property
    def version(self) -> tuple[int, ...]:
        """Of the files that are read."""
        files = [Path(self.data) / store.file_name(name) for name in self.markets] if self.data else []
        return tuple(file.stat().st_mtime_ns for file in files if file.is_file())


@lru_cache(maxsize=4)
def _market(days: Days, version: tuple[int, ...]) -> Market:
    if days.data is None:
        bars = synthetic.bars(days.markets, days.days, days.seed, days.market)
        specs = {name: contract(name) for name in days.markets}
    else:
        folder = Path(days.data)
        bars, specs = store.read(folder, days.markets), {name: store.spec(folder, name) for name in days.markets}
    made = build.market(bars, days.features, days.costs, contracts=specs)
    for array in made:
        array.flags.writeable = False  # shared by whoever asks for the same days
    return made


def _settings(given: Settings | Mapping[str, Any] | None) -> Settings:
    if given is None or isinstance(given, Settings):
        return given or Settings()
    for name, value in given.items():
        if name not in Settings._fields:
            known = ", ".join(Settings._fields)
            raise UsageError(f"settings: unknown {name!r}.{nearest(name, Settings._fields)} Known: {known}.")
        check_value(f"settings.{name}", value, float if name == "progress" else int)
    return Settings(**given)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:make")
