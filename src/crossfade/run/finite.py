"""Training must stay among the finite numbers. Framework-free."""

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import NotFiniteError


def check_finite(metrics: Mapping[str, np.ndarray], step: int, blame: Callable[[], str] = lambda: "") -> None:
    """Raise unless every metric of the iterations from `step` on is finite, naming the first that is not and its step.

    `blame` is asked only then, for a sentence on the cause, such as an object whose reward is not a number.
    """
    lost = {name: np.flatnonzero(~np.isfinite(values)) for name, values in metrics.items()}
    first = {name: int(where[0]) for name, where in lost.items() if len(where)}
    if not first:
        return
    name = min(first, key=first.__getitem__)
    advice = blame() or "Lower the learning rates, or set clip_norm."
    raise NotFiniteError(
        f"expected finite numbers, got {name} = {metrics[name][first[name]]} in iteration {step + first[name]}. "
        f"{advice} The last checkpoint is from before."
    )
