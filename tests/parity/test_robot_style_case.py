"""A robot with a style is one system in both frameworks: PPO and discriminator, rewards, memory."""

import pytest

from crossfade import parity
from crossfade.systems.robot.twin import robot
from crossfade.verdict import Verdict

WORDS = ("style=amp", "style.hidden=16,8", "style.updates=2", "style.batch=32", "style.memory=256")
LEARNER = ["forward", "loss", "grad", "update"]


@pytest.mark.slow
def test_the_learner_is_the_same_but_for_rounding():
    """The discriminator's gradient of second order is in it."""
    report = parity.check(robot(*WORDS), LEARNER, dtype="float64", steps=(1,))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} == set(LEARNER)


@pytest.mark.slow
def test_rollouts_have_the_same_mixed_rewards_and_fill_the_memory_alike():
    report = parity.check(robot(*WORDS), ["rollout"], dtype="float64")
    assert report.verdict is Verdict.ROUNDING, report.text()
