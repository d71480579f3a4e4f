"""Every planted porting bug is found at the level where it lives; clean ports never raise an alarm."""

import pytest
from mutants import CLEAN, FAMILIES, MUTANTS, SLOW, Mutant
from mutants_iqn import FAMILIES as IQN
from mutants_offline import CRASHES, FAMILIES as OFFLINE, WITHOUT_A_NUMBER
from mutants_offline_data import FAMILIES as OFFLINE_DATA
from mutants_robot import FAMILIES as ROBOT
from mutants_updates import STEPS

from crossfade.parity import Verdict, check
from crossfade.parity.twin import LEVELS

OPTIMISERS = [name for name in CLEAN if name not in {make.__name__ for make in FAMILIES}]
QUICK_OPTIMISERS = ("cosine",)

DEAR = IQN | OFFLINE | OFFLINE_DATA | ROBOT

# One bug of each family of twins and of each optimiser at each level; dear twins say themselves which.
PLACES = {(*mutant.make.args[:-1], mutant.make.func, mutant.level): mutant for mutant in reversed(MUTANTS)}
QUICK = {name for name in CLEAN if name not in OPTIMISERS or name in QUICK_OPTIMISERS}
QUICK |= {mutant.name for mutant in PLACES.values()} | {mutant.name for mutant in MUTANTS if mutant.make.func in DEAR}
QUICK -= SLOW


def marked(named):
    """Cases by name, with a mark on those that are left out of the default run."""
    return [
        pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, case in named.items()
    ]


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
    assert {m.level for m in MUTANTS} == {m.level for m in MUTANTS if m.name in QUICK}
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_defect_of_the_published_port_is_planted_or_left_out_with_a_reason():
    """F01 to F47; the others are plain crashes, or have no number."""
    planted = {bug[:3] for bugs in (OFFLINE | OFFLINE_DATA).values() for bug in bugs}
    left_out = {*CRASHES, *WITHOUT_A_NUMBER}
    assert not planted & left_out
    assert planted | left_out == {f"F{number:02}" for number in range(1, 48)}
