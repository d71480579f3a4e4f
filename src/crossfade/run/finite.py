"""Training must stay among the finite numbers. Framework-free."""

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import NotFiniteError

Blame = Callable[[], str]
"""Asked only when something is wrong, for a sentence on the cause, such as an object whose reward is not a number."""


def check_finite(metrics: Mapping[str, np.ndarray], step: int, blame: Blame = lambda: "") -> None:
    """Raise unless every metric of the iterations from `step` on is finite, naming the first that is not."""
    lost = {name: np.flatnonzero(~np.isfinite(values)) for name, values in metrics.items()}
    first = {name: int(where[0]) for name, where in lost.items() if len(where)}
    if first:
        name = min(first, key=first.__getitem__)
        _refuse(f"{name} = {metrics[name][first[name]]} in iteration {step + first[name]}", blame)


def check_finite_parameters(parameters: Mapping[str, np.ndarray], step: int, blame: Blame = lambda: "") -> None:
    """Raise unless every parameter after `step` iterations is finite: one that is not is never saved."""
    for name, array in parameters.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            _refuse(f"{array[~np.isfinite(array)].flat[0]} in {name} after iteration {step - 1}", blame)


def _refuse(got: str, blame: Blame) -> None:
    advice = blame() or "Lower the learning rates, or clip the gradients."
    raise NotFiniteError(f"expected finite numbers, got {got}. {advice} The last checkpoint is from before.")
