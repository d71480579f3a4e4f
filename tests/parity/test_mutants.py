"""Every planted porting bug is found at the level where it lives; clean ports never raise an alarm."""

import pytest
from mutants import CLEAN, FAMILIES, MUTANTS, Mutant
from mutants_updates import STEPS

from crossfade.parity import Verdict, check
from crossfade.parity.twin import LEVELS

OPTIMISERS = [name for name in CLEAN if name not in {make.__name__ for make in FAMILIES}]
QUICK_OPTIMISERS = ("cosine",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in OPTIMISERS and name not in QUICK_OPTIMISERS else ())
        for name in CLEAN
    ],
)
def test_clean_twins_raise_no_alarm(name, record_property):
    record_property("mutation suite", "false alarms")
    report = check(CLEAN[name](), steps=STEPS)
    proved = [row for row in report.rows if row.verdict is not None]
    assert report.verdict is not Verdict.DIFFERENT, report.text()
    assert proved and all(row.float64 and row.float32 and row.guard for row in proved), report.text()


# One bug of each family of twins and of each optimiser at each level.
PLACES = {(*mutant.make.args[:-1], mutant.make.func, mutant.level): mutant for mutant in reversed(MUTANTS)}
QUICK = {mutant.name for mutant in PLACES.values()}


@pytest.mark.parametrize(
    "mutant", [pytest.param(m, id=m.name, marks=() if m.name in QUICK else pytest.mark.slow) for m in MUTANTS]
)
def test_mutant_is_caught_at_its_level(mutant: Mutant, record_property):
    record_property("mutation suite", "mutants")
    report = check(mutant.make(), dtype="float64", steps=STEPS)
    assert report.verdict is Verdict.DIFFERENT
    assert report.first is not None
    assert report.first.level == mutant.level, report.text()
    below = LEVELS[: LEVELS.index(mutant.level)]
    assert all(row.verdict is not Verdict.DIFFERENT for row in report.rows if row.level in below)
    assert report.first.difference.kind not in ("hollow", "no counterpart")


def test_the_suite_is_large_and_its_names_are_unique():
    assert {m.level for m in MUTANTS} == {m.level for m in MUTANTS if m.name in QUICK}
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
