"""Objects that the user gives, for trajectories that are built backwards from them. Framework-free: both halves use it.

An object is taken only if the environment can build it and may stop there; anything else is an error that names the
row, because a policy would learn to give probability to what does not exist.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int32, Shaped

from ....envs.dag.base_numpy import Env, State
from ....envs.dag.checks import is_number
from ....envs.dag.ground_truth import objects_of
from ....errors import UsageError
from ....reading import read_text


def load(source: str, env: Env) -> Int32[np.ndarray, "objects d"]:
    """The objects of a .npy or .csv file, one x per row, or `all` that the environment has."""
    if source == "all":
        return _all(env)
    rows = _read(Path(source), len(env.params.source))
    largest = np.iinfo(np.int32).max
    whole = np.isfinite(rows) & (np.abs(rows) <= largest) & (rows == np.round(rows))
    _check(whole.all(-1), rows, source, "integers")
    x = rows.astype(np.int32)
    _check(exists(env, x), x, source, f"an object that {env} can build")
    stops = env.forward_mask(State(x, np.zeros(len(x), bool)))[:, -1]
    _check(stops, x, source, f"an object that may stop in {env}")
    return x


def exists(env: Env, x: Int32[np.ndarray, "objects d"]) -> Bool[np.ndarray, " objects"]:
    """Whether the environment can build each object: some way back to the source can be walked forward again."""
    try:
        return _walks_back(env, x)
    except IndexError:  # an entry so far out that the environment's own tables end before it
        return np.array([len(x) > 1 and exists(env, row[None])[0] for row in x])


def _walks_back(env: Env, x: Int32[np.ndarray, "objects d"]) -> Bool[np.ndarray, " objects"]:
    """Takes the first backward action at each step, and checks that a valid forward action undoes it."""
    rows, source = np.arange(len(x)), env.reset().x
    state, good = State(x, np.zeros(len(x), bool)), np.ones(len(x), bool)
    for _ in range(env.max_steps - 1):
        moves = (state.x != source).any(-1)
        mask = env.backward_mask(state)
        parent = mask.argmax(-1)
        before, action = env.unstep(state, parent), env.action_of(state, parent)
        known = (action >= 0) & (action < env.n_actions - 1)
        action = np.where(known, action, 0)
        valid = mask.any(-1) & known & env.forward_mask(before)[rows, action]
        good &= ~moves | valid & (env.step(before, action).x == state.x).all(-1)
        state = State(np.where((moves & good)[:, None], before.x, state.x), state.done)
    return good & (state.x == source).all(-1)


def _all(env: Env) -> Int32[np.ndarray, "objects d"]:
    objects = objects_of(env.params)
    if objects is None:
        raise UsageError(
            f"data=all lists every object, and {env} has too many. Give a file of objects, or use a smaller instance."
        )
    return objects.x.astype(np.int32)


def _read(path: Path, d: int) -> Shaped[np.ndarray, "objects d"]:
    """The numbers in a file, not yet looked at."""
    if path.suffix not in (".npy", ".csv"):
        raise UsageError(f"data: expected `all`, a .npy file or a .csv file, got {path}.")
    if not path.is_file():
        raise UsageError(f"data: there is no file {path}. Give a .npy or .csv file with one object per row, or `all`.")
    rows = _read_npy(path) if path.suffix == ".npy" else _read_csv(path, d)
    if rows.ndim != 2 or rows.shape[1] != d or len(rows) == 0:
        raise UsageError(
            f"{path}: expected one object of {d} integers in each row, got an array of shape {rows.shape}."
        )
    return rows


def _read_npy(path: Path) -> np.ndarray:
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(f"{path}: expected an array of integers as numpy.save writes it ({error}).") from error
    if rows.dtype.kind not in "iuf":
        raise UsageError(f"{path}: expected an array of integers, got {rows.dtype}.")
    return rows


def _read_csv(path: Path, d: int) -> np.ndarray:
    text = read_text(path, "a .csv file of objects")
    rows = [line.split(",") for line in text.splitlines() if line.strip()]
    if rows and not any(map(is_number, rows[0])):
        rows = rows[1:]  # names of the columns
    for number, row in enumerate(rows, 1):
        if len(row) != d or not all(map(is_number, row)):
            raise UsageError(f"{path}, row {number}: expected {d} integers with commas between, got {','.join(row)!r}.")
    return np.array(rows, np.float64).reshape(-1, d)


def _check(good: Bool[np.ndarray, " objects"], rows: np.ndarray, source: str, expected: str) -> None:
    if not good.all():
        first = int(np.argmin(good))
        raise UsageError(
            f"{source}, row {first + 1}: expected {expected}, got {rows[first].tolist()} ({(~good).sum()} such of "
            f"{len(rows)} rows). Correct or remove them."
        )
