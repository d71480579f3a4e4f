"""The mutation suite: every planted porting bug with the level it lives at, and the clean twins they were made from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import mutants_amp
import mutants_hidden
import mutants_iqn
import mutants_losses
import mutants_nets
import mutants_offline
import mutants_offline_data
import mutants_robot
import mutants_updates
import mutants_worlds

from crossfade.parity import Twin


@dataclass(frozen=True)
class Mutant:
    """A twin with one bug in it, and the level at which a check must stop."""

    name: str
    level: str
    make: "partial[Twin]"

    def clean(self) -> Twin:
        """The same twin without the bug."""
        make, args = self.make.func, self.make.args
        return make(*args, plant=False) if make in OF_OTHER_TWINS else make(*args[:-1])


FAMILIES = (
    mutants_nets.FAMILIES
    | mutants_hidden.FAMILIES
    | mutants_losses.FAMILIES
    | mutants_updates.FAMILIES
    | mutants_worlds.FAMILIES
    | mutants_iqn.FAMILIES
    | mutants_offline.FAMILIES
    | mutants_offline_data.FAMILIES
    | mutants_amp.FAMILIES
    | mutants_robot.FAMILIES
)

CLEAN: Mapping[str, Callable[[], Twin]] = {make.__name__: make for make in FAMILIES} | {
    name: partial(mutants_updates.descent, name) for name in mutants_updates.OPTIMIZERS
}

MUTANTS = [Mutant(bug, level, partial(make, bug)) for make, bugs in FAMILIES.items() for bug, level in bugs.items()] + [
    Mutant(bug, level, partial(mutants_updates.descent, name, bug))
    for name, (_, _, bugs) in mutants_updates.OPTIMIZERS.items()
    for bug, (level, _) in bugs.items()
]

OF_OTHER_TWINS = mutants_offline.FAMILIES | mutants_offline_data.FAMILIES
"""Families whose bugs are planted in several twins."""

SLOW = mutants_iqn.SLOW | mutants_offline.SLOW | mutants_offline_data.SLOW | mutants_robot.SLOW
SLOW |= {"iqn_step", "iqn_replay", "offline_data"}  # clean twins that take long
"""Names of clean twins and bugs that are left out of the default run."""
