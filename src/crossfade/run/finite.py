"""Training must stay among the finite numbers. Framework-free."""

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import RewardError


def check_finite(metrics: Mapping[str, np.ndarray], step: int, blame: Callable[[], str] = lambda: "") -> None:
    """Raise unless every metric of the iterations from `step` on is finite, naming the first that is not and its step.

    `blame` is asked only then: a sentence on who is at fault, such as an object with a reward that is not a number.
    """
    lost = {name: np.flatnonzero(~np.isfinite(values)) for name, values in metrics.items()}
    first = {name: int(where[0]) for name, where in lost.items() if len(where)}
    if not first:
        return
    name = min(first, key=first.__getitem__)
    cause = blame()
    advice = (
        f"The reward is at fault: {cause}. It must be a finite number above 0; `crossfade doctor` examines one's own."
        if cause
        else "All rewards that were looked at are finite: lower the learning rates, or set clip_norm."
    )
    raise RewardError(
        f"expected finite numbers, got {name} = {metrics[name][first[name]]} in iteration {step + first[name]}. "
        f"{advice} The last checkpoint is from before."
    )
