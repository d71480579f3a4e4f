"""What `crossfade doctor` finds in a game, shipped or of the user's own, named by its params."""

from dataclasses import is_dataclass
from typing import Any

from ...doctor import Examined
from ...envs import game_conformance
from ...errors import CrossfadeError
from ...loading import load_attribute, theirs

SIDES = ("numpy", "jax")


def examine(target: str) -> Examined | None:
    """The sizes of a game and every promise it breaks; None for what is not the params of one."""
    if ":" not in target:
        return None
    params = load_attribute(target)
    if not is_dataclass(params) or not any(isinstance(getattr(params, side, None), str) for side in SIDES):
        return None
    module = target.partition(":")[0]
    params = theirs(module, f"calling {target}", params) if isinstance(params, type) else params
    games, problems = {}, []
    for side in SIDES:
        try:
            place = getattr(params, side, None)
            if not isinstance(place, str):
                problems.append(f"the params say where the twin is, {side} = 'module:Class': not so, it is {place!r}")
                continue
            made = load_attribute(place)
            if hasattr(made, "step"):
                return None  # a world of one agent
            games[side] = theirs(module, f"calling {place}", lambda made=made: made(params))
        except CrossfadeError as error:
            problems.append(f"{side}: the twin can be made: not so, {error}")
    problems = problems or game_conformance.check(games["numpy"], games["jax"])
    sizes = {name: _size(games.get("numpy"), name) for name in game_conformance.SIZES}
    about = "  {agents} agents, {n_actions} actions, observations of {observation_dim} numbers, {turns} turns"
    return Examined([str(params), about.format(**sizes)], problems, {"params": str(params), **sizes})


def _size(game: Any, name: str) -> int | None:
    value = getattr(game, name, None)
    return value if isinstance(value, int) else None
