"""Treasurehunt in NumPy, any number of games at once. Twin: treasurehunt_jax.py. The rules are in params.py.

Games lie one after the other in flat arrays: cell c of game g is number g * cells + c, and agent a is g * agents + a.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32, Integer

from .params import AGENT, EMPTY, FIRST_ITEM, WALL, State
from .sizes import Sizes

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes
Number = int | Integer[Array, "..."]


@dataclass(frozen=True)
class Treasurehunt(Sizes):
    """See `TreasurehuntParams`. Methods take games of any batch shape, also a single one."""

    def begin(self, uniform: Float32[Array, "*batch inner"]) -> State:
        """Maps without items, with the agents on the cells that have the smallest numbers."""
        p, batch = self.params, uniform.shape[:-1]
        first = np.argsort(uniform, axis=-1, kind="stable")[..., : p.agents]
        grid, place = np.broadcast_to(p.empty_map, (*batch, p.rows, p.columns)).copy(), self._inner[first]
        grid.reshape(-1)[_starts(batch, self._cells)[..., None] + place] = AGENT
        role = np.zeros(place.shape, np.int8)
        role[..., 0] = p.rule == "tag"
        return State(grid, place, role)

    def start_turn(self, state: State, uniform: Float32[Array, "*batch inner"]) -> State:
        """Items appear in empty cells."""
        p, margin, grid = self.params, self.params.radius + 1, state.grid.copy()
        inner = grid[..., margin : p.rows - margin, margin : p.columns - margin]
        uniform = uniform.reshape(inner.shape)
        appears = (inner == EMPTY) & (uniform < self._any_item)
        inner[appears] = FIRST_ITEM + p.thresholds.searchsorted(uniform[appears], "right")
        return state._replace(grid=grid)

    def observe(self, state: State, agent: Number) -> Int8[Array, "*batch observation"]:
        """The window around an agent, one channel after the other; its role, if there are roles."""
        p, batch = self.params, state.place.shape[:-1]
        who = _starts(batch, p.agents) + agent
        centre = _starts(batch, self._cells) + state.place.reshape(-1)[who]
        code = state.grid.reshape(-1)[centre[..., None] + self._window]
        seen = p.appearance.take(code, 0).swapaxes(-1, -2).reshape(*batch, p.appearance.shape[1] * code.shape[-1])
        if p.rule == "tag":
            seen = np.concatenate([seen, state.role.reshape(-1)[who][..., None]], -1)
        return seen

    def move(
        self, state: State, agent: Number, action: Integer[Array, "*batch"], uniform: Float32[Array, "*batch"]
    ) -> tuple[State, Float32[Array, "*batch"]]:
        """The games after one agent has acted, and its reward."""
        p, batch = self.params, state.place.shape[:-1]
        who, origin = _starts(batch, p.agents) + agent, _starts(batch, self._cells)
        grid, place, role = state.grid.copy(), state.place.copy(), state.role
        there = place.reshape(-1)[who] + self._steps[action]
        reward = self._reward(self._enter(grid.reshape(-1), place.reshape(-1), origin, who, there, True), uniform)
        if p.rule == "tag":
            role = self._passed(place, role, agent)
            reward = reward + np.float32(p.tag_reward) * (role.reshape(-1)[who] == 0)
        return State(grid, place, role), reward

    def move_together(
        self,
        state: State,
        action: Integer[Array, "*batch agents"],
        order: Integer[Array, "*batch agents"],
        uniform: Float32[Array, "*batch agents"],
    ) -> tuple[State, Float32[Array, "*batch agents"]]:
        """The games after all agents have acted at once, and their rewards."""
        p, batch = self.params, state.place.shape[:-1]
        grid, place, role = state.grid.copy(), state.place.copy(), state.role
        cells, origin = grid.reshape(-1), _starts(batch, self._cells)
        there = place + self._steps[action]
        alone = (there[..., :, None] == there[..., None, :]).sum(-1) == 1
        reward = np.where(alone, self._reward(cells[origin[..., None] + there], uniform), np.float32(0))
        for k in range(p.agents):
            who = _starts(batch, p.agents) + order[..., k]
            self._enter(cells, place.reshape(-1), origin, who, there.reshape(-1)[who], alone.reshape(-1)[who])
        if p.rule == "tag":
            role = self._passed(place, role, role.argmax(-1))
            reward = reward + np.float32(p.tag_reward) * (role == 0)
        return State(grid, place, role), reward

    def _reward(self, code: Int8[Array, "*some"], uniform: Float32[Array, "*some"]) -> Float32[Array, "*some"]:
        """What wanting to enter a cell brings."""
        p, reward = self.params, self.params.values[code]
        if not self._by_chance:
            return reward
        return reward + np.where(uniform < p.chances[code], p.changes[code], np.float32(0))

    def _enter(
        self,
        cells: Int8[np.ndarray, " all_cells"],
        places: Int32[np.ndarray, " all_agents"],
        origin: Integer[Array, "*batch"],
        who: Integer[Array, "*batch"],
        there: Int32[Array, "*batch"],
        may: bool | Bool[Array, "*batch"],
    ) -> Int8[Array, "*batch"]:
        """Moves one agent of each game, in place, where it may and the cell can be entered; what it found there."""
        here, code = places[who], cells[origin + there]
        there = np.where(may & self._passable[code], there, here)
        cells[origin + here] = EMPTY
        cells[origin + there] = AGENT
        places[who] = there
        return code

    def _passed(
        self, place: Int32[Array, "*batch agents"], role: Int8[Array, "*batch agents"], agent: Number
    ) -> Int8[Array, "*batch agents"]:
        """The roles after an agent has acted: if it was "it", a neighbour now is."""
        agents, batch = self.params.agents, place.shape[:-1]
        who = _starts(batch, agents) + agent
        beside = place.reshape(-1)[who][..., None] + self._steps
        found = (beside[..., :, None] == place[..., None, :]).reshape(*batch, 4 * agents)  # by direction, then by agent
        passes = (role.reshape(-1)[who] == 1) & found.any(-1)
        heir = found.argmax(-1) % agents
        return np.where(passes[..., None], heir[..., None] == np.arange(agents), role).astype(np.int8)

    @cached_property
    def _cells(self) -> int:
        """Cells of a grid, the margin included."""
        return self.params.rows * self.params.columns

    @cached_property
    def _inner(self) -> Int32[np.ndarray, " inner"]:
        """Places of the cells within the walls, row by row."""
        return np.flatnonzero(self.params.empty_map == EMPTY).astype(np.int32)

    @cached_property
    def _steps(self) -> Int32[np.ndarray, " actions"]:
        """How far an action moves in the flat grid."""
        return np.array([-self.params.columns, self.params.columns, -1, 1], np.int32)

    @cached_property
    def _window(self) -> Integer[np.ndarray, " cells"]:
        """Where the cells of a window lie, counted from its centre."""
        reach = np.arange(-self.params.radius, self.params.radius + 1)
        return (reach[:, None] * self.params.columns + reach).reshape(-1)

    @cached_property
    def _passable(self) -> Bool[np.ndarray, " codes"]:
        """Whether a cell can be entered, by its code."""
        return ~np.isin(np.arange(self.params.pad + 1), (WALL, AGENT, self.params.pad))

    @cached_property
    def _any_item(self) -> np.float32:
        """Below it a number makes an item appear."""
        return self.params.thresholds.max(initial=0)

    @cached_property
    def _by_chance(self) -> bool:
        """Whether any reward is left to chance."""
        return bool(self.params.chances.any())


@lru_cache
def _starts(batch: tuple[int, ...], size: int) -> Integer[np.ndarray, "*batch"]:
    """Where the games begin in an array that has `size` elements for each."""
    found = np.arange(0, math.prod(batch) * size, size).reshape(batch)
    found.flags.writeable = False
    return found
