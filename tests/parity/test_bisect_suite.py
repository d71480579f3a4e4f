"""The score of `bisect` on the mutation suite: right operation and line of one half, right cause."""

import pytest
from mutants import MUTANTS, Mutant
from mutants_updates import STEPS
from places import NOT_EXPLAINED, NOT_LOCATED, PLACES

from crossfade.parity import check

LOCATED, EXPLAINED = 0.9, 0.8


def judge(mutant: Mutant) -> tuple[bool, bool]:
    """Whether the place is right, and whether the cause is."""
    report = check(mutant.make(), dtype="float64", steps=STEPS, bisect=True)
    if mutant.level == "map":  # a difference of the mapping is found by the level itself
        return (report.first is not None and report.first.level == "map",) * 2
    found = None if report.first is None else report.first.divergence
    if found is None:
        return False, False
    sources = [place.source for place in (found.torch, found.jax) if place is not None]
    place = any(piece in source for piece in PLACES[mutant.name].lines for source in sources)
    return place, place and found.kind in PLACES[mutant.name].kinds


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [pytest.param(m, id=m.name) for m in MUTANTS if m.name in PLACES])
def test_a_planted_bug_is_located_and_explained(mutant):
    place, cause = judge(mutant)
    assert place or mutant.name in NOT_LOCATED
    assert cause or mutant.name in NOT_LOCATED | NOT_EXPLAINED


def test_most_bugs_are_located_and_explained():
    assert PLACES.keys() <= {mutant.name for mutant in MUTANTS}
    assert PLACES.keys() >= NOT_LOCATED | NOT_EXPLAINED and not NOT_LOCATED & NOT_EXPLAINED
    assert len(PLACES) >= 120
    assert len(NOT_LOCATED) <= (1 - LOCATED) * len(PLACES)
    assert len(NOT_LOCATED | NOT_EXPLAINED) <= (1 - EXPLAINED) * len(PLACES)
