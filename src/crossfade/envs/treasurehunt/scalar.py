"""Treasurehunt as objects on a map, one game in plain Python: the oracle that the vectorised twins are held against.

Read it beside the docstring of params.py. Thresholds are rounded to float32 and then compared as Python floats, which
hold every float32 exactly; rewards are summed in float32.
"""

from typing import Any

import numpy as np
from jaxtyping import Float32, Int8, Integer

from . import params as spec
from .params import State, TreasurehuntParams

DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns that up, down, left and right move by."""


class Entity:
    """What a cell holds."""

    kind: str
    passable = False
    value = np.float32(0)
    """Reward of wanting to enter the cell."""
    chance = 0.0
    """Probability that it is another."""
    change = np.float32(0)
    """What is then added to it."""

    def transition(self, world: "ScalarGame", row: int, column: int, uniform: float) -> None:
        """What happens to it by itself, at the start of a turn."""


class Empty(Entity):
    """A cell in which an item may appear."""

    kind = "empty"
    passable = True

    def transition(self, world: "ScalarGame", row: int, column: int, uniform: float) -> None:
        for item, threshold in world.spawns:
            if uniform < threshold:
                world.cells[row][column] = Item(item)
                return


class Wall(Entity):
    """The border of the map."""

    kind = "wall"

    def __init__(self, value: int | float):
        self.value = np.float32(value)


class Item(Entity):
    """Something that can be taken."""

    passable = True

    def __init__(self, item: spec.Item):
        self.kind = item.name
        self.value = np.float32(item.value)
        self.chance = float(np.float32(item.chance))
        self.change = np.float32(item.change)


class Agent(Entity):
    """A player, which knows where it stands."""

    kind = "agent"

    def __init__(self, row: int, column: int, it: bool = False):
        self.row, self.column, self.it = row, column, it

    def towards(self, action: int) -> tuple[int, int]:
        """The cell that an action leads to."""
        down, right = DIRECTIONS[action]
        return self.row + down, self.column + right


class ScalarGame:
    """A game with a state of its own, from `begin` or `resume` on."""

    agents: list[Agent]
    cells: Any  # of entities, by row and column

    def __init__(self, params: TreasurehuntParams):
        self.params = params
        kinds = ["empty", "wall", "agent", *(item.name for item in params.table), "beyond"]
        self.codes = {kind: code for code, kind in enumerate(kinds)}
        self.appearance = {kind: self._appearance(kind) for kind in kinds}
        self.spawns: list[tuple[spec.Item, float]] = []
        total = 0.0
        for item in params.table:
            total += item.spawn
            self.spawns.append((item, float(np.float32(total))))

    def begin(self, uniform: Float32[np.ndarray, " inner"]) -> State:
        """An empty map with agents on the inner cells of the smallest numbers."""
        self._clear()
        numbers = uniform.tolist()
        smallest = sorted(range(len(numbers)), key=lambda cell: numbers[cell])[: self.params.agents]
        for number, cell in enumerate(smallest):
            row, column = divmod(cell, self.params.width - 2)
            self._add_agent(row + 1, column + 1, it=self.params.rule == "tag" and number == 0)
        return self.state

    def start_turn(self, uniform: Float32[np.ndarray, " inner"]) -> None:
        """Every cell changes as it does by itself, row by row."""
        numbers = iter(uniform.tolist())
        for row in range(1, self.params.height - 1):
            for column in range(1, self.params.width - 1):
                self.cells[row][column].transition(self, row, column, next(numbers))

    def observe(self, agent: int) -> Int8[np.ndarray, " observation"]:
        """What an agent sees."""
        pov = self.pov(self.agents[agent])
        if self.params.rule == "tag":
            pov.append(int(self.agents[agent].it))
        return np.array(pov, np.int8)

    def pov(self, agent: Agent) -> list[int]:
        """The window around an agent, channel by channel."""
        radius = self.params.radius
        window = []
        for row in range(agent.row - radius, agent.row + radius + 1):
            for column in range(agent.column - radius, agent.column + radius + 1):
                if 0 <= row < self.params.height and 0 <= column < self.params.width:
                    window.append(self.appearance[self.cells[row][column].kind])
                else:
                    window.append(self.appearance["beyond"])
        return [look[channel] for channel in range(len(self.params.channels)) for look in window]

    def move(self, agent: int, action: int, uniform: float | np.float32) -> np.float32:
        """One agent acts; its reward."""
        mover = self.agents[agent]
        reward = self.act(mover, action, float(uniform))
        if self.params.rule == "tag":
            if mover.it:
                self._tag(mover)
            reward += self._tag_reward(mover)
        return reward

    def act(self, agent: Agent, action: int, uniform: float) -> np.float32:
        """Reads the reward of the cell that an agent wants to enter, then moves it there if it can."""
        row, column = agent.towards(action)
        reward = _reward(self.cells[row][column], uniform)
        self._enter(agent, row, column)
        return reward

    def move_together(
        self,
        action: Integer[np.ndarray, " agents"],
        order: Integer[np.ndarray, " agents"],
        uniform: Float32[np.ndarray, " agents"],
    ) -> Float32[np.ndarray, " agents"]:
        """All agents act at once; their rewards."""
        wanted = [agent.towards(choice) for agent, choice in zip(self.agents, action.tolist(), strict=True)]
        rewards = [np.float32(0)] * len(self.agents)
        for number, (row, column) in enumerate(wanted):
            if wanted.count((row, column)) == 1:
                rewards[number] = _reward(self.cells[row][column], float(uniform[number]))
        for number in order.tolist():
            if wanted.count(wanted[number]) == 1:
                self._enter(self.agents[number], *wanted[number])
        if self.params.rule == "tag":
            for agent in self.agents:
                if agent.it:
                    self._tag(agent)
                    break
            rewards = [reward + self._tag_reward(agent) for reward, agent in zip(rewards, self.agents, strict=True)]
        return np.array(rewards, np.float32)

    @property
    def state(self) -> State:
        """The game as arrays."""
        radius, columns = self.params.radius, self.params.width + 2 * self.params.radius
        codes = [[self.codes[entity.kind] for entity in row] for row in self.cells]
        grid = np.pad(np.array(codes, np.int8), radius, constant_values=self.codes["beyond"])
        place = [(agent.row + radius) * columns + agent.column + radius for agent in self.agents]
        return State(grid, np.array(place, np.int32), np.array([agent.it for agent in self.agents], np.int8))

    def resume(self, state: State) -> None:
        """Goes on from a state."""
        self._clear()
        radius, items = self.params.radius, self.params.table
        for row in range(self.params.height):
            for column in range(self.params.width):
                code = int(state.grid[row + radius, column + radius])
                if code == spec.WALL:
                    self.cells[row][column] = Wall(self.params.wall_value)
                elif code >= spec.FIRST_ITEM:
                    self.cells[row][column] = Item(items[code - spec.FIRST_ITEM])
        for place, role in zip(state.place.tolist(), state.role.tolist(), strict=True):
            row, column = divmod(place, self.params.width + 2 * radius)
            self._add_agent(row - radius, column - radius, it=role == 1)

    def _clear(self) -> None:
        """A map with walls and nothing else."""
        height, width = self.params.height, self.params.width
        self.agents, self.cells = [], []
        for row in range(height):
            self.cells.append([])
            for column in range(width):
                border = row in (0, height - 1) or column in (0, width - 1)
                self.cells[row].append(Wall(self.params.wall_value) if border else Empty())

    def _add_agent(self, row: int, column: int, it: bool) -> None:
        agent = Agent(row, column, it)
        self.agents.append(agent)
        self.cells[row][column] = agent

    def _enter(self, agent: Agent, row: int, column: int) -> None:
        """Moves an agent into a cell that can be entered; what was there is gone."""
        if self.cells[row][column].passable:
            self.cells[agent.row][agent.column] = Empty()
            self.cells[row][column] = agent
            agent.row, agent.column = row, column

    def _tag(self, agent: Agent) -> None:
        """The agent that is "it" passes the role to the first neighbour."""
        for action in range(len(DIRECTIONS)):
            row, column = agent.towards(action)
            neighbour = self.cells[row][column]
            if isinstance(neighbour, Agent):
                agent.it, neighbour.it = False, True
                return

    def _tag_reward(self, agent: Agent) -> np.float32:
        return np.float32(0) if agent.it else np.float32(self.params.tag_reward)

    def _appearance(self, kind: str) -> list[int]:
        """What a cell shows in each channel: the ground and what stands on it."""
        look = dict.fromkeys(self.params.channels, 0)
        if kind == "wall":
            look["wall"] = self.params.wall_layers
        elif kind == "beyond":
            look["wall"] = 1
        else:
            if self.params.sand:
                look["sand"] = 1
            if kind != "empty":
                look[kind] = 1
        return list(look.values())


def _reward(entity: Entity, uniform: float) -> np.float32:
    """What wanting to enter a cell brings."""
    return entity.value + entity.change if uniform < entity.chance else entity.value
