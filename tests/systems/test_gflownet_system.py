"""GFlowNets beyond the contract: every execution is the same system, and every mode clips and decays as torch does."""

import numpy as np
import pytest

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.errors import NoCounterpart
from crossfade.registry import find
from crossfade.trainers.making import make_trainer, precision
from default_run import few

SMALL = ("env=hypergrid", "hidden=16", "batch_size=8", "dtype=float64")


def config(mode: str, *words: str) -> GFlowNetConfig:
    return apply(GFlowNetConfig(), (*SMALL, *words, f"mode={mode}"))


def run(chosen: GFlowNetConfig) -> dict[str, np.ndarray]:
    with precision(chosen):
        trainer = make_trainer(find("gflownet"), chosen)
        return {**trainer.run(0, 8), **trainer.snapshot().parameters}


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    return run(config("torch"))


EXECUTIONS = [
    *(pytest.param(mode, "dense", marks=pytest.mark.slow) for mode in ("jax_minimal", "jax_policy", "jax_full")),
    pytest.param("jax_minimal", "unique", marks=pytest.mark.slow),
    *(("jax_policy", "unique"), ("jax_full", "unique")),
]


@pytest.mark.parametrize(("mode", "execution"), EXECUTIONS)
def test_every_execution_is_the_same_system(mode, execution, reference):
    assert_close(run(config(mode, f"execution={execution}")), reference)


CLIPPED = ("clip_norm=0.1", "lr_period=3", "lr_gamma=0.5")


@pytest.fixture(scope="module")
def clipped() -> dict[str, np.ndarray]:
    return run(config("torch", *CLIPPED))


@pytest.mark.parametrize("mode", few(("torch_pure", "jax_policy", "jax_full"), "torch_pure", "jax_full"))
def test_every_mode_clips_and_decays_as_torch_does(mode, clipped, reference):
    assert not np.allclose(clipped["trunk.0.weight"], reference["trunk.0.weight"])
    assert_close(run(config(mode, *CLIPPED)), clipped)


def test_clipping_that_step_cannot_do_is_refused():
    chosen = config("jax_minimal", "clip_norm=1.0")
    with precision(chosen), pytest.raises(NoCounterpart, match="clip_norm"):
        make_trainer(find("gflownet"), chosen)
