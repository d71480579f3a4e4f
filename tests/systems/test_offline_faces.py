"""What a user sees of offline runs: pictures, the headline, policies from files in Gymnasium, commands of the page."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import jaxtyping
import numpy as np
import pytest

from crossfade.cli import main
from crossfade.envs.maze.data import collect, relabel
from crossfade.envs.maze.params import MazeParams
from crossfade.errors import UsageError
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.systems.offline import generate, pictures, summary
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.data import load
from crossfade.systems.offline.evaluation import EPISODES, OfflineEffort, evaluate, play_maze
from crossfade.systems.offline.gymnasium_evaluation import play
from crossfade.verbs.configured import read_config

RECORD = find("offline")
PAGE = (Path(__file__).parents[2] / "docs" / "offline.md").read_text()
UMAZE = MazeParams(map="umaze")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny run that was judged in training."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jaxtyping.config, "jaxtyping_disable", True)
        pace = ["mode=torch", "log_every=2", "eval_every=4", "--quiet", "--runs-dir", str(root)]
        assert main(["train", "offline", *RECORD.tiny, *pace]) == 0
    return next(root.glob("offline/*"))


def config_of(run):
    return RunDir(run).read_config(OfflineDataConfig)


# Pages


def test_pictures_show_success_losses_and_ways(run):
    config = config_of(run)
    shown = pictures.pictures(config, {"hilp s0": run})
    assert len(shown) == 3 and all(picture.startswith("<svg") for picture, _ in shown)
    success, losses, ways = (picture for picture, _ in shown)
    assert "scripted" in success and "random" in success
    assert all(term in losses for term in ("metric_loss", "skill_value_loss", "skill_critic_loss", "skill_actor_loss"))
    arrived = np.load(run / "eval" / "success.npy").sum()
    assert f"{int(arrived)} of them arrive" in shown[2][1] and (pictures.LOST in ways) == (arrived < 4)


def test_ways_that_arrive_have_another_colour():
    paths = np.cumsum(np.full((3, 2, 2), 0.1), 0) + 1.2
    drawn = pictures.maze(UMAZE, paths, np.array([True, False])).axes[0].lines
    colours = [line.get_color() for line in drawn if len(line.get_xdata()) == 3]
    assert sorted(colours) == sorted([pictures.ARRIVED, pictures.LOST])


def test_the_headline_tells_both_phases(run):
    told = summary.headline(config_of(run), run)
    assert re.match(r"success \d+%.* after 8 updates, \d+ steps an episode; \d+%.* when pre-training ended", told)
    assert told.endswith("Those who collected the data 100%, random actions 0%.")
    assert [section.title for section in summary.summary(config_of(run), {"a": run})] == ["Headline"]


def test_a_run_without_evaluations_has_no_headline(tmp_path):
    row = {"step": 7, "env_steps": 0, "updates": 7, "wall": 1.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row | {"train/loss": 1.0}) + "\n")
    assert summary.summary(OfflineDataConfig(), {"a": tmp_path}) == []
    assert pictures.pictures(OfflineDataConfig(), {"a": tmp_path}) == []
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row | {"eval/finetuning/loss": 2.5}) + "\n")
    assert "fine-tuning 2.5 on held-out data after 7 updates" in summary.headline(OfflineDataConfig(), tmp_path)


# Gymnasium


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The maze's data as a file of OGBench's kind."""
    rows = collect(UMAZE, 6, 30, 0)
    rewards, masks = relabel(UMAZE, rows.observations)
    path = tmp_path_factory.mktemp("data") / "umaze.npz"
    np.savez(path, **rows._asdict(), rewards=rewards, masks=masks)
    return path


class Told(gymnasium.Env):
    """An episode of three steps that notes what is done in it."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-2, 4, (2,), np.float32)

    def __init__(self, says="nothing", ends="terminated"):
        self.says, self.ends, self.seeds, self.actions = says, ends, [], []
        MADE.append(self)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.seeds.append((seed, np.random.randint(10**6)))
        return np.array([1.0, 2.0]), {}

    def step(self, action):
        self.t += 1
        self.actions.append(action)
        info = {} if self.says == "nothing" else {"success": self.says == "success"}
        over = self.t == 3
        ends = over and self.ends == "terminated", over and self.ends == "truncated"
        return np.array([1.0, 2.0]) + self.t, -1.0, *ends, info


MADE: list[Told] = []
gymnasium.register("crossfade-test/Told-v0", entry_point=Told, disable_env_checker=True)


def judged(monkeypatch, file, episodes=2, **words):
    """Episodes of a policy that acts 1, -1."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(gymnasium, "make", lambda name: Told(**words))
    config = OfflineDataConfig(data=str(file), gym="crossfade-test/Told-v0", normalize="none")
    data, seen = load(config), []

    def act(observations):
        seen.append(observations)
        return np.array([[1.0, -1.0]])

    return play(config, data, act, episodes), seen


@pytest.mark.parametrize(
    ("says", "ends", "success"),
    [
        ("nothing", "terminated", True),
        ("nothing", "truncated", False),
        ("success", "truncated", True),
        ("failure", "terminated", False),
    ],
)
def test_success_is_what_the_info_says_or_else_termination(monkeypatch, file, says, ends, success):
    played, _ = judged(monkeypatch, file, says=says, ends=ends)
    assert played.success.tolist() == [success] * 2
    assert played.length.tolist() == [3, 3] and played.returns.tolist() == [-3.0, -3.0]
    assert played.paths.shape == (0, 2, 2)


def test_actions_are_scaled_and_episodes_seeded(monkeypatch, file):
    before = np.random.get_state()[1].tolist()
    _, seen = judged(monkeypatch, file)
    world = MADE[-1]
    np.testing.assert_array_equal(world.actions, np.full((6, 2), [4.0, -2.0]))
    assert all(action.dtype == np.float32 for action in world.actions)
    assert [seed for seed, _ in world.seeds] == [EPISODES, EPISODES + 1]
    drawn = [number for _, number in world.seeds]
    judged(monkeypatch, file)
    assert [number for _, number in MADE[-1].seeds] == drawn and drawn[0] != drawn[1]
    assert np.random.get_state()[1].tolist() == before
    np.testing.assert_array_equal(np.concatenate(seen[:3]), [[1, 2], [2, 3], [3, 4]])
    assert seen[0].dtype == np.float32


def test_observations_are_normalised_as_the_data_are(monkeypatch, file):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(gymnasium, "make", lambda name: Told())
    config = OfflineDataConfig(data=str(file), gym="crossfade-test/Told-v0", dtype="float64")
    data, seen = load(config), []
    play(config, data, lambda x: (seen.append(x), np.zeros((1, 2)))[1], 1)
    np.testing.assert_allclose(seen[0], (np.array([[1, 2]]) - data.statistics.shift) / data.statistics.scale)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("crossfade-test/Tald-v0", "gym: expected an environment of Gymnasium"),
        ("CartPole-v1", "gym: expected actions (2,)"),
        ("Pendulum-v1", "gym: expected actions (2,)"),
        ("pointmaze-medium-v0", "crossfade[ogbench]"),
    ],
)
def test_other_environments_are_refused_before_training(name, hint, file, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogbench", None)
    words = [f"data={file}", f"gym={name}", "steps=2", "pretrain=1", "--quiet", "--runs-dir", str(tmp_path)]
    assert main(["train", "offline", *words]) == 2
    assert hint in capsys.readouterr().err


def test_without_gymnasium_it_says_so(file, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    words = [f"data={file}", "gym=CartPole-v1", "validation=0.4", "--quiet", "--runs-dir", str(tmp_path)]
    assert main(["train", "offline", *words]) == 2
    assert "crossfade[gymnasium]" in capsys.readouterr().err


def test_frames_are_stacked_in_the_maze_and_in_gymnasium(monkeypatch, file):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(gymnasium, "make", lambda name: Told())
    config = OfflineDataConfig(data=str(file), gym="crossfade-test/Told-v0", normalize="none", frame_stack=2)
    seen = []
    act = lambda x: (seen.append(x.copy()), np.zeros((len(x), 2)))[1]
    play(config, load(config), act, 1)
    np.testing.assert_array_equal(np.concatenate(seen), [[1, 2, 1, 2], [1, 2, 2, 3], [2, 3, 3, 4]])
    maze = OfflineDataConfig(env=replace(UMAZE, limit=3), episodes=4, length=9, normalize="none", frame_stack=2)
    seen.clear()
    moving = lambda x: (seen.append(x.copy()), np.ones((len(x), 2)))[1]
    evaluate(maze, load(maze), moving, dict, OfflineEffort(episodes=5))
    assert [x.shape for x in seen] == [(5, 4)] * 6  # three steps from the task's start, three from anywhere
    for first in (seen[0], seen[3]):
        np.testing.assert_array_equal(first[:, :2], first[:, 2:])
    np.testing.assert_array_equal(seen[2][:, :2], seen[1][:, 2:])
    assert (seen[1][:, :2] != seen[1][:, 2:]).any()


def test_episodes_also_begin_anywhere():
    config, still = OfflineDataConfig(env=UMAZE, episodes=4, length=9, normalize="none"), np.zeros_like
    played = play_maze(UMAZE, still, 300, anywhere=True)
    column, row = np.floor(played.paths[0]).astype(int).T
    assert set(row * UMAZE.walls.shape[1] + column) == set(UMAZE.free)
    near = np.linalg.norm(played.paths[0] - UMAZE.goal, axis=-1) <= UMAZE.tolerance
    np.testing.assert_array_equal(played.success, near)
    found = evaluate(config, load(config), still, dict, OfflineEffort(episodes=300)).metrics
    assert found["eval/success"] == 0 and found["eval/anywhere"] == near.mean() > 0


def test_missing_data_are_wrong_usage(tmp_path, capsys):
    assert main(["train", "offline", f"data={tmp_path / 'none.npz'}", "--quiet", "--runs-dir", str(tmp_path)]) == 2
    assert "where nothing is" in capsys.readouterr().err


# Generated data


def test_without_ogbench_generate_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogbench", None)
    assert main(["generate", "offline", "transitions=10", "--to", str(tmp_path / "a.npz")]) == 2
    assert "crossfade[ogbench]" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["gflownet", "--to", "a.npz"], "expected offline"),
        (["offline"], "--to: expected the .npz"),
        (["offline", "--to", "a.csv"], "ends in .npz"),
        (["offline", "env=pointmaze-medum", "--to", "a.npz"], "Did you mean 'pointmaze-medium'?"),
        (["offline", "transitions=0", "--to", "a.npz"], "transitions: expected an integer from 1"),
        (["offline", "task=6", "--to", "a.npz"], "task"),
        (["offline", "sed=1", "--to", "a.npz"], "Did you mean 'seed'?"),
    ],
)
def test_bad_words_of_generate(words, hint, capsys):
    assert main(["generate", *words]) == 2
    assert hint in capsys.readouterr().err


def test_equal_data_are_equal_files_with_their_hash(tmp_path):
    arrays = {"observations": np.ones((3, 2), np.float32), "terminals": np.array([False, False, True])}
    first, second = (generate.write(arrays, tmp_path / f"{name}.npz") for name in "ab")
    assert first == second and (tmp_path / "a.npz.sha256").read_text() == f"{first}  a.npz\n"
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert set(found) == set(arrays) and (found["observations"] == 1).all()


def test_an_unknown_environment_is_refused():
    with pytest.raises(UsageError, match="cube-single"):
        generate.generate("cube-singl", 10)


# The page


COMMANDS = re.findall(r"^(crossfade .*?)(?:\s+#.*)?$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_are_understood(command, capsys):
    _, verb, *words = command.split()
    if verb == "describe":
        assert main([verb, *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["agent"] == "infom"
    elif verb in ("train", "climb"):
        preset = words[words.index("--preset") + 1] if "--preset" in words else None
        options = {"--preset", preset, "--weights", "published"}
        assert isinstance(
            read_config(RECORD, tuple(w for w in words[1:] if w not in options), None, preset), OfflineDataConfig
        )
    else:
        with pytest.raises(SystemExit) as stop:
            main([verb, *words, "--help"])
        assert stop.value.code == 0


def test_the_page_names_every_agent_term_and_fault():
    from crossfade.algos.offline.config import AGENTS, QUIRKS
    from crossfade.loading import load_attribute

    assert len(COMMANDS) > 10
    for name, place in AGENTS.items():
        assert f"**`{name}`**" in PAGE
        for terms in load_attribute(place)().terms.values():
            assert all(term in PAGE for term in terms)
    assert all(f"`{quirk}`" in PAGE for quirk in QUIRKS)
