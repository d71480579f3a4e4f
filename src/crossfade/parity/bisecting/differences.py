"""How one array became another: the usual causes, read off the numbers of the host's value and JAX's."""

from collections.abc import Iterator

import numpy as np

from .variables import equal

FEW = 8
EPSILONS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
Said = tuple[str, str]  # kind and words


def said(name: str, ours: np.ndarray, theirs: np.ndarray, known: dict[str, np.ndarray]) -> Said:
    """The first that fits; empty where nothing does. `known` are other values of the host, by name."""
    if ours.shape != theirs.shape:
        return "shape", f"the shape of {name}: host {ours.shape}, JAX {theirs.shape}"
    if any(x.dtype.kind == "u" and x.dtype.itemsize > 2 for x in (ours, theirs)) and ours.size > 1:
        return "key", f"the key {name} is another in JAX"
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.size == 1:
        return _made_of_others(name, a, b, known) or _number(name, ours, float(a.flat[0]), float(b.flat[0]), known)
    if ours.dtype.kind == "b" and np.ptp(a) == 0 and np.ptp(b) == 0:
        return "", ""  # all yes and all no: an inversion is one of many causes
    if a.size < FEW and ours.dtype.kind != "f":  # equal by chance too often
        return _of_the_same_name(name, a, b, known) or ("", "")
    constant = _constant(name, ours, a, b) if np.ptp(b) == 0 or ours.dtype.kind == "b" else None
    if (found := constant or _made_of_others(name, a, b, known) or _constant(name, ours, a, b)) is not None:
        return found
    for found in (_order(name, a, b), _numbers(name, a, b)):
        if found is not None:
            return found
    found = next(_others(name, a, b, known), None) or _part(name, a, b) or _rows(name, a, b)
    return found or _from_other_places(name, a, b) or ("", "")


def _of_the_same_name(name: str, a: np.ndarray, b: np.ndarray, known: dict[str, np.ndarray]) -> Said | None:
    """Two values of one last name, of which each half has another."""
    alike = {n: v for n, v in known.items() if n.rpartition(".")[2] == name.rpartition(".")[2] and n != name}
    right = next((n for n, v in alike.items() if equal(v, a)), "")
    taken = next((n for n, v in alike.items() if equal(v, b)), "")
    return ("operand", f"JAX has {taken} for {name}, not {right}") if right and taken else None


def _from_other_places(name: str, a: np.ndarray, b: np.ndarray) -> Said | None:
    """The same numbers, some of them taken from other places of the array."""
    moved = ~np.isclose(a, b, 1e-9, 1e-12)
    if np.unique(b[moved]).size > 1 and all(np.isclose(a, x, 1e-9, 1e-12).any() for x in b[moved]):
        return "index", f"{name} has in {int(moved.sum())} places numbers of other places in JAX"
    return None


def said_of_all(name: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> Said | None:
    """By what a name stands for time after time, in both halves."""
    if len(ours) < 3 or ours[0].dtype.kind == "u" or any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
        return None
    moves = [any(not equal(a, values[0]) for a in values) for values in (ours, theirs)]
    if moves == [True, False]:
        shown = f"{float(theirs[0].flat[0]):g}" if theirs[0].size == 1 else "the same"
        return "constant", f"{name} is {shown} every time in JAX, on the host it changes"
    if all(equal(a, b) for a, b in zip(ours[:-1], theirs[1:], strict=True)) and moves[0]:
        return "state", f"{name} in JAX is the host's of one time before"
    return None


STATISTICS = {"mean": np.mean, "standard deviation": np.std, "variance": np.var}
EXTREMES = {
    "largest": np.max,
    "smallest": np.min,
    "place of the largest": np.argmax,
    "place of the smallest": np.argmin,
}


def _made_of_others(name: str, a: np.ndarray, b: np.ndarray, known: dict[str, np.ndarray]) -> Said | None:
    """A statistic, or an extreme, of another of the host's values."""
    for kind, functions in (("statistics", STATISTICS), ("operand", EXTREMES)):
        for other, value in known.items():
            axes = (0, -1) if value.ndim and value.dtype.kind == "f" and value.shape[0] > 1 and value.size > 2 else ()
            for axis, (words, function) in ((axis, each) for axis in axes for each in functions.items()):
                found = function(value, axis=axis)
                telling = np.ptp(b) > 0 if b.size > 1 else abs(float(b.flat[0])) not in (0, 1)
                if telling and found.shape == b.shape and equal(found, b) and not equal(found, a):
                    return kind, f"JAX has the {words} of {other} for {name}"
    return None


def _number(name: str, ours: np.ndarray, a: float, b: float, known: dict[str, np.ndarray]) -> Said:
    """One number says little: only what is hardly by chance."""
    if ours.dtype.kind == "f":
        if b == 0:
            return "left out", f"{name} is zero in JAX"
        if a == -b:
            return "sign", f"{name} has the other sign in JAX"
        for side, x, y in (("the host", b, a), ("JAX", a, b)):
            if abs(x) not in (0, 1) and abs(x * x - y) <= 1e-9 * abs(y):
                return "constant", f"{name} is the square in {side}: {y:g} for {x:g}"
        others = [n for n, v in known.items() if v.size == 1 and abs(float(v.flat[0]) - b) <= 1e-9 * abs(b) and b]
        if others:
            return "operand", f"JAX has {others[0]} for {name}"
        if all(len(f"{abs(x):.12g}".replace(".", "").strip("0")) <= 4 for x in (a, b)):  # as people write numbers
            return "constant", f"{name}: host {a:g}, JAX {b:g}"
    elif ours.dtype.kind in "iu" and abs(a - b) == 1:
        return "constant", f"{name} is one {'higher' if b > a else 'lower'} in JAX"
    return "", ""


def _constant(name: str, ours: np.ndarray, a: np.ndarray, b: np.ndarray) -> Said | None:
    if ours.dtype.kind == "b":
        if equal(a, 1 - b):
            return "mask", f"{name} is inverted in JAX"
        words = "true wherever the host's is, and elsewhere too" if (b >= a).all() else ""
        words = words or ("true in fewer places than the host's" if (b <= a).all() else "")
        return ("mask", f"{name} is {words} in JAX") if words else None
    if np.ptp(a) == 0 and np.ptp(b) == 0 and a.size > 1 and b.flat[0] not in (0, 1):
        return "constant", f"{name} is {a.flat[0]:.10g} everywhere on the host, {b.flat[0]:.10g} in JAX"
    for side, other, x, y in (("JAX", "the host", a, b), ("the host", "JAX", b, a)):
        moves = np.ptp(x) > 0 or x.size == 1 or y.flat[0] == 0
        if np.ptp(y) == 0 and moves and y.flat[0] in (0, 1) and not equal(x, y):
            return "left out", f"{name} is {'zero' if y.flat[0] == 0 else 'one'} everywhere in {side}, not in {other}"
        if np.ptp(y) == 0 and np.ptp(x) > 0:
            return "constant", f"{name} is {y.flat[0]:g} everywhere in {side}, not in {other}"
    return None


def _order(name: str, a: np.ndarray, b: np.ndarray) -> Said | None:
    if not equal(np.sort(a, None), np.sort(b, None)):
        return None
    for axis in range(a.ndim):
        if equal(np.flip(a, axis), b):
            return "order", f"{name} is in reversed order along axis {axis} in JAX"
        for by in (-2, -1, 1, 2):
            if equal(np.roll(a, by, axis), b):
                words = f"by {abs(by)} {'back' if by < 0 else 'on'}"
                return "order", f"{name} is shifted {words} along axis {axis} in JAX"
    if a.ndim > 1 and a.shape == a.T.shape and equal(a.T, b):
        return "transposed", f"{name} is transposed in JAX"
    return "order", f"the numbers of {name} stand in another order in JAX"


def _numbers(name: str, a: np.ndarray, b: np.ndarray) -> Said | None:
    if equal(-a, b):
        return "sign", f"{name} has the other sign in JAX"
    moved = a != 0
    if moved.any() and equal(a[~moved], b[~moved]):
        ratio = b[moved] / a[moved]
        if np.ptp(ratio) <= 1e-6 * np.abs(ratio).max() and abs(ratio.mean() - 1) > 1e-5:
            if ratio.size > 1 or ratio[0] in (0.5, 2.0):
                return "factor", f"{name} in JAX is {ratio.mean():.8g} times the host's"
    shift = b - a
    if np.ptp(shift) <= 1e-9 * max(np.abs(a).max(), np.abs(b).max()):
        return "constant", f"{name} in JAX is the host's plus {shift.mean():.8g}"
    for x, y, side in ((a, b, "JAX"), (b, a, "the host")):
        if equal(x.astype(np.float32).astype(np.float64), y) or equal(x, y.astype(np.float32).astype(np.float64)):
            return "cast", f"{name} is rounded to float32 in one half"
        if equal(np.abs(x), y):
            return "abs", f"{side} takes the absolute value of {name}"
        for eps in EPSILONS:
            if equal(np.sqrt(np.maximum(x**2 - eps, 0)) + eps, y):
                return "eps", f"{name}: {eps:g} is added beside the root in {side}, under it in the other half"
        if equal(np.clip(x, y.min(), y.max()), y) and (x.size >= FEW or np.isin(y, (0, 1)).any()):
            return "clamp", f"{side} keeps {name} within {y.min():g} and {y.max():g}, the other half does not"
    plain = [np.isin(x, (-1, 0, 1)).all() for x in (a, b)]
    if plain == [False, True]:
        return "constant", f"{name} has only 0, 1 and -1 in JAX, other numbers on the host"
    if np.abs(shift).max() == 1 and equal(shift, np.round(shift)):
        return "constant", f"{name} is {'lower' if (shift <= 0).all() else 'higher'} by one in JAX, in some places"
    if np.allclose(a, b, 1e-5, 1e-7):
        return "cast", f"{name} differs by rounding alone, more than that of float64"
    return None


def _others(name: str, a: np.ndarray, b: np.ndarray, known: dict[str, np.ndarray]) -> Iterator[Said]:
    """Another of the host's values, wholly or in part."""
    alike = {n: np.asarray(v, np.float64) for n, v in known.items() if v.shape == a.shape}
    for other, value in alike.items():
        if equal(value, b):
            yield "operand", f"JAX has {other} for {name}"
    for other, value in alike.items():
        rows = value if value.ndim else value[None]
        first = np.broadcast_to(rows[:1], value.shape)
        before = np.roll(rows, 1, 0).reshape(value.shape)
        for words, y in ((other, value), (f"the row before of {other}", before), (f"the first row of {other}", first)):
            taken = np.isclose(y, b, 1e-9, 1e-12) & ~np.isclose(a, b, 1e-9, 1e-12)
            if taken.any() and np.ptp(y[taken]) > 0 and (taken | np.isclose(a, b, 1e-9, 1e-12)).all():
                yield "operand", f"JAX has {words} for {name} in {int(taken.sum())} of {b.size} places"


def _part(name: str, a: np.ndarray, b: np.ndarray) -> Said | None:
    """Zero in one half where it is not in the other, and equal elsewhere."""
    apart = ~np.isclose(a, b, 1e-9, 1e-12)
    for side, x in (("JAX", b), ("the host", a)):
        if apart.any() and not apart.all() and not x[apart].any():
            return "mask", f"{name} is zero in {side} in {int(apart.sum())} of {a.size} places, in the other half not"
    return None


def _rows(name: str, a: np.ndarray, b: np.ndarray) -> Said | None:
    if a.ndim and len(a) > 1 and equal(np.broadcast_to(a[:1], a.shape), b):
        return "operand", f"JAX has the first row of {name} for all rows"
    if a.ndim > 1:
        x, y = a.reshape(-1, a.shape[-1]), b.reshape(-1, a.shape[-1])
        columns = ~np.isclose(x, y, 1e-9, 1e-12).all(0)
        x, y = x[:, columns], y[:, columns]
        with np.errstate(all="ignore"):
            ratio = y / x
        if x.shape[1] > 1 and np.isfinite(ratio).all() and (np.ptp(ratio, 1) <= 1e-9 * np.abs(ratio).max(1)).all():
            return (
                "factor",
                f"each row of {name} is scaled by a number of its own in JAX, in {x.shape[1]} of {a.shape[-1]} columns",
            )
    return None
