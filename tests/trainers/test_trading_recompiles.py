"""A curriculum is data: a whole one goes through the programs that its first updates compiled."""

import jax
import pytest

from compilations import compilations
from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.trading import world
from crossfade.systems.trading.config import TradingConfig
from crossfade.trainers.making import make_trainer
from default_run import few

SMALL = (
    "mode=jax_full",
    "n_envs=4",
    "n_steps=4",
    "hidden=4",
    "layers=1",
    "days=2",
    "eval_days=1",
    "epochs=1",
    "minibatches=1",
    "env.window=2",
    "steps=12",
    "curriculum.drawdown=0:15000,0.5:5000,1:2500",
    "curriculum.stop_atr=0:2,1:1.5",
)
MOVING = "drawdown_cents", "stop_64", "commission_cents", "forced"


@pytest.mark.parametrize("devices", few((1, 2), 2))
def test_a_whole_curriculum_compiles_one_program_of_each_function(devices):
    chosen = apply(TradingConfig(), (*find("trading").presets["phase2"], *SMALL, f"devices={devices}"))
    course = [world.settings(chosen, update) for update in range(chosen.steps)]
    assert all(len({int(getattr(settings, name)) for settings in course}) > 2 for name in MOVING)
    trainer = make_trainer(find("trading"), chosen)
    with compilations() as first:
        trainer.run(0, 2)
    with compilations() as later:
        for step in range(2, chosen.steps, 2):
            trainer.run(step, 2)
    assert " ".join(first).count("train") == 1
    assert later == []


def test_a_compilation_is_noticed():
    with compilations() as found:
        jax.jit(lambda x: x + 1.25)(1.0).block_until_ready()
    assert len(found) == 1
    with compilations() as found:
        pass
    assert found == []
