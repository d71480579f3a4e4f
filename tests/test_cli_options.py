"""What the named system does not have is refused, not ignored; what is printed as JSON is JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from crossfade.bench.harness import end
from crossfade.cli import main
from crossfade.run import provenance
from crossfade.verbs.common import print_json


@pytest.fixture
def run(tmp_path):
    """The folder of a run of some system; nothing but its options is asked for here."""

    def make(system: str) -> str:
        facts = {"system": system, "place": "", "seed": 0, "sessions": [provenance.session()]}
        (tmp_path / "meta.json").write_text(json.dumps(facts))
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    ("system", "option", "known"),
    [
        ("gflownet", "--firms", "--samples"),
        ("gflownet", "--resamples", "--backward-samples"),
        ("trading", "--samples", "--firms"),
        ("trading", "--seed", "--block"),
    ],
)
def test_eval_refuses_an_option_of_another_system(run, system, option, known, capsys):
    assert main(["eval", run(system), option, "3"]) == 2
    error = capsys.readouterr().err
    assert f"unknown option {option!r}." in error and known in error.partition("Known:")[2]


@pytest.mark.parametrize(
    ("system", "has", "has_not"), [("gflownet", "--samples", "--firms"), ("trading", "--firms", "--samples")]
)
def test_the_help_of_eval_shows_the_options_of_the_runs_system(run, system, has, has_not, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["eval", run(system), "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and has in out and has_not not in out


def test_the_help_of_eval_without_a_run_says_how_to_see_more(capsys):
    for words in (["eval", "--help"], ["eval", "runs/none", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0 and "RUN --help" in capsys.readouterr().out


def test_eval_of_no_run_says_so_whatever_the_options(capsys, tmp_path):
    assert main(["eval", str(tmp_path), "--firms", "x"]) == 2
    assert "expected a run's folder" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--preset", "demo"], ["--config", "x.yaml"], ["--weights", "w"]])
def test_a_resumed_run_has_its_settings_already(run, words, capsys):
    assert main(["train", "--resume", run("gflownet"), *words]) == 2
    assert "--resume" in capsys.readouterr().err


def test_what_effort_cannot_be_is_refused(run, capsys):
    assert main(["eval", run("trading"), "--block", "nan"]) == 2
    assert "block: expected a finite number of at least 1, got nan" in capsys.readouterr().err
    assert main(["eval", run("gflownet"), "--samples", "1"]) == 2
    assert "samples: expected an integer from 2" in capsys.readouterr().err


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


ODD = {
    "nan": float("nan"),
    "inf": [float("inf"), (1, -float("inf"))],
    "numpy": {"f": np.float32(np.nan), "i": np.int64(3), "b": np.bool_(True), "a": np.array([1.0, np.inf])},
    "path": Path("a/b"),
    3: None,
}


def test_json_is_strict_whatever_the_numbers(capsys):
    print_json(ODD)
    assert strict(capsys.readouterr().out) == {
        "nan": None,
        "inf": [None, [1, None]],
        "numpy": {"f": None, "i": 3, "b": True, "a": [1.0, None]},
        "path": "a/b",
        "3": None,
    }


def test_a_bench_prints_strict_json(capsys):
    assert end({"promises": [], **ODD}, print, quick=False, as_json=True) == 0
    assert strict(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "gflownet"],
        ["list", "trading"],
        ["doctor"],
        ["explain", "3"],
        ["data", "facts", "--days", "3"],
    ],
)
def test_verbs_print_strict_json_and_nothing_else(words, capsys):
    assert main([*words, "--json"]) in (0, 1)
    assert strict(capsys.readouterr().out)
