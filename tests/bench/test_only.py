"""`crossfade bench SYSTEM --only TEXT`: settings whose name contains the text, and the promises about them."""

import json
import sys

import pytest

from crossfade import cli
from crossfade.bench import contest
from crossfade.registry import benches

TURN = {"wall": 1.0, "wall_step": 1.0, "cpu_step": 1.0, "peak_mb": 1.0, "median_us": 1.0}
ROW = {"rounds": [TURN], "compile_s": 1.0, **contest.figures([TURN])}


class Anyone(dict):
    """Figures of whoever is asked for."""

    def __missing__(self, _):
        return ROW


def settings_of(module) -> list[str]:
    return list(getattr(module, "SETTINGS", None) or module.NETS)


@pytest.fixture
def measured(monkeypatch, capsys):
    """Runs a bench in which nothing is measured, and gives its record."""

    def run(name: str, *words: str):
        module = _module(name)
        monkeypatch.setattr(contest, "matrix_peak", lambda: {"torch": 1.0, "jax": 1.0})
        monkeypatch.setattr(contest, "measure", lambda _, contenders, *__: dict.fromkeys(contenders, ROW))
        whole = lambda _, request, **__: {
            "contenders": Anyone(),
            "threads": len(request.get("cpus", "")),
            "nets": dict.fromkeys(request.get("nets", ()), Anyone()),
        }
        if hasattr(module, "measure_in_process"):
            monkeypatch.setattr(module, "measure_in_process", whole)
        assert cli.main(["bench", name, "--json", *words]) in (0, 1)
        record = json.loads(capsys.readouterr().out)
        return record["settings"] if "settings" in record else record["processes"][0]["nets"], record["promises"]

    return run


def _module(name: str):
    path = benches()[name].target.split(":")[0]
    __import__(path)
    return sys.modules[path]


@pytest.mark.parametrize("name", benches())
def test_every_bench_measures_the_settings_that_are_asked_for(name, measured):
    names = settings_of(_module(name))
    for only in (names[-1].upper(), names[0][:4]):
        found, promises = measured(name, "--only", only)
        assert list(found) == [setting for setting in names if only.lower() in setting.lower()]
        assert {promise.get("setting", promise.get("net")) for promise in promises} <= found.keys()
    assert list(measured(name)[0]) == names


def test_a_text_that_no_name_contains_is_told_with_the_names(capsys):
    assert cli.main(["bench", "bridge", "--only", "gpu"]) == 2
    told = capsys.readouterr().err
    assert "'gpu'" in told and all(name in told for name in settings_of(_module("bridge")))


def test_own_code_is_one_setting(capsys):
    assert cli.main(["bench", "crossfade.parity.cases:policy_value", "--only", "x"]) == 2
    assert "one setting" in capsys.readouterr().err
