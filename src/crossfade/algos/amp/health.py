"""How a discriminator is doing, and which features tell the policy from the reference. Framework-free."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

LEAST, MOST = 0.55, 0.75
"""Accuracies between which a discriminator is well."""
Health = Literal["blind", "healthy", "winning"]


class Distance(NamedTuple):
    """How far a feature of the policy is from that of the reference."""

    feature: str
    ks: float  # Kolmogorov-Smirnov distance, 0 to 1
    reference: float  # means
    policy: float


def health(accuracy: float) -> Health:
    """What an accuracy says: `blind` below LEAST, where the policy imitates well or features do not tell; `winning`
    above MOST, where rewards go to 0."""
    return "blind" if accuracy < LEAST else "winning" if accuracy > MOST else "healthy"


def gauge(accuracy: float, width: int = 20) -> str:
    """The accuracy as a bar from 0.5 to 1, with its place in words."""
    filled = round(width * min(max(2 * accuracy - 1, 0.0), 1.0))
    return f"[{'#' * filled}{'.' * (width - filled)}] {accuracy:.2f} {health(accuracy)}"


def ks_distance(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " m"]) -> float:
    """sup_x |F_a(x) - F_b(x)| of the empirical distribution functions."""
    places = np.concatenate([a, b])
    share = lambda sample: np.searchsorted(np.sort(sample), places, side="right") / len(sample)
    return float(np.abs(share(a) - share(b)).max())


def feature_distances(
    reference: Float[np.ndarray, "n f"], policy: Float[np.ndarray, "m f"], names: Sequence[str]
) -> list[Distance]:
    """The distance of every feature, the largest first: one that is in other units on one side stands at the top."""
    found = [
        Distance(name, ks_distance(a, b), float(a.mean()), float(b.mean()))
        for name, a, b in zip(names, reference.T, policy.T, strict=True)
    ]
    return sorted(found, key=lambda distance: -distance.ks)


def feature_report(distances: Sequence[Distance], most: int = 10) -> str:
    """The largest distances as a table."""
    width = max((len(distance.feature) for distance in distances[:most]), default=0)
    rows = [f"{d.feature:<{width}}  {d.ks:5.2f}  {d.reference:10.3f}  {d.policy:10.3f}" for d in distances[:most]]
    return "\n".join([f"{'feature':<{width}}  {'KS':>5}  {'reference':>10}  {'policy':>10}", *rows])
