"""Batches of offline learning by hand, in NumPy: goals, next actions, frames, crops. The twins test is for JAX."""

from dataclasses import replace

import numpy as np
import pytest
from offline_data_cases import data, raw, source, with_goals

from crossfade.algos.offline.agent import Goals
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.data import sampling_numpy as sampling
from crossfade.algos.offline.data.choice import PAD, Augmentation, Choice, GoalNumbers, augmentation
from crossfade.algos.offline.data.dataset import from_rows
from crossfade.algos.offline.dino_rebrac.params import DINOReBRAC
from crossfade.errors import UsageError

PLAIN = OfflineConfig(normalize="none", gamma=0.5)
LAW = Goals()


def rows(*numbers):
    return np.array(numbers, np.int32)


def numbers(offset, random=None, trajectory=0.0, current=0.9):
    """Goal numbers: by default of the trajectory, never the row itself unless asked."""
    offset = np.array(offset, np.float32)
    full = lambda x: np.full(len(offset), x, np.float32)
    return GoalNumbers(rows(*(random or [0] * len(offset))), offset, full(trajectory), full(current))


def goals(law, given, i, config=PLAIN, compact=False):
    found = sampling.goal_rows(source(config, data(compact=compact)), rows(*i), given, law, config)
    assert found.dtype == np.int32
    return found.tolist()


# Goals. Regular rows: 0 1 2 | 3 | 4 5 6 7 8


def test_geometric_goals_search_the_distribution_function():
    law = Goals(geometric=True)  # P(k <= 1) = 1/2, P(k <= 2) = 3/4, P(k <= 3) = 7/8
    assert goals(law, numbers([0, 0.49, 0.5, 0.74, 0.75, 0.875, 0.999]), [4] * 7) == [5, 5, 6, 6, 7, 8, 8]
    assert goals(law, numbers([0, 0.5, 0.75]), [0, 0, 0]) == [1, 2, 2]
    assert goals(law, numbers([0, 0.9, 0.0]), [3, 3, 8]) == [3, 3, 8]


def test_a_geometric_goal_is_a_step_ahead_unless_that_is_corrected():
    law, given = Goals(geometric=True), numbers([0, 0.5, 0.75])
    assert goals(law, given, [4, 4, 4], replace(PLAIN, geometric_start=0)) == [5, 6, 7]
    corrected = replace(PLAIN, corrected=("geometric_offset",))
    assert goals(law, given, [4, 4, 4], corrected) == [5, 6, 7]
    assert goals(law, given, [4, 4, 4], replace(corrected, geometric_start=0)) == [4, 5, 6]


def test_uniform_goals_round_halves_to_even():
    law = Goals(geometric=False)  # from row 4: 8 - round(3 u)
    assert goals(law, numbers([0, 0.1, 0.2, 0.4, 0.6, 0.9, 0.999]), [4] * 7) == [8, 8, 7, 7, 6, 5, 5]
    assert goals(law, numbers([0.5]), [4]) == [6]  # 1.5 is rounded to 2
    assert goals(law, numbers([0.25, 0.75]), [5, 5]) == [8, 6]  # 0.5 to 0, 1.5 to 2, of a span of 2
    assert goals(law, numbers([0.3, 0.7]), [8, 3]) == [8, 3]


def test_coins_choose_between_trajectory_random_and_current():
    law = Goals(trajectory=0.5, current=0.25)  # of the trajectory below 0.5 / 0.750001
    given = GoalNumbers(
        random=rows(3, 3, 3, 3),
        offset=np.zeros(4, np.float32),
        trajectory=np.array([0.66, 0.67, 0.66, 0.67], np.float32),
        current=np.array([0.25, 0.25, 0.24, 0.24], np.float32),
    )
    assert goals(law, given, [4, 4, 4, 4]) == [5, 3, 4, 4]


def test_a_probability_of_1_leaves_one_in_a_million():
    almost = np.nextafter(np.float32(1 / (1 + 1e-6)), np.float32(2))
    assert goals(LAW, numbers([0.0], random=[7], trajectory=almost), [0]) == [7]
    assert goals(LAW, numbers([0.0], random=[7], trajectory=np.nextafter(almost, np.float32(0)) - 1e-7), [0]) == [1]


def test_compact_goals_are_steps():
    # Rows 0 1 2 . | 4 . | 6 7 8 9 10 . ; step 3 is row 4
    assert goals(Goals(), numbers([0.999, 0, 0]), [6, 10, 4], compact=True) == [10, 10, 4]
    assert goals(Goals(geometric=False), numbers([0, 0.999]), [6, 6], compact=True) == [10, 7]
    assert goals(LAW, numbers([0.0], random=[3], trajectory=1), [0], compact=True) == [4]


@pytest.mark.parametrize("negative", [True, False])
def test_rewards_are_relabelled_by_value_goals(negative):
    config = replace(PLAIN, agent=with_goals(Goals(), Goals(geometric=False)), gc_negative=negative)
    given = numbers([0, 0, 0])
    choice = Choice(rows(2, 4, 0), given, numbers([0.999, 0.999, 0]), None, None, None, None, {})
    batch = sampling.sample(source(config), choice, config)
    assert batch.relabeled_rewards.tolist() == ([0, -1, -1] if negative else [1, 0, 0])  # row 2 is the last: its goal
    assert batch.relabeled_masks.tolist() == [0, 1, 1]
    assert batch.value_goals[:, 0].tolist() == [2, 201, 1]
    assert batch.actor_goals[:, 0].tolist() == [2, 201, 2]
    assert batch.relabeled_rewards.dtype == batch.relabeled_masks.dtype == np.float32


# Transitions


def test_rows_are_taken_as_they_are():
    config, given = PLAIN, raw()
    choice = Choice(rows(3, 8), None, None, None, None, None, None, {"x": 1})
    for compact in (False, True):
        batch = sampling.sample(source(config, data(compact=compact)), choice, config)
        assert batch.observations.tolist() == given["observations"][[4, 10]].tolist()
        assert batch.next_observations.tolist() == given["observations"][[5, 11]].tolist()
        assert batch.actions.tolist() == given["actions"][[4, 10]].tolist()
        assert batch.rewards.tolist() == given["rewards"][[4, 10]].tolist()
        assert batch.masks.tolist() == given["masks"][[4, 10]].tolist()
        assert batch.noise == {"x": 1} and batch.next_actions is None and batch.value_goals is None
        assert batch.bounds is None and batch.full is None and batch.views is None


def test_next_actions_of_ends_are_foreign_as_published():
    config = replace(PLAIN, agent=with_goals(next_actions=True))
    corrected = replace(config, corrected=("foreign_next_actions",))
    i = rows(0, 2, 3, 7, 8)
    actions = lambda c, d: sampling.transitions(source(c, d), sampling.chosen(source(c, d), i), c).next_actions.tolist()
    regular, compact = data(), data(compact=True)
    assert actions(config, regular) == regular.actions[[1, 3, 4, 8, 8]].tolist()
    assert actions(corrected, regular) == regular.actions[[1, 2, 3, 8, 8]].tolist()
    assert actions(corrected, compact) == regular.actions[[1, 2, 3, 8, 8]].tolist()
    assert actions(config, compact) == compact.actions[[1, 3, 5, 10, 11]].tolist()  # the row after, of no step


def test_frames_stand_still_before_the_start_of_a_trajectory():
    config = replace(PLAIN, frame_stack=3)
    for compact in (False, True):
        found = source(config, data(compact=compact))
        i = sampling.chosen(found, rows(0, 1, 2, 3, 4, 8))
        times = lambda x: x.reshape(6, 3, 2)[:, :, 0].tolist()
        expected = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [100, 100, 100], [200, 200, 200], [202, 203, 204]]
        assert times(sampling.observations(found, i, config)) == expected
        expected = [[0, 0, 1], [0, 1, 2], [1, 2, 3], [100, 100, 101], [200, 200, 201], [203, 204, 205]]
        assert times(sampling.next_observations(found, i, config)) == expected


def test_frames_of_images_are_stacked_along_channels():
    config = replace(PLAIN, frame_stack=2)
    images = data(image=True)
    found = sampling.observations(source(config, images), rows(0, 2), config)
    assert found.shape == (2, 8, 9, 6) and found.dtype == np.uint8
    assert found[1].tolist() == np.concatenate([images.observations[1], images.observations[2]], -1).tolist()


def test_bounds_are_given_to_agents_that_ask():
    config = replace(PLAIN, agent=with_goals(bounded=True))
    found = source(config)
    batch = sampling.sample(found, Choice(rows(0), None, None, None, None, None, None, {}), config)
    assert batch.bounds is found.bounds


# Images


def test_a_crop_is_that_of_the_image_with_repeated_edges():
    images = np.random.default_rng(0).integers(0, 256, (49, 5, 6, 2), np.uint8)
    crops = np.array([(y, x) for y in range(7) for x in range(7)], np.int32)
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="edge")
    expected = [padded[k, y : y + 5, x : x + 6] for k, (y, x) in enumerate(crops)]
    found = sampling.cropped(images, crops)
    assert found.dtype == np.uint8 and found.tolist() == np.stack(expected).tolist()
    assert sampling.cropped(images, np.full_like(crops, PAD)).tolist() == images.tolist()


@pytest.mark.parametrize("heads", [True, False])
def test_the_coin_decides_on_the_whole_batch(heads):
    config = replace(PLAIN, p_aug=0.5, agent=with_goals(Goals(), Goals()))
    found = source(config, data(image=True))
    crops, goal_crops = rows(0, 6, 1, 5).reshape(2, 2), rows(2, 2, 4, 4).reshape(2, 2)
    coin, other = np.float32(0.49 if heads else 0.5), np.float32(0.5 if heads else 0.49)
    given = numbers([0, 0])
    batch = sampling.sample(found, Choice(rows(0, 5), given, given, coin, crops, other, goal_crops, {}), config)
    plain = sampling.sample(found, Choice(rows(0, 5), given, given, None, None, None, None, {}), config)
    for name, shifted, where in (
        ("observations", heads, crops),
        ("next_observations", heads, crops),
        ("value_goals", not heads, goal_crops),
        ("actor_goals", not heads, goal_crops),
    ):
        image = getattr(plain, name)
        expected = sampling.cropped(image, where) if shifted else image
        assert getattr(batch, name).tolist() == expected.tolist(), name
        assert shifted == (not np.array_equal(expected, image))


def test_views_leave_the_images_alone():
    config = replace(PLAIN, p_aug=1.0, num_aug=2, inplace_aug=False)
    found = source(config, data(image=True))
    crops = np.random.default_rng(0).integers(0, 7, (2, 3, 2)).astype(np.int32)
    batch = sampling.sample(found, Choice(rows(0, 1, 2), None, None, None, crops, None, None, {}), config)
    assert batch.observations.tolist() == found.data.observations[:3].tolist()
    assert batch.views.shape == (2, 3, 8, 9, 3)
    assert batch.views[1].tolist() == sampling.cropped(batch.observations, crops[1]).tolist()


def test_dino_on_images_needs_two_views():
    image = (8, 9, 3)
    config = lambda **words: OfflineConfig(agent=DINOReBRAC(), encoder="impala_debug", **words)
    two = config(p_aug=1.0, num_aug=2, inplace_aug=False)
    assert augmentation(image, "pretraining", two) == Augmentation(1.0, 2)
    assert augmentation(image, "finetuning", two) is None
    assert augmentation(image, "pretraining", config(corrected=("bare_dino",))) == Augmentation(1.0, 2)
    for wrong in ({}, {"p_aug": 1.0}, {"p_aug": 1.0, "inplace_aug": False}):
        with pytest.raises(UsageError, match="p_aug=1 num_aug=2 inplace_aug=false"):
            augmentation(image, "pretraining", config(**wrong))
    assert augmentation((5,), "pretraining", OfflineConfig(agent=DINOReBRAC(), encoder="mlp")) is None


def test_a_row_of_nothing_but_steps_can_be_drawn_in_either_layout():
    one = from_rows(**raw(lengths=(2,)))
    assert sampling.goal_rows(source(PLAIN, one), rows(0), numbers([0.7]), Goals(), PLAIN).tolist() == [0]
