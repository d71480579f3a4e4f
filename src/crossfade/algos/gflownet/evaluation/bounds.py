"""What trajectories say about a policy where its states are too many to list: bounds on log Z, and log p of an object.

Along a trajectory tau that ends in x, ratio(tau) = sum log P_F - sum log P_B. Then log R(x) - ratio(tau) has mean ELBO
<= log Z over the policy's own trajectories, mean EUBO >= log Z over trajectories built backwards from objects of the
target, and both are log Z for a perfect policy: their gap certifies the policy from two sides. And p(x), the
probability that the policy makes x, is the mean of exp(ratio) over trajectories built backwards from x.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Shaped

from ....random import random_numpy as random
from ..batch import Trajectories

ROOM = 16_000_000
"""Numbers that one array of a chunk of trajectories may hold."""


class TrajectoryRatios(NamedTuple):
    """Trajectories, by what matters of them."""

    x: Shaped[np.ndarray, "n d"]
    log_reward: Float64[np.ndarray, " n"]
    ratio: Float64[np.ndarray, " n"]
    """sum log P_F - sum log P_B."""

    @property
    def log_weight(self) -> Float64[np.ndarray, " n"]:
        """log R - ratio: log Z, were the policy perfect."""
        return self.log_reward - self.ratio


def forward(system: Any, policy: Any, n: int, key: np.ndarray) -> TrajectoryRatios:
    """`n` trajectories of the policy itself, without exploration."""
    rows = chunk(system, n)
    found = []
    for i in range(-(-n // rows)):
        trajectories = system.sample(policy, random.fold_in(key, i), rows, explore=False)
        found.append(_trajectory_ratios(system, policy, trajectories))
    return _joined(found, n)


def backward(system: Any, policy: Any, x: Int32[np.ndarray, "n d"], key: np.ndarray) -> TrajectoryRatios:
    """A trajectory of the backward policy from each of these objects."""
    n, rows = len(x), chunk(system, len(x))
    padded = np.concatenate([x, np.repeat(x[-1:], -n % rows, axis=0)])  # chunks of one size compile once
    found = []
    for i, part in enumerate(np.split(padded, len(padded) // rows)):
        found.append(_trajectory_ratios(system, policy, system.sample_back(policy, part, random.fold_in(key, i))))
    return _joined(found, n)


def bounds(forward: TrajectoryRatios, backward: TrajectoryRatios | None) -> dict[str, float]:
    """ELBO, EUBO and their gap with standard errors; without objects of the target only the ELBO."""
    found = _mean("elbo", forward.log_weight)
    if backward is None:
        return found
    found |= _mean("eubo", backward.log_weight)
    found["gap"] = found["eubo"] - found["elbo"]
    found["gap_se"] = float(np.hypot(found["elbo_se"], found["eubo_se"]))
    return found


def chunk(system: Any, n: int) -> int:
    """How many trajectories to ask for at once."""
    params = system.config.env
    widest = max(params.n_actions, params.n_parents, params.observation_dim)
    return max(1, min(n, 1000, ROOM // ((params.max_steps + 1) * widest)))


def _trajectory_ratios(system: Any, policy: Any, trajectories: Trajectories) -> TrajectoryRatios:
    terms = system.terms(policy, trajectories)
    ratio = np.asarray(terms.log_pf, np.float64).sum(0) - np.asarray(terms.log_pb, np.float64).sum(0)
    return TrajectoryRatios(np.asarray(trajectories.x[-1], np.int32), np.asarray(terms.log_reward, np.float64), ratio)


def _joined(found: list[TrajectoryRatios], n: int) -> TrajectoryRatios:
    return TrajectoryRatios(*(np.concatenate(parts)[:n] for parts in zip(*found, strict=True)))


def _mean(name: str, values: Float64[np.ndarray, " n"]) -> dict[str, float]:
    """A mean and its standard error."""
    spread = values.std(ddof=1) if len(values) > 1 else np.nan
    return {name: float(values.mean()), f"{name}_se": float(spread / np.sqrt(len(values)))}
