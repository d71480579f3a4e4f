"""Mode `torch_pure` without a compiler: it runs, and says that nothing was compiled."""

import stat

import pytest

from crossfade.config import apply
from crossfade.loading import load_attribute
from crossfade.registry import find
from crossfade.trainers import compiler
from crossfade.trainers.ladder import Rung
from crossfade.trainers.ladder_report import what_runs
from crossfade.trainers.making import make_trainer


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH of one folder, and a way to put compilers in it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    compiler.find_compiler.cache_clear()

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)

    yield put
    compiler.find_compiler.cache_clear()


BROKEN, WORKING = "echo 'cannot find cc1plus' >&2; exit 1", "exit 0"


def test_no_compiler(tools):
    assert compiler.find_compiler() == ("", "g++, clang++, c++: not installed")


def test_a_compiler_of_another_name_is_used(tools):
    tools("g++", BROKEN)
    tools("c++", WORKING)
    assert compiler.find_compiler() == ("c++", "")


def test_a_broken_compiler_is_none(tools):
    tools("g++", BROKEN)
    assert compiler.find_compiler() == ("", "g++: cannot find cc1plus")


def test_the_user_s_choice_is_the_only_candidate(tools, monkeypatch):
    tools("g++", WORKING)
    monkeypatch.setenv("CXX", "my-c++")
    assert compiler.find_compiler() == ("", "my-c++: not installed")


def test_torch_pure_runs_uncompiled_and_says_so(tools, tmp_path):
    tools("g++", BROKEN)
    system = find("gflownet")
    config = apply(load_attribute(system.config)(), (*system.tiny, "mode=torch_pure"))
    trainer = make_trainer(system, config)
    assert trainer.run(0, 2)["loss"].shape == (2,)
    shown = what_runs(Rung("torch_pure", None, tmp_path, {}, trainer.notes))
    assert "not compiled (g++: cannot find cc1plus)" in shown and "torch.compile" not in shown
