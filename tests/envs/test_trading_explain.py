"""Where two sets of rules part, the switch behind it is named."""

import re
from dataclasses import replace

import numpy as np
import pytest
from trading_cases import ONE_SWITCH, written_market

from crossfade.cli import main
from crossfade.envs.trading.explain import Situation, explain, rules_named, walk
from crossfade.envs.trading.market import Settings, State
from crossfade.envs.trading.params import RULES, Action, Rules
from crossfade.errors import UsageError
from default_run import few

DEVIANT = Rules(
    fill="close",
    gaps="ignored",
    trail="same_bar",
    intrabar="optimistic",
    label="target_first",
    commission="three_sides",
    entries="any_time",
    break_even="sets",
    trail_mask="in_position",
    drawdown="close",
)
"""Every switch flipped but that of the reward, which would show at every bar."""
FLAT = State(*[0] * len(State._fields))._replace(balance=5_000_000, high_water=5_000_000)
LONG = FLAT._replace(position=1, contracts=1, entry=100, stop=94, target=118, trades=1)
HELD = (100, 103, 99, 102)  # open, high, low, close: nothing is touched


def situation(bar, state, action=Action.HOLD, first=HELD, closed=(), **settings):
    market = written_market([first, bar, bar, bar], closed=closed)
    return Situation(market, Settings(**settings), state, action, phase=2)


# In each of these one switch decides, whatever the others: what happens in the bar, and which switch it is.
CASES = {
    "fill": situation((105, 108, 104, 106), FLAT, Action.BUY),
    "entries": situation((102, 104, 101, 103), FLAT, closed=(0,)),
    "trail": situation((109, 112, 108, 111), LONG._replace(trailing=1, stop=99)),
    "trail_mask": situation((100, 101, 97, 98), LONG, first=(100, 101, 97, 98)),
    "drawdown": situation((101, 103, 95, 102), LONG, drawdown_cents=4_000),
    "break_even": situation((110, 112, 108, 111), LONG._replace(stop=103), first=(100, 111, 99, 110)),
}


@pytest.mark.parametrize("switch", CASES)
def test_the_one_switch_that_matters_is_named(switch):
    found = explain(CASES[switch], DEVIANT, Rules())
    assert found.because == [(switch,)] and found.needed == (switch,), found


@pytest.mark.parametrize(
    ("bar", "because"),
    [
        # an exit costs a commission more
        ((99, 100, 90, 95), ("commission",)),
        # opens below the stop at 94: filled there, or where it never traded; the commission as ever
        ((90, 92, 88, 91), ("commission", "gaps")),
        # touches both: stop or target, and the label follows the fill
        ((100, 120, 90, 105), ("commission", "intrabar")),
    ],
)
def test_switches_that_matter_together_are_named_together(bar, because):
    found = explain(situation(bar, LONG), DEVIANT, Rules())
    assert [set(names) for names in found.because] == [set(because)] and set(found.needed) == set(because)
    assert found.differs["balance"][0] != found.differs["balance"][1]


def test_a_label_alone_is_named():
    both = situation((100, 120, 90, 105), LONG)
    found = explain(both, replace(Rules(), label="target_first"), Rules())
    assert found.differs == {"reason": ("TARGET", "STOP")} and found.because == [("label",)]


@pytest.mark.parametrize("name", ["seed_jax", "seed_pandas"])
def test_a_reward_alone_is_named(name):
    found = explain(situation(HELD, LONG), replace(Rules(), reward=name), Rules())
    assert list(found.differs) == ["reward"] and found.because == [("reward",)]


def test_a_switch_that_changes_nothing_is_not_named():
    """The target came first and filled, so it is its label too."""
    bar = situation((100, 120, 90, 105), LONG)
    found = explain(bar, replace(Rules(), intrabar="path", label="target_first"), Rules())
    assert found.because == [("intrabar",)]
    assert found.differs["reason"] == ("TARGET", "STOP") and found.needed == ("intrabar",)


def test_equal_rules_leave_nothing_to_explain():
    assert explain(situation(HELD, LONG), Rules(), Rules()) == ({}, [], ())
    assert explain(situation(HELD, LONG), replace(Rules(), gaps="ignored"), Rules()) == ({}, [], ())


@pytest.mark.parametrize("name", few(["seed_jax", "seed_pandas", *ONE_SWITCH], "seed_pandas", *ONE_SWITCH))
def test_every_difference_of_a_walk_is_explained(name):
    rules = RULES.get(name) or ONE_SWITCH[name]
    steps = [explain(at, rules, Rules()) for at, _ in zip(walk(0, rules, Rules(), seed=2), range(120), strict=False)]
    differing = [found for found in steps if found.differs]
    assert all(found.because for found in differing)
    if name in ONE_SWITCH:
        assert all(found.because == [(name.split("=")[0],)] for found in differing)
    if name in RULES:
        assert differing


def test_a_step_is_the_same_however_it_is_reached():
    rules = RULES["seed_jax"]
    first, second = next(walk(7, rules, Rules())), list(zip(range(8), walk(0, rules, Rules()), strict=False))[7][1]
    assert first.state == second.state and first.action == second.action
    assert all(np.array_equal(a, b) for a, b in zip(first.market, second.market, strict=True))


def test_the_verb_names_the_switches_and_fails_when_something_differs(capsys):
    assert main(["explain", "5", "--seed", "0"]) == 1
    printed = capsys.readouterr().out
    assert "step 5:" in printed and "because of:" in printed and "reward" in printed
    assert main(["explain", "0", "--rules", "gaps=ignored,trail=same_bar", "--json"]) == 0
    assert '"because": []' in capsys.readouterr().out


@pytest.mark.parametrize("words", [["-1"], ["1000000"]])
def test_what_cannot_be_explained_is_refused(words, capsys):
    assert main(["explain", *words]) == 2
    assert re.search("expected an? (integer|step) from 0 to", capsys.readouterr().err)


def test_unknown_rules_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'seed_jax'"):
        rules_named("seed_jaxx")
