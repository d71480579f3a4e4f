"""The bench of treasurehunt compares like with like, and judges as it says."""

import json

import numpy as np
import pytest

from crossfade.algos.iqn import noise_numpy
from crossfade.bench import contest, contest_worker
from crossfade.envs.game import make_game
from crossfade.envs.treasurehunt.params import TreasurehuntParams
from crossfade.random import random_numpy as random
from crossfade.systems import iqn_jax, iqn_torch
from crossfade.systems.treasurehunt import RECORD, bench, bench_worker
from crossfade.systems.treasurehunt.bench import FULL, MOST, ONE, PROMISES, PUBLISHED, PURE, SETTINGS, TORCH, WORLD
from crossfade.systems.treasurehunt.bench_worker import (
    Epochs,
    Greedy,
    JaxWorld,
    Learning,
    NumpyWorld,
    ObjectWorld,
    Task,
    draw_natively,
)
from crossfade.systems.treasurehunt.config import TreasurehuntConfig


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Contenders change their process: here that is undone."""
    for half in (iqn_torch, iqn_jax):
        monkeypatch.setattr(half, "draw", half.draw)
    monkeypatch.setattr(bench_worker, "_use_all_cores", lambda: None)


def test_worlds_do_the_same_work():
    """Equal sums in JAX and NumPy after two episodes, and of objects on the first map."""
    params = TreasurehuntParams(turns=6, items=("gem:10:0.2",))
    fast, vectorised = JaxWorld(3, 2, params), NumpyWorld(3, params)
    vectorised.task = Task(3, 2, params)
    objects = [ObjectWorld(published, params) for published in (True, False)]
    for one in objects:
        one.task = Task(3, 2, params)
    worlds = (fast, vectorised, *objects)
    for world in worlds:
        world.once()
    assert fast.total.shape == (3,) and len(set(np.asarray(fast.total).tolist())) == 3
    np.testing.assert_array_equal(fast.total, vectorised.total)
    assert [one.total.tolist() for one in objects] == [np.asarray(fast.total)[:1].tolist()] * 2
    assert fast.steps == 2 * 3 * 6


def test_all_play_the_same_greedy_episode():
    ways = [Greedy(way, 4, RECORD.tiny) for way in ("torch", "vectorised", "policy", "compiled")]
    for one in ways:
        one.once()
    assert {one.steps for one in ways} == {6}
    for one in ways[1:]:
        for name, ours, theirs in zip(one.episode._fields, one.episode, ways[0].episode, strict=True):
            np.testing.assert_array_equal(ours, theirs, name)


@pytest.mark.parametrize("mode", ["torch", "jax_policy"])
def test_epochs_learn_from_the_first_one_on(mode):
    epochs = Epochs([*RECORD.tiny, f"mode={mode}"], 2)
    epochs.once()
    assert epochs.told["learned"].tolist() == [1, 1] and epochs.epoch == 2
    half = iqn_torch if mode == "torch" else iqn_jax
    assert half.draw is draw_natively


def test_gradient_steps_alone_change_the_models():
    learning = Learning([*RECORD.tiny])
    before = np.array(learning.stacked.models.local.head1.weight)
    learning.once()
    assert learning.told["learned"] == 1
    assert (np.array(learning.stacked.models.local.head1.weight) != before).any((1, 2)).all()


def test_native_draws_have_the_form_and_law_of_the_shared_ones():
    config = TreasurehuntConfig(worlds=3, batch_size=16)
    given = random.key(3), make_game(config.env, "numpy"), 1000, config
    ours, theirs = (draw(*given) for draw in (draw_natively, noise_numpy.draw))
    form = lambda noise: [(array.shape, array.dtype) for array in noise]
    assert form(ours) == form(theirs)
    assert (ours.order == theirs.order).all() and set(ours.action.reshape(-1).tolist()) == {0, 1, 2, 3}
    assert abs(ours.noise.mean()) < 5 / np.sqrt(ours.noise.size) and abs(ours.noise.std() - 1) < 0.05
    for uniform in (ours.turn, ours.acting, ours.choice, ours.fractions):
        assert abs(uniform.mean() - 0.5) < 5 / np.sqrt(12 * uniform.size) and 0 <= uniform.min() <= uniform.max() < 1
    assert (draw_natively(random.key(4), *given[1:]).noise != ours.noise).any()


def test_operations_are_those_of_the_layers():
    """625 inputs, 250 hidden units, 64 cosines, 4 actions and a value; 12 fractions of a transition."""
    head, embedding, inner = 625 * 250, 64 * 250, 250 * 250 + 250 * 4 + 250
    forward = lambda batch, n: 2 * (batch * head + batch * n * (embedding + inner))
    step = 3 * forward(256, 12) + forward(256, 12) + 2 * 256 * 12 * inner
    assert bench.flops({"kind": "learning", "words": ["batch_size=256"]}) == 5 * step
    assert bench.flops({"kind": "greedy", "way": "torch", "fractions": 256}) == 5 * forward(1, 256)
    words = ["batch_size=256", "acting_quantiles=256", "epsilon=0.5"]
    assert bench.flops({"kind": "epochs", "words": words}) == 5 * step + 0.5 * 250 * forward(1, 256)
    assert bench.flops({"kind": "numpy", "maps": 1}) is None


def turns(step: float) -> dict:
    rounds = [{"wall_step": noise * step, "cpu_step": step, "peak_mb": 512.0} for noise in (1.0, 1.1, 3.0)]
    return {"rounds": rounds, "compile_s": 1.0, "load": 0.5, **contest.figures(rounds)}


@pytest.mark.parametrize(("full", "broken"), [(1e-2, 0), (1.1e-2, 2), (3e-2, 3), (1e-1, 4)])
def test_a_promise_is_about_the_faster_variants(full, broken, capsys):
    speed = {PUBLISHED: 1.0, ONE + contest.ALONE: 1e-2, ONE: 2e-2, MOST: 1e-3, TORCH + contest.ALONE: 8e-2}
    speed |= {FULL: full, PURE: 2e-2}
    found = {name: {of: turns(speed.get(of, 1e-1)) for of in contenders} for name, contenders in SETTINGS.items()}
    rows = contest.judge(PROMISES, found)
    assert len(rows) == 6 and sum(not row["kept"] for row in rows) == broken
    world = next(row for row in rows if row["contender"] == ONE)
    assert world["found"] == pytest.approx(100) and world["kept"]
    whole = next(row for row in rows if row["setting"] == bench.SMALL)
    assert whole["found"] == pytest.approx(8e-2 / full) and len(whole["ratios"]) == 2
    record = {"session": {"cores": 2, "versions": {}}, "peak_flops": {"torch": 1e11, "jax": 1e11}}
    contest.show({**record, "settings": found, "promises": rows}, bench.UNITS)
    printed = capsys.readouterr().out
    assert printed.count("FAIL") == broken and "turns/s" in printed and "epochs/s" in printed


def test_a_quick_look_uses_one_core_and_holds_every_promise_of_its_settings_against_something():
    looked = bench.quick_look()
    found = {name: {of: turns(1.0) for of in contenders} for name, contenders in looked.items()}
    assert all(request["cores"] == 1 for contenders in looked.values() for request in contenders.values())
    rows = contest.judge([promise for promise in PROMISES if promise.setting in looked], found)
    assert len(rows) == 4 and all(row["found"] is not None for row in rows)


def test_a_contender_answers_in_lines(monkeypatch, capsys):
    """What the process of a contender does, without one: JAX does not like to be forked."""
    request = {key: value for key, value in SETTINGS[WORLD][bench.LEAN].items() if key != "cores"}
    monkeypatch.setattr("sys.argv", ["bench_worker", json.dumps(request)])
    monkeypatch.setattr("sys.stdin", ["1\n", "2\n"])
    contest_worker.serve(bench_worker.KINDS)
    ready, *rounds = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready.keys() == {"ready_s", "compile_s", "pass_s"} and len(rounds) == 2
    found = contest.figures(rounds)
    assert found["steps_low"] <= found["steps"] <= found["steps_high"] and found["gigabytes"] > 0
