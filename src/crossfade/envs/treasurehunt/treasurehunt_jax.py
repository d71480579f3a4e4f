"""Treasurehunt in JAX: any number of games at once; params.py states the rules, treasurehunt_numpy.py is the twin.

The functions with an underscore play one game; those of `Game` map them over the axes of the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int8, Int32, Shaped

from .params import AGENT, EMPTY, FIRST_ITEM, WALL, State
from .sizes import Sizes

Agent = int | Int[Array, "*#batch"]


@dataclass(frozen=True)
class Treasurehunt(Sizes):
    """See `TreasurehuntParams`. Methods take games of any batch shape, also a single one."""

    def begin(self, uniform: Float32[Array, "*batch inner"]) -> State:
        """Maps without items, with the agents on the cells that have the smallest numbers."""
        p = self.params
        _, cell = jax.lax.top_k(-uniform, p.agents)  # of equal numbers the first
        row, column = jnp.divmod(cell.astype(jnp.int32), p.width - 2)
        place = (row + 1 + p.radius) * p.columns + column + 1 + p.radius
        first = jnp.arange(p.agents, dtype=jnp.int32) == 0
        role = (first if p.rule == "tag" else jnp.zeros_like(first)).astype(jnp.int8)
        grid = jnp.vectorize(self._populated, signature="(a)->(r,c)")(place)
        return State(grid, place, jnp.broadcast_to(role, place.shape))

    def start_turn(self, state: State, uniform: Float32[Array, "*batch inner"]) -> State:
        """Items appear in empty cells."""
        p = self.params
        kind = jnp.zeros(uniform.shape, jnp.int8)
        for threshold in p.thresholds:
            kind += uniform >= threshold
        kind = jnp.where(kind < len(p.thresholds), kind + FIRST_ITEM, EMPTY).astype(jnp.int8)
        kind = kind.reshape(*uniform.shape[:-1], p.height - 2, p.width - 2)
        around = [(0, 0)] * (kind.ndim - 2) + [(1 + p.radius,) * 2] * 2
        return state._replace(grid=jnp.where(state.grid == EMPTY, jnp.pad(kind, around), state.grid))

    def observe(self, state: State, agent: Agent) -> Int8[Array, "*batch observation"]:
        """The window around an agent, one channel after the other; its role, if there are roles."""
        return _mapped(self._observe, "(r,c),(a),(a),()->(o)", *state, _numbers(agent, state))

    def move(
        self, state: State, agent: Agent, action: Int32[Array, "*batch"], uniform: Float32[Array, "*batch"]
    ) -> tuple[State, Float32[Array, "*batch"]]:
        """The games after one agent has acted, and its reward."""
        signature = "(r,c),(a),(a),(),(),()->(r,c),(a),(a),()"
        *after, reward = _mapped(self._move, signature, *state, _numbers(agent, state), action, uniform)
        return State(*after), reward

    def move_together(
        self,
        state: State,
        action: Int32[Array, "*batch agents"],
        order: Int32[Array, "*batch agents"],
        uniform: Float32[Array, "*batch agents"],
    ) -> tuple[State, Float32[Array, "*batch agents"]]:
        """The games after all agents have acted at once, and their rewards."""
        signature = "(r,c),(a),(a),(a),(a),(a)->(r,c),(a),(a),(a)"
        *after, reward = _mapped(self._move_together, signature, *state, action, order, uniform)
        return State(*after), reward

    def _populated(self, place: Int32[Array, " agents"]) -> Int8[Array, "rows columns"]:
        grid = jnp.asarray(self.params.empty_map)
        return _put(grid.reshape(-1), place, AGENT).reshape(grid.shape)

    def _observe(
        self,
        grid: Int8[Array, "rows columns"],
        place: Int32[Array, " agents"],
        role: Int8[Array, " agents"],
        agent: Int32[Array, ""],
    ) -> Int8[Array, " observation"]:
        offset, base, codes, weights = self._lenses
        seen = _at(grid.reshape(-1), _at(place, agent) + offset)
        shown = jnp.asarray(base)
        for code, weight in zip(codes, weights, strict=True):
            shown += weight * (seen == code).astype(jnp.int8)
        return jnp.append(shown, _at(role, agent)) if self.params.rule == "tag" else shown

    def _move(
        self,
        grid: Int8[Array, "rows columns"],
        place: Int32[Array, " agents"],
        role: Int8[Array, " agents"],
        agent: Int32[Array, ""],
        action: Int32[Array, ""],
        uniform: Float32[Array, ""],
    ) -> tuple[Array, Array, Array, Array]:
        cells, old = grid.reshape(-1), _at(place, agent)
        new = old + _at(self._steps, action)
        code = _at(cells, new)
        reward, free = self._reward(code, uniform), (code != WALL) & (code != AGENT)
        left, entered = jnp.where(free, EMPTY, AGENT), jnp.where(free, AGENT, code)
        cells = _put(cells, jnp.stack([old, new]), jnp.stack([left, entered]).astype(jnp.int8))
        acts = jnp.arange(self.agents, dtype=jnp.int32) == agent
        place = jnp.where(acts & free, new, place)
        if self.params.rule == "tag":
            role = jnp.where(_at(role, agent) == 1, self._tagged(cells, place, old=role), role)
            reward += self._tag_reward(_at(role, agent))
        return cells.reshape(grid.shape), place, role, reward

    def _move_together(
        self,
        grid: Int8[Array, "rows columns"],
        place: Int32[Array, " agents"],
        role: Int8[Array, " agents"],
        action: Int32[Array, " agents"],
        order: Int32[Array, " agents"],
        uniform: Float32[Array, " agents"],
    ) -> tuple[Array, Array, Array, Array]:
        cells, new = grid.reshape(-1), place + _at(self._steps, action)
        code = _at(cells, new)
        alone = (new[:, None] == new[None, :]).sum(1) == 1
        reward = jnp.where(alone, self._reward(code, uniform), 0)
        number, free = jnp.arange(self.agents, dtype=jnp.int32), alone & (code != WALL)

        def go(gone: Bool[Array, " agents"], agent: Int32[Array, ""]) -> tuple[Bool[Array, " agents"], None]:
            """No two enter one cell, so that only an agent that stood there at first can be in the way."""
            blocked = ((place == _at(new, agent)) & ~gone).any()
            return gone | ((number == agent) & free & ~blocked), None

        gone, _ = jax.lax.scan(go, jnp.zeros_like(free), order)
        cells = _put(cells, place, EMPTY)
        place = jnp.where(gone, new, place)
        cells = _put(cells, place, AGENT)
        if self.params.rule == "tag":
            role = self._tagged(cells, place, old=role)
            reward += self._tag_reward(role)
        return cells.reshape(grid.shape), place, role, reward

    def _reward(self, code: Int8[Array, "*agents"], uniform: Float32[Array, "*agents"]) -> Float32[Array, "*agents"]:
        """What entering a cell brings, or trying to."""
        p = self.params
        return _at(p.values, code) + jnp.where(uniform < _at(p.chances, code), _at(p.changes, code), 0)

    def _tagged(
        self, cells: Int8[Array, " cells"], place: Int32[Array, " agents"], old: Int8[Array, " agents"]
    ) -> Int8[Array, " agents"]:
        """Roles after the agent that is it has passed its role to a neighbour, if it has one."""
        here = _at(place, jnp.argmax(old))
        around = here + self._steps
        found = _at(cells, around) == AGENT
        return (place == jnp.where(found.any(), _at(around, jnp.argmax(found)), here)).astype(jnp.int8)

    def _tag_reward(self, role: Int8[Array, "*agents"]) -> Float32[Array, "*agents"]:
        return jnp.where(role == 0, jnp.float32(self.params.tag_reward), 0)

    @cached_property
    def _steps(self) -> Int32[np.ndarray, " actions"]:
        """How an action changes a place."""
        return np.array([-self.params.columns, self.params.columns, -1, 1], np.int32)

    @cached_property
    def _lenses(
        self,
    ) -> tuple[
        Int32[np.ndarray, " seen"], Int8[np.ndarray, " seen"], Int8[np.ndarray, "k seen"], Int8[np.ndarray, "k seen"]
    ]:
        """For each number that shows the window: its cell, relative to the agent's; what it is for an empty cell; the
        codes of cells, at most two, for which it is another, and what these add."""
        # One flat gather and a few comparisons with constants make a plain loop: on CPU 3 to 5 times as fast for 1024
        # games as a slice of the window and a lookup in `appearance`, whose axes XLA takes apart again for each number.
        # There the two cells of a move, as one scatter, are 7 to 13 times as fast as a select over the grid, which is
        # 0.2 us faster for a single game.
        p = self.params
        away = np.arange(-p.radius, p.radius + 1, dtype=np.int32)
        offset = (away[:, None] * p.columns + away).reshape(-1)
        differs = p.appearance - p.appearance[EMPTY]
        codes = np.argsort(differs == 0, 0, kind="stable")[: (differs != 0).sum(0).max()]
        weights = np.take_along_axis(differs, codes, 0)
        each = lambda of: np.repeat(of, len(offset), -1).astype(np.int8)
        return np.tile(offset, len(p.channels)), each(p.appearance[EMPTY]), each(codes), each(weights)


def _mapped(play: Callable[..., Any], signature: str, *given: Array) -> Any:
    """One game's function for all games: axes of length 1, such as that of a number for all games, are not mapped."""
    return jnp.vectorize(play, signature=signature)(*given)


def _numbers(agent: Agent, state: State) -> Int32[Array, "*#batch"]:
    """Numbers of agents with as many axes as the games have."""
    number = jnp.asarray(agent, jnp.int32)
    return number.reshape(number.shape or (1,) * (state.place.ndim - 1))


def _at(
    column: Shaped[Array, "..."] | Shaped[np.ndarray, "..."], index: Int[Array, "*shape"]
) -> Shaped[Array, "*shape"]:
    """`column[index]` without the arithmetic that negative and excessive indices would need."""
    return jnp.asarray(column).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _put(cells: Int8[Array, " cells"], index: Int32[Array, " n"], code: int | Int8[Array, " n"]) -> Array:
    """The cells with others at distinct places."""
    return cells.at[index].set(code, mode="promise_in_bounds", wrap_negative_indices=False, unique_indices=True)
