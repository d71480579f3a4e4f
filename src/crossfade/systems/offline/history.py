"""What became of the published code: how its agents changed between two revisions, and whom its faults concern.

Framework-free. `algos/offline/config.py` says what each fault is, `params.py` of an agent what each change is in maths.
"""

from typing import NamedTuple

from ...algos.offline.config import QUIRKS, Quirk


class Change(NamedTuple):
    """A change of meaning after r2025-06, which r2026-05 has."""

    date: str
    says: str


CHANGES: dict[str, tuple[Change, ...]] = {
    "infom": (
        Change("2025-07-16", "KL is that of a standard deviation; before, log sigma was taken for a log variance"),
        Change("2025-08-03", "field and critic have no layer norms (agent.value_layer_norm)"),
        Change("2026-05-11", "an intention is shared by all goals of a critic target; before, each had its own"),
        Change("2026-05-11", "the noise of the future term is its own; before, that of the current term"),
    ),
    "fb_repr": (
        Change("2025-08-14", "the diagonal of the representation loss is subtracted, and the rest halved"),
        Change("2025-09-09", "the actor's values are of its own pairs; before, of all pairs of states and latents"),
        Change("2025-09-09", "members are brought together by their mean (agent.repr_agg); before, by their minimum"),
        Change("2025-10-19", "the actor's term teaches the actor alone; before, forward_repr too"),
    ),
    "td_infonce": (
        Change("2025-09-27", "members are brought together by their mean (agent.logit_agg); before, by their minimum"),
    ),
}
"""By agent; the others are the same in both revisions."""


class Fault(NamedTuple):
    """A fault of the published system."""

    number: str
    concerns: tuple[str, ...]
    """The agents; empty: all of them."""


FAULTS: dict[Quirk, Fault] = {
    "tiny_model_buffer": Fault("U1", ("mbpo_rebrac",)),
    "standing_rollouts": Fault("U2", ("mbpo_rebrac",)),
    "constant_center": Fault("U3", ("dino_rebrac",)),
    "unsynced_target": Fault("U4", ("fb_repr",)),
    "geometric_offset": Fault("U5", ("crl_infonce", "td_infonce", "hilp")),
    "own_statistics": Fault("U6", ()),
    "foreign_next_actions": Fault("U7", ("infom", "rebrac", "dino_rebrac", "mbpo_rebrac", "td_infonce")),
    "bare_dino": Fault("U8", ("dino_rebrac",)),
    "latent_mix": Fault("U9", ("fb_repr",)),
    "exorl_validation": Fault("U10", ()),
    "summed_norms": Fault("U12", ()),
    "first_member": Fault("U13", ("hilp",)),
}


def concerning(agent: str) -> tuple[Quirk, ...]:
    """The faults that change something for an agent."""
    return tuple(quirk for quirk in QUIRKS if agent in FAULTS[quirk].concerns or not FAULTS[quirk].concerns)
