"""A robot for people: stick figures, which need no OpenGL. `rendering.py` has MuJoCo's own pictures."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from ..gif import Frame
from .kinematics_numpy import frames
from .model import RobotModel

WIDTH, HEIGHT = 360, 240  # of a frame, in pixels
PAPER, GROUND, TEXT = (250, 249, 245), (176, 170, 158), (31, 35, 40)
LEFT, RIGHT, TRUNK = (76, 120, 208), (224, 123, 57), (92, 102, 117)
MARK = 0.5  # metres between two marks on the ground
BELOW = 40  # pixels from the ground to the lower edge
CORNER = (8, 6)  # where captions begin


def stick_figures(model: RobotModel, qpos: Float[np.ndarray, "n nq"], captions: Sequence[str]) -> list[Frame]:
    """A robot from its right side, the camera beside its base: links as lines, feet as dots, marks on the ground.

    Limbs to the left of the base are blue, those to the right orange.
    """
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError as error:
        raise UsageError("pictures need Pillow: pip install 'crossfade[report]'.") from error
    found = frames(model, qpos)
    tall = max(0.2, 1.6 * float(found.links[..., 2].max()))
    scale = (HEIGHT - 2 * BELOW) / tall
    pictures = []
    for links, feet, com, caption in zip(found.links, found.feet, found.com, captions, strict=True):
        image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
        draw = ImageDraw.Draw(image)
        middle = float(links[0, 0])
        at = lambda p, middle=middle: (WIDTH / 2 + (p[0] - middle) * scale, HEIGHT - BELOW - p[2] * scale)
        draw.line([(0, HEIGHT - BELOW), (WIDTH, HEIGHT - BELOW)], GROUND, 2)
        for mark in np.arange(np.floor((middle - tall * 2) / MARK), np.ceil((middle + tall * 2) / MARK) + 1) * MARK:
            x, y = at((mark, 0, 0))
            draw.line([(x, y), (x - 5, y + 8)], GROUND, 1)
        for start, end, colour in _lines(model, links, feet):
            draw.line([at(start), at(end)], colour, 4)
        x, y = at(com)
        draw.ellipse([x - 4, y - 4, x + 4, y + 4], outline=TEXT)
        for foot, place in zip(model.feet, feet, strict=True):
            (x, y), r = at(place), max(2.0, foot.radius * scale)
            draw.ellipse([x - r, y - r, x + r, y + r], fill=TEXT)
        draw.text(CORNER, caption, TEXT)
        pictures.append(np.asarray(image))
    return pictures


def captioned(pictures: Sequence[Frame], captions: Sequence[str]) -> list[Frame]:
    """Pictures with a line of text above each."""
    from PIL import Image, ImageDraw

    found = []
    for picture, caption in zip(pictures, captions, strict=True):
        image = Image.fromarray(picture)
        ImageDraw.Draw(image).text(CORNER, caption, TEXT)
        found.append(np.asarray(image))
    return found


def _lines(
    model: RobotModel, links: Float[np.ndarray, "links 3"], feet: Float[np.ndarray, "feet 3"]
) -> list[tuple[np.ndarray, np.ndarray, tuple[int, int, int]]]:
    """Start, end and colour of every line, those farther away first."""
    up = np.array([0, 0, 0.4 * float(links[0, 2])])
    lines = [(links[0], links[0] + up, TRUNK)]
    lines += [(links[link.parent], links[i], _side(links, i)) for i, link in enumerate(model.links) if i]
    lines += [(links[foot.link], place, _side(links, foot.link)) for foot, place in zip(model.feet, feet, strict=True)]
    return sorted(lines, key=lambda line: -line[1][1])


def _side(links: Float[np.ndarray, "links 3"], number: int) -> tuple[int, int, int]:
    away = links[number, 1] - links[0, 1]
    return LEFT if away > 0.01 else RIGHT if away < -0.01 else TRUNK
