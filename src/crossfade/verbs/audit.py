"""The verb that asks whether a simulated world can be trusted."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ..errors import UsageError, nearest
from .common import Common, print_json, status


@dataclass(kw_only=True)
class Audit(Common):
    """Is a simulated world fair, and does it keep the future to itself? Exit code 1 when not.

    crossfade audit trading --martingale

    crossfade audit trading --martingale --rules seed_jax
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM")] = "trading"
    """The world to audit: trading."""
    martingale: bool = False
    """On prices without drift scripted policies earn nothing but minus their costs."""
    causality: bool = False
    """Bars after t change nothing that was seen, allowed or filled up to t."""
    rules: Literal["sound", "seed_jax", "seed_pandas"] = "sound"
    """The rule set."""
    days: int = 2000
    """Independent days of the martingale audit."""
    seed: int = 0
    """Of the prices and of the policies that draw."""

    def run(self) -> int:
        from ..envs.trading import audits
        from ..envs.trading.params import RULES, TradingParams

        if self.system != "trading":
            hint = nearest(self.system, ("trading",))
            raise UsageError(f"unknown world to audit {self.system!r}.{hint} Known: trading.")
        both = not self.martingale and not self.causality
        found: dict[str, Any] = {}
        if self.martingale or both:
            for costs in (False, True):
                name = "martingale with costs" if costs else "martingale"
                with status(name, self):
                    found[name] = audits.martingale(RULES[self.rules], self.days, costs, self.seed)
        if self.causality or both:
            with status("causality", self):
                phases = (TradingParams(phase=phase, rules=RULES[self.rules]) for phase in (1, 2))
                found["causality"] = [problem for params in phases for problem in audits.causality(params)]
        unfair = any(not finding.fair for name in found if name != "causality" for finding in found[name])
        if self.json:
            rows = {
                name: value if name == "causality" else [{**f._asdict(), "fair": f.fair} for f in value]
                for name, value in found.items()
            }
            print_json(rows)
        else:
            _print(found)
        return int(unfair or bool(found.get("causality")))


def _print(found: dict[str, Any]) -> None:
    for name, findings in found.items():
        print(name)
        if name == "causality":
            print("\n".join(f"  BROKEN  {problem}" for problem in findings) or "  ok      the future stays unseen")
            continue
        print(f"  {'':<8}{'policy':<20}{'trades':>8}{'$ per day':>12}{'costs':>10}{'both':>10}{'error':>9}")
        for f in findings:
            verdict = "ok" if f.fair else "UNFAIR"
            figures = f"{f.mean:>12.2f}{f.costs:>10.2f}{f.mean + f.costs:>10.2f}{f.error:>9.2f}"
            print(f"  {verdict:<8}{f.policy:<20}{f.trades:>8}{figures}")
