"""Batches from a source and the random numbers of an update, in JAX. Twin: sampling_numpy.py, equal bit for bit.

For use inside a compiled loop, with the source on the device. Find the places of many updates first and scan over them:
found in the same iteration, a row is computed anew for each number that is read from it, at twice the time.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int32, Shaped

from ..agent import Goals
from ..batch import Batch
from ..config import OfflineConfig
from .choice import PAD, Choice, GoalNumbers, Places, trajectory_probability
from .source import Source

Rows = Int32[Array, " batch"]


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
            relabeled_rewards=at_goal - jnp.asarray(config.gc_negative, config.dtype),
            relabeled_masks=1 - at_goal,
        )
    if at.actor_goals is not None:
        batch = batch._replace(actor_goals=observations(source, at.actor_goals, config))
    batch = _augmented(batch, choice, config)
    return batch._replace(noise=choice.noise, bounds=source.bounds if config.agent.bounded else None)


def chosen(source: Source, steps: Int32[Array, "*n"]) -> Int32[Array, "*n"]:
    """The rows of steps, which are counted among those that can be drawn."""
    return steps if source.data.drawable is None else _take(source.data.drawable, steps)


def transitions(source: Source, rows: Rows, config: OfflineConfig) -> Batch:
    """Rows of the data as they are, with next actions if the agent asks for them."""
    data, asked = source.data, config.agent.next_actions
    return Batch(
        observations=observations(source, rows, config),
        actions=_take(data.actions, rows),
        next_observations=next_observations(source, rows, config),
        rewards=_take(data.rewards, rows),
        masks=_take(data.masks, rows),
        next_actions=_take(data.actions, next_rows(source, rows, config)) if asked else None,
    )


def observations(source: Source, rows: Rows, config: OfflineConfig) -> Shaped[Array, "batch ..."]:
    """Observations of the last `frame_stack` rows, oldest first; before its start a trajectory stands still."""
    return _stacked([_frame(source, rows, k) for k in range(config.frame_stack - 1, -1, -1)])


def next_observations(source: Source, rows: Rows, config: OfflineConfig) -> Shaped[Array, "batch ..."]:
    """The same one step later."""
    data = source.data
    compact = data.next_observations is None
    later = _take(data.observations, rows + 1) if compact else _take(data.next_observations, rows)
    return _stacked([*(_frame(source, rows, k) for k in range(config.frame_stack - 2, -1, -1)), later])


def next_rows(source: Source, rows: Rows, config: OfflineConfig) -> Rows:
    """The row whose action is the next one.

    Published, it is the row after, be it of the next trajectory (`foreign_next_actions`); the last row of all repeats
    itself. Corrected, the last step of every trajectory does.
    """
    data = source.data
    own = jnp.int32(len(data.first) - 1) if config.has("foreign_next_actions") else _take(data.last, rows)
    return jnp.minimum(rows + 1, own)


def goal_rows(source: Source, rows: Rows, numbers: GoalNumbers, goals: Goals, config: OfflineConfig) -> Rows:
    """The rows of goals. With i the row, f the last step of its trajectory, u the offset number:

        geometric    min(i + k, f), k = 1 + the number of P(k <= 1), P(k <= 2), .. that are at most u
        uniform      f - round((f - min(i + 1, f)) u), halves to even

    where the trajectory's coin is below trajectory / (1 - current + 1e-6), else any step of the data; and i itself
    where the current row's coin is below `current`. If `geometric_offset` is corrected, k is less by 1 -
    geometric_start.
    """
    last = _take(source.data.last, rows)
    if goals.geometric:
        least = 1 if config.has("geometric_offset") else config.geometric_start
        ahead = jnp.minimum(rows + (_search(source.geometric, numbers.offset) + least), last)
    else:
        span = (last - jnp.minimum(rows + 1, last)).astype(jnp.float32)
        ahead = last - jnp.round(span * numbers.offset).astype(jnp.int32)
    from_trajectory = numbers.trajectory < jnp.float32(trajectory_probability(goals))
    goal = jnp.where(from_trajectory, ahead, chosen(source, numbers.random))
    return jnp.where(numbers.current < jnp.float32(goals.current), rows, goal)


def cropped(
    images: Shaped[Array, "batch height width channels"], crops: Int32[Array, "batch 2"]
) -> Shaped[Array, "batch height width channels"]:
    """Images, widened by PAD pixels that repeat their edges, from row and column `crops` on; PAD changes nothing."""
    n, height, width, _ = images.shape
    places = [
        jnp.clip(jnp.arange(size, dtype=jnp.int32)[None] + (crops[:, axis, None] - PAD), 0, size - 1)
        for axis, size in enumerate((height, width))
    ]
    image = jnp.arange(n, dtype=jnp.int32)[:, None, None]
    return images.at[image, places[0][:, :, None], places[1][:, None, :]].get(mode="promise_in_bounds")


def _augmented(batch: Batch, choice: Choice, config: OfflineConfig) -> Batch:
    if choice.crops is None:
        return batch
    if choice.coin is None:
        return batch._replace(views=jnp.stack([cropped(batch.observations, crops) for crops in choice.crops]))
    probability = jnp.float32(config.p_aug or 0)
    shifted = jnp.where(choice.coin < probability, choice.crops, PAD)
    images = {name: cropped(getattr(batch, name), shifted) for name in ("observations", "next_observations")}
    if choice.goal_crops is not None:
        shifted = jnp.where(choice.goal_coin < probability, choice.goal_crops, PAD)
        goals = [name for name in ("value_goals", "actor_goals") if getattr(batch, name) is not None]
        images |= {name: cropped(getattr(batch, name), shifted) for name in goals}
    return batch._replace(**images)


def _frame(source: Source, rows: Rows, ago: int) -> Shaped[Array, "batch ..."]:
    """The observation some rows ago, or the first of the trajectory."""
    data = source.data
    return _take(data.observations, rows if ago == 0 else jnp.maximum(rows - ago, _take(data.first, rows)))


def _search(table: Shaped[Array, " n"], numbers: Shaped[Array, " batch"]) -> Rows:
    """How many entries are at most as large as each number."""
    return jnp.searchsorted(table, numbers, side="right", method="scan").astype(jnp.int32)


def _take(x: Shaped[Array, "n ..."], rows: Int32[Array, "*batch"]) -> Shaped[Array, "..."]:
    """x[rows], without JAX's care for rows that are not there.

    Number by number, each of all rows: a core then waits for many places of memory at once, not for one row after the
    other, and large data are read twice as fast.
    """
    if x.ndim != 2 or rows.ndim != 1 or x.size >= 2**31:
        return x.at[rows].get(mode="promise_in_bounds")
    width = x.shape[1]
    place = rows[None] * width + jnp.arange(width, dtype=jnp.int32)[:, None]
    return x.reshape(-1).at[place].get(mode="promise_in_bounds").T


def _stacked(frames: list[Array]) -> Array:
    return frames[0] if len(frames) == 1 else jnp.concatenate(frames, axis=-1)
