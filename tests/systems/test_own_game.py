"""A game of the user, as docs/own_game.md has it: the doctor accepts it and names faults; it trains alike anywhere."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from mktestdocs import grab_code_blocks

from crossfade import checkpoint
from crossfade.cli import main
from default_run import few

PAGE = Path(__file__).parent.parent.parent / "docs" / "own_game.md"
SMALL = ["steps=6", "chunk=3", "hidden=8", "cosines=4", "batch_size=8", "memory=60", "eval_every=0", "dtype=float64"]


@pytest.fixture(autouse=True)
def _in_the_users_folder(tmp_path, monkeypatch):
    (tmp_path / "my_game.py").write_text("\n\n".join(grab_code_blocks(PAGE.read_text(), lang="python")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if p)])
    for module in ("my_game", "faulty"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def doctor(target, capsys):
    code = main(["doctor", target, "--json"])
    (report,) = json.loads(capsys.readouterr().out)
    assert code == bool(report["problems"])
    return report


OWN, SHIPPED = "my_game:CorridorParams", "crossfade.envs.treasurehunt.params:TreasurehuntParams"


@pytest.mark.parametrize("target", few([OWN, SHIPPED], OWN))
def test_the_doctor_accepts_a_sound_game(target, capsys):
    report = doctor(target, capsys)
    assert report["problems"] == [] and report["agents"] in (2, 5) and report["n_actions"] in (2, 4)


FAULTS = {
    "a twin with another rule": (
        """
class Jax(CorridorJax):
    def _gone(self, place, action):
        return jnp.clip(place + 2 * action - 1, 1, 6)
""",
        ["the twins differ in place of move (moves=sequential, turn", "the twins differ in place of move_together"],
    ),
    "an argument changed": (
        """
class Numpy(CorridorNumpy):
    def start_turn(self, state, uniform):
        state.treat[...] = super().start_turn(state, uniform).treat
        return state
""",
        ["start_turn leaves what it is given as it is: not so, it changed an argument"],
    ),
    "an observation of another type": (
        """
class Numpy(CorridorNumpy):
    def observe(self, state, agent):
        return super().observe(state, agent).astype(np.int64)
""",
        ["NumPy: observe gives observation as int8 (4,): not so, it gave int64 (4,)"],
    ),
    "a reward without its axis of agents": (
        """
class Jax(CorridorJax):
    def move_together(self, state, action, order, uniform):
        after, reward = super().move_together(state, action, order, uniform)
        return after, reward.sum(-1)
""",
        ["JAX: move_together gives reward as float32 (2,): not so, it gave float32 ()"],
    ),
    "a member missing": (
        """
class Jax:
    agents = observation_dim = n_actions = turns = start_numbers = turn_numbers = 2
    def __init__(self, params): pass
    def begin(self, uniform): pass
""",
        ["JAX: start_turn is there: not so, AttributeError", "JAX: move_together is there"],
    ),
    "another number of turns": (
        """
class Jax(CorridorJax):
    turns = 3
""",
        ["both twins state the same turns: not so, NumPy 20, JAX 3"],
    ),
    "no batch axes": (
        """
class Numpy(CorridorNumpy):
    def begin(self, uniform):
        return super().begin(uniform if uniform[0].ndim else 1 / 0)
""",
        ["NumPy: every function answers with batch axes (): not so, it raised ZeroDivisionError: division by zero (be"],
    ),
    "games that know each other": (
        """
class Numpy(CorridorNumpy):
    def begin(self, uniform):
        found = super().begin(uniform)
        return found._replace(place=np.sort(found.place, 0))
class Jax(CorridorJax):
    def begin(self, uniform):
        found = super().begin(uniform)
        return found._replace(place=jnp.sort(found.place, 0))
""",
        ["game 0 differs, alone and among 6:"],
    ),
    "an agent for all games only": (
        """
class Numpy(CorridorNumpy):
    def observe(self, state, agent):
        return super().observe(state, agent if np.ndim(agent) == 0 else agent[0])
""",
        ["NumPy: observe and move take an agent for each game: not so, they give another observation"],
    ),
    "Python's if on values": (
        """
class Jax(CorridorJax):
    def observe(self, state, agent):
        return super().observe(state, 1 if agent > 0 else 0)
""",
        ["JAX: every function answers with batch axes (): not so, it raised TracerBoolConversionError"],
    ),
    "actions that are the same": (
        "def step(self, place, action): return self.xp.clip(place + 0 * action + 1, 0, 6)\n"
        "class Numpy(CorridorNumpy): _gone = step\nclass Jax(CorridorJax): _gone = step\n",
        ["every action does something of its own: not so, actions 0 and 1 never differed"],
    ),
    "nothing moves": (
        """
class Still:
    def move(self, state, agent, action, uniform): return state, action.astype("float32")
    def move_together(self, state, action, order, uniform): return state, action.astype("float32")
class Numpy(Still, CorridorNumpy): pass
class Jax(Still, CorridorJax): pass
""",
        ["some action changes the state: not so"],
    ),
    "blind agents": (
        """
class Blind:
    def observe(self, state, agent): return 0 * super().observe(state, agent)
class Numpy(Blind, CorridorNumpy): pass
class Jax(Blind, CorridorJax): pass
""",
        ["observations vary: not so for agent 0, it always saw [0, 0, 0, 0]"],
    ),
    "types that 64 bits change": (
        """
class Jax(CorridorJax):
    def begin(self, uniform):
        found = super().begin(uniform)
        return found._replace(place=found.place + 0 * jnp.arange(2).reshape((1,) * (found.place.ndim - 1) + (2,)))
""",
        ["the twins differ in place of begin (moves=sequential): NumPy int32 (6, 2), JAX in 64 bits int64 (6, 2)"],
    ),
    "an error in a later turn": (
        """
class Numpy(CorridorNumpy):
    calls = []
    def start_turn(self, state, uniform):
        self.calls.append(0)
        return super().start_turn(state, uniform if len(self.calls) < 30 else None)
""",
        ["every function answers in every turn: not so, it raised TypeError"],
    ),
}


@pytest.mark.parametrize("name", few(FAULTS, *list(FAULTS)[::3]))
def test_the_doctor_names_what_is_wrong(name, tmp_path, capsys):
    code, sentences = FAULTS[name]
    own = {
        side: f"faulty:{side}" if f"class {side}" in code else f"my_game:Corridor{side}" for side in ("Numpy", "Jax")
    }
    params = f"class Params(CorridorParams):\n    numpy, jax = {own['Numpy']!r}, {own['Jax']!r}\n"
    (tmp_path / "faulty.py").write_text(f"from my_game import *\nfrom my_game import jnp, np\n{code}\n{params}")
    problems = doctor("faulty:Params", capsys)["problems"]
    for sentence in sentences:
        assert any(problem.startswith(sentence) for problem in problems), problems


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        (
            "numpy, jax = 'my_game:CorridorNumpy', 'my_game:Corrider'",
            "jax: the twin can be made: not so, 'my_game' has no",
        ),
        (
            "numpy, jax = 'my_game:CorridorNumpy', None",
            "the params say where the twin is, jax = 'module:Class': not so",
        ),
        ("numpy, jax = 'my_game:CorridorNumpy', 'my_game:State'", "jax: the twin can be made: not so, calling"),
    ],
)
def test_a_twin_that_is_not_there_is_named(places, sentence, tmp_path, capsys):
    (tmp_path / "faulty.py").write_text(f"from my_game import *\nclass Params(CorridorParams):\n    {places}\n")
    (problem,) = doctor("faulty:Params", capsys)["problems"]
    assert problem.startswith(sentence)


def test_what_is_no_game_is_left_to_others(capsys):
    assert main(["doctor", "my_game:CorridorConfig"]) == 2
    assert "expected pairs of MODULE:ATTR" in capsys.readouterr().err


@pytest.mark.parametrize("preset", few([[], ["--preset", "together"]], []))
def test_it_trains_alike_in_two_modes(preset, tmp_path, capsys):
    ends = []
    for mode in ("torch", "jax_full"):
        words = ["train", "my_game:RECORD", *SMALL, f"mode={mode}", *preset, "--runs-dir", str(tmp_path), "--json"]
        assert main(words) == 0
        said = json.loads(capsys.readouterr().out)
        held = checkpoint.load(Path(said["run"]) / "checkpoints", side="numpy").params
        ends.append((said["eval/return"], held))
    assert ends[0][0] == ends[1][0] > 0
    for name, array in ends[0][1].items():
        np.testing.assert_allclose(ends[1][1][name], array, rtol=0, atol=1e-9, err_msg=name)
    start = checkpoint.load(Path(said["run"]) / "checkpoints", side="numpy").optimizer
    assert start["model_0"].step > 0


@pytest.mark.slow
def test_it_resumes_in_another_mode(tmp_path, capsys):
    assert main(["train", "my_game:RECORD", *SMALL, "mode=jax_policy", "--runs-dir", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["train", "--resume", run, "steps=8", "mode=torch", "--json"]) == 0


@pytest.mark.slow
def test_it_learns(tmp_path, capsys):
    """The greedy policy earns twice as much as agents that go at random."""
    import my_game

    game, rng = my_game.CorridorNumpy(my_game.CorridorParams()), np.random.default_rng(0)
    state, earned = game.begin(rng.random((1000, 2), np.float32)), 0.0
    for _ in range(game.turns):
        state = game.start_turn(state, rng.random((1000, 1), np.float32))
        for agent in range(2):
            state, reward = game.move(state, agent, rng.integers(2, size=1000, dtype=np.int32), None)
            earned += reward.sum() / 1000
    assert main(["train", "my_game:RECORD", "steps=200", "--runs-dir", str(tmp_path), "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)["eval/return"]
    assert learned > 2 * earned
