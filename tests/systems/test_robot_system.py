"""What the contract cannot know of the robots: levels, curriculum, what is logged, judged, shown and exported."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contract import HALF, assert_close, everything, settings, tiny
from PIL import Image

from crossfade.cli import main
from crossfade.config import apply, from_yaml, to_yaml
from crossfade.envs.robot.params import RobotParams
from crossfade.envs.robot.rendering import rendered
from crossfade.envs.robot.robot_numpy import Robot
from crossfade.envs.robot.state import Terms, Told
from crossfade.envs.robot.view import stick_figures
from crossfade.errors import CheckpointError, UsageError
from crossfade.parity import check
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.systems.robot import evaluation, onnx_format, shown
from crossfade.systems.robot.config import RobotConfig
from crossfade.systems.robot.evaluation import RobotEffort, walk
from crossfade.systems.robot.twin import robot
from crossfade.trainers.making import make_trainer, precision
from default_run import few

SMALL = ("n_envs=4", "n_steps=8", "minibatches=2", "env.limit=20", "eval_episodes=3", "hidden=8")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of seconds."""
    folder = tmp_path_factory.mktemp("runs")
    words = [*SMALL, "steps=2", "chunk=2", "mode=torch"]
    assert main(["train", "robot", *words, "--quiet", "--runs-dir", str(folder)]) == 0
    return next(folder.glob("robot/*"))


# Levels


@pytest.mark.parametrize(
    ("level", "mode", "callback"), [(1, "jax_policy", False), (2, "jax_full", True), (3, "jax_full", False)]
)
def test_a_level_is_a_mode(level, mode, callback):
    config = apply(RobotConfig(), [f"level={level}"])
    assert (config.mode, config.env.callback, config.devices, config.level) == (mode, callback, 1, None)
    assert from_yaml(to_yaml(config), RobotConfig) == config
    assert replace(config, mode="torch").mode == "torch"  # as climb does


def test_level_4_is_shared_among_devices(monkeypatch):
    monkeypatch.setattr("crossfade.systems.robot.config.cores", lambda: 2)
    config = apply(RobotConfig(), ["level=4"])
    assert (config.mode, config.devices) == ("jax_full", 2)
    assert apply(RobotConfig(), ["level=4", "n_envs=3", "n_steps=8"]).devices == 1


def test_levels_that_are_none_are_refused():
    with pytest.raises(UsageError, match="level: expected 1"):
        apply(RobotConfig(), ["level=5"])
    with pytest.raises(UsageError, match="got mode=torch: say one of them"):
        apply(RobotConfig(), ["level=1", "mode=torch"])


@pytest.mark.slow
def test_level_2_learns_what_level_3_learns():
    found = []
    for callback in (False, True):
        config = settings("robot", "jax_full")
        config = replace(config, env=replace(config.env, callback=callback))
        with precision(config):
            trainer = make_trainer(find("robot"), config)
            trainer.run(0, HALF)
            found.append(everything(trainer.snapshot()))
    assert_close(*found)


def test_devices_give_the_same_run():
    found = []
    for devices in (1, 2):
        config = replace(settings("robot", "jax_full"), devices=devices)
        with precision(config):
            trainer = make_trainer(find("robot"), config)
            metrics = trainer.run(0, HALF)
            found.append({**metrics, **everything(trainer.snapshot())})
    assert_close(*found)


# Curriculum


def test_commands_widen_in_quarters():
    words = ["curriculum=true", "steps=8", "env.forward=0.2,0.6", "env.sideways=-0.2,0.2", "env.turning=-0.5,0.5"]
    config = apply(RobotConfig(), words)
    config = replace(config, dtype="float64")
    ranges = [tuple(np.round(np.stack(config.settings(step)), 6).T.tolist()) for step in (0, 2, 4, 6, 7)]
    still, wide, side, turn = [0.0, 0.0], [0.2, 0.6], [-0.2, 0.2], [-0.5, 0.5]
    assert ranges[0] == ([0.4, 0.4], still, still)
    assert ranges[1:4] == [(wide, still, still), (wide, side, still), (wide, side, turn)] and ranges[4] == ranges[3]
    assert [config.course(step)["stage"] for step in (0, 2, 7)] == [0, 1, 3]
    assert replace(config, dtype="float32").settings(0).low.dtype == np.float32


# Logs


@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_every_term_of_the_reward_is_logged_and_they_add_up(mode):
    config = settings("robot", mode)
    with precision(config):
        told = make_trainer(find("robot"), config).run(0, 2)
    assert set(Told._fields) <= set(told)
    total = sum(told[f"reward_{term}"] for term in Terms._fields)
    np.testing.assert_allclose(total, told["mean_reward"], rtol=1e-12)


# Judging


def test_a_robot_that_stands_still_walks_nowhere_and_does_not_fall():
    params = RobotParams(limit=40)
    found = walk(params, params.settings(), lambda seen: np.zeros((len(seen), 6), np.float32), 4)
    figures = evaluation.figures(params, found)
    assert figures["falls"] == 0 and figures["distance"] < 0.1 and figures["seconds"] == pytest.approx(1.0)
    assert figures["speed_error"] == pytest.approx(0.4, abs=0.1) and figures["torque"] > 0


def test_episodes_end_where_a_robot_falls():
    params = RobotParams(limit=200)
    rng = np.random.default_rng(0)
    found = walk(params, params.settings(), lambda seen: rng.choice([-1, 1], (len(seen), 6)).astype("float32"), 6)
    assert found.fell.any() and found.steps.min() < 200
    one = int(np.argmax(found.fell))
    after = found.qpos[int(found.steps[one]) :, one]
    np.testing.assert_array_equal(after, np.broadcast_to(after[0], after.shape))
    assert evaluation._shown(found)["shown_qpos"].shape[1] == 9


def test_eval_judges_under_another_physics_and_pushes(run, capsys):
    assert main(["eval", str(run), "--episodes", "3", "--physics", "mujoco", "--push", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["study"]["physics"] == "mujoco" and told["physics"] == "mujoco"
    assert [row["impulse"] for row in told["study"]["pushes"]] == [0.5, 1, 2, 4]
    assert told["test_set"].startswith("stilt6, physics=mujoco")
    with Image.open(run / "eval" / "episode.gif") as image:
        assert image.is_animated
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert "Under aba, 2 episodes" in capsys.readouterr().out


@pytest.mark.slow
def test_a_report_has_curves_terms_and_the_robot(run, tmp_path):
    assert main(["report", str(run), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    page = (tmp_path / "page.html").read_text()
    for said in ("Metres walked", "each term of the reward", "an animation of a robot"):
        assert said in page


def test_other_efforts_are_refused():
    with pytest.raises(UsageError, match="push"):
        RobotEffort(push=0.0)


# Pictures


def test_a_stick_figure_follows_its_robot():
    model = RobotParams(model="sprig11").load()
    home = np.array(model.home)
    far = home.copy()
    far[0] += 10.2
    one, two = stick_figures(model, np.stack([home, far]), ["a", "a"])
    assert one.shape == two.shape == (240, 360, 3) and one.dtype == np.uint8
    assert not np.array_equal(one, two)  # the marks on the ground go by
    np.testing.assert_array_equal(one[60:190], two[60:190])  # the robot stays in the middle
    assert len(np.unique(one.reshape(-1, 3), axis=0)) > 5
    episode = {"shown_qpos": np.stack([home] * 5)}
    with Image.open(io.BytesIO(shown.animate(RobotParams(model="sprig11"), episode))) as image:
        assert image.n_frames >= 1


def test_a_film_is_rendered_where_there_is_opengl_and_else_says_why(monkeypatch):
    params, model = RobotParams(), RobotParams().load()
    qpos = np.array([model.home] * 3)
    qpos[1:, 0] += 0.2, 20.2
    episode = {"shown_qpos": np.repeat(qpos, shown.EVERY, 0)}
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    film, drawn_by = shown.film(params, episode)
    assert drawn_by.startswith("stick figures. rendering: expected OpenGL") and "disabled: " in drawn_by
    assert film == shown.animate(params, episode)
    monkeypatch.delenv("MUJOCO_GL")
    try:
        pictures = rendered(model, qpos)
    except UsageError as error:
        pytest.skip(str(error))
    assert [picture.shape for picture in pictures] == [(240, 360, 3)] * 3
    first, near, far = (picture.astype(int) for picture in pictures)
    assert np.abs(first - near)[190:].max() > 20  # the marks on the ground go by
    assert np.abs(first - far)[60:170, 170:190].mean() < 8  # the robot stays, and in the light
    film, drawn_by = shown.film(params, episode)
    with Image.open(io.BytesIO(film)) as image:
        assert drawn_by == "MuJoCo" and image.n_frames == 3


# Export


EXPORTED = [
    (),
    ("squashed=true", "log_std=state"),
    ("normalize_observations=false",),
    ("apart=true", "activation=swish"),
    ("activation=relu",),
]


@pytest.mark.parametrize("words", few(EXPORTED, ()))
def test_an_onnx_model_acts_as_the_policy(words, tmp_path):
    onnx = pytest.importorskip("onnx")
    folder = str(tmp_path)
    assert main(["train", "robot", *SMALL, *words, "steps=1", "mode=torch", "--quiet", "--runs-dir", folder]) == 0
    run = next(tmp_path.glob("robot/*"))
    assert main(["convert", str(run), "--to", "onnx", "--out", str(tmp_path / "policy.onnx")]) == 0
    from onnx.reference import ReferenceEvaluator

    from crossfade import checkpoint
    from crossfade.systems.robot.system_torch import System
    from crossfade.trainers.saving import snapshot_of

    config = RunDir.open(run).read_config(RobotConfig)
    system, state = System(config), snapshot_of(checkpoint.load(run / "checkpoints", side="numpy"))
    act = system.greedy(system.make_policy(state.parameters))
    seen = []
    walker = evaluation.walker(config, lambda x, _: seen.append(x) or act(x, None), state.buffer["statistics"].values())
    walker(config.env, config.env.settings(), 2)
    raw = np.random.default_rng(0).normal(size=(5, 29)).astype(np.float32)
    (found,) = ReferenceEvaluator(onnx.load(tmp_path / "policy.onnx")).run(None, {"observation": raw})
    from crossfade.nn.normalizer_numpy import Statistics, normalize

    statistics = Statistics(*state.buffer["statistics"].values())
    expected = act(normalize(statistics, raw) if config.normalize_observations else raw, None)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.shape == (5, 6)


def test_a_model_that_acts_otherwise_is_not_written():
    pytest.importorskip("onnx")
    from crossfade.systems.robot.system_torch import System

    config = apply(RobotConfig(), SMALL)
    system = System(config)
    parameters = system.parameters() | {"normalizer.mean": np.zeros(29, "float32"), "normalizer.var": np.ones(29, "f4")}
    model = onnx_format.build(config, parameters)
    assert onnx_format.verify(config, parameters, model) < 1e-5
    moved = parameters | {"actor.0.bias": parameters["actor.0.bias"] + np.float32(0.01)}
    with pytest.raises(CheckpointError, match="other actions"):
        onnx_format.verify(config, moved, model)


# Doctor


def test_doctor_examines_a_users_mjcf(tmp_path, capsys):
    text = (Path(onnx_format.__file__).parents[2] / "envs/robot/robots/stilt6.xml").read_text()
    own = tmp_path / "own.xml"
    own.write_text(text.replace('model="stilt6"', 'model="own"'))
    assert main(["doctor", str(own)]) == 0
    said = capsys.readouterr().out
    assert "own: 6 actuators, 4 feet" in said and "well:" in said
    own.write_text(text.replace('joint="l_hip"', 'joint="l_hipp"'))
    assert main(["doctor", str(own)]) == 1
    assert "BROKEN" in capsys.readouterr().out


# Parity


LEARNING = ("forward", "loss", "grad", "update", "rollout")


@pytest.mark.parametrize("levels", few([LEARNING, ("env",), ("updates",)], ("env",)))
def test_the_twin_is_equal(levels):
    report = check(robot(), levels=levels)
    assert report.verdict.name in ("EQUAL", "ROUNDING"), report.text()


def test_tiny_has_everything_random():
    config = apply(RobotConfig(), tiny("robot"))
    assert config.env.randomisation.pushes and config.env.randomisation.noise and config.curriculum
    assert Robot(config.env).observation_dim == 32
