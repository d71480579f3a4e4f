"""A point-mass maze: a ball must reach a goal, and scripted policies collect data. `params.py` states the rules.

Importing this package imports neither a framework nor Gymnasium; `MazeEnv` loads the latter on first use.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .data import (
        Rows as Rows,
        Transitions as Transitions,
        collect as collect,
        relabel as relabel,
        transitions as transitions,
    )
    from .gymnasium_env import MazeEnv as MazeEnv
    from .params import MazeParams as MazeParams

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "MazeEnv": "gymnasium_env",
        "MazeParams": "params",
        "Rows": "data",
        "Transitions": "data",
        "collect": "data",
        "relabel": "data",
        "transitions": "data",
    },
)
