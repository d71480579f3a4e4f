"""Treasurehunt as parameters: a map, what appears on it, and what that is worth. Framework-free.

The specification, which `treasurehunt_numpy.py`, `treasurehunt_jax.py` and the objects of `scalar.py` keep:

**Map.** `height` x `width` cells, those at the border are walls. An episode begins without items and with the agents
on distinct inner cells: `begin` is given one number for each inner cell, row by row, and the agents stand on the
cells with the smallest numbers, agent 0 on that with the smallest (of equal ones the first cell in the order of rows).

**Items** appear before the agents move: of the numbers u given to `start_turn`, one for each inner cell row by row, a
cell that is empty becomes the k-th item where `thresholds[k-1] <= u < thresholds[k]` (`thresholds[-1]` is 0). A cell
that holds an agent or an item does not change. Items stay until they are taken.

**Moves.** Actions are up, down, left, right. The reward is that of what lies in the cell entered, read before the move:
its `value`, and `change` added to it where u < `chance`. An empty cell or an item can be entered: what was there is
gone, and the cell that was left is empty. A wall or another agent cannot: the agent stays, and the reward counts.

**Moves made together** (`move_together`): where two or more agents want to enter the same cell, whatever is in it, none
of them moves and each gets 0. The others get the reward of what lay in their cell when the turn began, and then move
one after the other, in the given order, where the cell can be entered at that moment: an agent that still stands there
blocks, one that has left does not.

**Tag** (`rule="tag"`). The agent with `role` 1 is "it", agent 0 at the start. When the agent that is it has acted,
moved or not, it passes the role to a neighbour (up, down, left, right of where it now stands; the first in that order
that holds an agent). Whoever is not it after that gets `tag_reward` for its action, on top of the rest; the agent that
acts is judged by its role after the passing. Together, all agents move first; then the role is passed once; then each
is judged. The observation ends with one more number, the agent's role.

**State.** The grid has a margin of `radius` cells of code PAD around the map, so that a window never leaves it.

**Observation.** The window of (2 radius + 1)^2 cells around the agent, one channel after the other, each row by row; a
cell has the numbers that `appearance` has for its code. Channels: empty (always 0), wall, sand if `sand`, the items,
agent. There are two layers of cells, and their appearances add up: below is sand (not under walls), above what the grid
holds; a wall stands in `wall_layers` of them, so that with 2 it counts 2 and the PAD beyond the map, a single wall, 1.
"""

import re
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Int8

from ...errors import UsageError
from ...ranges import Count, Finite, Natural, Range, check

EMPTY, WALL, AGENT, FIRST_ITEM = 0, 1, 2, 3
"""Codes of cells; items follow in their order, and PAD comes last."""
ACTIONS = ("up", "down", "left", "right")
Side = Annotated[int, Range(3, 1000)]


class State(NamedTuple):
    """Games under way."""

    grid: Any  # (*batch, height + 2 radius, width + 2 radius) int8: codes of cells, with the margin
    place: Any  # (*batch, agents) int32: where each stands, row * (width + 2 radius) + column, margin included
    role: Any  # (*batch, agents) int8: 1 for the agent that is "it", if the game has such


class Item(NamedTuple):
    """Something that appears and can be taken."""

    name: str
    value: float
    """Reward of taking it."""
    spawn: float
    """Probability that it appears in an empty cell, each turn."""
    chance: float = 0.0
    """Probability that the reward is another."""
    change: float = 0.0
    """What is then added to the reward."""


@dataclass(frozen=True)
class TreasurehuntParams:
    """A map, its items and its agents; the module's docstring is the specification."""

    height: Side = 10
    """Rows of the map, walls included."""
    width: Side = 10
    """Columns of the map, walls included."""
    agents: Count = 5
    """Agents on it."""
    radius: Natural = 2
    """How far an agent sees; the window must fit into the map."""
    turns: Count = 50
    """Turns of an episode."""
    items: tuple[str, ...] = ("gem:10:0.02",)
    """What appears, `name:value:spawn` or `name:value:spawn:chance:change` each."""
    wall_value: Finite = -1.0
    """Reward of bumping into a wall."""
    sand: bool = True
    """The ground has a channel of its own."""
    wall_layers: Literal[1, 2] = 2
    """Layers in which a wall stands."""
    rule: Literal["none", "tag"] = "none"
    """A rule beyond the table of items."""
    tag_reward: Finite = 10.0
    """Reward of an action after which the agent is not it, under rule=tag."""

    numpy: ClassVar[str] = "crossfade.envs.treasurehunt.treasurehunt_numpy:Treasurehunt"
    jax: ClassVar[str] = "crossfade.envs.treasurehunt.treasurehunt_jax:Treasurehunt"
    action_names: ClassVar[tuple[str, ...]] = ACTIONS

    def __post_init__(self) -> None:
        check(self)
        if self.agents > self.inner:
            raise UsageError(
                f"agents: expected at most {self.inner}, the inner cells of a map of {self.height} x {self.width}, got "
                f"{self.agents}."
            )
        if self.window > min(self.height, self.width):
            raise UsageError(
                f"radius: expected a window that fits into the map of {self.height} x {self.width}, got radius="
                f"{self.radius}, a window of {self.window} x {self.window}. At most "
                f"{(min(self.height, self.width) - 1) // 2}."
            )
        if len(self.table) > 100:
            raise UsageError(f"items: expected at most 100, got {len(self.table)}.")
        if (total := sum(item.spawn for item in self.table)) > 1:
            raise UsageError(f"items: expected spawn probabilities that sum to at most 1, got {total:g}.")

    def __str__(self) -> str:
        """In words what most differ in, and as settings what is not as usual."""
        often = ("height", "width", "agents", "radius", "turns", "items")
        seen = f"a map of {self.height} x {self.width}, agents={self.agents}, radius={self.radius}, turns={self.turns}"
        rest = [f.name for f in fields(self) if f.name not in often and getattr(self, f.name) != f.default]
        return ", ".join([seen, f"items={','.join(self.items)}", *(f"{name}={getattr(self, name)}" for name in rest)])

    @cached_property
    def table(self) -> tuple[Item, ...]:
        """The items, read."""
        found = tuple(map(_read_item, self.items))
        names = [item.name for item in found]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"items: expected each name once, got {twice[0]!r} twice.")
        return found

    @property
    def inner(self) -> int:
        """Cells within the walls."""
        return (self.height - 2) * (self.width - 2)

    @property
    def window(self) -> int:
        """Rows and columns that an agent sees."""
        return 2 * self.radius + 1

    @property
    def rows(self) -> int:
        """Rows of the grid, the margin included."""
        return self.height + 2 * self.radius

    @property
    def columns(self) -> int:
        """Columns of the grid, the margin included."""
        return self.width + 2 * self.radius

    @property
    def pad(self) -> int:
        """The code of cells beyond the map."""
        return FIRST_ITEM + len(self.table)

    @property
    def channels(self) -> tuple[str, ...]:
        """What the channels of an observation show."""
        return ("empty", "wall", *(["sand"] if self.sand else []), *(item.name for item in self.table), "agent")

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""
        return len(self.channels) * self.window**2 + (self.rule == "tag")

    @cached_property
    def appearance(self) -> Int8[np.ndarray, "codes channels"]:
        """What a cell adds to each channel, by its code."""
        channels, found = self.channels, np.zeros((self.pad + 1, len(self.channels)), np.int8)
        found[WALL, channels.index("wall")] = self.wall_layers
        found[self.pad, channels.index("wall")] = 1
        found[AGENT, -1] = 1
        for code, item in enumerate(self.table, FIRST_ITEM):
            found[code, channels.index(item.name)] = 1
        if self.sand:
            found[[EMPTY, *range(AGENT, self.pad)], channels.index("sand")] = 1
        return found

    @cached_property
    def thresholds(self) -> Float32[np.ndarray, " items"]:
        """Sums of the spawn probabilities."""
        return np.cumsum([item.spawn for item in self.table], dtype=np.float64).astype(np.float32)

    @cached_property
    def values(self) -> Float32[np.ndarray, " codes"]:
        """Reward of wanting to enter a cell, by its code."""
        return self._column(lambda item: item.value, self.wall_value)

    @cached_property
    def chances(self) -> Float32[np.ndarray, " codes"]:
        """Probability that the reward is another, by code."""
        return self._column(lambda item: item.chance)

    @cached_property
    def changes(self) -> Float32[np.ndarray, " codes"]:
        """What is then added to the reward, by code."""
        return self._column(lambda item: item.change)

    @cached_property
    def empty_map(self) -> Int8[np.ndarray, "rows columns"]:
        """The grid with walls and nothing else."""
        grid = np.full((self.height, self.width), EMPTY, np.int8)
        grid[[0, -1]] = WALL
        grid[:, [0, -1]] = WALL
        return np.pad(grid, self.radius, constant_values=self.pad)

    def crop(self, grid: Int8[np.ndarray, "*batch rows columns"]) -> Int8[np.ndarray, "*batch height width"]:
        """The map without its margin."""
        return grid[..., self.radius : self.rows - self.radius, self.radius : self.columns - self.radius]

    def _column(self, of: Any, wall: float = 0.0) -> Float32[np.ndarray, " codes"]:
        return np.array([0.0, wall, 0.0, *map(of, self.table), 0.0], np.float32)


def _read_item(text: str) -> Item:
    """An item as a word has it."""
    name, *numbers = text.split(":")
    wanted = f"items: expected name:value:spawn (gem:10:0.02) or name:value:spawn:chance:change, got {text!r}."
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("empty", "wall", "sand", "agent"):
        raise UsageError(f"{wanted} A name is a word other than empty, wall, sand and agent.")
    if len(numbers) not in (2, 4):
        raise UsageError(f"{wanted} After the name come two numbers or four, here {len(numbers)}.")
    try:
        item = Item(name, *map(float, numbers))
    except ValueError:
        raise UsageError(f"{wanted} After the name come numbers.") from None
    if not all(map(np.isfinite, item[1:])) or not 0 <= item.spawn <= 1 or not 0 <= item.chance <= 1:
        raise UsageError(f"{wanted} Numbers are finite; spawn and chance are probabilities.")
    return item
