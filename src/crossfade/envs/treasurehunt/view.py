"""Treasurehunt for people: a map as text, and games as frames of sprites and as animated GIFs."""

import string
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Int8, UInt8

from ...run.files import write_bytes
from ..gif import LAST as LAST, Frame, encode
from .params import FIRST_ITEM, TreasurehuntParams
from .sprites import BRICKS, MORTAR, Colour, agent_colour, item_colour, sprites

PAPER, TEXT = (250, 249, 245), (31, 35, 40)
ICON, SIZE, SPACE = 18, 13, 5  # of the words below a map: their little pictures, their font, and between
NARROWEST = 180  # pixels of a frame, so that its caption fits
Places = Int[np.ndarray, "agents 2"]


# In the terminal


def ansi(
    params: TreasurehuntParams,
    grid: Int8[np.ndarray, "height width"],
    places: Places | None = None,
    *,
    colour: bool = True,
) -> str:
    """A map in characters: `#` wall, `.` nothing, a letter for each item (`letters`), A an agent; with `places`, (row,
    column) of each, the last digit of its number. In colours of a terminal that knows 256, or plain."""
    wall = f"38;5;{_cube(MORTAR)};48;5;{_cube(BRICKS[0])}"
    items = [f"1;38;5;{_cube(item_colour(params, index))}" for index in range(len(params.table))]
    signs = np.array([".", "#", "A", *letters(params), "#"])[grid]
    styles = np.array(["2", wall, "1;7", *items, wall], object)[grid]
    for agent, (row, column) in enumerate([] if places is None else places):
        signs[row, column] = str(agent % 10)
        styles[row, column] = f"1;97;48;5;{_cube(agent_colour(params, agent))}"
    if not colour:
        return "\n".join(" ".join(row) for row in signs)
    cells = [
        [f"\x1b[{style}m{sign} \x1b[0m" for sign, style in zip(*row, strict=True)]
        for row in zip(signs, styles, strict=True)
    ]
    return "\n".join(map("".join, cells))


def letters(params: TreasurehuntParams) -> list[str]:
    """A letter for each item: the first of its name that is not taken, any other that is not, and then `?`."""
    found: list[str] = []
    for item in params.table:
        wanted = [sign for sign in item.name.lower() + string.ascii_letters if sign in string.ascii_letters]
        found.append(next((sign for sign in wanted if sign not in found and sign != "A"), "?"))
    return found


def _cube(colour: Colour) -> int:
    """The nearest of a terminal's 6 x 6 x 6 colours."""
    red, green, blue = (round(part / 255 * 5) for part in colour)
    return 16 + 36 * red + 6 * green + blue


# As frames


def frames(
    params: TreasurehuntParams,
    grids: Int8[np.ndarray, "n height width"],
    captions: Sequence[str],
    *,
    places: Int[np.ndarray, "n agents 2"] | None = None,
    roles: Int[np.ndarray, "n agents"] | None = None,
    earned: Float[np.ndarray, "n agents"] | None = None,
    cell: int = 24,
) -> list[Frame]:
    """Pictures of maps, a caption below each.

    With `places` every agent has its colour, with `roles` a ring where it is "it"; with `earned` the items and their
    values stand below, and what each agent has. Sprites are drawn once; after that a frame of a 10 x 10 map takes
    a fraction of a millisecond.
    """
    art, tiles = sprites(params, cell), grids.astype(np.int64)
    if places is not None:
        own = params.pad + 1 + np.arange(places.shape[1]) + (0 if roles is None else params.agents * roles)
        tiles[np.arange(len(grids))[:, None], places[..., 0], places[..., 1]] = own
    scores = [[]] * len(grids) if earned is None else [[f"{score:,.4g}" for score in row] for row in earned]
    below = Below(params, max(NARROWEST, params.width * cell), scores)
    words = zip(captions, scores, strict=True)
    return [_frame(art[shown], below.strip(*said)) for shown, said in zip(tiles, words, strict=True)]


def _frame(cells: UInt8[np.ndarray, "height width cell cell 3"], strip: UInt8[np.ndarray, "below columns 3"]) -> Frame:
    """The map above the words, in the middle."""
    picture = cells.swapaxes(1, 2).reshape(cells.shape[0] * cells.shape[2], -1, 3)
    height, width = picture.shape[:2]
    found = np.empty((height + len(strip), strip.shape[1], 3), np.uint8)
    left = (strip.shape[1] - width) // 2
    found[:height, :left] = found[:height, left + width :] = PAPER
    found[:height, left : left + width] = picture
    found[height:] = strip
    return found


class Below:
    """The words below the maps of a game: a caption, then items and agents in columns, each with its sprite."""

    def __init__(self, params: TreasurehuntParams, width: int, scores: Sequence[Sequence[str]]):
        kept = any(scores)
        items = [f"{item.name} {item.value:+g}" for item in params.table] if kept else []
        first = params.pad + 1
        icons = [*range(FIRST_ITEM, params.pad), *range(first, first + len(scores[0]))] if kept else []
        widest = max((_text(text).shape[1] for row in (items, *scores) for text in row), default=0)
        columns = max(1, (width - SPACE) // (ICON + widest + 3 * SPACE))
        across, down, top = (width - SPACE) // columns, ICON + SPACE, ICON + 2 * SPACE
        spots = [(top + place // columns * down, SPACE + place % columns * across) for place in range(len(icons))]
        self.paper = np.full((top + -(-len(icons) // columns) * down, width, 3), PAPER, np.uint8)
        for icon, (y, x) in zip(icons, spots, strict=True):
            self.paper[y : y + ICON, x : x + ICON] = sprites(params, ICON)[icon]
        self.spots = [(y, x + ICON + SPACE) for y, x in spots]
        for text, spot in zip(items, self.spots[: len(items)], strict=True):
            _write(self.paper, text, *spot)
        self.spots = self.spots[len(items) :]

    def strip(self, caption: str, scores: Sequence[str]) -> Frame:
        found = self.paper.copy()
        _write(found, caption, SPACE, SPACE)
        for text, spot in zip(scores, self.spots, strict=True):
            _write(found, text, *spot)
        return found


def _write(paper: Frame, text: str, y: int, x: int) -> None:
    """Letters beside an icon at (y, x), cut off where the paper ends."""
    pixels = _text(text)[:, : paper.shape[1] - x]
    paper[y : y + ICON, x : x + pixels.shape[1]] = pixels


@lru_cache(maxsize=4096)
def _text(text: str) -> UInt8[np.ndarray, "rows columns 3"]:
    """A line of text on paper, as high as an icon."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(SIZE)
    image = Image.new("L", (max(1, int(font.getlength(text)) + 1), ICON))
    ImageDraw.Draw(image).text((0, ICON / 2), text, 255, font, anchor="lm")
    ink = np.round(np.asarray(image)[..., None] / 255 * 6) / 6
    return np.round(ink * TEXT + (1 - ink) * np.array(PAPER)).astype(np.uint8)


# As a file


def gif(path: Path, pictures: Sequence[Frame], milliseconds: int = 250) -> Path:
    """Writes frames as an animated GIF."""
    return write_bytes(path, encode(pictures, milliseconds))
