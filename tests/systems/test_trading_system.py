"""Trading beyond the contract: schedules, growing from phase 1 to 2, what must fit, what others read of a run."""

import re
from dataclasses import replace

import numpy as np
import pytest
from contract import rows, settings, whole

from crossfade import checkpoint
from crossfade.cli import main
from crossfade.config import apply
from crossfade.errors import CheckpointError, UsageError
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.run.evaluation import Evaluation
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.curriculum import Curriculum
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.saving import adopt
from crossfade.trainers.torch_loop import TorchTrainer
from crossfade.trainers.training import train

PACE = ("steps=4", "chunk=2", "log_every=2", "checkpoint_every=2", "eval_every=0")
TINY = tuple(word for word in find("trading").tiny if not word.startswith(("steps=", "chunk=", "env.phase=")))


def config(mode: str, *words: str, phase: int = 2) -> TradingConfig:
    """The system's tiny run in four updates, all of which go through a curriculum."""
    return apply(TradingConfig(), (*TINY, *PACE, "dtype=float64", *words, f"mode={mode}", f"env.phase={phase}"))


def test_the_runs_of_the_contract_have_ends_of_both_kinds_and_move_their_curriculum():
    first, chosen = whole("trading", "torch").first, settings("trading", "torch")
    assert first["episodes"].all() and not first["illegal"].any()
    assert (first["mean_episode_length"] < 7).any() and (first["mean_episode_length"] > 1).all()
    course = [chosen.course(update) for update in range(chosen.steps)]
    assert all(len({row[name] for row in course}) > 1 for name in course[0])


@pytest.fixture
def unjudged(monkeypatch):
    """Runs in mode `torch` that end without trading the days held out, which takes seconds."""
    monkeypatch.setattr(TorchTrainer, "evaluate", lambda self, effort=None: Evaluation({}, {}))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """A whole run on disk, of phase 1."""
    chosen = config("torch", phase=1)
    with RunDir.create(tmp_path_factory.mktemp("runs"), "trading", chosen.parts, 0, chosen) as run:
        result = train(find("trading"), chosen, run, quiet=True)
    assert {"eval/daily", "eval/flat", "eval/random"} <= result.keys()
    return run


def test_a_run_is_prolonged_only_when_told_what_becomes_of_its_schedules(unjudged, tmp_path):
    chosen = replace(config("torch"), steps=2)
    with RunDir.create(tmp_path, "trading", chosen.parts, 0, chosen) as run:
        train(find("trading"), chosen, run, quiet=True)
        longer = replace(chosen, steps=3)
        with pytest.raises(UsageError, match="meant for 2 updates.*lr, curriculum.drawdown.*schedule=2.*schedule=3"):
            train(find("trading"), longer, run, resume=True, quiet=True)
        train(find("trading"), replace(longer, schedule=2), run, resume=True, quiet=True)
        assert checkpoint.load(run.checkpoints).step == 3
    replace(longer, steps=4, schedule=2).check_resumed(run.read_config(TradingConfig))  # nothing changes
    constant = replace(chosen, lr_final=chosen.lr, curriculum=Curriculum())
    replace(constant, steps=9).check_resumed(constant)
    with pytest.raises(UsageError, match="progress"):
        replace(constant, rules="seed_jax", steps=9).check_resumed(constant)


def test_phase_2_grows_from_a_run_of_phase_1_and_takes_over_its_statistics(run):
    old = checkpoint.load(run.checkpoints, side="numpy")
    seen = old.replay["buffer"]["statistics"]
    for mode in ("torch", "jax_full"):
        chosen = config(mode)
        snapshot, note = adopt(find("trading"), chosen, run.path)
        assert "bit for bit" in note and "KL" in note
        with precision(chosen):
            trainer = make_trainer(find("trading"), chosen, snapshot)
        start = trainer.snapshot()
        for name in ("trunk.0.weight", "actor.0.weight"):
            rows, columns = old.params[name].shape
            assert np.array_equal(start.parameters[name][:rows, :columns], old.params[name])
            assert not start.parameters[name][rows:].any() and not start.parameters[name][:, columns:].any()
        mean = start.buffer["statistics"]["mean"]
        assert (
            np.array_equal(mean, [*seen["mean"], *[0.0] * 8]) and start.buffer["statistics"]["count"] == seen["count"]
        )
    assert make_trainer(find("trading"), config("torch"), snapshot).run(0, 1)["illegal"] == 0


def test_another_run_of_the_same_phase_takes_over_the_statistics_too(run):
    snapshot, note = adopt(find("trading"), config("torch", "seed=3", phase=1), run.path)
    saved = checkpoint.load(run.checkpoints, side="numpy")
    assert note == "" and snapshot.optimizers == {}
    assert np.array_equal(snapshot.buffer["statistics"]["var"], saved.replay["buffer"]["statistics"]["var"])
    assert not np.array_equal(snapshot.buffer["state"]["t"], saved.replay["buffer"]["state"]["t"])


MISFITS = [
    (["hidden=9"], r"trunk.0.weight: expected float64 \(9, 38\)"),
    (["env.phase=2", "hidden=9"], "trunk.0.weight"),
    (["env.phase=2", "env.window=4"], "trunk.0.weight"),
    (["features=seed8"], "features: expected session"),
    (["dtype=float32"], "expected float32"),
]


@pytest.mark.parametrize(("words", "message"), MISFITS)
def test_weights_that_do_not_fit_are_refused_and_leave_no_folder(words, message, run, tmp_path, capsys):
    given = {word.split("=")[0]: word for word in (*TINY, *PACE, "dtype=float64", "mode=torch", *words)}
    command = ["train", "trading", *given.values(), "--weights", str(run.path), "--runs-dir", str(tmp_path)]
    assert main(command) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.glob("trading/*"))


def test_actions_have_names_for_logs_as_many_as_a_phase_knows():
    names = ("hold", "buy", "sell", "break_even", "trail", "stop_trailing", "close")
    for phase in (1, 2, 3):
        params = replace(TradingConfig().env, phase=phase)
        assert params.action_names == names[: params.n_actions]


def test_tensorboard_and_orbax_hold_the_run(run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    logged = [row for row in rows(run.path) if "train/loss" in row]
    assert [event.step for event in events.Scalars("train/loss")] == [row["step"] for row in logged]
    logs = {"train/action_buy", "train/action_sell", "train/explained_variance", "eval/daily"}
    assert logs <= set(events.Tags()["scalars"])
    assert [event.value for event in events.Scalars("train/curriculum.drawdown")] == [190, 150]  # means of two updates
    assert [event.value for event in events.Scalars("train/lr")] == pytest.approx([3e-4 * 7 / 8, 3e-4 * 3 / 8])
    with pytest.warns(UserWarning, match="orbax holds weights only; left out: optimizer, replay"):
        assert main(["convert", str(run.path), "--to", "orbax", "--out", str(tmp_path / "orbax")]) == 0
    saved, found = checkpoint.load(run.checkpoints, side="numpy"), checkpoint.import_orbax(tmp_path / "orbax")
    statistics = saved.replay["buffer"]["statistics"]
    expected = saved.params | {f"normalizer.{name}": statistics[name] for name in ("mean", "var", "count")}
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_accounts_of_another_size_are_refused():
    chosen = replace(settings("trading", "torch"), n_envs=8)
    with pytest.raises(CheckpointError, match="n_envs"):
        make_trainer(find("trading"), chosen, whole("trading", "torch").middle, 4)
