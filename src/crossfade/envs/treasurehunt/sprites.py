"""Small pictures of what a cell can hold, drawn by NumPy: no files are read."""

from colorsys import hls_to_rgb
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, UInt8

from .params import AGENT, FIRST_ITEM, WALL, TreasurehuntParams

Colour = tuple[int, int, int]
FINE = 3  # points to a pixel in each direction, averaged: soft edges
SAND, GRAIN, FLOOR, SEAM = (236, 220, 180), (214, 192, 144), (232, 234, 230), (214, 217, 212)
MORTAR, BRICKS = (92, 66, 58), ((168, 92, 70), (154, 82, 62), (178, 104, 80))
DARK, WHITE, GOLD, GREY = (38, 34, 40), (255, 255, 255), (255, 205, 40), (120, 124, 132)


class Canvas:
    """A cell to paint on; its coordinates go from 0 to 1, y downwards."""

    def __init__(self, cell: int):
        points = (np.arange(cell * FINE) + 0.5) / (cell * FINE)
        self.cell = cell
        self.y, self.x = np.meshgrid(points, points, indexing="ij")
        self.rgb = np.zeros((cell * FINE, cell * FINE, 3))

    def paint(self, where: Bool[np.ndarray, "rows columns"], colour: Colour) -> None:
        self.rgb[where] = colour

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        self.paint((self.x - x) ** 2 + (self.y - y) ** 2 < radius**2, colour)

    def shape(self, corners: list[tuple[float, float]], colour: Colour) -> None:
        """A convex shape, its corners clockwise."""
        inside = np.full(self.x.shape, True)
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
            inside &= (x1 - x0) * (self.y - y0) >= (y1 - y0) * (self.x - x0)
        self.paint(inside, colour)

    def done(self) -> UInt8[np.ndarray, "cell cell 3"]:
        """The pixels; colours are rounded, since a GIF has 256 of them."""
        pixels = self.rgb.reshape(self.cell, FINE, self.cell, FINE, 3).mean((1, 3))
        return (np.round(pixels / 8) * 8).clip(0, 255).astype(np.uint8)


@lru_cache(maxsize=16)
def sprites(params: TreasurehuntParams, cell: int) -> UInt8[np.ndarray, "tiles cell cell 3"]:
    """One for each code of a cell, then one for each agent, then one for each agent that is "it"."""
    codes = [_ground(params, cell) for _ in range(params.pad + 1)]
    for code in (WALL, params.pad):
        _bricks(codes[code])
    _agent(codes[AGENT], GREY)
    for index, item in enumerate(params.table):
        draw = {"gem": _gem, "food": _food, "bone": _bone}.get(item.name)
        if draw is not None:
            draw(codes[FIRST_ITEM + index])
        else:
            _token(codes[FIRST_ITEM + index], item_colour(params, index))
    agents = [_ground(params, cell) for _ in range(2 * params.agents)]
    for place, canvas in enumerate(agents):
        _agent(canvas, agent_colour(params, place % params.agents), it=place >= params.agents)
    found = np.stack([canvas.done() for canvas in codes + agents])
    found.flags.writeable = False
    return found


def agent_colour(params: TreasurehuntParams, agent: int) -> Colour:
    """Agents have hues spread evenly, the first is blue."""
    return _hue(0.6 + agent / params.agents, 0.5 if agent % 2 == 0 else 0.42)


def item_colour(params: TreasurehuntParams, index: int) -> Colour:
    """The hue that stands for an item: of its own for those that are drawn, for others spread evenly."""
    own = {"gem": (40, 190, 215), "food": (214, 56, 52), "bone": (150, 144, 130)}
    others = [item.name for item in params.table if item.name not in own]
    name = params.table[index].name
    return own[name] if name in own else _hue(0.08 + others.index(name) / len(others), 0.48)


def _hue(hue: float, lightness: float) -> Colour:
    red, green, blue = (round(255 * part) for part in hls_to_rgb(hue % 1, lightness, 0.68))
    return red, green, blue


def _ground(params: TreasurehuntParams, cell: int) -> Canvas:
    canvas = Canvas(cell)
    canvas.paint(canvas.x >= 0, SAND if params.sand else FLOOR)
    if params.sand:
        for x, y in ((0.14, 0.22), (0.62, 0.12), (0.86, 0.48), (0.36, 0.58), (0.12, 0.84), (0.68, 0.86)):
            canvas.disc(x, y, 0.035, GRAIN)
    else:
        canvas.paint((canvas.x > 0.96) | (canvas.y > 0.96), SEAM)
    return canvas


def _bricks(canvas: Canvas) -> None:
    """Four courses, every other one shifted by half a brick."""
    course = (canvas.y * 4).astype(int)
    along = (canvas.x + 0.25 * (course % 2)) * 2
    canvas.paint(canvas.x >= 0, MORTAR)
    solid = (along % 1 > 0.09) & (canvas.y * 4 % 1 > 0.18)
    for kind, colour in enumerate(BRICKS):
        canvas.paint(solid & ((course + along.astype(int) % 2 * 2) % 3 == kind), colour)


def _gem(canvas: Canvas) -> None:
    """A cut diamond: three facets above, three below."""
    left, right, top, girdle, bottom = 0.12, 0.88, 0.22, 0.44, 0.88
    canvas.shape([(0.26, top - 0.05), (0.74, top - 0.05), (0.94, girdle), (0.5, 0.94), (0.06, girdle)], (14, 84, 110))
    canvas.shape([(0.3, top), (0.4, girdle), (left, girdle)], (150, 236, 245))
    canvas.shape([(0.3, top), (0.7, top), (0.6, girdle), (0.4, girdle)], (214, 250, 255))
    canvas.shape([(0.7, top), (right, girdle), (0.6, girdle)], (100, 214, 232))
    canvas.shape([(left, girdle), (0.4, girdle), (0.5, bottom)], (72, 200, 224))
    canvas.shape([(0.4, girdle), (0.6, girdle), (0.5, bottom)], (130, 228, 242))
    canvas.shape([(0.6, girdle), (right, girdle), (0.5, bottom)], (32, 156, 188))


def _food(canvas: Canvas) -> None:
    """An apple."""
    for grow, colour in ((0.04, (110, 20, 28)), (0.0, (214, 56, 52))):
        canvas.disc(0.39, 0.58, 0.25 + grow, colour)
        canvas.disc(0.61, 0.58, 0.25 + grow, colour)
    canvas.disc(0.33, 0.5, 0.07, (250, 170, 160))
    canvas.shape([(0.47, 0.16), (0.53, 0.16), (0.53, 0.4), (0.47, 0.4)], (96, 62, 36))
    canvas.shape([(0.54, 0.24), (0.76, 0.12), (0.72, 0.28), (0.58, 0.32)], (76, 150, 60))


def _bone(canvas: Canvas) -> None:
    """A bone from lower left to upper right."""
    for grow, colour in ((0.04, (110, 102, 90)), (0.0, (250, 246, 234))):
        along, across = canvas.x - canvas.y, canvas.x + canvas.y - 1
        canvas.paint((np.abs(along) < 0.5) & (np.abs(across) < 0.12 + 1.4 * grow), colour)
        for x, y in ((0.2, 0.66), (0.34, 0.8), (0.66, 0.2), (0.8, 0.34)):
            canvas.disc(x, y, 0.12 + grow, colour)


def _token(canvas: Canvas, colour: Colour) -> None:
    """A disc for an item that has no picture."""
    red, green, blue = (part // 2 for part in colour)
    canvas.disc(0.5, 0.5, 0.34, (red, green, blue))
    canvas.disc(0.5, 0.5, 0.29, colour)
    canvas.disc(0.42, 0.42, 0.09, (red + 128, green + 128, blue + 128))


def _agent(canvas: Canvas, colour: Colour, it: bool = False) -> None:
    """A disc with eyes; the agent that is "it" has a ring."""
    if it:
        canvas.disc(0.5, 0.5, 0.5, DARK)
        canvas.disc(0.5, 0.5, 0.47, GOLD)
    canvas.disc(0.5, 0.5, 0.4, DARK)
    canvas.disc(0.5, 0.5, 0.36, colour)
    for x in (0.37, 0.63):
        canvas.disc(x, 0.43, 0.11, WHITE)
        canvas.disc(x, 0.45, 0.055, DARK)
