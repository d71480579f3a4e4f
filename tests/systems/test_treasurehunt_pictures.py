"""What a user sees of treasurehunt: the page and the files of a run, and what eval prints."""

import json
import re
import shutil

import jaxtyping
import numpy as np
import pytest
from PIL import Image

from crossfade.cli import main
from crossfade.config import apply
from crossfade.envs.treasurehunt.params import AGENT, TreasurehuntParams
from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.systems.treasurehunt import baselines, shown, verdict
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.systems.treasurehunt.pictures import _ordinal, pictures
from crossfade.systems.treasurehunt.summary import summary

RECORD = find("treasurehunt")
CONFIG = apply(TreasurehuntConfig(), (*RECORD.tiny, "mode=torch"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was trained and not evaluated; to be copied."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jaxtyping.config, "jaxtyping_disable", True)
        pace = ["mode=torch", "log_every=2", "eval_every=4", "--quiet", "--runs-dir", str(root)]
        assert main(["train", "treasurehunt", *RECORD.tiny, *pace]) == 0
    return next(root.glob("treasurehunt/*"))


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, in a folder of runs of its own."""
    return shutil.copytree(trained, tmp_path / "treasurehunt" / trained.name)


def array(run, name):
    return np.load(run / "eval" / f"{name}.npy", allow_pickle=False)


# The game that is kept


def test_the_game_that_is_kept_is_one_that_was_played(trained):
    grids, places, roles, earned = (array(trained, f"shown_{name}") for name in shown.NAMES)
    turns, agents = CONFIG.env.turns, CONFIG.env.agents
    assert grids.shape == (turns + 1, 6, 6) and places.shape == (turns + 1, agents, 2)
    assert roles.shape == earned.shape == (turns + 1, agents)
    for grid, here in zip(grids, places, strict=True):
        assert sorted(map(tuple, here)) == sorted(map(tuple, np.argwhere(grid == AGENT)))
    assert (np.abs(np.diff(places, axis=0)).sum(-1) <= 1).all()
    assert not roles.any() and not earned[0].any()
    total = array(trained, "returns").sum(1)
    assert earned[-1].sum() == np.sort(total)[len(total) // 2]


def test_a_long_game_is_kept_from_its_start_only(monkeypatch, trained):
    from crossfade.systems.treasurehunt import evaluation

    monkeypatch.setattr(evaluation, "SHOWN", 3)
    judged = evaluation.judging(CONFIG, 4)
    noise = evaluation.draw_games(judged)
    found = evaluation.evaluate(
        CONFIG, lambda config, noise: baselines.play(config, baselines.nearest(CONFIG.env), noise)
    )
    assert all(len(found.arrays[f"shown_{name}"]) == 4 for name in shown.NAMES)
    game = Treasurehunt(CONFIG.env)
    starts = [CONFIG.env.crop(game.begin(start).grid).tolist() for start in noise.start]
    assert found.arrays["shown_grids"][0].tolist() in starts


def test_whoever_is_it_is_kept_and_has_a_ring():
    from crossfade.systems.treasurehunt import evaluation

    config = apply(CONFIG, ("env.rule=tag", "env.items="))
    found = evaluation.evaluate(
        config, lambda judged, noise: baselines.play(judged, baselines.nearest(config.env), noise)
    )
    assert (found.arrays["shown_roles"].sum(1) == 1).all() and found.arrays["shown_roles"][0].tolist() == [1, 0]


# Pictures


def test_a_trained_run_shows_curves_positions_and_a_game(trained):
    learning, agents, positions, game = pictures(CONFIG, {"tiny": trained})
    for svg, words in (
        (learning, ("tiny", "random play", "nearest-item rule", "epochs")),
        (agents, ("agent 0", "agent 1")),
        (positions, ("1st", "2nd", "acts in its turn")),
    ):
        assert svg[0].startswith("<svg") and all(f">{word}<" in svg[0] for word in words)
    assert game[0].startswith('<img alt="an animation of a game" src="data:image/gif;base64,')
    assert game[1] == "tiny: the greedy policy in the game of its median return."


def test_what_a_run_has_not_left_behind_is_not_shown(run):
    (run / "eval" / "shown_places.npy").unlink()
    assert [p[0][:4] for p in pictures(CONFIG, {"tiny": run})] == ["<svg"] * 3
    (run / "eval" / "positions.npy").unlink()
    assert len(pictures(CONFIG, {"tiny": run})) == 2
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    without = [{k: v for k, v in line.items() if not k.startswith("eval/")} for line in lines]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in without))
    trained_only = pictures(CONFIG, {"tiny": run})
    assert len(trained_only) == 2 and "random play" not in trained_only[0][0]
    assert "`crossfade eval RUN` does: tiny" in summary(CONFIG, {"tiny": run})[0].blocks[0]
    (run / "metrics.jsonl").write_text("")
    assert pictures(CONFIG, {"tiny": run}) == []


def test_a_run_that_was_only_trained_has_a_headline_of_its_last_evaluation(trained):
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    (section,) = summary(CONFIG, {"tiny": trained})
    own = verdict.with_error(last["eval/return"], last["eval/return_se"])
    assert section.blocks[0].startswith(f"<p>tiny, step 8: Return {own}, all agents together; random play")
    assert "`crossfade eval RUN` does: tiny" in section.blocks[1]


def test_an_agent_that_plays_alone_has_no_positions_and_no_picture_of_each(run):
    np.save(run / "eval" / "positions.npy", np.ones((4, 1)))
    (run / "eval" / "shown_grids.npy").unlink()
    alone = apply(CONFIG, ("env.agents=1",))
    assert len(pictures(alone, {"tiny": run})) == 1


def test_a_map_of_many_cells_is_not_animated():
    many = TreasurehuntParams(height=10, width=101)
    assert shown.animate(many, {}) is None
    assert shown.last_map(many, {}, False) == []


@pytest.mark.parametrize(
    "number, word", [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (21, "21st"), (112, "112th")]
)
def test_ordinals(number, word):
    assert _ordinal(number) == word


# eval and report


@pytest.mark.slow
def test_eval_and_report(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    assert main(["eval", str(run), "--episodes", "8"]) == 0
    said = capsys.readouterr().out
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    (written,) = (json.loads(path.read_text()) for path in (run / "eval").glob("*.json"))
    assert written["eval/return"] == last["eval/return"]  # on the games of training
    turns = written["study"]["turns"]
    assert len(turns) == 9 and [(row["moves"], row["order"]) for row in turns if row["own"]] == [
        ("sequential", "fixed")
    ]
    own = next(row for row in turns if row["own"])
    figures = written["study"]["figures"]
    assert own["return"] == figures["eval/return"] and own["difference"] == own["difference_se"] == 0
    assert f"Return {verdict.with_error(own['return'], own['return_se'])} over 8 games" in said
    assert f"random play {figures['eval/random']:.4g}, nearest-item rule {figures['eval/nearest']:.4g}." in said
    assert sum(line.startswith(("sequential", "stale obs", "simultaneous")) for line in said.splitlines()) == 9
    assert said.count("its own turns") == 2  # in the table, and in the words on how to read it
    assert "\x1b" not in said and "# # # # # #" in said
    with Image.open(run / "eval" / "episode.gif") as image:
        assert image.n_frames == CONFIG.env.turns + 1

    assert main(["report", str(run), "--runs-dir", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/gif;base64,") == 1 and "stale obs" in page and "over 8 games" in page
    assert not re.search(r'src="(?!data:)', page)
    assert RunDir.open(run).system == "treasurehunt"


def test_a_row_of_the_verdict():
    row = {"moves": "stale_obs", "order": "rotated", "return": 104.47, "return_se": 2.31, "own": False}
    row |= {"difference": -10.12, "difference_se": 1.94, "first_mover": -3.2, "first_mover_se": 1.6}
    (cells,) = verdict.rows([row])
    assert cells == ["stale obs", "rotated", "104.5 ± 2.3", "-10.1 ± 1.9 *", "-3.2 ± 1.6"]
    assert verdict.rows([row | {"own": True}])[0][3] == "its own turns"


@pytest.mark.parametrize(
    "value, error, text",
    [
        (1234.5, 67.8, "1,234 ± 68"),
        (0.5, 0.0123, "0.500 ± 0.012"),
        (800.0, 0.0, "800.0 ± 0.0"),
        (3.0, 1234.0, "3 ± 1,234"),
    ],
)
def test_a_figure_is_told_to_two_digits_of_its_error(value, error, text):
    assert verdict.with_error(value, error) == text


def test_the_nearest_item_rule_is_not_told_of_where_no_item_is_worth_taking():
    found = {"eval/random": 1.0, "eval/nearest": 2.0}
    assert baselines.named(TreasurehuntParams(), found) == {"random play": 1.0, "nearest-item rule": 2.0}
    lost = TreasurehuntParams(items=("deck:1:0.1:0.5:-2.5", "bone:-1:0.1"))
    assert baselines.named(lost, found) == {"random play": 1.0}
    assert baselines.named(TreasurehuntParams(), {}) == {}


def test_a_map_is_named_by_all_that_it_is():
    assert str(TreasurehuntParams()) == "a map of 10 x 10, agents=5, radius=2, turns=50, items=gem:10:0.02"
    names = {
        str(TreasurehuntParams(**{name: value}))
        for name, value in (
            ("height", 9),
            ("width", 9),
            ("agents", 2),
            ("radius", 1),
            ("turns", 9),
            ("items", ()),
            ("wall_value", 0.0),
            ("sand", False),
            ("wall_layers", 1),
            ("rule", "tag"),
            ("tag_reward", 1.0),
        )
    }
    assert len(names) == 11
