"""The bench of offline agents compares like with like, counts as it says, and judges as it says."""

import json
import math

import jax
import numpy as np
import pytest
import torch
from jax.interpreters import partial_eval

from crossfade.algos.offline import learner_jax
from crossfade.algos.offline.batch import PHASES
from crossfade.algos.offline.config import AGENTS
from crossfade.algos.offline.data import draws_numpy, sampling_numpy
from crossfade.algos.offline.memory import split_noise
from crossfade.bench import contest, contest_worker
from crossfade.random import random_numpy as random
from crossfade.systems.offline import bench, bench_worker, operations, system_jax, system_torch
from crossfade.systems.offline.bench import (
    ACTION,
    DEVICE,
    FULL,
    LARGE,
    NUMPY,
    OBSERVATION,
    POLICY,
    PROMISES,
    PURE,
    RELABELLING,
    SEEDS,
    SETTINGS,
    SMALL,
    TORCH,
    configured,
    named,
)
from crossfade.systems.offline.bench_worker import Relabelling, Seeds, Updates, draw_natively
from default_run import few

MORE = {"fb_repr": 1.08, "hilp": 1.11}
"""FB's actor has the gradient of all that F reads and needs that of actions; HILP's phi at s is traced twice, which the
compiler computes once."""
TINY = ["hidden=8", "encoder_hidden=8", "batch_size=8"]


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Contenders change their process: here that is undone."""
    for half in (system_torch, system_jax):
        monkeypatch.setattr(half, "load", half.load)
        monkeypatch.setattr(half, "draw", half.draw)
    threads = torch.get_num_threads()
    monkeypatch.setattr(bench_worker, "_use_best_threads", lambda once: None)
    yield
    torch.set_num_threads(threads)


def test_modes_on_the_host_make_the_same_updates():
    made = [Updates("rebrac", "finetuning", mode, TINY, 3, 50) for mode in ("torch", "jax_policy")]
    for one in made:
        one.once()
    assert [one.update for one in made] == [3, 3]
    ours, theirs = (one.told for one in made)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert (theirs["actor_loss"] != 0).all(), "updates of fine-tuning are full ones"


@pytest.mark.slow
def test_seeds_side_by_side_make_the_updates_of_each():
    alone, together = Updates("iql", "finetuning", "jax_full", TINY, 3, 50), Seeds("iql", "finetuning", 2, TINY, 3, 50)
    for _ in range(2):
        alone.once()
        together.once()
    assert (alone.steps, together.steps) == (3, 6) and (alone.update, together.update) == (6, 6)
    assert together.told["loss"].shape == (2, 3) and (together.told["actor_loss"] != 0).all()
    np.testing.assert_allclose(together.told["loss"][0], alone.told["loss"], rtol=1e-3)


def test_batches_with_goals_are_the_same_in_numpy_and_in_a_program():
    slow, fast = Relabelling("shared", 2000, 1, 16), Relabelling("compiled", 2000, 1, 16)
    for _ in range(2):
        slow.once()
        fast.once()
        jax.tree.map(np.testing.assert_array_equal, fast.made, slow.made)
    assert slow.made.value_goals.shape == (16, OBSERVATION) and slow.made.noise == {}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("phase", PHASES)
def test_native_draws_have_the_form_and_law_of_the_shared_ones(agent, phase):
    config = configured(agent, phase, ["faithful=false"])
    sizes = config.sizes((OBSERVATION,), ACTION)
    ours, theirs = (draw(random.key(3), 1000, sizes, phase, config) for draw in (draw_natively, draws_numpy.draw))
    form = lambda choice: jax.tree.map(lambda array: (array.shape, array.dtype), choice)
    assert form(ours) == form(theirs)
    for name, array in ours.noise.items():
        mean, std = np.float64(theirs.noise[name]).mean(), np.float64(theirs.noise[name]).std()
        assert abs(np.float64(array).mean() - mean) < 8 * std / math.sqrt(array.size), name
        assert abs(np.float64(array).std() / std - 1) < 0.2, name
    again = draw_natively(random.key(4), 1000, sizes, phase, config)
    assert (again.rows != ours.rows).any() and 0 <= ours.rows.min() < 100 and 900 < ours.rows.max() < 1000


def test_operations_of_iql_by_hand():
    """24 numbers and 6 of an action, two hidden layers of 64, batches of 256; two critics."""
    value, critic, actor = 24 * 64 + 64 * 64 + 64, 2 * (30 * 64 + 64 * 64 + 64), 24 * 64 + 64 * 64 + 64 * 6
    first = {"value": 24 * 64, "critic": 2 * 30 * 64, "actor": 24 * 64}
    cloning = 256 * (3 * actor - first["actor"])
    update = 256 * ((3 * value - first["value"]) + value + (3 * critic - first["critic"]) + critic) + cloning
    request = {"kind": "updates", "agent": "iql", "words": ["hidden=64,64"]}
    assert bench.flops({**request, "phase": "pretraining"}) == 2 * cloning
    assert bench.flops({**request, "phase": "finetuning"}) == 2 * update
    assert bench.flops({"kind": "relabelling"}) is None


@pytest.mark.parametrize("agent", few(AGENTS, "iql", "infom"))
@pytest.mark.parametrize("phase", PHASES)
def test_the_program_multiplies_about_as_much_as_is_counted(agent, phase):
    """Products of an update as JAX traces it. InFOM adds time to the first layer without one; the norm of ReBRAC's
    next values and HILP's second direction are of no use and not counted."""
    config = configured(agent, phase, ["hidden=48,48", "encoder_hidden=48,48", "batch_size=32"])
    needed = operations.flops(config, phase, OBSERVATION, ACTION)
    assert 0.99 < products_of(config, phase) / needed < MORE.get(agent, 1.07)


def products_of(config, phase) -> int:
    """Operations of the products in an update."""
    system_jax.load = lambda _: data
    data = bench_worker.random_data(config, 500)
    system, source = system_jax.System(config), data.learning[phase]
    policy = system.make_policy(system.parameters())
    tx = learner_jax.make_optimizer(policy, config)
    choice = draws_numpy.draw(random.key(0), source.data.steps, system.sizes, phase, config)
    batch, _ = split_noise(sampling_numpy.sample(source, choice, config))
    if phase == "finetuning":
        latent = np.ones(config.agent.latent_dim, np.float32) if config.agent.infers_latent else None
        batch = batch._replace(full=np.array(True), latent=latent)
    update = lambda policy, state, batch: learner_jax.update(policy, tx, state, batch, config)
    traced = jax.make_jaxpr(update)(policy, tx.init(policy), batch).jaxpr
    used, _ = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    return _products(used, config.agent)


def _products(program, agent) -> int:
    """Those of a traced program: loops as often as they run, of branches the longer one."""
    total = 0
    for line in program.eqns:
        inner = [getattr(value, "jaxpr", value) for value in line.params.values()]
        each = lambda parts: [_products(part, agent) for part in parts if hasattr(part, "eqns")]
        match line.primitive.name:
            case "dot_general":
                (contracted, _), _ = line.params["dimension_numbers"]
                along = math.prod(line.invars[0].aval.shape[axis] for axis in contracted)
                total += 2 * along * math.prod(line.outvars[0].aval.shape)
            case "cond":
                total += max(each(branch.jaxpr for branch in line.params["branches"]))
            case "while":
                total += agent.flow_steps * sum(each(inner))
            case "scan":
                total += line.params["length"] * sum(each(inner))
            case _:
                total += sum(each(inner))
    return total


def turns(step: float) -> dict:
    rounds = [{"wall_step": noise * step, "cpu_step": step, "peak_mb": 512.0} for noise in (1.0, 1.1, 3.0)]
    return {"rounds": rounds, "compile_s": 1.0, "load": 0.5, **contest.figures(rounds)}


@pytest.mark.parametrize(("full", "broken"), [(1e-2, 0), (1.2e-2, 1), (1.6e-2, 2), (2.1e-2, 4)])
def test_promises_at_one_setting_of_each_kind(full, broken, capsys):
    speed = {TORCH: 1.7e-2, POLICY: 2e-2, FULL: full, NUMPY: 1e-3, DEVICE: 1e-4}
    names = RELABELLING, named("infom", SMALL, "finetuning"), named("infom", LARGE, "pretraining")
    found = {name: {of: turns(speed.get(of, 1e-1)) for of in SETTINGS[name]} for name in names}
    rows = contest.judge([promise for promise in PROMISES if promise.setting in names], found)
    assert len(rows) == 5
    record = {"session": {"cores": 2, "versions": {}}, "peak_flops": {"torch": 1e11, "jax": 1e11}}
    bench.show({**record, "settings": found, "promises": rows})
    printed = capsys.readouterr().out
    assert printed.count("FAIL") == sum(not row["kept"] for row in rows) == broken, rows
    assert "updates/s" in printed and "batches/s" in printed and "public JAX" in printed
    (row,) = bench.compared(found)
    assert row["public"] == 89 and row[TORCH] == pytest.approx(1.1 * 17) and row["agent"] == "infom"


def test_speeds_that_are_equal_within_their_spread_keep_their_promise():
    setting = named("iql", SMALL, "finetuning")
    (promise,) = (p for p in PROMISES if p.setting == setting and p.baseline == POLICY)
    of = lambda *walls: {"rounds": [{"wall_step": wall} for wall in walls], "steps": 1 / sorted(walls)[1]}
    judged = lambda slow, fast: contest.judge([promise], {setting: {POLICY: slow, FULL: fast}})[0]
    assert judged(of(1.0, 1.0, 1.01), of(1.01, 1.01, 1.0))["kept"]
    assert not judged(of(1.0, 1.0, 1.0), of(1.01, 1.01, 1.01))["kept"]


def test_every_agent_has_every_mode_and_every_promise_is_held_against_something():
    for agent in AGENTS:
        assert set(SETTINGS[named(agent, SMALL, "finetuning")]) == {TORCH, PURE, POLICY, FULL, SEEDS}
        for phase in PHASES:
            assert {TORCH, POLICY, FULL} <= set(SETTINGS[named(agent, LARGE, phase)])
    for settings in (SETTINGS, bench.quick_look()):
        found = {name: {of: turns(1.0) for of in contenders} for name, contenders in settings.items()}
        rows = contest.judge([promise for promise in PROMISES if promise.setting in settings], found)
        assert len(rows) == (5 if len(settings) == 3 else len(PROMISES)) and all(row["found"] for row in rows)
    assert bench.ORIGINALS.keys() == AGENTS.keys() - {"rebrac"}


def test_a_contender_answers_in_lines(monkeypatch, capsys):
    """What the process of a contender does, without one: JAX does not like to be forked."""
    request = {"kind": "relabelling", "way": "native", "rows": 2000}
    monkeypatch.setattr("sys.argv", ["bench_worker", json.dumps(request)])
    monkeypatch.setattr("sys.stdin", ["1\n", "2\n"])
    contest_worker.serve(bench_worker.KINDS)
    ready, *rounds = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready.keys() == {"ready_s", "compile_s", "pass_s"} and len(rounds) == 2
    assert contest.figures(rounds)["steps"] > 0
