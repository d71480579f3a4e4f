"""Normalisation of offline data by hand, and the source that batches are drawn from."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from offline_data_cases import data, raw, source

from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.data.dataset import from_rows
from crossfade.algos.offline.data.source import geometric, make_source, observation_shape
from crossfade.algos.offline.data.statistics import Statistics, both_statistics, statistics
from crossfade.errors import DataError, UsageError

CONFIG = OfflineConfig()


def line(values):
    """One trajectory whose observations are these numbers; the last is the one after the last step."""
    n = len(values)
    ends = np.arange(n) == n - 1
    return from_rows(np.array(values, np.float32)[:, None], np.zeros((n, 1), np.float32), ends)


def test_normal_is_by_the_population_of_observations_alone():
    found = statistics(line([1, 2, 6, 1000]), "normal")  # mean 3, variance (4 + 1 + 9) / 3
    assert found.shift.tolist() == [3] and found.shift.dtype == np.float64
    assert found.scale.tolist() == [np.sqrt(14 / 3 + 1e-8)]
    assert found.apply(np.array([[6.0]])).tolist() == [[3 / np.sqrt(14 / 3 + 1e-8)]]


def test_a_number_that_never_changes_is_divided_by_a_small_one():
    assert statistics(line([2, 2, 2]), "normal").apply(np.array([2.5]))[0] == pytest.approx(0.5 / 1e-4)


def test_statistics_are_float64():
    x = np.array([4096.0, 4096.5, 4097.0, 0], np.float32)  # float32 sums of squares would lose the variance
    found = statistics(line(x), "normal")
    assert found.scale[0] == np.sqrt(np.var(x[:3].astype(np.float64)) + 1e-8)


def test_chunks_do_not_show(monkeypatch):
    whole = [statistics(data(), kind) for kind in ("normal", "bounded")]
    monkeypatch.setattr("crossfade.algos.offline.data.statistics.CHUNK", 2)
    monkeypatch.setattr("crossfade.algos.offline.data.source.CHUNK", 2)
    for one, other in zip(whole, [statistics(data(), kind) for kind in ("normal", "bounded")], strict=True):
        np.testing.assert_allclose(one.shift, other.shift, rtol=1e-14)
        np.testing.assert_allclose(one.scale, other.scale, rtol=1e-14)
    ready = make_source(data(), whole[0], "finetuning", CONFIG).data
    expected = whole[0].apply(data().observations).astype(np.float32)
    assert ready.observations.tolist() == expected.tolist()


def test_bounded_goes_from_minus_1_to_1():
    found = statistics(line([1, 2, 5, 1000]), "bounded")
    assert found.apply(np.array([1.0, 2, 5, 7])).tolist() == [-1, -0.5, 1, 2]


def test_bounded_refuses_a_number_without_bounds():
    with pytest.raises(DataError, match="got 2.0 for number 0 in every row"):
        statistics(line([2, 2, 2]), "bounded")


def test_none_and_images_stay_as_they_are():
    x = np.ones(2)
    assert statistics(data(), "none").apply(x) is x
    for kind in ("normal", "bounded", "none"):
        assert statistics(data(image=True), kind) == Statistics(None, None)


def test_layouts_have_the_same_statistics():
    for kind in ("normal", "bounded"):
        one, other = statistics(data(), kind), statistics(data(compact=True), kind)
        assert one.shift.tolist() == other.shift.tolist() and one.scale.tolist() == other.scale.tolist()


def test_each_phase_has_its_own_statistics_as_published():
    before, after = line([1, 2, 3]), line([5, 9, 9])
    own = both_statistics(before, after, CONFIG)
    assert [found.shift.item() for found in own] == [1.5, 7]
    shared = both_statistics(before, after, replace(CONFIG, corrected=("own_statistics",)))
    assert [found.shift.item() for found in shared] == [1.5, 1.5]


def test_statistics_apply_to_arrays_of_jax():
    found = statistics(data(), "normal").apply(jnp.ones((3, 2)))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, statistics(data(), "normal").apply(np.ones((3, 2))), rtol=1e-6)


# Sources


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_source_is_normalised_in_the_precision_of_the_networks(dtype):
    config = replace(CONFIG, dtype=dtype)
    found, law = source(config), statistics(data(), "normal")
    rows = found.data
    columns = (rows.observations, rows.next_observations, rows.actions, rows.rewards, rows.masks)
    assert all(x.dtype == dtype for x in columns)
    assert rows.next_observations.tolist() == law.apply(data().next_observations).astype(dtype).tolist()
    expected = law.apply(data().observations).astype(dtype)
    assert found.bounds.tolist() == [expected.min(0).tolist(), expected.max(0).tolist()]
    assert found.bounds.dtype == dtype


def test_bounds_of_stacked_frames_are_repeated():
    one, three = source(CONFIG).bounds, source(replace(CONFIG, frame_stack=3)).bounds
    assert three.tolist() == np.concatenate([one, one, one], axis=1).tolist()
    assert observation_shape(data(), replace(CONFIG, frame_stack=3)) == (6,)
    assert observation_shape(data(image=True), replace(CONFIG, frame_stack=3)) == (8, 9, 9)


def test_bounds_leave_out_rows_that_are_not_drawn():
    given = {**raw(), "observations": np.arange(12, dtype=np.float32)[:, None]}
    compact = source(replace(CONFIG, normalize="none"), from_rows(**given, compact=True))
    assert compact.bounds.tolist() == [[0], [10]]


def test_images_have_no_bounds_and_stay_bytes():
    found = source(CONFIG, data(image=True))
    assert found.bounds is None and found.data.observations.dtype == np.uint8


def test_fine_tuning_needs_rewards():
    free = data()._replace(rewards=None)
    assert source(CONFIG, free, "pretraining").data.rewards.tolist() == [0] * 9
    with pytest.raises(DataError, match="rewards: expected those of a task"):
        source(CONFIG, free)


def test_the_table_of_geometric_offsets():
    np.testing.assert_array_equal(geometric(0.5, 3), np.float32([0.5, 0.75, 0.875]))
    assert geometric(0.0, 3).tolist() == [1]
    assert geometric(1.0, 3).tolist() == [0, 0, 0]
    long = geometric(0.99, 10**6)
    assert 0.99**1615 < 0.75 * 2**-23 < 0.99**1614  # below that, 1 - 0.99^k is rounded to more than 1 - 2^-23
    assert len(long) == 1615 and long[-1] > 1 - 2**-23 >= long[-2]
    assert (np.diff(long) >= 0).all()


def test_settings_of_augmentation_are_checked():
    with pytest.raises(UsageError, match="num_aug: expected 1 with inplace_aug=true"):
        OfflineConfig(num_aug=2)
    with pytest.raises(UsageError, match="p_aug: expected 1 with inplace_aug=false"):
        OfflineConfig(p_aug=0.5, inplace_aug=False)
    with pytest.raises(UsageError, match="which are no images"):
        source(OfflineConfig(p_aug=0.5))
    for wrong in ({"frame_stack": 0}, {"p_aug": 1.5}, {"geometric_start": 2}, {"num_aug": 0}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))}: expected"):
            OfflineConfig(**wrong)
