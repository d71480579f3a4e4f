"""Transitions of trajectories as arrays. Framework-free: NumPy makes them, and they may be moved to a device.

Rows of a trajectory lie one after the other. Regular layout: a row is a step, with its own next observation. Compact
layout: the next observation is that of the next row, so that images are stored once; a trajectory has a last row more,
the observation after its last step, which is never drawn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from . import checks


class Dataset(NamedTuple):
    """Rows of steps, with (rows,) in front."""

    observations: Any
    """(rows, *observation): float32, or images of bytes."""
    actions: Any
    """(rows, action), each number inside (-1, 1)."""
    rewards: Any
    """(rows,), or None where nobody has given any."""
    masks: Any
    """(rows,): 0 where the task is achieved and nothing follows, else 1."""
    next_observations: Any
    """(rows, *observation), or None: compact layout."""
    first: Any
    """(rows,) int32: the first row of the trajectory."""
    last: Any
    """(rows,) int32: the last row of the trajectory that is a step."""
    drawable: Any
    """(steps,) int32: the rows that are steps, or None: all of them."""

    @property
    def steps(self) -> int:
        """How many rows can be drawn."""
        return len(self.first if self.drawable is None else self.drawable)


def from_rows(
    observations: Any,
    actions: Any,
    terminals: Any,
    rewards: Any = None,
    masks: Any = None,
    compact: bool = False,
    drop_unfinished: bool = False,
    where: str = "data",
) -> Dataset:
    """From s_0 .. s_T of every trajectory, T + 1 rows of which the last is terminal, as OGBench's files are.

    Row t holds s_t, a_t and, where they are given, reward and mask of that step; those of last rows mean nothing.
    Regular: last rows are dropped. Rows after the last terminal one are refused, or left out by `drop_unfinished`.
    """
    observations = checks.observations(where, observations)
    n = len(observations)
    actions, ends = checks.actions(where, actions, n), checks.flags(where, "terminals", terminals, n)
    rewards = None if rewards is None else checks.column(where, "rewards", rewards, n)
    masks = np.ones(n, np.float32) if masks is None else checks.fractions(where, "masks", masks, n)
    n = _finished(where, ends, drop_unfinished)
    fields = [None if x is None else x[:n] for x in (observations, actions, rewards, masks)]
    observations, actions, rewards, masks, ends = *fields, ends[:n]
    first, last = _tables(ends)
    alone = first == last
    if alone.any():
        checks.refuse(
            f"{where}: terminals",
            "trajectories of at least 2 rows, which make a step",
            f"one that is row {int(np.argmax(alone))} alone",
            "Drop that row.",
        )
    if compact:
        steps = np.flatnonzero(~ends).astype(np.int32)
        return Dataset(observations, actions, rewards, masks, None, first, last - np.int32(1), steps)
    stays = ~ends
    first, last = _tables(np.roll(ends, -1)[stays])
    return Dataset(
        observations[stays],
        actions[stays],
        None if rewards is None else rewards[stays],
        masks[stays],
        observations[np.flatnonzero(stays) + 1],
        first,
        last,
        None,
    )


def from_transitions(
    observations: Any,
    actions: Any,
    next_observations: Any,
    terminals: Any,
    timeouts: Any = None,
    rewards: Any = None,
    masks: Any = None,
    drop_unfinished: bool = False,
    where: str = "data",
) -> Dataset:
    """From steps (s, a, s'), as D4RL's files are: a trajectory ends where `terminals` or `timeouts` say so.

    Masks are 1 - terminals unless they are given. Without next observations they are those of the next row; a step that
    ends by a timeout is dropped then, since nobody knows s', and one that ends by a terminal has s for s', at mask 0.
    """
    observations = checks.observations(where, observations)
    n = len(observations)
    actions, terminal = checks.actions(where, actions, n), checks.flags(where, "terminals", terminals, n)
    ends = terminal if timeouts is None else terminal | checks.flags(where, "timeouts", timeouts, n)
    rewards = None if rewards is None else checks.column(where, "rewards", rewards, n)
    given = 1 - terminal.astype(np.float32) if masks is None else checks.fractions(where, "masks", masks, n)
    if next_observations is not None:
        following = checks.observations(where, next_observations, "next_observations")
        checks.same_rows(f"{where}: next_observations", following, n)
        if following.shape != observations.shape or following.dtype != observations.dtype:
            form = f"{following.dtype} of shape {following.shape}"
            advice = "They are the observations after the steps."
            checks.refuse(f"{where}: next_observations", f"the form of observations {observations.shape}", form, advice)
    else:
        following = observations[np.minimum(np.arange(n) + 1, n - 1)]
        following[terminal] = observations[terminal]
    n = _finished(where, ends, drop_unfinished)
    known = np.ones(n, bool) if next_observations is not None else (~ends | terminal)[:n]
    alone = ~known & (_tables(ends[:n])[0] == np.arange(n))
    if alone.any():
        checks.refuse(
            where,
            "next_observations, or trajectories of at least 2 rows, which make a step",
            f"one that is row {int(np.argmax(alone))} alone",
            "Drop that row.",
        )
    ends = ends[:n] | np.append(~known[1:] & ~ends[: n - 1], False)  # a dropped step ends its trajectory a row earlier
    first, last = _tables(ends[known])
    take = lambda x: x[:n][known]
    return Dataset(
        take(observations),
        take(actions),
        None if rewards is None else take(rewards),
        take(given),
        take(following),
        first,
        last,
        None,
    )


def relabelled(data: Dataset, rewards: Any, masks: Any, where: str = "data") -> Dataset:
    """The same steps with the rewards and masks of a task, one for each row."""
    n = len(data.first)
    return data._replace(
        rewards=checks.column(where, "rewards", rewards, n), masks=checks.fractions(where, "masks", masks, n)
    )


def joined(parts: Sequence[Dataset], names: Sequence[str] | None = None) -> Dataset:
    """The trajectories of several datasets in regular layout, one after the other; `names` are for errors."""
    names = [f"part {i}" for i in range(len(parts))] if names is None else names
    if not parts:
        checks.refuse("data", "at least one trajectory", "none", "There is nothing to learn from.")
    form = lambda part: (part.observations.shape[1:], part.actions.shape[1:], part.observations.dtype)
    for name, part in zip(names, parts, strict=True):
        if form(part) != form(parts[0]):
            ours, theirs = (f"observations {o} ({t}) and actions {a}" for o, a, t in (form(parts[0]), form(part)))
            checks.refuse(name, f"{ours} as in {names[0]}", theirs, "A dataset is of one environment.")
        if (part.rewards is None) != (parts[0].rewards is None):
            checks.refuse(name, f"rewards if {names[0]} has them", "otherwise", "Relabel the whole.")
        if part.next_observations is None:
            checks.refuse(name, "the regular layout", "the compact one", "Join first.")
    starts = np.cumsum([0, *(len(part.first) for part in parts)])
    if starts[-1] >= checks.MOST_ROWS:
        checks.refuse(names[0], f"fewer than {checks.MOST_ROWS} rows", f"{starts[-1]}", "Use a part of them.")
    shifted = [
        part._replace(first=part.first + np.int32(start), last=part.last + np.int32(start))
        for part, start in zip(parts, starts[:-1], strict=True)
    ]
    columns = zip(*shifted, strict=True)
    return Dataset(*(None if column[0] is None else np.concatenate(column) for column in columns))


def head(data: Dataset, rows: int) -> Dataset:
    """The first rows; a trajectory that is cut ends there."""
    if rows < (2 if data.next_observations is None else 1):
        checks.refuse("rows", "enough for a step", f"{rows}", "Take more.")
    if rows >= len(data.first):
        return data
    cut = Dataset(*(None if x is None else x[:rows] for x in data))
    if data.next_observations is not None:
        return cut._replace(last=np.minimum(cut.last, np.int32(rows - 1)))
    steps = data.drawable[data.drawable < rows - 1]  # the last row left has no row after it
    return cut._replace(last=np.minimum(cut.last, np.int32(rows - 2)), drawable=steps)


def split(data: Dataset, share: float) -> tuple[Dataset, Dataset | None]:
    """All trajectories but the last ones, and that share of them, at least one; None where there are none to spare."""
    starts = np.unique(data.first)
    held = min(max(1, round(share * len(starts))), len(starts) - 1) if share > 0 else 0
    if held == 0:
        return data, None
    cut = starts[-held]
    before, after = (
        Dataset(*(None if x is None else x[part] for x in data)) for part in (slice(cut), slice(cut, None))
    )
    after = after._replace(first=after.first - cut, last=after.last - cut)
    if data.drawable is None:
        return before, after
    later = data.drawable >= cut
    return before._replace(drawable=data.drawable[~later]), after._replace(drawable=data.drawable[later] - cut)


def shortened(
    training: Dataset, validation: Dataset, rows: int, validation_rows: int, exorl_validation: bool
) -> tuple[Dataset, Dataset]:
    """At most so many rows of either.

    With the published fault `exorl_validation` too large a validation set stays as it is, and it is the training set
    that is shortened to `validation_rows`.
    """
    training = head(training, rows)
    if len(validation.first) <= validation_rows:
        return training, validation
    if exorl_validation:
        return head(training, validation_rows), validation
    return training, head(validation, validation_rows)


def _finished(where: str, ends: Bool[np.ndarray, " rows"], drop_unfinished: bool) -> int:
    """How many rows belong to trajectories that end."""
    if not ends.any():
        checks.refuse(where, "trajectories that end", f"no end in {len(ends)} rows", "Mark the last row of each.")
    if ends[-1] or drop_unfinished:
        return int(np.flatnonzero(ends)[-1]) + 1
    checks.refuse(
        where,
        "the last row to end its trajectory",
        f"row {len(ends) - 1} that does not; the last end is row {int(np.flatnonzero(ends)[-1])}",
        "Mark it if it does, or leave the unfinished trajectory out by drop_unfinished=True.",
    )


def _tables(ends: Bool[np.ndarray, " rows"]) -> tuple[Int32[np.ndarray, " rows"], Int32[np.ndarray, " rows"]]:
    """First and last row of every row's trajectory."""
    lasts = np.flatnonzero(ends)
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    lengths = lasts - firsts + 1
    return np.repeat(firsts, lengths).astype(np.int32), np.repeat(lasts, lengths).astype(np.int32)
