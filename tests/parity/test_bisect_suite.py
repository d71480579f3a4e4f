"""The score of `bisect` on the whole mutation suite: right line of one half, right cause.

    pytest tests/parity/test_bisect_suite.py -m slow      every bug; the score is printed at the end

Where a bug is comes from its plant (planted.py), why from causes_planted.py, both without a look at what `bisect` says.
"""

import pytest
from causes_planted import KINDS
from mutants import MUTANTS, Mutant
from mutants_updates import STEPS
from planted import Places, is_right, places

from crossfade.parity import Divergence, check
from default_run import few_of

LOCATED, EXPLAINED = 0.9, 0.8
MAPS = {
    "a bias left out of the mapping": ("fc1.bias",),
    "two leaves taken for one tensor": ("fc1.bias", "fc2.bias"),
}
"""Bugs of a mapping: no line computes anything wrong, so the right place is the leaf, which the level `map` names."""
QUICK = (
    "LayerNorm eps 1e-6",
    "advantage normalised with ddof 0",
    "missing stop_gradient on the target",
    "penalty held fixed",
    "Adam eps left at its default",
    "cost with the wrong sign",
    "quaternion in the order x, y, z, w",
)

NOT_LOCATED: set[str] = set()
"""What `bisect` does not find."""
NOT_EXPLAINED: set[str] = set()
"""What it finds without the right cause."""


def judge(mutant: Mutant) -> tuple[bool, bool]:
    """Whether the place is right, and whether the cause is as well."""
    report = check(mutant.make(), [mutant.level], dtype="float64", steps=STEPS, bisect=True)
    first = report.first
    if mutant.name in MAPS:
        named = first is not None and first.level == "map" and first.leaf in MAPS[mutant.name]
        return named, named
    if first is None or first.divergence is None:
        return False, False
    located = is_located(first.divergence, places(mutant))
    return located, located and first.divergence.kind in KINDS[mutant.name]


def is_located(found: Divergence, right: Places) -> bool:
    """Whether the line of at least one half is right."""
    return is_right(found.torch, right.sites["torch"]) or is_right(found.jax, right.sites["jax"])


@pytest.mark.parametrize("mutant", few_of({mutant.name: mutant for mutant in MUTANTS}, *QUICK))
def test_a_planted_bug_is_located_and_explained(mutant, record_property):
    located, explained = judge(mutant)
    record_property("bisect", (mutant.make.func.__name__, located, explained))
    assert located == (mutant.name not in NOT_LOCATED)
    assert explained == (mutant.name not in NOT_LOCATED | NOT_EXPLAINED)


def test_most_bugs_are_located_and_explained():
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 120 and names == KINDS.keys() | MAPS.keys()
    assert names >= NOT_LOCATED | NOT_EXPLAINED and not NOT_LOCATED & NOT_EXPLAINED
    assert len(NOT_LOCATED) <= (1 - LOCATED) * len(names)
    assert len(NOT_LOCATED | NOT_EXPLAINED) <= (1 - EXPLAINED) * len(names)
