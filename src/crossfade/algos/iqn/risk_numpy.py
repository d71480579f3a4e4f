"""Attitudes to risk as distortions of the quantile fractions that agents act by, in NumPy. Twin: risk_jax.py.

Dabney et al. 2018, section 3.1. Fractions from 0 on and below 1 stay within [0, 1].
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from .config import IQNConfig, Risk

_SATURATED = 100.0  # beyond it eta changes nothing more of wang: Phi is 0 or 1 in float64


def distort(fractions: Float[np.ndarray, "*n"], risk: Risk, level: int | float) -> Float[np.ndarray, "*n"]:
    """The fractions by which an agent of this attitude acts, in the dtype of those given; eta is the level.

    neutral   tau
    cvar      eta tau
    wang      Phi(Phi^-1(tau) + eta)
    power     tau^(1 / (1 + |eta|)) if eta >= 0, 1 - (1 - tau)^(1 / (1 + |eta|)) otherwise
    """
    if risk == "neutral":
        return fractions
    if risk == "cvar":
        return level * fractions
    if risk == "wang":
        return ndtr(ndtri(fractions) + min(max(level, -_SATURATED), _SATURATED))
    exponent = 1 / (1 + abs(level))
    return fractions**exponent if level >= 0 else 1 - (1 - fractions) ** exponent


def distort_all(
    fractions: Float[np.ndarray, "*n agents quantiles"], config: IQNConfig
) -> Float[np.ndarray, "*n agents quantiles"]:
    """The fractions of all agents, each distorted by its own attitude."""
    attitudes = list(zip(config.each("risk"), config.each("risk_level"), strict=True))
    if len(set(attitudes)) == 1:
        return distort(fractions, *attitudes[0])
    return np.stack([distort(fractions[..., i, :], *attitude) for i, attitude in enumerate(attitudes)], axis=-2)
