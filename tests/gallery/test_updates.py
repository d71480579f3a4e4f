"""Update steps in the shapes of public code are the same step in JAX, and steps that look alike are not."""

import pytest

from crossfade.parity import Verdict, check
from default_run import few
from gallery.updates import UPDATES, WRONG


@pytest.mark.parametrize("name", few(UPDATES, "ppo", "sac actor"))
def test_an_update_in_the_shape_of_public_code_is_the_same_step(name):
    report = check(UPDATES[name].twin(name), "update")
    assert report.verdict is not Verdict.DIFFERENT, report.text()
    assert [row.level for row in report.rows if row.verdict is not None][-1] == "update"


@pytest.mark.parametrize("name", few(WRONG, "td3 critics"))
def test_an_update_that_looks_alike_is_different(name):
    report = check(UPDATES[name].twin(name, WRONG[name]), "update")
    assert report.verdict is Verdict.DIFFERENT


def test_there_are_enough_updates():
    assert len(UPDATES) >= 12
