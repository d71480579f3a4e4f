"""Treasurehunt is learned: greedy return after 500 epochs, in the torch loop and compiled; memory is flat."""

import resource

import pytest

from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.trainers.making import make_trainer

SMALL = ("env.height=6", "env.width=6", "env.agents=2", "env.items=gem:10:0.1", "env.turns=20", "env.radius=1")
QUICK = (*SMALL, "frames=2", "hidden=32", "cosines=8", "memory=512", "batch_size=32", "tau=0.02")
LEARNING = (*QUICK, "lr=3e-3", "epsilon_decay=0.02", "steps=200", "chunk=100")


def trained(*words: str):
    config = apply(TreasurehuntConfig(), words)
    trainer = make_trainer(find("treasurehunt"), config)
    for step in range(0, config.steps, config.chunk):
        trainer.run(step, config.chunk)
    return trainer


@pytest.mark.slow
def test_agents_learn_to_collect_on_a_small_map():
    found = trained("mode=jax_full", *LEARNING).evaluate().metrics
    assert found["eval/return"] > found["eval/random"] + 0.5 * (found["eval/nearest"] - found["eval/random"])


@pytest.mark.slow
def test_agents_that_do_not_learn_do_not_collect():
    found = trained("mode=jax_full", *QUICK, "lr=1e-12", "steps=100", "chunk=100").evaluate().metrics
    assert found["eval/return"] < found["eval/random"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_the_published_map_is_learned(mode, seed):
    """Random play earns about 265 and a rule that goes to the nearest gem about 520."""
    found = trained(f"mode={mode}", f"seed={seed}", "steps=500", "chunk=50").evaluate().metrics
    assert found["eval/return"] >= 430


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_memory_is_flat_over_a_thousand_epochs(mode):
    """The most memory that the process has held hardly grows after the first two hundred."""
    trainer = make_trainer(find("treasurehunt"), apply(TreasurehuntConfig(), (f"mode={mode}", *QUICK, "chunk=100")))
    held = []
    for step in range(0, 1000, 100):
        trainer.run(step, 100)
        held.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert held[-1] - held[1] < 0.02 * held[1]
