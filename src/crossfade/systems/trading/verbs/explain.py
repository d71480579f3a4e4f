"""The verb explain: where two sets of trading rules part."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ....ranges import Range, Seed
from ....verbs.common import Common, print_json


@dataclass(kw_only=True)
class Explain(Common):
    """Compare two sets of trading rules at one step of an account, and name the switches that part them.

    Exit code 1 when they differ there.

    crossfade explain 12 --rules seed_jax
    """

    step: Annotated[Positional[Annotated[int, Range(0, 10**6)]], arg(metavar="STEP")]
    """The step of an account that lives by the rules of --against."""
    rules: str = "seed_jax"
    """A set of rules, or switches of the sound ones: --rules gaps=ignored,trail=same_bar."""
    against: str = "sound"
    """The rules that the account lives by."""
    phase: Literal[1, 2] = 2
    """1 enters, 2 also manages the stop."""
    seed: Seed = 0
    """The seed of the days and of the actions."""

    def run(self) -> int:
        from ....envs.trading import explain

        rules, against = map(explain.rules_named, (self.rules, self.against))
        situations = explain.walk(self.step, rules, against, self.phase, self.seed)
        situation = next(situations)
        found = explain.explain(situation, rules, against)
        if self.json:
            state = {name: int(value) for name, value in situation.state._asdict().items()}
            print_json(
                {"step": self.step, "action": explain.ACTIONS[situation.action], "state": state, **found._asdict()}
            )
        else:
            later = (i for i, s in enumerate(situations, self.step + 1) if explain.explain(s, rules, against).differs)
            print(explain.text(self.step, situation, found, (self.rules, self.against), next(later, None)))
        return int(bool(found.differs))
