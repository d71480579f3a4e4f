"""A user's own environment: the doctor accepts a right one and names every fault; it trains and resumes."""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from crossfade import config as settings
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.cli import main
from crossfade.envs.dag import conformance
from crossfade.envs.dag.params import Params
from crossfade.envs.dag.registry import make, params_class
from crossfade.errors import UsageError

FOLDER = Path(__file__).parent.parent.parent / "examples" / "own_environment"
OWN = "env=my_env:LineParams"
SMALL = ["env.length=5", "hidden=8", "batch_size=8", "chunk=15", "log_every=15", "dtype=float64", "eval_every=0"]


@pytest.fixture(autouse=True)
def _in_the_users_folder(monkeypatch):
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", [""] + [p for p in sys.path if p != ""])


def line():
    import my_env

    return my_env


def test_the_doctor_accepts_the_example(capsys):
    assert main(["doctor", "my_env:LineParams", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["problems"] == [] and report["n_states"] == 9


def fault(twin, hook, change):
    """Makes the named twin with the answer of one hook changed."""

    def build(params):
        base = getattr(line(), twin)
        broken = {hook: lambda self, x, *rest: change(getattr(base, hook)(self, x, *rest), x)}
        return type("Broken", (base,), broken)(params)

    return build


numpy_fault, jax_fault = partial(fault, "LineNumpy"), partial(fault, "LineJax")


def at(cell, value):
    """Changes the answer for one cell."""

    def change(answer, x):
        where = (x == cell).all(-1)
        return np.where(where.reshape(where.shape + (1,) * (answer.ndim - where.ndim)), value, answer)

    return change


FAULTS = {
    "a mask bit too many": (numpy_fault("can_grow", at(4, True)), "every child has an index: not so for 1 states"),
    "a mask bit too few": (numpy_fault("can_grow", at(2, False)), "every valid backward action can be redone"),
    "a backward mask bit": (numpy_fault("can_shrink", at(1, False)), "every valid action can be undone: not so"),
    "a source with parents": (numpy_fault("can_shrink", at(0, True)), "only the source has no parents"),
    "a wrong parent_of": (
        numpy_fault("undo", lambda action, x: 1 - action),
        "every valid action can be undone: not so for 4 states, the first x = [0]",
    ),
    "a wrong action_of": (numpy_fault("redo", lambda parent, x: 0 * parent), "action_of finds the action that led"),
    "a NaN reward": (numpy_fault("log_r", at(3, np.nan)), "log-rewards are finite: not so for 1 states, the first x ="),
    "a reward of zero": (numpy_fault("log_r", at(2, -np.inf)), "log-rewards are finite"),
    "a dead end": (
        lambda params: type(
            "Broken",
            (line().LineNumpy,),
            {"can_stop": lambda self, x: x[..., 0] != 4, "terminating": property(lambda self: False)},
        )(params),
        "no state is a dead end: not so for 1 states, the first x = [4]",
    ),
    "terminating but one may not stop": (numpy_fault("can_stop", at(1, False)), "`terminating` says whether every"),
    "observations alike": (numpy_fault("features", at(3, np.arange(5) == 2)), "observations tell states apart"),
    "observations too wide": (
        numpy_fault("features", lambda seen, x: np.concatenate([seen, seen], -1)),
        "features gives numbers of shape (5,): not so, it gives bool of shape (10,)",
    ),
    "objects of int64": (numpy_fault("grow", lambda x, _: x.astype(np.int64)), "grow gives int32 of shape (1,)"),
    "a hook that raises": (
        numpy_fault("shrink", lambda x, _: 1 // 0),
        "shrink answers with batch axes (), for actions that are not valid there too: not so, it raised ZeroDivision",
    ),
    "one batch axis only": (
        numpy_fault("log_r", lambda r, x: r if x.ndim == 2 else r[None]),
        "log_r gives floats of shape (): not so, it gives float64 of shape (1,)",
    ),
    "indices with a gap": (numpy_fault("encode", lambda index, x: index + 1), "indices are below n_states: not so"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_each_fault_is_named(case):
    build, sentence = FAULTS[case]
    problems = conformance.check(build(line().LineParams(length=5)))
    assert any(sentence in problem for problem in problems), problems


JAX_FAULTS = {
    "another reward": (jax_fault("log_r", lambda r, x: r + 1e-9 * x[0]), "the twins differ in log_reward at (1,)"),
    "another mask": (jax_fault("can_grow", lambda mask, x: mask.at[1].set(False)), "jax: every valid backward action"),
    "an if on a value": (
        jax_fault("can_stop", lambda stop, x: stop if x[0] > 2 else ~stop),
        "jax: can_stop answers, for actions that are not valid there too: not so, it raised TracerBool",
    ),
    "objects of float": (jax_fault("grow", lambda x, _: x * 1.0), "jax: grow gives int32 of shape (1,)"),
}


@pytest.mark.parametrize("case", JAX_FAULTS)
def test_each_fault_of_the_jax_twin_is_named(case):
    build, sentence = JAX_FAULTS[case]
    params = line().LineParams(length=5)
    problems = conformance.check(make(params, "numpy"), build(params))
    assert any(sentence in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"max_steps": 4}, "no way is longer than max_steps=4, stop included"),
        ({"max_steps": 4, "n_states": None}, "walks end within max_steps=4: not so"),
        ({"source": np.zeros(1)}, "source is a NumPy array of int32 with one axis: not so"),
        ({"n_actions": 4}, "can_grow gives bool of shape (3,): not so, it gives bool of shape (2,)"),
        ({"n_states": 6}, "every state can be reached from the source"),
        ({"observation_dim": 0}, "observation_dim is an integer of at least 1: not so, it is 0"),
    ],
)
def test_wrong_params_are_named(attributes, sentence):
    params = type("Broken", (line().LineParams,), {n: property(lambda _, v=v: v) for n, v in attributes.items()})(5)
    problems = conformance.check(make(params, "numpy"))
    assert any(sentence in problem for problem in problems), problems


def test_a_fault_is_printed_and_fails_the_doctor(capsys, monkeypatch):
    monkeypatch.setattr(line().LineParams, "max_steps", 3)
    assert main(["doctor", "my_env:LineParams"]) == 1
    assert "BROKEN  no way is longer than max_steps=3" in capsys.readouterr().out


@pytest.mark.slow
def test_it_trains_the_same_in_torch_and_in_jax_and_resumes(tmp_path, capsys):
    runs = {}
    for mode, steps in (("torch", 30), ("jax_full", 15)):
        words = ["train", "gflownet", OWN, *SMALL, f"mode={mode}", f"steps={steps}", "--runs-dir", str(tmp_path)]
        assert main([*words, "--json"]) == 0
        runs[mode] = Path(json.loads(capsys.readouterr().out)["run"])
    assert "kind: my_env:LineParams" in (runs["jax_full"] / "config.yaml").read_text()
    assert main(["train", "--resume", str(runs["jax_full"]), "steps=30", "--quiet"]) == 0
    ends = [json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]) for run in runs.values()]
    assert ends[0]["step"] == ends[1]["step"] == 30
    for name in ("train/loss", "train/log_z", "eval/tv"):
        assert ends[0][name] == pytest.approx(ends[1][name], rel=1e-9), name


def test_a_config_with_an_own_environment_round_trips():
    config = settings.apply(GFlowNetConfig(), [OWN, "env.length=6"])
    assert config.env == line().LineParams(length=6)
    assert settings.from_yaml(settings.to_yaml(config), GFlowNetConfig) == config
    shown = {row.key: row for row in settings.describe(config)}
    assert shown["env"].default == "my_env:LineParams" and shown["env.leap"].doc == "Cells of a long step."
    assert params_class("my_env:LineParams") is line().LineParams


@dataclass
class Changeable(Params):
    pass


@dataclass(frozen=True)
class Kinded:
    kind: str = ""


@dataclass(frozen=True)
class Homeless:
    length: int = 3


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("env=my_env:LinParams", "Did you mean 'LineParams'"),
        ("env=my_evn:LineParams", "no module named 'my_evn' here or installed.*Run this in the folder"),
        ("env=my_env:np", "expected my_env:np to be a class under @dataclass"),
        (f"env={__name__}:Changeable", "write @dataclass\\(frozen=True\\)"),
        (f"env={__name__}:Kinded", "a field named 'kind' clashes"),
        ("env=lien", "A class of your own is named by its place: env=my_module:MyClass"),
        (f"{OWN} env.lenght=3", "Did you mean 'env.length'"),
    ],
)
def test_a_name_that_is_none_is_answered_in_words(word, message):
    with pytest.raises(UsageError, match=message):
        settings.apply(GFlowNetConfig(), word.split())


def test_params_without_twins_are_refused():
    with pytest.raises(UsageError, match='your own class says where its twins are: jax = "my_module:MyClass"'):
        make(Homeless(), "jax")


def test_the_reward_of_the_example_is_the_one_it_documents():
    params = line().LineParams(length=5)
    cell = np.arange(5.0)
    expected = np.log(0.1 + np.exp(-cell) + 2 * np.exp(-(4 - cell)))
    np.testing.assert_allclose(make(params, "numpy").log_r(np.arange(5)[:, None]), expected, rtol=1e-15)
    np.testing.assert_allclose(float(make(params, "jax").log_r(jnp.array([3]))), expected[3], rtol=1e-6)
