"""Reference motions: rows of positions with velocities by differences, ours or from a user's file. Framework-free.

A file is .npz (arrays `qpos`, and if they are there `fps`, `columns` and `clearance`) or .csv (a header with the name
of every column, `Skeleton.columns`; columns `clearance of <foot>` may follow). Where the heights of the feet are not
said, a function of positions gives them.
"""

import csv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import DataError, UsageError, nearest
from .skeleton import Skeleton

Heights = Callable[[np.ndarray], np.ndarray]
"""`qpos (n, nq) -> (n, feet)`: how high the lowest point of each foot is above the ground."""
UNIT = 1e-3
"""How far from 1 the norm of a quaternion in a file may be."""


class Clip(NamedTuple):
    """A motion, row after row in equal steps of time."""

    qpos: Float[np.ndarray, "n q"]
    qvel: Float[np.ndarray, "n v"]
    clearance: Float[np.ndarray, "n feet"]
    fps: float
    skeleton: Skeleton


def velocities(qpos: Float[np.ndarray, "n q"], fps: float, skeleton: Skeleton) -> Float[np.ndarray, "n v"]:
    """Velocities by central differences, and one-sided ones at both ends.

    The angular velocity of a free base, in its own frame, is that of the rotation between its neighbours:
    2 log(conj(q_{t-1}) q_{t+1}) over the time between them.
    """
    n = len(qpos)
    later, earlier = np.minimum(np.arange(n) + 1, n - 1), np.maximum(np.arange(n) - 1, 0)
    time = ((later - earlier) / fps)[:, None]
    slope = (qpos[later] - qpos[earlier]) / time
    if skeleton.base == "planar":
        return slope
    turning = _rotation(qpos[earlier, 3:7], qpos[later, 3:7]) / time
    return np.concatenate([slope[:, :3], turning, slope[:, 7:]], -1)


def resampled(
    qpos: Float[np.ndarray, "n q"], fps: float, wanted: float, skeleton: Skeleton
) -> Float[np.ndarray, "m q"]:
    """The rows at another rate: linear between them, quaternions made unit again."""
    if fps == wanted:
        return qpos
    n = len(qpos)
    time = np.arange(int(np.floor((n - 1) * wanted / fps + 1e-9)) + 1) * fps / wanted
    found = np.stack([np.interp(time, np.arange(n), column) for column in _continuous(qpos, skeleton).T], -1)
    if skeleton.base == "free":
        found[:, 3:7] /= np.linalg.norm(found[:, 3:7], axis=-1, keepdims=True)
    return found


def make_clip(
    qpos: Float[np.ndarray, "n q"],
    fps: float,
    skeleton: Skeleton,
    heights: Heights,
    wanted: float,
    clearance: Float[np.ndarray, "n feet"] | None = None,
) -> Clip:
    """A clip of these positions at `wanted` rows per second, which is how often the policy acts."""
    rows = resampled(qpos, fps, wanted, skeleton)
    if clearance is None:
        above = heights(rows)
    else:
        time = np.arange(len(rows)) * fps / wanted
        above = np.stack([np.interp(time, np.arange(len(qpos)), column) for column in clearance.T], -1)
    return Clip(rows, velocities(rows, wanted, skeleton), above, wanted, skeleton)


def load_clip(path: Path, skeleton: Skeleton, heights: Heights, wanted: float, fps: float | None = None) -> Clip:
    """The clip of a user's file; DataError for one that is damaged or of another skeleton."""
    if path.suffix not in (".npz", ".csv"):
        raise UsageError(f"{path}: expected a clip in a file .npz or .csv, got {path.suffix or 'no suffix'}.")
    if not path.is_file():
        raise UsageError(f"{path}: expected a clip in this file, got nothing there.")
    qpos, names, clearance, said = _read_npz(path) if path.suffix == ".npz" else _read_csv(path, skeleton)
    rate = said if said is not None else fps
    if rate is None:
        raise UsageError(f"{path}: expected its rows per second, which the file does not say. Set fps.")
    if not (np.isfinite(rate) and rate > 0):
        raise DataError(f"{path}: expected rows per second above 0, got {rate}.")
    _check(path, qpos, names, clearance, skeleton)
    return make_clip(qpos, float(rate), skeleton, heights, wanted, clearance)


def _check(
    path: Path, qpos: np.ndarray, names: Sequence[str] | None, clearance: np.ndarray | None, skeleton: Skeleton
) -> None:
    """Refuses positions that this skeleton cannot have."""
    wanted = f"{skeleton.nq} columns: {', '.join(skeleton.columns)}"
    if names is not None and tuple(names) != skeleton.columns:
        odd = [name for name in names if name not in skeleton.columns]
        missing = [name for name in skeleton.columns if name not in names]
        lacking = f"none for {', '.join(missing[:5])}" if missing else "another order"
        told = f"unknown {', '.join(odd[:5])}" if odd else lacking
        hint = nearest(odd[0], skeleton.columns) if odd else ""
        raise DataError(f"{path}: expected a clip of this skeleton, {wanted}; got {told}.{hint}")
    if qpos.ndim != 2 or qpos.shape[1] != skeleton.nq:
        raise DataError(f"{path}: expected a clip of this skeleton, {wanted}; got positions of shape {qpos.shape}.")
    if len(qpos) < 3:
        raise DataError(f"{path}: expected at least 3 rows, got {len(qpos)}.")
    if not np.isfinite(qpos).all():
        row = int(np.argwhere(~np.isfinite(qpos))[0, 0])
        raise DataError(f"{path}: expected finite numbers, got {qpos[row]} in row {row}.")
    if skeleton.base == "free":
        norm = np.linalg.norm(qpos[:, 3:7], axis=-1)
        worst = int(np.abs(norm - 1).argmax())
        if abs(norm[worst] - 1) > UNIT:
            raise DataError(
                f"{path}: expected unit quaternions (w, x, y, z) as columns 3 to 6, got norm {norm[worst]:.4f} in row "
                f"{worst}."
            )
    if clearance is not None and clearance.shape != (len(qpos), len(skeleton.feet)):
        shape = len(qpos), len(skeleton.feet)
        raise DataError(f"{path}: expected heights of feet {shape}, got {clearance.shape}.")


Read = tuple[np.ndarray, tuple[str, ...] | None, np.ndarray | None, float | None]


def _read_npz(path: Path) -> Read:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: expected an .npz file of plain arrays, got {error}.") from error
    if "qpos" not in found or found["qpos"].dtype.kind not in "fiu":
        raise DataError(f"{path}: expected an array `qpos` of numbers, got {', '.join(found) or 'nothing'}.")
    if "fps" in found and (found["fps"].size != 1 or found["fps"].dtype.kind not in "fiu"):
        raise DataError(f"{path}: expected one number `fps`, got {found['fps']!r}.")
    names = tuple(map(str, found["columns"].ravel())) if "columns" in found else None
    fps = float(found["fps"].ravel()[0]) if "fps" in found else None
    clearance = found["clearance"].astype(np.float64) if "clearance" in found else None
    return found["qpos"].astype(np.float64), names, clearance, fps


def _read_csv(path: Path, skeleton: Skeleton) -> Read:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *lines = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: expected text in columns, got {error}.") from error
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 2):
        try:
            rows.append([float(word) for word in line])
        except ValueError as error:
            raise DataError(f"{path}, line {number}: expected numbers, got {error}.") from error
        if len(line) != len(header):
            raise DataError(f"{path}, line {number}: expected {len(header)} numbers as in the header, got {len(line)}.")
    table = np.array(rows, np.float64).reshape(len(rows), len(header))
    names = [name.strip() for name in header]
    feet = [f"clearance of {foot}" for foot in skeleton.feet]
    if not feet or names[-len(feet) :] != feet:
        return table, tuple(names), None, None
    return table[:, : -len(feet)], tuple(names[: -len(feet)]), table[:, -len(feet) :], None


def _continuous(qpos: Float[np.ndarray, "n q"], skeleton: Skeleton) -> Float[np.ndarray, "n q"]:
    """The rows with signs of quaternions that follow each other: q and -q are the same rotation."""
    if skeleton.base == "planar":
        return qpos
    found = qpos.copy()
    side = np.sign((found[1:, 3:7] * found[:-1, 3:7]).sum(-1))
    found[1:, 3:7] *= np.cumprod(np.where(side < 0, -1, 1))[:, None]
    return found


def _rotation(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 3"]:
    """2 log(conj(a) b): the rotation from a to b as a vector, in the frame of a."""
    w = (a * b).sum(-1)
    u = a[:, :1] * b[:, 1:] - b[:, :1] * a[:, 1:] - np.cross(a[:, 1:], b[:, 1:])
    u, w = np.where(w < 0, -1, 1)[:, None] * u, np.abs(w)
    sine = np.linalg.norm(u, axis=-1)
    scale = np.where(sine > 1e-9, 2 * np.arctan2(sine, w) / np.maximum(sine, 1e-12), 2.0)
    return scale[:, None] * u
