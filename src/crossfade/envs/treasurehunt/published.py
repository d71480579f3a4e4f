"""Treasurehunt computed as the published system (sorrel) computes it: the game of scalar.py, with those costs.

An entity stands in every cell of two layers, the floor and what stands on it. For an observation the whole map is shown
cell by cell, the layers are added up and the window is cut out; then each of its numbers is looked at, and those beyond
the map are made a wall's. A game begins with a copy of every entity of a template.
"""

from copy import deepcopy

import numpy as np

from .params import TreasurehuntParams
from .scalar import Agent, Empty, Entity, ScalarGame, Wall


class Sand(Entity):
    """The floor of a cell within the walls."""

    kind = "sand"
    passable = True


class PublishedGame(ScalarGame):
    """A game with a state of its own. `map` is an array of entities, (height, width, layers); the upper layer is
    `cells`."""

    def __init__(self, params: TreasurehuntParams):
        super().__init__(params)
        self.one_hot = dict(zip(params.channels, np.eye(len(params.channels)), strict=True))
        self.one_hot["empty"] = np.zeros(len(params.channels))
        self.template = np.full((params.height, params.width, 2), Wall(params.wall_value), object)
        self.template[1:-1, 1:-1] = [Sand() if params.sand else Empty(), Empty()]
        if params.wall_layers == 1:
            self.template[:, [0, -1], 0] = self.template[[0, -1], :, 0] = Empty()

    def pov(self, agent: Agent) -> list[int]:
        """The window around an agent, channel by channel."""
        picture = np.zeros((len(self.params.channels), *self.map.shape))
        for place, entity in np.ndenumerate(self.map):
            picture[:, *place] = self.one_hot[entity.kind]
        window = self._cut(picture.sum(-1), agent)
        for place, number in np.ndenumerate(window):
            if np.isnan(number):
                window[place] = self.one_hot["wall"][place[0]]
        return window.reshape(-1).astype(int).tolist()

    def _cut(self, picture: np.ndarray, agent: Agent) -> np.ndarray:
        """The window around an agent, nan beyond the map."""
        radius, size = self.params.radius, self.params.window
        top, left = agent.row - radius, agent.column - radius
        window = np.full((len(picture), size, size), np.nan)
        seen = picture[:, max(top, 0) : top + size, max(left, 0) : left + size]
        row, column = max(-top, 0), max(-left, 0)
        window[:, row : row + seen.shape[1], column : column + seen.shape[2]] = seen
        return window

    def _clear(self) -> None:
        """Walls and floor, of entities of its own."""
        self.agents, self.map = [], np.empty_like(self.template)
        for place, entity in np.ndenumerate(self.template):
            self.map[place] = deepcopy(entity)
        self.cells = self.map[:, :, 1]
