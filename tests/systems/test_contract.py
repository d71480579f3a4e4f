"""What every system keeps, proved by its record alone: a new system gets all of it by being registered."""

from dataclasses import replace
from itertools import permutations

import pytest
from contract import ALL, HALF, assert_close, assert_equal, everything, go_on, settings, whole

from crossfade.loading import load_attribute
from crossfade.registry import find
from crossfade.run.settings import MODES
from crossfade.trainers.making import jax_half, precision

RING = list(zip(MODES, (*MODES[1:], MODES[0]), strict=True))
SWITCHES = [pair if pair in RING else pytest.param(*pair, marks=pytest.mark.slow) for pair in permutations(MODES, 2)]


@pytest.fixture(scope="module", params=ALL)
def system(request) -> str:
    """Of the module's scope, so that the tests of one system stand together and share what it has compiled."""
    return request.param


def test_every_place_in_the_record_loads(system):
    for field, target in find(system).targets().items():
        assert load_attribute(target) is not None, field


@pytest.mark.parametrize("mode", MODES[1:])
def test_every_mode_is_the_same_system_as_torch(system, mode):
    expected, found = whole(system, "torch"), whole(system, mode)
    assert_equal(everything(found.start), everything(expected.start))
    assert_close(found.first, expected.first)
    assert_close(everything(found.middle), everything(expected.middle))
    assert_close(found.second, expected.second)
    assert_close(everything(found.end), everything(expected.end))


@pytest.mark.parametrize("mode", MODES[2:])
def test_later_chunks_compile_nothing(system, mode):
    """But where a new phase begins in the middle, which has programs of its own."""
    begins = HALF in settings(system, mode).breaks
    assert bool(whole(system, mode).compiled) == begins


def test_every_update_learns(system):
    """What is compared moves: a system that stands still would be equal in all modes."""
    run = whole(system, "torch")
    for state in run.end.optimizers.values():
        for name in state.trained:
            for before, after in ((run.start, run.middle), (run.middle, run.end)):
                assert (before.parameters[name] != after.parameters[name]).any(), name


@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_from_a_snapshot_bit_for_bit(system, mode):
    metrics, end = go_on(system, mode, whole(system, mode).middle)
    assert_equal(metrics, whole(system, mode).second)
    assert_equal(everything(end), everything(whole(system, mode).end))


@pytest.mark.parametrize(("first", "second"), SWITCHES)
def test_a_run_may_change_its_mode_in_the_middle(system, first, second):
    metrics, end = go_on(system, second, whole(system, first).middle)
    assert_close(metrics, whole(system, "torch").second)
    assert_close(everything(end), everything(whole(system, "torch").end))


@pytest.mark.parametrize("mode", MODES)
def test_optimisers_are_recorded_alike_in_every_mode(system, mode):
    """Kind, groups and hyper-parameters, as JAX tells torch of them and as torch has them."""
    config, run = settings(system, mode), whole(system, mode)
    with precision(config):
        half = jax_half(find(system), config)
    for step, snapshot in ((0, run.start), (HALF, run.middle), (2 * HALF, run.end)):
        assert {n: replace(s, moments={}) for n, s in snapshot.optimizers.items()} == half.optimizer_records(step)


def test_another_seed_gives_another_run(system):
    from crossfade.trainers.making import make_trainer

    config = replace(settings(system, "torch"), seed=1)
    found = make_trainer(find(system), config).run(0, 1)
    assert any(found[name] != whole(system, "torch").first[name][:1] for name in found)
