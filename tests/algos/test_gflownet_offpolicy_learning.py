"""Mixed batches learn the target, and learn it where a policy left to itself does not; measured exactly."""

import jax.numpy as jnp
import pytest

from crossfade.algos.gflownet import training_jax
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.registry import find
from crossfade.trainers.making import make_trainer

SMALL = ("hidden=64", "batch_size=32", "lr=0.003", "lr_gamma=0.3", "mode=jax_full")
CORNERS = ("env=hypergrid", "env.length=8", "env.r0=1e-3")
SPARSE = ("env=hypergrid", "env.length=8", "env.reward=sparse")
DECEPTIVE = ("env=hypergrid", "env.length=16", "env.reward=deceptive")
REPLAY = ("replay_batch=16", "replay_capacity=64", "replay_sampling=weighted")
DATA = ("data=all", "data_batch=16")


def learned(steps: int, *words: str) -> dict[str, float]:
    trainer = make_trainer(find("gflownet"), apply(GFlowNetConfig(), (*SMALL, f"lr_period={steps * 2 // 5}", *words)))
    trainer.run(0, steps)
    return trainer.evaluate().metrics


@pytest.mark.slow
def test_a_mixed_batch_learns_the_target():
    found = learned(1000, *CORNERS, *REPLAY, *DATA)
    assert found["eval/tv"] < 0.02 and found["eval/log_z_error"] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_replay_alone_does_not_bias_what_is_learned(sampling):
    found = learned(2000, *CORNERS, *REPLAY[:2], f"replay_sampling={sampling}")
    assert found["eval/tv"] < 0.02 and found["eval/log_z_error"] < 0.05


def test_ways_back_without_their_stop_are_noticed(monkeypatch):
    """A batch that is silently wrong still trains: the exact distance is what tells."""
    right = training_jax.concatenate

    def wrong(forward, back):
        last = jnp.sum(back.valid, 0, keepdims=True) - 1
        return right(forward, back._replace(valid=back.valid & (jnp.arange(len(back.valid))[:, None] != last)))

    monkeypatch.setattr(training_jax, "concatenate", wrong)
    found = learned(1000, *CORNERS, *REPLAY, *DATA, "seed=1")  # another config, so that nothing compiled is used again
    assert not found["eval/tv"] < 0.02


@pytest.mark.slow
def test_data_finds_what_a_policy_left_to_itself_misses():
    assert learned(1000, *SPARSE)["eval/tv"] > 0.3  # one of three modes is never found
    assert learned(1000, *SPARSE, *DATA)["eval/tv"] < 0.02


@pytest.mark.slow
def test_replay_helps_on_a_deceptive_reward():
    alone, helped = (learned(2000, *DECEPTIVE, *words)["eval/tv"] for words in ((), REPLAY))
    assert helped < 0.06 < 0.2 < alone
