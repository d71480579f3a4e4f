"""The score of `bisect` on the mutation suite: right operation and line of one half, right cause.

pytest tests/parity/test_bisect_suite.py -m slow -s
"""

from functools import cache

import pytest
from mutants import FAMILIES, MUTANTS, Mutant
from mutants_updates import STEPS
from places import PLACES

from crossfade.parity import Divergence, check

NAMES = [*(make.__name__ for make in FAMILIES), "descent"]
JUDGED = sorted({m.make.func.__name__ for m in MUTANTS if m.name in PLACES}, key=NAMES.index)
LOCATED, EXPLAINED = 0.9, 0.8


@cache
def located(mutant: Mutant) -> Divergence | None:
    report = check(mutant.make(), dtype="float64", steps=STEPS, bisect=True)
    return None if report.first is None else report.first.divergence


def judge(mutant: Mutant) -> tuple[bool, bool]:
    """Whether the place is right, and whether the cause is."""
    if mutant.level == "map":  # a difference of the mapping is found by the level itself
        first = check(mutant.make(), dtype="float64", steps=STEPS).first
        return (first is not None and first.level == "map",) * 2
    found = located(mutant)
    if found is None:
        return False, False
    places = [place.source for place in (found.torch, found.jax) if place is not None]
    place = any(piece in source for piece in PLACES[mutant.name].lines for source in places)
    return place, place and found.kind in PLACES[mutant.name].kinds


@pytest.mark.slow
@pytest.mark.parametrize("family", JUDGED)
def test_planted_bugs_are_located_and_explained(family, record_property):
    own = [m for m in MUTANTS if m.make.func.__name__ == family and m.name in PLACES]
    scores = {mutant.name: judge(mutant) for mutant in own}
    for name, (place, cause) in scores.items():
        print(f"{family:<18} {'located' if place else '-------'} {'explained' if cause else '---------'} {name}")
    assert sum(place for place, _ in scores.values()) >= LOCATED * len(own) - 1
    assert sum(cause for _, cause in scores.values()) >= EXPLAINED * len(own) - 1


def test_every_place_is_that_of_a_mutant():
    assert PLACES.keys() <= {mutant.name for mutant in MUTANTS}
    assert len(PLACES) >= 120
