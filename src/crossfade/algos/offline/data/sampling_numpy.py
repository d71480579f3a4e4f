"""Batches from a source and the random numbers of an update, in NumPy. Twin: sampling_jax.py, equal bit for bit."""

import numpy as np
from jaxtyping import Int32, Shaped

from ..agent import Goals
from ..batch import Batch
from ..config import OfflineConfig
from .choice import PAD, Choice, GoalNumbers, Places, trajectory_probability
from .source import Source

Rows = Int32[np.ndarray, " batch"]


def sample(source: Source, choice: Choice, config: OfflineConfig) -> Batch:
    """The batch of an update. Whether it is a full one, the latent and what a model imagines are for others to add."""
    return read(source, places(source, choice, config), choice, config)


def places(source: Source, choice: Choice, config: OfflineConfig) -> Places:
    """The rows that the batch is read from."""
    agent, rows = config.agent, chosen(source, choice.rows)
    goals = lambda numbers, law: None if law is None else goal_rows(source, rows, numbers, law, config)
    return Places(rows, goals(choice.value_goals, agent.value_goals), goals(choice.actor_goals, agent.actor_goals))


def read(source: Source, at: Places, choice: Choice, config: OfflineConfig) -> Batch:
    """The batch of these rows, with the noise of the update."""
    batch = transitions(source, at.rows, config)
    if at.value_goals is not None:
        at_goal = (at.value_goals == at.rows).astype(config.dtype)
        batch = batch._replace(
            value_goals=observations(source, at.value_goals, config),
            relabeled_rewards=at_goal - at_goal.dtype.type(config.gc_negative),
            relabeled_masks=1 - at_goal,
        )
    if at.actor_goals is not None:
        batch = batch._replace(actor_goals=observations(source, at.actor_goals, config))
    batch = _augmented(batch, choice, config)
    return batch._replace(noise=choice.noise, bounds=source.bounds if config.agent.bounded else None)


def chosen(source: Source, steps: Int32[np.ndarray, "*n"]) -> Int32[np.ndarray, "*n"]:
    """The rows of steps, which are counted among those that can be drawn."""
    return steps if source.data.drawable is None else source.data.drawable[steps]


def transitions(source: Source, rows: Rows, config: OfflineConfig) -> Batch:
    """Rows of the data as they are, with next actions if the agent asks for them."""
    data = source.data
    return Batch(
        observations=observations(source, rows, config),
        actions=data.actions[rows],
        next_observations=next_observations(source, rows, config),
        rewards=data.rewards[rows],
        masks=data.masks[rows],
        next_actions=data.actions[next_rows(source, rows, config)] if config.agent.next_actions else None,
    )


def observations(source: Source, rows: Rows, config: OfflineConfig) -> Shaped[np.ndarray, "batch ..."]:
    """Observations of the last `frame_stack` rows, oldest first; before its start a trajectory stands still."""
    return _stacked([_frame(source, rows, k) for k in range(config.frame_stack - 1, -1, -1)])


def next_observations(source: Source, rows: Rows, config: OfflineConfig) -> Shaped[np.ndarray, "batch ..."]:
    """The same one step later."""
    data = source.data
    later = data.observations[rows + 1] if data.next_observations is None else data.next_observations[rows]
    return _stacked([*(_frame(source, rows, k) for k in range(config.frame_stack - 2, -1, -1)), later])


def next_rows(source: Source, rows: Rows, config: OfflineConfig) -> Rows:
    """The row whose action is the next one.

    Published, it is the row after, be it of the next trajectory (`foreign_next_actions`); the last row of all repeats
    itself. Corrected, the last step of every trajectory does.
    """
    own = np.int32(len(source.data.first) - 1) if config.has("foreign_next_actions") else source.data.last[rows]
    return np.minimum(rows + 1, own)


def goal_rows(source: Source, rows: Rows, numbers: GoalNumbers, goals: Goals, config: OfflineConfig) -> Rows:
    """The rows of goals. With i the row, f the last step of its trajectory, u the offset number:

        geometric    min(i + k, f), k = 1 + the number of P(k <= 1), P(k <= 2), .. that are at most u
        uniform      f - round((f - min(i + 1, f)) u), halves to even

    where the trajectory's coin is below trajectory / (1 - current + 1e-6), else any step of the data; and i itself
    where the current row's coin is below `current`. If `geometric_offset` is corrected, k is less by 1 -
    geometric_start.
    """
    last = source.data.last[rows]
    if goals.geometric:
        least = 1 if config.has("geometric_offset") else config.geometric_start
        offset = np.searchsorted(source.geometric, numbers.offset, side="right").astype(np.int32)
        ahead = np.minimum(rows + (offset + least), last)
    else:
        span = (last - np.minimum(rows + 1, last)).astype(np.float32)
        ahead = last - np.round(span * numbers.offset).astype(np.int32)
    from_trajectory = numbers.trajectory < np.float32(trajectory_probability(goals))
    goal = np.where(from_trajectory, ahead, chosen(source, numbers.random))
    return np.where(numbers.current < np.float32(goals.current), rows, goal)


def cropped(
    images: Shaped[np.ndarray, "batch height width channels"], crops: Int32[np.ndarray, "batch 2"]
) -> Shaped[np.ndarray, "batch height width channels"]:
    """Images, widened by PAD pixels that repeat their edges, from row and column `crops` on; PAD changes nothing."""
    n, height, width, _ = images.shape
    place = lambda size, axis: np.clip(np.arange(size)[None] + crops[:, axis, None] - PAD, 0, size - 1)
    return images[np.arange(n)[:, None, None], place(height, 0)[:, :, None], place(width, 1)[:, None, :]]


def _augmented(batch: Batch, choice: Choice, config: OfflineConfig) -> Batch:
    if choice.crops is None:
        return batch
    if choice.coin is None:
        return batch._replace(views=np.stack([cropped(batch.observations, crops) for crops in choice.crops]))
    probability = np.float32(config.p_aug or 0)
    shifted = np.where(choice.coin < probability, choice.crops, np.int32(PAD))
    images = {name: cropped(getattr(batch, name), shifted) for name in ("observations", "next_observations")}
    if choice.goal_crops is not None:
        shifted = np.where(choice.goal_coin < probability, choice.goal_crops, np.int32(PAD))
        goals = [name for name in ("value_goals", "actor_goals") if getattr(batch, name) is not None]
        images |= {name: cropped(getattr(batch, name), shifted) for name in goals}
    return batch._replace(**images)


def _frame(source: Source, rows: Rows, ago: int) -> Shaped[np.ndarray, "batch ..."]:
    """The observation some rows ago, or the first of the trajectory."""
    data = source.data
    return data.observations[rows if ago == 0 else np.maximum(rows - ago, data.first[rows])]


def _stacked(frames: list[np.ndarray]) -> np.ndarray:
    return frames[0] if len(frames) == 1 else np.concatenate(frames, axis=-1)
