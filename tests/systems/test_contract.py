"""What every system keeps, proved by its record alone: a new system gets all of it by being registered."""

import pytest
from contract import ALL, HALF, assert_close, assert_equal, everything, go_on, settings, whole

from crossfade.registry import find
from crossfade.run.settings import MODES
from crossfade.trainers.making import jax_half, make_trainer, precision

RING = list(zip(MODES, (*MODES[1:], MODES[0]), strict=True))


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.find_compiler", lambda: ("", "this is a test"))


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("system", ALL)
def test_every_mode_is_the_same_system_as_torch(system, mode):
    expected, found = whole(system, "torch"), whole(system, mode)
    assert_close(found.first, expected.first)
    assert_close(everything(found.middle), everything(expected.middle))
    assert_close(found.second, expected.second)
    assert_close(everything(found.end), everything(expected.end))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("system", ALL)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(system, mode):
    metrics, end = go_on(system, mode, whole(system, mode).middle)
    assert_equal(metrics, whole(system, mode).second)
    assert_equal(everything(end), everything(whole(system, mode).end))


@pytest.mark.parametrize(("first", "second"), RING)
@pytest.mark.parametrize("system", ALL)
def test_a_run_may_change_its_mode_in_the_middle(system, first, second):
    metrics, end = go_on(system, second, whole(system, first).middle)
    assert_close(metrics, whole(system, "torch").second)
    assert_close(everything(end), everything(whole(system, "torch").end))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("system", ALL)
def test_optimisers_are_recorded_alike_in_every_mode(system, mode):
    """Kind, groups and hyper-parameters, as JAX tells torch of them and as torch has them."""
    config = settings(system, mode)
    with precision(config):
        half = jax_half(find(system), config)
        start = make_trainer(find(system), config).snapshot()
        for step, snapshot in ((0, start), (HALF, whole(system, mode).middle), (2 * HALF, whole(system, mode).end)):
            expected = {name: (state.kind, state.groups) for name, state in half.optimizer_records(step).items()}
            assert {name: (state.kind, state.groups) for name, state in snapshot.optimizers.items()} == expected
