"""All checkpoints at once: the compiled call, torch, and the records they give are the same."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from crossfade.config import apply
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.judging import checkpoints_jax, checkpoints_torch
from crossfade.systems.trading.judging.stage import Stage
from crossfade.systems.trading.system_torch import System
from crossfade.trainers.system import as_saved

CONFIG = apply(TradingConfig(), ["days=2", "eval_days=2", "env.window=2", "hidden=8", "n_envs=2", "dtype=float64"])


def test_the_checkpoints_of_a_run_do_the_same_in_both_frameworks():
    config, parameters, buffers, rng = CONFIG, [], [], np.random.default_rng(0)
    for seed in range(3):
        system = System(replace(config, seed=seed))
        parameters.append({name: array * 20 for name, array in system.parameters().items()})
        buffer = as_saved(system.start_buffer())
        buffer["statistics"]["mean"] += rng.normal(size=config.params.observation_dim)
        buffers.append(buffer)
    stage = Stage(config)
    vars(stage)["n_bars"] = 60  # the first hour
    one_by_one = checkpoints_torch.records(config, stage, parameters, buffers)
    with jax.enable_x64(True):
        together = checkpoints_jax.records(config, stage, parameters, buffers)
    for mine, theirs in zip(one_by_one, together, strict=True):
        for a, b in zip((*mine[:-1], *mine.state), (*theirs[:-1], *theirs.state), strict=True):
            assert np.array_equal(a, b)
        assert stage.brief(mine) == pytest.approx(stage.brief(theirs), nan_ok=True)
    assert len({stage.brief(of)["trades_per_day"] for of in together}) > 1
