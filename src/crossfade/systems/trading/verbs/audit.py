"""The verb that asks whether a simulated world can be trusted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ....errors import UsageError, nearest
from ....ranges import Range, Seed
from ....verbs.common import Common, print_json, status


@dataclass(kw_only=True)
class Audit(Common):
    """Is a simulated world fair, does it keep the future to itself, can it be learned? Exit code 1 when not.

    Without a flag, all three.

    crossfade audit trading --martingale

    crossfade audit trading --martingale --rules seed_jax

    crossfade audit trading --learnability
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM")] = "trading"
    """The world to audit: trading."""
    martingale: bool = False
    """Check that scripted policies earn minus their costs on prices without drift."""
    causality: bool = False
    """Bars after t change nothing that was seen, allowed or filled up to t."""
    learnability: bool = False
    """PPO earns at least 60 % of what a planted signal is worth, on days it has not seen, and nothing without one.
    Always by the sound rules."""
    rules: Literal["sound", "seed_jax", "seed_pandas"] = "sound"
    """The rule set of the first two."""
    days: Annotated[int, Range(2, 10**6)] = 2000
    """Independent days of the martingale audit."""
    seed: Seed = 0
    """The seed of the prices, the random policies and PPO."""

    def run(self) -> int:
        if self.system != "trading":
            hint = nearest(self.system, ("trading",))
            raise UsageError(f"unknown world to audit {self.system!r}.{hint} Known: trading.")
        audits: dict[str, Callable[[], dict[str, list[dict[str, Any]]]]] = {
            "martingale": self._martingale,
            "causality": self._causality,
            "learnability": self._learnability,
        }
        asked = [name for name in audits if getattr(self, name)] or list(audits)
        found: dict[str, list[dict[str, Any]]] = {}
        for name in asked:
            with status(name, self):
                rows = audits[name]()
            found |= rows
            if not self.json:
                _print(rows)
        if self.json:
            print_json(found)
        return int(not all(row["passed"] for rows in found.values() for row in rows))

    def _martingale(self) -> dict[str, list[dict[str, Any]]]:
        from ....envs.trading import audits
        from ....envs.trading.params import RULES

        names = {"martingale": False, "martingale with costs": True}
        found = {name: audits.martingale(RULES[self.rules], self.days, c, self.seed) for name, c in names.items()}
        exact = audits.commissions(RULES[self.rules], min(self.days, 300), self.seed)
        return {
            **{name: [{"passed": f.fair, **f._asdict()} for f in rows] for name, rows in found.items()},
            "commissions to the cent": [{"passed": f.exact, **f._asdict()} for f in exact],
        }

    def _causality(self) -> dict[str, list[dict[str, Any]]]:
        from ....envs.trading import audits
        from ....envs.trading.params import RULES, TradingParams

        rows = []
        for phase in (1, 2, 3):
            problems = audits.causality(TradingParams(phase=phase, rules=RULES[self.rules]))
            rows.append({"passed": not problems, "phase": phase, "problems": problems})
        return {"causality": rows}

    def _learnability(self) -> dict[str, list[dict[str, Any]]]:
        from ..learnability_jax import learnability

        found = learnability(seed=self.seed)
        return {"learnability": [{"passed": f.passed, **f._asdict(), "share": f.share} for f in found]}


def _print(found: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in found.items():
        print(name)
        heads, line = LINES[name.split()[0]]
        if heads:
            print(f"  {'':<8}{heads}")
        for row in rows:
            print(f"  {'ok' if row['passed'] else 'BROKEN':<8}{line(row)}")


def _martingale_line(f: dict[str, Any]) -> str:
    both = f["mean"] + f["costs"]
    return f"{f['policy']:<20}{f['trades']:>8}{f['mean']:>12.2f}{f['costs']:>10.2f}{both:>10.2f}{f['error']:>9.2f}"


def _commissions_line(f: dict[str, Any]) -> str:
    return f"{f['policy']:<20}{f['accounts']:>8}{f['commissions']:>12.2f}{f['off']:>10}"


def _causality_line(f: dict[str, Any]) -> str:
    return f"phase {f['phase']}: " + ("; ".join(f["problems"]) or "the future stays unseen")


def _learnability_line(f: dict[str, Any]) -> str:
    share = f"{f['share']:>9.0%}" if f["share"] is not None else f"{'':>9}"
    figures = f"{f['mean']:>12.2f}{f['error']:>9.2f}{f['optimum']:>10.2f}{share}{f['trades']:>8.1f}{f['seconds']:>9.1f}"
    return f"{f['market']:<20}{figures}"


# heading of the columns, and a row of them
LINES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "martingale": (
        f"{'policy':<20}{'trades':>8}{'$ per day':>12}{'costs':>10}{'both':>10}{'error':>9}",
        _martingale_line,
    ),
    "commissions": (f"{'policy':<20}{'days':>8}{'$ per day':>12}{'days off':>10}", _commissions_line),
    "causality": ("", _causality_line),
    "learnability": (
        f"{'market':<20}{'$ per day':>12}{'error':>9}{'optimum':>10}{'share':>9}{'trades':>8}{'seconds':>9}",
        _learnability_line,
    ),
}
