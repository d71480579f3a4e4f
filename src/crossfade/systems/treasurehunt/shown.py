"""The game that stands for a policy, as an animation and as text."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...envs.treasurehunt.params import TreasurehuntParams
from ...envs.treasurehunt.view import ansi, encode, frames

PIXELS, LARGEST, SMALLEST = 400, 44, 4  # of the longer side of a map, about, and of a cell
MILLISECONDS = 300  # of a turn
COLUMNS = 40  # of a map that fits into a terminal
NAMES = ("grids", "places", "roles", "earned")


def load(run: Path) -> dict[str, np.ndarray] | None:
    """The game that the last evaluation of a run kept."""
    paths = [run / "eval" / f"shown_{name}.npy" for name in NAMES]
    if not all(path.exists() for path in paths):
        return None
    return {path.stem: np.load(path, allow_pickle=False) for path in paths}


def animate(params: TreasurehuntParams, game: Mapping[str, np.ndarray]) -> bytes | None:
    """The game as a GIF; none of a map whose cells would be too small to see, or where Pillow is not installed."""
    cell = min(LARGEST, PIXELS // max(params.height, params.width))
    if cell < SMALLEST or find_spec("PIL") is None:
        return None
    grids, places, roles, earned = (game[f"shown_{name}"] for name in NAMES)
    captions = [f"turn {turn} of {params.turns}: {sum(row):,.4g}" for turn, row in enumerate(earned)]
    shown = frames(params, grids, captions, places=places, roles=roles, earned=earned, cell=cell)
    return encode(shown, MILLISECONDS)


def last_map(params: TreasurehuntParams, game: Mapping[str, np.ndarray], colour: bool) -> list[str]:
    """The end of the game as lines for a terminal; none of a map that does not fit."""
    if params.width > COLUMNS:
        return []
    text = ansi(params, game["shown_grids"][-1], game["shown_places"][-1], colour=colour)
    turns = len(game["shown_grids"]) - 1
    return [f"The game of the median return after {turns} turns, {game['shown_earned'][-1].sum():,.4g}:", text]
