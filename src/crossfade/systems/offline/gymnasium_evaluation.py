"""Policies learned from files, judged in the Gymnasium environment that their config names.

An episode is a success if the environment says so, `info["success"]` at its last step; of one whose infos do not, if it
was `terminated`, not truncated. Episode i begins with seed EPISODES + i, so that every policy meets the same ones.
"""

from importlib import import_module
from typing import Any

import numpy as np

from ...errors import UsageError, nearest
from .config import OfflineDataConfig
from .data import Data
from .evaluation import EPISODES, Act, Played

SUCCESS = "success"
OGBENCH = ("pointmaze", "antmaze", "humanoidmaze", "antsoccer", "cube", "scene", "puzzle", "powderworld", "visual")
"""How names of OGBench's environments begin."""
LONGEST = 1_000_000
"""Steps after which an episode that does not end by itself is given up."""


def play(config: OfflineDataConfig, data: Data, act: Act, episodes: int) -> Played:
    """Episodes one after the other, by a policy that is given normalised observations."""
    environment = make(config, data)
    played = []
    try:
        for episode in range(episodes):
            played.append(_episode(environment, config, data, act, EPISODES + episode))
    finally:
        environment.close()
    success, length, returns = zip(*played, strict=True)
    return Played(
        np.array(success, bool), np.array(length), np.array(returns, np.float64), np.zeros((0, episodes, 2), np.float32)
    )


def make(config: OfflineDataConfig, data: Data) -> Any:
    """The environment `config.gym`, if its observations and actions are those of the data."""
    name = config.gym
    assert name is not None, "the caller asks for it"
    gymnasium = _imported("gymnasium", "gymnasium")
    if name.startswith(OGBENCH):
        _imported("ogbench", "ogbench")
    try:
        environment = gymnasium.make(name)
    except gymnasium.error.Error as error:
        near = nearest(name, gymnasium.registry)
        raise UsageError(f"gym: expected an environment of Gymnasium, got {name!r}: {error}.{near}") from error
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(f"gym: expected an environment that can be made, got {name!r}: {error}.") from error
    box = gymnasium.spaces.Box
    seen, acts = environment.observation_space, environment.action_space
    *shape, last = data.observation
    single = (*shape, last // config.frame_stack)
    if not isinstance(acts, box) or acts.shape != (data.action,):
        environment.close()
        raise UsageError(f"gym: expected actions ({data.action},), as in data={config.data}, got {acts} of {name}.")
    if not isinstance(seen, box) or seen.shape != single:
        environment.close()
        raise UsageError(f"gym: expected observations {single}, as in data={config.data}, got {seen} of {name}.")
    return environment


def _episode(environment: Any, config: OfflineDataConfig, data: Data, act: Act, seed: int) -> tuple[bool, int, float]:
    """Success, steps and return. Actions from -1 to 1 are scaled to the bounds of the environment."""
    space = environment.action_space
    low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
    bounded, total, said = np.isfinite(high - low).all(), 0.0, None
    with seeded(seed):
        frames = [_read(environment.reset(seed=seed)[0], data)] * config.frame_stack
        for t in range(LONGEST):
            seen = np.concatenate(frames, -1)[None]
            action = np.asarray(act(seen if seen.dtype == np.uint8 else seen.astype(config.dtype)))[0].astype(
                np.float64
            )
            action = low + (np.clip(action, -1, 1) + 1) / 2 * (high - low) if bounded else action
            after, reward, terminated, truncated, info = environment.step(action.astype(space.dtype))
            frames, total, said = [*frames[1:], _read(after, data)], total + float(reward), info.get(SUCCESS, said)
            if terminated or truncated:
                return bool(terminated if said is None else said), t + 1, total
    return False, LONGEST, total


def _read(seen: Any, data: Data) -> np.ndarray:
    """An observation, normalised as the data are."""
    array = np.asarray(seen)
    if array.dtype == np.uint8:
        return array
    read = data.statistics.apply(array.astype(np.float32)[None])[0]
    if not np.isfinite(read).all():
        raise UsageError("gym: expected finite observations, got one that is not.")
    return read


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"gym: expected {module} to be installed: pip install 'crossfade[{extra}]'.") from error


class seeded:
    """NumPy's global numbers, which OGBench draws its starts from, set for an episode and put back."""

    def __init__(self, seed: int):
        self.seed = seed

    def __enter__(self) -> None:
        self.before = np.random.get_state()
        np.random.seed(self.seed)

    def __exit__(self, *_: object) -> None:
        np.random.set_state(self.before)
