"""Every planted porting bug is found at the level where it lives; clean ports never raise an alarm."""

import pytest
from mutants import CLEAN, MUTANTS, SLOW, Mutant
from mutants_updates import STEPS

from crossfade.parity import Verdict, check
from crossfade.parity.twin import LEVELS


def marked(named):
    """Cases by name, with a mark on those that are left out of the default run."""
    return [pytest.param(case, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, case in named.items()]


@pytest.mark.parametrize("name", marked({name: name for name in CLEAN}))
def test_clean_twins_raise_no_alarm(name, record_property):
    record_property("mutation suite", "false alarms")
    report = check(CLEAN[name](), steps=STEPS)
    proved = [row for row in report.rows if row.verdict is not None]
    assert report.verdict is not Verdict.DIFFERENT, report.text()
    assert proved and all(row.float64 and row.float32 and row.guard for row in proved), report.text()


@pytest.mark.parametrize("mutant", marked({mutant.name: mutant for mutant in MUTANTS}))
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
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
