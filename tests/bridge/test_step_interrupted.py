"""A step that fails or is interrupted has happened whole or not at all, and training goes on."""

import contextlib
import copy
import random
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from step_nets import assert_same_optimizer, batches, distance, jax_loss, make, moments, torch_steps

from crossfade.bridge import Step


class Run:
    """A step beside the states torch goes through, by number of updates."""

    def __init__(self, loss=jax_loss, updates=400):
        self.net, self.optimizer, mapping = make()
        self.batch = batches(1)[0]
        self.step = Step(self.net, self.optimizer, loss, mapping, verify=False)
        reference, optimizer = copy.deepcopy((self.net, self.optimizer))
        self.states = []
        for _ in range(updates):
            self.states.append((copy.deepcopy(reference), copy.deepcopy(moments(optimizer))))
            torch_steps(reference, optimizer, [self.batch])

    def assert_whole(self, done: int) -> int:
        """Parameters, moments and counts belong to one update: number `done` or the next. Gives its number."""
        expected = distance(self.net, self.states[done][0]) > 1e-11
        done += expected
        module, held = self.states[done]
        assert distance(self.net, module) <= 1e-11
        found = {name: value for name, value in moments(self.optimizer).items()}
        assert found.keys() == held.keys() or (done == 0 and not found)
        for name in held:
            torch.testing.assert_close(found[name], held[name], rtol=1e-9, atol=1e-12)
        return done


@contextlib.contextmanager
def at_lines(of_the_step):
    """Calls `of_the_step((file, line))` before every line that the step's own modules execute."""

    def trace(frame, what, _):
        if "crossfade/bridge/step" not in frame.f_code.co_filename:
            return None
        if what == "line":
            of_the_step((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of(call) -> list[tuple[str, int]]:
    """The lines that a call executes, each once."""
    seen: dict[tuple[str, int], None] = {}
    with at_lines(lambda line: seen.setdefault(line)):
        call()
    return list(seen)


def interrupted_at(line, call) -> bool:
    """Calls with a KeyboardInterrupt at a line; tells if it came to that."""

    def interrupt(here):
        if here == line:
            raise KeyboardInterrupt

    try:
        with at_lines(interrupt):
            call()
    except KeyboardInterrupt:
        return True
    return False


def test_an_interrupt_at_any_line_tears_nothing(x64):
    run = Run()
    for _ in range(2):
        run.step(run.batch)
    step = lambda: run.step(run.batch)
    lines, done = lines_of(step), 3
    assert len(lines) > 60
    hits = 0
    for line in lines:
        for looked in (True, False):  # with the moments shown to torch right away, and only after another step
            hits += interrupted_at(line, step)
            if looked:
                done = run.assert_whole(done)
            else:
                done += distance(run.net, run.states[done][0]) > 1e-11
            run.step(run.batch)
            done += 1
        assert run.assert_whole(done) == done
        run.step(run.batch)
        done += 1
    assert hits >= 2 * len(lines) - 4  # a line or two of waiting are not always reached


@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_while_opening_tears_nothing(stride, x64):
    """Not at every line: each opening traces the loss anew."""
    run = Run(updates=1)
    lines = lines_of(lambda: run.step(run.batch))[::stride]
    hits = 0
    for line in lines:
        run = Run(updates=3)
        hits += interrupted_at(line, lambda run=run: run.step(run.batch))
        done = run.assert_whole(0)
        run.step(run.batch)
        run.assert_whole(done)
    assert hits >= max(5, 0.9 * len(lines))  # what is cached runs once


def test_ctrl_c_at_any_time_tears_nothing(x64):
    """Real signals at random times, as Ctrl-C sends them."""
    run, done, hits = Run(updates=2000), 0, 0
    run.step(run.batch)
    done = run.assert_whole(0)
    rng = random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                while done < len(run.states) - 2:
                    run.step(run.batch)
                    done += 1
            except KeyboardInterrupt:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            done = run.assert_whole(done)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hits >= 40


def delicate_loss(model, batch):
    """Raises while it is traced, or inside its program, when the batch is of a certain kind."""

    def check(x):
        if np.isinf(x):
            raise RuntimeError("a cable was pulled")
        return np.zeros((), x.dtype)

    rows = batch["x"].shape[0]
    if rows == 3:
        raise ValueError("three rows are no batch")
    if rows == 5:
        return jax_loss(model, batch) + jnp.sort(jnp.arange(1 << 45, dtype=jnp.float64) * model.out.bias[0])[0]
    extra = jax.pure_callback(check, jax.ShapeDtypeStruct((), batch["x"].dtype), batch["x"][0, 0])
    odd = {"odd": jnp.zeros(3, jnp.int4)} if rows == 6 else {}
    return jax_loss(model, batch) + jax.lax.stop_gradient(extra), odd


def with_x(change):
    return lambda batch: {**batch, "x": change(batch["x"])}


def rows(count):
    return lambda batch: {name: np.resize(array, (count, array.shape[1])) for name, array in batch.items()}


ERRORS = {
    "inside the program": (with_x(lambda x: np.full_like(x, np.inf)), "a cable was pulled"),
    "NaN": (with_x(lambda x: np.full_like(x, np.nan)), "nan"),
    "in the loss": (rows(3), "three rows"),
    "out of memory": (rows(5), "(?i)out of memory|allocat"),
    "a result that cannot cross": (rows(6), "int4"),
    "another width": (with_x(lambda x: x[:, :2]), "(?i)shape|size|dimension"),
    "another type": (with_x(lambda x: x.astype(np.float32)), "expected float64"),
    "another structure": (lambda batch: {"x": batch["x"]}, "structure"),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "name, kind",
    [pytest.param(name, "step", marks=pytest.mark.slow if name.startswith("another") else ()) for name in ERRORS]
    + [("inside the program", "epoch")],
)
def test_an_error_changes_nothing(name, kind, x64):
    change, words = ERRORS[name]
    run = Run(delicate_loss, updates=12)
    call = run.step if kind == "step" else lambda batch: run.step.epoch([batch])
    call(run.batch)
    call(run.batch)
    for done in (2, 3):
        with pytest.raises(Exception, match=words), jax.debug_nans(name == "NaN"):
            call(change(run.batch))
        if done == 2:  # looked at right away, and only after another step
            assert run.assert_whole(done) == done
        call(run.batch)
    assert run.assert_whole(4) == 4
    run.step.close()
    torch_steps(run.net, run.optimizer, [run.batch])
    assert run.assert_whole(4) == 5


def test_a_closed_step_hands_everything_back_after_an_interrupt(x64):
    run = Run(updates=6)
    with contextlib.suppress(KeyboardInterrupt), run.step as step:
        step(run.batch)
        step(run.batch)
        raise KeyboardInterrupt
    assert run.assert_whole(2) == 2
    reference, optimizer, _ = make()
    torch_steps(reference, optimizer, [run.batch] * 3)
    torch_steps(run.net, run.optimizer, [run.batch])
    assert_same_optimizer(run.optimizer, optimizer)
