"""Datasets of offline learning: layouts and tables by hand, and every wrong refused with its row."""

import numpy as np
import pytest
from offline_data_cases import LENGTHS, data, raw

from crossfade.algos.offline.data import checks
from crossfade.algos.offline.data.dataset import from_rows, from_transitions, head, joined, relabelled, shortened, split
from crossfade.errors import DataError

# Layouts


def test_regular_layout_drops_last_rows():
    given, found = raw(), data()
    steps = [0, 1, 2, 4, 6, 7, 8, 9, 10]
    assert found.observations.tolist() == given["observations"][steps].tolist()
    assert found.next_observations.tolist() == given["observations"][np.array(steps) + 1].tolist()
    assert found.actions.tolist() == given["actions"][steps].tolist()
    assert found.rewards.tolist() == given["rewards"][steps].tolist()
    assert found.masks.tolist() == given["masks"][steps].tolist()
    assert found.first.tolist() == [0, 0, 0, 3, 4, 4, 4, 4, 4]
    assert found.last.tolist() == [2, 2, 2, 3, 8, 8, 8, 8, 8]
    assert found.drawable is None and found.steps == 9
    assert found.first.dtype == found.last.dtype == np.int32


def test_compact_layout_keeps_all_rows_and_draws_steps():
    given, found = raw(), data(compact=True)
    assert found.observations.tolist() == given["observations"].tolist()
    assert found.next_observations is None
    assert found.drawable.tolist() == [0, 1, 2, 4, 6, 7, 8, 9, 10] and found.steps == 9
    assert found.first.tolist() == [0] * 4 + [4] * 2 + [6] * 6
    assert found.last.tolist() == [2] * 4 + [4] * 2 + [10] * 6


def test_layouts_hold_the_same_steps():
    regular, compact = data(), data(compact=True)
    rows = compact.drawable
    assert regular.observations.tolist() == compact.observations[rows].tolist()
    assert regular.next_observations.tolist() == compact.observations[rows + 1].tolist()


def test_actions_stay_inside_the_open_interval():
    given = raw()
    given["actions"][0] = [1.0, -1.00005]
    found = from_rows(**given).actions
    most = np.float32(1 - 1e-5)
    assert found[0].tolist() == [most, -most] and np.float32(1) > most
    assert found[1].tolist() == given["actions"][1].tolist()


def test_reward_free_data_have_none_and_masks_of_one():
    given = raw()
    found = from_rows(given["observations"], given["actions"], given["terminals"])
    assert found.rewards is None and found.masks.tolist() == [1] * 9


@pytest.mark.parametrize("form", [bool, np.int64, np.uint8, np.float64, "column"])
def test_terminals_come_in_many_forms(form):
    given = raw()
    terminals = given["terminals"][:, None] if form == "column" else given["terminals"].astype(form)
    found = from_rows(**{**given, "terminals": terminals, "rewards": given["rewards"][:, None]})
    assert all(np.array_equal(a, b) for a, b in zip(found[:-1], data()[:-1], strict=True))


def test_float64_and_half_precision_become_float32():
    given = raw()
    for dtype in (np.float64, np.float16):
        found = from_rows(given["observations"].astype(dtype), given["actions"].astype(dtype), given["terminals"])
        assert found.observations.dtype == found.next_observations.dtype == found.actions.dtype == np.float32


def test_images_stay_bytes():
    assert data(image=True).observations.dtype == data(image=True).next_observations.dtype == np.uint8


# Transitions


def steps(n=5):
    return {
        "observations": np.arange(2 * n, dtype=np.float32).reshape(n, 2),
        "actions": np.zeros((n, 1), np.float32),
        "next_observations": 100 + np.arange(2 * n, dtype=np.float32).reshape(n, 2),
        "terminals": np.array([0, 1, 0, 0, 0], bool)[:n],
        "timeouts": np.array([0, 0, 0, 0, 1], bool)[:n],
        "rewards": np.arange(n, dtype=np.float32),
    }


def test_transitions_end_by_terminals_and_timeouts():
    found = from_transitions(**steps())
    assert found.first.tolist() == [0, 0, 2, 2, 2] and found.last.tolist() == [1, 1, 4, 4, 4]
    assert found.masks.tolist() == [1, 0, 1, 1, 1]
    assert found.next_observations[:, 0].tolist() == [100, 102, 104, 106, 108]


def test_without_next_observations_a_timeout_is_dropped_and_a_terminal_kept():
    found = from_transitions(**{**steps(), "next_observations": None})
    assert found.observations[:, 0].tolist() == [0, 2, 4, 6]
    assert found.next_observations[:, 0].tolist() == [2, 2, 6, 8]
    assert found.rewards.tolist() == [0, 1, 2, 3] and found.masks.tolist() == [1, 0, 1, 1]
    assert found.first.tolist() == [0, 0, 2, 2] and found.last.tolist() == [1, 1, 3, 3]


def test_single_steps_are_trajectories_if_their_next_observation_is_known():
    given = {**steps(), "terminals": np.array([1, 1, 0, 0, 0], bool)}
    assert from_transitions(**given).last.tolist() == [0, 1, 4, 4, 4]
    given |= {"next_observations": None, "timeouts": np.array([0, 0, 1, 0, 1], bool)}
    with pytest.raises(DataError, match="at least 2 rows.*got one that is row 2 alone"):
        from_transitions(**given)


def test_given_masks_are_kept():
    assert from_transitions(**steps(), masks=np.array([1, 0.5, 1, 0, 1])).masks.tolist() == [1, 0.5, 1, 0, 1]


# Parts


def test_joined_trajectories_follow_each_other():
    one, two = data(), data(lengths=(3, 3), seed=1)
    both = joined([one, two])
    assert both.first.tolist() == [*one.first.tolist(), 9, 9, 11, 11]
    assert both.last.tolist() == [*one.last.tolist(), 10, 10, 12, 12]
    assert both.rewards.tolist() == [*one.rewards.tolist(), *two.rewards.tolist()]
    assert both.next_observations[9:].tolist() == two.next_observations.tolist()


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"b: expected observations \(2,\).*as in a, got observations \(3,\)"):
        joined([data(), data(numbers=3)], ["a", "b"])
    with pytest.raises(DataError, match="part 1: expected rewards if part 0 has them"):
        joined([data(), data()._replace(rewards=None)])
    with pytest.raises(DataError, match="the regular layout"):
        joined([data(compact=True)])
    with pytest.raises(DataError, match="at least one trajectory"):
        joined([])


def test_a_head_ends_the_trajectory_it_cuts():
    assert head(data(), 6).last.tolist() == [2, 2, 2, 3, 5, 5] and head(data(), 6).steps == 6
    assert head(data(), 9) is not None and head(data(), 100).steps == 9
    compact = head(data(compact=True), 8)  # rows 6 and 7 of the third trajectory: one step
    assert compact.drawable.tolist() == [0, 1, 2, 4, 6] and compact.last[6] == 6
    compact = head(data(compact=True), 7)  # row 6 alone is no step
    assert compact.drawable.tolist() == [0, 1, 2, 4]
    for few in (0, -3):
        with pytest.raises(DataError, match="enough for a step"):
            head(data(), few)


@pytest.mark.parametrize("kept", [True, False])
def test_too_large_a_validation_set_shortens_the_training_set_as_published(kept):
    training, validation = shortened(data(), data(seed=1), 8, 5, exorl_validation=kept)
    assert (training.steps, validation.steps) == ((5, 9) if kept else (8, 5))
    training, validation = shortened(data(), data(seed=1), 8, 9, exorl_validation=kept)
    assert (training.steps, validation.steps) == (8, 9)


def test_relabelled_data_have_the_rewards_of_a_task():
    found = relabelled(data(), np.arange(9), np.ones((9, 1)))
    assert found.rewards.tolist() == list(range(9)) and found.masks.tolist() == [1] * 9
    with pytest.raises(DataError, match="rewards: expected 9 rows, as many as observations, got 8"):
        relabelled(data(), np.arange(8), np.ones(9))


# Refusals


def spoilt(field, value, row=None):
    given = raw()
    if row is None:
        return {**given, field: value(given[field])}
    given[field] = given[field].copy()
    given[field][row] = value
    return given


WRONG = {
    "nan observation": (spoilt("observations", np.nan, (7, 1)), "observations: .*finite.*nan in row 7, number 1"),
    "infinite action": (spoilt("actions", np.inf, (3, 1)), "actions: .*finite.*inf in row 3, number 1"),
    "nan reward": (spoilt("rewards", np.nan, 5), "rewards: .*finite.*nan in row 5"),
    "nan terminal": (spoilt("terminals", np.nan, 5), "terminals: .*finite.*nan in row 5"),
    "overflow": (
        spoilt("observations", lambda x: np.where(x == x[7], 1e300, x.astype(np.float64))),
        r"observations: .*finite.*1e\+300 in row 7, number 0",
    ),
    "action beyond": (spoilt("actions", -1.01, (8, 1)), "actions: .*from -1 to 1.*-1.0.* in row 8, number 1"),
    "no terminals": (spoilt("terminals", np.zeros_like), "trajectories that end, got no end in 12 rows"),
    "unfinished": (spoilt("terminals", 0, 11), "got row 11 that does not; the last end is row 5.*drop_unfinished"),
    "half terminal": (spoilt("terminals", 0.5, 2), "terminals: expected 0 or 1, got 0.5 in row 2"),
    "one row": (spoilt("terminals", 1, 4), "at least 2 rows.*row 4 alone"),
    "mask beyond": (spoilt("masks", 2, 2), "masks: expected numbers from 0 to 1, got 2.0 in row 2"),
    "few actions": (spoilt("actions", lambda x: x[:-1]), "actions: expected 12 rows.*got 11"),
    "few terminals": (spoilt("terminals", lambda x: x[:-1]), "terminals: expected 12 rows.*got 11"),
    "two rewards": (spoilt("rewards", lambda x: np.stack([x, x], 1)), r"rewards: expected one.*shape \(12, 2\)"),
    "few rewards": (spoilt("rewards", lambda x: x[1:]), "rewards: expected 12 rows.*got 11"),
    "text": (spoilt("observations", lambda x: x.astype(str)), "observations: expected numbers, got <U.*, text"),
    "bytes": (spoilt("rewards", lambda x: x.astype("S8")), "rewards: expected numbers, got .*, text"),
    "objects": (spoilt("actions", lambda x: x.astype(object)), "actions: expected numbers, got object.*, objects"),
    "complex": (spoilt("observations", lambda x: x.astype(complex)), "got complex128.*complex numbers"),
    "dates": (spoilt("rewards", lambda x: x.astype("datetime64[s]")), "rewards: expected numbers, got datetime64"),
    "discrete": (spoilt("actions", lambda x: np.ones(12, np.int64)), "actions: expected floats, got int64"),
    "bool observations": (spoilt("observations", lambda x: x > 0), "observations: expected floats.*got bool"),
    "integers": (spoilt("observations", lambda x: x.astype(np.int32)), "observations: expected floats.*got int32"),
    "flat bytes": (spoilt("observations", lambda x: x.astype(np.uint8)), "expected floats, or images.*got uint8"),
    "float images": (spoilt("observations", lambda x: np.ones((12, 4, 4, 3), np.float32)), "must be uint8"),
    "flat actions": (spoilt("actions", lambda x: x[:, 0]), r"actions\[:, None\]"),
    "flat observations": (spoilt("observations", lambda x: x[:, 0]), r"expected shape \(rows, numbers\)"),
    "no rows": (spoilt("observations", lambda x: x[:0]), "observations: expected at least one row"),
    "no numbers": (spoilt("observations", lambda x: x[:, :0]), "at least one number per row"),
    "no action": (spoilt("actions", lambda x: x[:, :0]), "actions: expected at least one number per row"),
    "a number": (spoilt("terminals", lambda x: np.array(1.0)), "terminals: expected at least one row"),
    "a list": (spoilt("rewards", lambda x: x.tolist()), "rewards: expected a NumPy array, got list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_is_refused_with_its_row(name):
    given, words = WRONG[name]
    with pytest.raises(DataError, match=f"^here: (.|\n)*{words}"):
        from_rows(**given, where="here")


def test_rows_after_the_last_end_are_left_out_on_request_only():
    given = spoilt("terminals", 0, 11)
    found = from_rows(**given, drop_unfinished=True)
    assert found.last.tolist() == [2, 2, 2, 3]
    assert from_rows(**given, drop_unfinished=True, compact=True).drawable.tolist() == [0, 1, 2, 4]
    assert sum(LENGTHS[:2]) == len(from_rows(**given, drop_unfinished=True, compact=True).first)


TRANSITIONS_WRONG = {
    "unfinished": ({"timeouts": np.zeros(5)}, "row 4 that does not; the last end is row 1"),
    "other form": ({"next_observations": np.zeros((5, 3), np.float32)}, r"next_observations: .*\(5, 2\).*\(5, 3\)"),
    "few": ({"next_observations": np.zeros((4, 2), np.float32)}, "next_observations: expected 5 rows.*got 4"),
    "nan": ({"next_observations": np.full((5, 2), np.nan)}, "next_observations: .*finite.*row 0, number 0"),
    "timeouts": ({"timeouts": np.arange(5)}, "timeouts: expected 0 or 1, got 2.0 in row 2"),
}


@pytest.mark.parametrize("name", TRANSITIONS_WRONG)
def test_wrong_transitions_are_refused_with_their_row(name):
    changed, words = TRANSITIONS_WRONG[name]
    with pytest.raises(DataError, match=f"^data: .*{words}"):
        from_transitions(**{**steps(), **changed})


def test_more_rows_than_int32_numbers_are_refused(monkeypatch):
    monkeypatch.setattr(checks, "MOST_ROWS", 10)
    with pytest.raises(DataError, match="fewer than 10 rows, got 12"):
        data()
    with pytest.raises(DataError, match="fewer than 10 rows, got 10"):
        joined([data(lengths=(6,)), data(lengths=(6,))])


@pytest.mark.parametrize("compact", [False, True])
def test_the_last_trajectories_are_split_off(compact):
    data = three_trajectories(compact)
    learn, held = split(data, 0.3)
    assert held is not None and len(np.unique(learn.first)) == 2 and len(np.unique(held.first)) == 1
    for part in (learn, held):
        assert part.first.min() == 0 and part.last.max() < len(part.observations) and part.first.dtype == np.int32
        drawn = np.arange(len(part.first)) if part.drawable is None else part.drawable
        assert (part.first[drawn] <= drawn).all() and (drawn <= part.last[drawn]).all()
    assert np.array_equal(np.concatenate([learn.observations, held.observations]), data.observations)
    assert learn.steps + held.steps == data.steps
    assert split(data, 0.0) == (data, None)


def three_trajectories(compact):
    ends = np.isin(np.arange(12), (3, 7, 11))
    return from_rows(np.arange(12, dtype=np.float32)[:, None], np.zeros((12, 1), np.float32), ends, compact=compact)
