"""The bench of trading compares like with like, and judges as it says."""

import jaxtyping
import numpy as np
import pytest

from crossfade.algos.ppo import rollout_numpy
from crossfade.bench import contest
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.nn.categorical_torch import Categorical
from crossfade.random import random_numpy as random
from crossfade.systems.trading import bench as trading
from crossfade.systems.trading.bench import FULL, LARGE, PANDAS, PROMISES, SETTINGS, SMALL, promises, show
from crossfade.systems.trading.bench_worker import JaxWorld, NumpyWorld, OneAccount, Task, draw_natively, old_world
from crossfade.systems.trading.config import TradingConfig

DAYS = 3


@pytest.mark.slow
def test_worlds_do_the_same_work():
    """Equal accounts in JAX and NumPy after a pass, in plain Python after the same pass of the first one."""
    fast, vectorised, one = JaxWorld(4, DAYS), NumpyWorld(4, DAYS), OneAccount("plain", DAYS)
    one.task.gumbel, one.task.uniform = vectorised.task.gumbel[:, :1], vectorised.task.uniform[:, :1]
    one.world.begin(one.task.uniform[0, 0])
    for world in (fast, vectorised, one):
        world.once()
    for name, ours, theirs in zip(fast.state._fields, fast.state, vectorised.accounts.state, strict=True):
        np.testing.assert_array_equal(ours, theirs, name)
    assert one.world.state == tuple(field[0] for field in vectorised.accounts.state)
    assert fast.state.trades.any()


def test_the_old_world_keeps_the_same_ledger():
    pytest.importorskip("pandas")
    jaxtyping.config.update("jaxtyping_disable", True)  # a step takes microseconds, its checks far longer
    task = Task(1, 5)
    old = old_world().PandasTrading(task.bars["ES"], "ES", task.settings)
    ledger = ScalarTrading(task.params, task.market, task.settings)
    rng, closed = np.random.default_rng(0), set()
    for _ in range(4):
        start = rng.random(5, np.float32)
        ledger.begin(start)
        old.begin(start)
        done = False
        while not done:
            np.testing.assert_array_equal(old.mask(), ledger.mask())
            np.testing.assert_allclose(old.observation(), ledger.observation(), rtol=1e-5, atol=1e-5)
            action = int(rng.integers(3))
            outcome, expected = old.step(action), ledger.step(action)
            assert (outcome.terminated, outcome.truncated, outcome.reason) == tuple(expected[1:4])
            assert outcome.result * 100 == pytest.approx(expected.result, abs=1e-5)
            assert outcome.reward == pytest.approx(expected.reward, abs=1e-5)
            assert old.balance * 100 == pytest.approx(ledger.balance, abs=1e-5)
            closed.add(outcome.reason)
            done = outcome.terminated or outcome.truncated
    jaxtyping.config.update("jaxtyping_disable", False)
    assert len(closed) >= 3


def test_native_draws_have_the_form_and_law_of_the_shared_ones():
    config = TradingConfig(n_envs=16, n_steps=32, epochs=2)
    given = random.key(3), config, Categorical(3), 5
    ours, theirs = (draw(*given) for draw in (draw_natively, rollout_numpy.draw))
    form = lambda noise: [(array.shape, array.dtype.kind, array.dtype.itemsize) for array in noise[:2]]
    assert form(ours) == form(theirs)
    assert abs(ours.action.mean() - np.euler_gamma) < 5 * np.pi / np.sqrt(6 * ours.action.size)
    assert (np.sort(ours.order, 1) == np.arange(512)).all() and (ours.order[0] != ours.order[1]).any()


def test_operations_are_those_of_the_layers():
    """Small network: 225 x 64, 64 x 64, 64 x 3, 64 x 1; one pass forward, and in 4 epochs forward and backward."""
    first, others = 225 * 64, 64 * 64 + 64 * 3 + 64
    assert trading.flops_per_step(["mode=torch"]) == 2 * (first + others) + 4 * (4 * first + 6 * others)


def turns(step: float) -> dict:
    rounds = [{"wall_step": noise * step, "cpu_step": step, "peak_mb": 1024.0} for noise in (1.0, 1.1, 3.0)]
    return {"rounds": rounds, "compile_s": 1.0, "load": 0.5, "peak_share": 0.5, **contest.figures(rounds)}


def settings(full: float, pandas: dict | None = None) -> dict:
    speed = {FULL: full, trading.JAX + contest.ALONE: 5e-7, PANDAS: 6e-4}
    found = {name: {of: turns(speed.get(of, 1e-4)) for of in contenders} for name, contenders in SETTINGS.items()}
    found[trading.worlds(1000)][PANDAS] = pandas or found[trading.worlds(1000)][PANDAS]
    found[SMALL][trading.PURE] = turns(3e-5)
    return found


@pytest.mark.parametrize(("full", "broken"), [(1e-5, 0), (1.1e-5, 2), (2.1e-5, 3)])
def test_a_promise_is_about_the_faster_variants(full, broken, capsys):
    found = settings(full)
    rows = promises(found)
    assert len(rows) == len(PROMISES) and sum(not row["kept"] for row in rows) == broken
    ratio = next(row for row in rows if row["baseline"] == trading.PURE)
    assert ratio["found"] == pytest.approx(3e-5 / full)
    assert ratio["ratios"][trading.PURE + contest.ALONE] == pytest.approx(1e-4 / full)
    record = {"session": {"cores": 2, "versions": {}}, "peak_flops": {"torch": 1e11, "jax": 1e11}}
    show({**record, "settings": found, "promises": rows})
    printed = capsys.readouterr().out
    assert (
        printed.count("FAIL") == broken and "50.0%" in printed and f"PASS  {LARGE}: jax_full holds 1.00 GB" in printed
    )


def test_what_cannot_be_measured_is_not_kept():
    rows = promises(settings(1e-5, {"left_out": "pandas is not installed"}))
    assert [row["found"] for row in rows if not row["kept"]] == [None]
