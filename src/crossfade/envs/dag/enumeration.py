"""The whole graph of an environment that can be enumerated, as tables over state indices.

Exact evaluation, state-table execution and zero-loss certificates are all read off these tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int32

from ...errors import UsageError
from .base_numpy import Env


@dataclass(frozen=True, eq=False)
class Graph:
    """Objects are rows, numbered by `env.index`; moves are columns, stop left out where the name says moves.

    An entry that stands for no edge holds 0 and is False in the mask beside it.
    """

    child: Int32[np.ndarray, "states moves"]
    """The object a forward action leads to."""
    undo: Int32[np.ndarray, "states moves"]
    """The backward action (of the child) that undoes it."""
    parent: Int32[np.ndarray, "states parents"]
    """The object a backward action leads to."""
    redo: Int32[np.ndarray, "states parents"]
    """The forward action (of the parent) that redoes it."""
    forward_mask: Bool[np.ndarray, "states actions"]
    """Valid forward actions, stop in the last column."""
    backward_mask: Bool[np.ndarray, "states parents"]
    """Valid backward actions."""
    log_reward: Float64[np.ndarray, " states"]
    """log R(x); -inf where x may not stop."""
    level: Int32[np.ndarray, " states"]
    """Length of the longest way from the source: every edge leads to a higher level."""

    @property
    def source(self) -> int:
        """Index of the source."""
        return int(np.argmin(self.level))

    @property
    def log_z(self) -> float:
        """Log of the sum of all rewards."""
        return float(np.logaddexp.reduce(self.log_reward))

    @property
    def target(self) -> Float64[np.ndarray, " states"]:
        """R / Z, the distribution a GFlowNet is to learn."""
        return np.exp(self.log_reward - self.log_z)

    @cached_property
    def levels(self) -> list[Int32[np.ndarray, " members"]]:
        """The objects of each level: a topological order in which a whole level can be treated at once."""
        order = np.argsort(self.level, kind="stable").astype(np.int32)
        return np.split(order, np.cumsum(np.bincount(self.level))[:-1])

    @cached_property
    def padded_levels(self) -> Int32[np.ndarray, "levels width"]:
        """`levels` as one array, padded on the right with the number of states: an index out of range."""
        rows = np.full((len(self.levels), max(map(len, self.levels))), len(self.level), np.int32)
        for row, members in zip(rows, self.levels, strict=True):
            row[: len(members)] = members
        return rows

    @cached_property
    def edges(self) -> Int32[np.ndarray, "edges 4"]:
        """Rows (parent, action, child, backward action), by level of the parent; stop is not an edge here."""
        parent, action = np.nonzero(self.forward_mask[:, :-1])
        order = np.argsort(self.level[parent], kind="stable")
        parent, action = parent[order], action[order]
        rows = np.stack([parent, action, self.child[parent, action], self.undo[parent, action]], axis=1)
        return rows.astype(np.int32)


def enumerate_states(env: Env) -> Graph:
    """The graph of a NumPy environment, walked level by level from the source."""
    if env.n_states is None:
        raise UsageError(f"{env} cannot be enumerated: it has too many states to number. Use a smaller instance.")
    states = env.state(np.arange(env.n_states))
    forward_mask, backward_mask = env.forward_mask(states), env.backward_mask(states)

    def follow(move, other_way, mask):
        """Where each valid column of `mask` leads, and the column that leads back; 0 where it is not valid."""
        there, back = np.zeros(mask.shape, np.int32), np.zeros(mask.shape, np.int32)
        row, column = np.nonzero(mask)
        here = type(states)(states.x[row], states.done[row])
        there[row, column] = env.index(move(here, column))
        back[row, column] = other_way(here, column)
        return there, back

    child, undo = follow(env.step, env.parent_of, forward_mask[:, :-1])
    parent, redo = follow(env.unstep, env.action_of, backward_mask)
    return Graph(
        child=child,
        undo=undo,
        parent=parent,
        redo=redo,
        forward_mask=forward_mask,
        backward_mask=backward_mask,
        log_reward=np.where(forward_mask[:, -1], env.log_reward(states), -np.inf),
        level=_levels(int(env.index(env.reset())), child, forward_mask[:, :-1]),
    )


def _levels(source, child, mask) -> Int32[np.ndarray, " states"]:
    """The last step at which a walk from the source can stand on each object."""
    level = np.full(len(child), -1, np.int32)
    frontier, step = np.array([source]), 0
    while len(frontier):
        if step > len(child):
            raise UsageError("the environment has a cycle: a walk can be longer than the number of its states.")
        level[frontier] = step
        frontier, step = np.unique(child[frontier][mask[frontier]]), step + 1
    if (level < 0).any():
        missing = np.flatnonzero(level < 0)
        raise UsageError(
            f"{len(missing)} of {len(level)} indices stand for objects that no walk reaches, the first {missing[0]}; "
            f"expected the reachable objects only. Renumber them in encode, decode and n_states."
        )
    return level
