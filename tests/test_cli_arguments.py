"""Which words belong to which option, whatever their order."""

import math
import warnings
from typing import Any

import pytest
import tyro

from crossfade.cli import GENERAL
from crossfade.loading import load_attribute
from crossfade.registry import systems
from crossfade.systems.trading.verbs.walk import Walk
from crossfade.verbs.arguments import arrange, options
from crossfade.verbs.climb import Climb
from crossfade.verbs.doctor import Doctor
from crossfade.verbs.parity import Parity
from crossfade.verbs.sweep import Sweep
from crossfade.verbs.train import Train

VERBS = GENERAL | {
    name: load_attribute(item.target) for record in systems().values() for name, item in record.verbs.items()
}


@pytest.mark.parametrize(
    ("verb", "given", "expected"),
    [
        (Sweep, "s --over seed=0..1 lr=1,2", "s --over seed=0..1 lr=1,2"),
        (Sweep, "s --over seed=0..1 lr=1,2 --preset demo steps=9", "s steps=9 --over seed=0..1 lr=1,2 --preset demo"),
        (Sweep, "--json s steps=9 --over lr=1", "s steps=9 --json --over lr=1"),
        (Train, "s --preset demo mode=torch", "s mode=torch --preset demo"),
        (Train, "--resume r mode=torch --quiet steps=3", "mode=torch steps=3 --resume r --quiet"),
        (Train, "s --preset=demo mode=torch", "s mode=torch --preset=demo"),
        (Train, "s --runs_dir a=b mode=torch", "s mode=torch --runs_dir a=b"),
        (Climb, "s --modes torch jax_full steps=9", "s steps=9 --modes torch jax_full"),
        (Climb, "s --updates -1 steps=9", "s steps=9 --updates -1"),
        (Walk, "s --firms a=b c --no-quiet days=3", "s days=3 --firms a=b c --no-quiet"),
        (Parity, "p level=grad --json dtype=float64", "p --level=grad --json --dtype=float64"),
        (Parity, "p --runs-dir level=grad", "p --runs-dir level=grad"),
        (Doctor, "a b --input x=y:z q", "a b --input x=y:z q"),
    ],
)
def test_words_belong_to_the_option_before_them_as_far_as_it_takes_any(verb, given, expected):
    assert arrange(verb, given.split()) == expected.split()


def test_a_file_called_like_an_option_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "level=grad").touch()
    assert arrange(Parity, ["level=grad", "a\0=b"]) == ["level=grad", "a\0=b"]


def _arities(parser: Any) -> dict[str, float]:
    found = {}
    for action in parser._actions:
        if not action.option_strings and isinstance(action.choices, dict):
            for inner in action.choices.values():
                found |= _arities(inner)
        found |= {name: math.inf if action.nargs == "*" else action.nargs for name in action.option_strings}
    return found


@pytest.mark.parametrize("name", VERBS)
def test_options_take_what_the_parser_thinks_they_take(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(VERBS[name])
    assert {option: takes.words for option, takes in options(VERBS[name]).items()} == _arities(parser)
