"""Data in OGBench's layout, collected on the spot by the scripted policies of the installed `ogbench`.

    pointmaze-medium, pointmaze-large    towards `get_oracle_subgoal`, plus N(0, 0.5^2), clipped; a new goal on arrival
    cube-single                          its plan oracle with smoothed noise of 0.1; a new target when a plan is done

A trajectory is LENGTH steps, so LENGTH + 1 rows of which the last is terminal. Rewards and masks are those of a task,
as OGBench itself labels them. A seed gives the same file, byte for byte, with the same versions of ogbench and mujoco.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import UsageError, nearest
from ...run.files import write_bytes
from .gymnasium_evaluation import seeded

ENVIRONMENTS = ("pointmaze-medium", "pointmaze-large", "cube-single")
LENGTH = 1000
"""Steps of a trajectory."""
NOISE = 0.5
"""Of the actions in mazes."""
PLAN_NOISE, SMOOTHING = 0.1, 0.5
DATED = (1980, 1, 1, 0, 0, 0)
"""When the members of every file were written, so that equal data are equal files."""
Arrays = dict[str, np.ndarray]


class Row(NamedTuple):
    """What a file holds of a step."""

    observations: np.ndarray
    actions: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray


def generate(
    name: str, transitions: int, seed: int = 0, task: int = 1, tell: Callable[[int], None] | None = None
) -> Arrays:
    """So many steps with the rewards of a task; `tell` is called with the steps so far after every trajectory."""
    if name not in ENVIRONMENTS:
        raise UsageError(f"env: unknown {name!r}.{nearest(name, ENVIRONMENTS)} Known: {', '.join(ENVIRONMENTS)}.")
    gymnasium = imported("gymnasium", "gymnasium")
    imported("ogbench", "ogbench")
    rows: list[Row] = []
    ends: list[bool] = []
    collect = _maze_trajectory if name.startswith("pointmaze") else _cube_trajectory
    extra = {} if name.startswith("pointmaze") else {"mode": "data_collection"}
    environment = gymnasium.make(f"{name}-v0", terminate_at_goal=False, max_episode_steps=10 * LENGTH, **extra)
    with seeded(seed):
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        left = transitions
        while left > 0:
            steps = min(LENGTH, left)
            rows += collect(environment, steps)
            ends += [*[False] * steps, True]
            left -= steps
            if tell is not None:
                tell(transitions - left)
        environment.close()
        return _labelled(gymnasium, name, task, rows, ends)


def write(arrays: Arrays, path: Path) -> str:
    """Writes the .npz and, beside it, its SHA-256, which is returned."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", DATED)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue())
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    write_bytes(path, data)
    write_bytes(path.with_name(f"{path.name}.sha256"), f"{digest}  {path.name}\n".encode())
    return digest


def imported(module: str, extra: str) -> Any:
    """An optional package, or how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"expected {module} to be installed: pip install 'crossfade[{extra}]'.") from error


def _maze_trajectory(environment: Any, steps: int) -> list[Row]:
    """From a random cell to random cells."""
    bare = environment.unwrapped
    free = np.argwhere(bare.maze_map == 0)
    cell = lambda: tuple(int(n) for n in free[np.random.randint(len(free))])
    seen, _ = environment.reset(options={"task_info": {"init_ij": cell(), "goal_ij": cell()}})
    rows = []
    for _ in range(steps + 1):
        towards, _ = bare.get_oracle_subgoal(bare.get_xy(), bare.cur_goal_xy)
        direction = np.asarray(towards) - bare.get_xy()
        direction = direction / (np.linalg.norm(direction) + 1e-6)
        action = np.clip(direction + np.random.normal(0, NOISE, 2), -1, 1)
        rows.append(_row(bare, seen, action))
        seen, _, _, _, info = environment.step(action)
        if info["success"]:
            bare.set_goal(goal_ij=cell())
    return rows


def _cube_trajectory(environment: Any, steps: int) -> list[Row]:
    """Plans to carry the cube to random targets, one after the other."""
    plans = imported("ogbench.manipspace.oracles.plan.cube_plan", "ogbench")
    policy = plans.CubePlanOracle(env=environment, noise=PLAN_NOISE, noise_smoothing=SMOOTHING)
    bare = environment.unwrapped
    seen, info = environment.reset()
    policy.reset(seen, info)
    rows = []
    for _ in range(steps + 1):
        action = np.clip(np.asarray(policy.select_action(seen, info)), -1, 1)
        rows.append(_row(bare, seen, action))
        seen, _, _, _, info = environment.step(action)
        if policy.done:
            policy.reset(*bare.set_new_target(p_stack=0.0))
    return rows


def _row(bare: Any, seen: np.ndarray, action: np.ndarray) -> Row:
    data = getattr(bare, "_data", None) or bare.data
    return Row(*(np.array(x, np.float32) for x in (seen, action, data.qpos, data.qvel)))


def _labelled(gymnasium: Any, name: str, task: int, rows: list[Row], ends: list[bool]) -> Arrays:
    """The rows as arrays, with rewards and masks of the task."""
    labels = imported("ogbench.relabel_utils", "ogbench")
    single = f"{name}-singletask-task{task}-v0"
    arrays: Arrays = {field: np.stack([getattr(row, field) for row in rows]) for field in Row._fields}
    arrays["terminals"] = np.array(ends)
    environment = gymnasium.make(single)
    labels.relabel_dataset(single, environment, arrays)
    environment.close()
    return {field: array if array.dtype == bool else np.asarray(array, np.float32) for field, array in arrays.items()}
