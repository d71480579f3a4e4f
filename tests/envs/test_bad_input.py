"""Bad settings, bad rewards and bad files are answered in words: what was expected, what came, what to do."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from crossfade import config as settings
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.sampling import dataset
from crossfade.envs.dag.registry import make, params_class
from crossfade.envs.dag.rewards import find_bad
from crossfade.envs.dag.words.params import SequenceParams
from crossfade.errors import NotFiniteError, RewardError, UsageError
from crossfade.registry import find
from crossfade.run.finite import check_finite
from crossfade.trainers.making import make_trainer, precision

FOLDER = Path(__file__).parent.parent.parent / "examples" / "own_environment"
SMALL = ["hidden=4", "layers=1", "batch_size=16", "epsilon=1", "execution=dense"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env=hypergird"], "unknown choice 'hypergird'. Did you mean 'hypergrid'.*Known: grid, hypergrid"),
        (["env=bit"], "Did you mean 'bits'"),
        (["loss=subtp"], "loss: expected one of tb .* got 'subtp'. Did you mean 'subtb'"),
        (["loss=vargard"], "Did you mean 'vargrad'"),
        (["env=grid", "env.length=1"], "env.length: expected an integer from 2 to 1,000,000, got 1"),
        (["env=hypergrid", "env.length=1"], "env.length: expected an integer from 2 to 1,000,000, got 1"),
        (["env=hypergrid", "env.r0=0"], "r0: expected a finite number above 0, got 0"),
        (["env=hypergrid", "env.r0=-0.1"], "r0: expected a finite number above 0, got -0.1"),
        (["env=hypergrid", "env.r2=-1"], "r2: expected a finite number of at least 0, got -1"),
        (["env=hypergrid", "env.r1=nan"], "r1: expected a finite number of at least 0, got nan"),
        (["env=grid", "env.variance=0"], "variance: expected a finite number from 1e-06 to 1,000,000, got 0"),
        (["env=grid", "env.mu=inf"], "mu: expected a finite number from 0 to 1, got inf"),
        (["env=set", "env.value_scale=inf"], "value_scale: expected a finite number of at least 0, got inf"),
        (["env=bits", "env.beta=nan"], "beta: expected a finite number of at least 0, got nan"),
        (["env=sequence", "env.floor=0"], "floor: expected a finite number above 0, got 0"),
        (["env=sequence", "env.scale=-1"], "scale: expected a finite number above 0, got -1"),
        (["env=ising", "env.coupling=nan"], "coupling: expected a finite number, got nan"),
        (["env=ising", "env.side=1"], "env.side: expected an integer from 2 to 64, got 1"),
        (["env=bayesnet", "env.obs_variance=0"], "obs_variance: expected a finite number above 0, got 0"),
        (["env=phylo", "env.temperature=0"], "temperature: expected a finite number above 0, got 0"),
        (["env=phylo", "env.constant=nan"], "env.constant: expected a finite number, got nan"),
    ],
)
def test_bad_settings_are_refused(words, message):
    with pytest.raises(UsageError, match=message):
        settings.apply(GFlowNetConfig(), words)


def test_negative_values_of_a_landscape_are_refused_and_large_ones_do_not_overflow(tmp_path):
    rows = [("aa", 0.5), ("ab", -0.25), ("ba", 1e200), ("bb", 0)]
    file = tmp_path / "y.csv"
    file.write_text("\n".join(f"{s},{v}" for s, v in rows))
    with pytest.raises(UsageError, match="at least 0, got -0.25 for ab .1 such of 4 rows.*shift negative ones"):
        SequenceParams(length=2, letters="ab", file=str(file))
    file.write_text(file.read_text().replace("-0.25", "0.25"))
    table = SequenceParams(length=2, letters="ab", file=str(file)).log_table
    np.testing.assert_allclose(table, [np.log(1.25), np.log(10 / 64), np.log(10) + 600 * np.log(10), np.log(1e-3)])


def test_objects_of_the_wrong_width_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 3), int))
    with pytest.raises(UsageError, match=r"one object of 2 integers in each row, got an array of shape \(4, 3\)"):
        dataset.load(str(tmp_path / "x.npy"), make(params_class("grid")(), "numpy"))


# Rewards that are not numbers


@pytest.fixture
def line(monkeypatch):
    """The example environment, with a way to spoil the reward of its last cell."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    import my_env

    def spoil(value, *twins, length):
        changes = {
            "numpy": (my_env.LineNumpy, lambda x, r: np.where(x[..., 0] == length - 1, value, r)),
            "jax": (my_env.LineJax, lambda x, r: jnp.where(x[0] == length - 1, value, r)),
        }
        for twin in twins:
            cls, change = changes[twin]
            monkeypatch.setattr(cls, "log_r", lambda self, x, r=cls.log_r, change=change: change(x, r(self, x)))
        return my_env.LineParams(length=length)

    return spoil


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_named_with_its_object(line, value):
    env = make(line(value, "numpy", length=6), "numpy")
    with pytest.raises(RewardError, match=rf"got {value} from LineNumpy for x = \[5\] .1 such of 6 objects.*floor"):
        env.log_reward(env.state(np.arange(6)))
    assert np.isfinite(env.log_reward(env.state(np.arange(5)))).all()


@pytest.mark.parametrize("mode", ["torch", "torch_pure", "jax_minimal", "jax_policy"])
def test_modes_on_the_host_name_the_object(line, mode, monkeypatch):
    monkeypatch.setattr("crossfade.trainers.torch_pure.find_compiler", lambda: ("", "not asked for"))  # not compiled
    params = line(np.nan, "numpy", "jax", length=4)
    config = settings.apply(GFlowNetConfig(env=params), [f"mode={mode}", *SMALL])
    trainer = make_trainer(find("gflownet"), config)
    with pytest.raises(RewardError, match=r"got nan from LineNumpy for x = \[3\]"):
        trainer.run(0, 1)


def test_the_compiled_mode_names_the_step_and_the_object(line):
    params = line(np.nan, "jax", length=4)
    config = settings.apply(GFlowNetConfig(env=params), ["mode=jax_full", *SMALL])
    with precision(config):
        metrics = make_trainer(find("gflownet"), config).run(10, 3)
        with pytest.raises(NotFiniteError, match=r"nan in iteration 1\d. The reward .* nan from LineJax for x = \[3\]"):
            check_finite(metrics, 10, config.blame)


def test_a_loss_that_diverges_is_told_apart_from_a_bad_reward():
    loss = np.array([1.0, np.inf, np.nan])
    with pytest.raises(NotFiniteError, match="got loss = inf in iteration 101. All rewards.* lower the learning rates"):
        check_finite({"mean_length": np.ones(3), "loss": loss}, 100, GFlowNetConfig(env=params_class("toy")()).blame)
    check_finite({"loss": np.ones(3)}, 0)
    assert find_bad(None) == ""
