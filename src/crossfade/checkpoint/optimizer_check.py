"""An optimiser in a bundle, held to what the optimiser of its name has: settings by group, moments by parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..optim.state import HYPERPARAMETERS, slots
from .manifest import LAST_STEP, shortened
from .weights import Arrays

OPTIONAL = ("decoupled_weight_decay",)  # older torch does not have it


def check_groups(kind: str, groups: list[Any], label: str) -> None:
    """Raises unless every group has its names, each in one group alone, and every setting in its type."""
    if kind not in HYPERPARAMETERS:
        raise CheckpointError(f"{label}: expected one of {', '.join(HYPERPARAMETERS)}, got {shortened(kind)}.")
    known: set[str] = set()
    for group in groups:
        names = _names(group, label)
        if twice := known & {*names} or {name for name in names if names.count(name) > 1}:
            raise CheckpointError(f"{label}: expected {min(twice)!r} once, got it in two groups or twice in one.")
        known |= {*names}
        if missing := [name for name in HYPERPARAMETERS[kind] if name not in group and name not in OPTIONAL]:
            raise CheckpointError(f"{label}: expected every setting of {kind}, missing {', '.join(missing)}.")
        for name in (*HYPERPARAMETERS[kind], "initial_lr"):
            expected, fits = EXPECTED.get(name, ("a number", _is_number))
            if name in group and not fits(group[name]):
                raise CheckpointError(f"{label}: {name}: expected {expected}, got {shortened(group[name])}.")


def _names(group: Any, label: str) -> list[str]:
    match group:
        case {"names": [*names], "frozen": [*frozen]} if all(isinstance(n, str) for n in names):
            if all(n in names for n in frozen):
                return names
    raise CheckpointError(
        f"{label}: expected groups with names, and which of them are frozen, got {shortened(group, 200)}."
    )


def check_moments(kind: str, groups: list[Any], moments: dict[str, Arrays], weights: Arrays, label: str) -> None:
    """Raises unless every parameter that moves has the moments of its group, in its own shape."""
    for group in groups:
        expected = ("step", *slots(kind, group))
        for name in group["names"]:
            if name in group["frozen"]:
                continue
            found = moments.get(name, {})
            if {*found} != {*expected}:
                got = ", ".join(found) or "none"
                raise CheckpointError(f"{label}: expected the moments {', '.join(expected)} of {name!r}, got {got}.")
            step = found["step"]
            if step.shape != () or step.dtype.kind not in "iuf" or not (np.isfinite(step) and 0 <= step <= LAST_STEP):
                raise CheckpointError(f"{label}: expected a count of updates of {name!r}, got {shortened(step)}.")
            for slot in expected[1:]:
                if name in weights and found[slot].shape != weights[name].shape:
                    raise CheckpointError(
                        f"{label}: expected {slot} of {name!r} in the shape of the weight, {weights[name].shape}, got "
                        f"{found[slot].shape}."
                    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FLAG = ("true or false", lambda value: isinstance(value, bool))
EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "betas": (
        "two numbers",
        lambda value: isinstance(value, list | tuple) and [*map(_is_number, value)] == [True, True],
    ),
    **dict.fromkeys(("nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay"), FLAG),
}
