"""Distortions of quantile fractions, by which an agent that acts weighs bad and good outcomes. Twin: risk_jax.py."""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from .config import Risk

_SATURATED = 100.0  # beyond it eta changes nothing more of wang: Phi is 0 or 1 in float64


def distort(fractions: Float[np.ndarray, "*n"], risk: Risk, level: int | float) -> Float[np.ndarray, "*n"]:
    """The fractions by which one agent acts (Dabney et al. 2018, section 3.1), in the dtype of those given.

    With eta the level: neutral tau; cvar eta tau; wang Phi(Phi^-1(tau) + eta); power tau^(1 / (1 + |eta|)), and for
    negative eta 1 - (1 - tau)^(1 / (1 + |eta|)).
    """
    if risk == "neutral":
        return fractions
    if risk == "cvar":
        return level * fractions
    if risk == "wang":
        return ndtr(ndtri(fractions) + min(max(level, -_SATURATED), _SATURATED))
    exponent = 1 / (1 + abs(level))
    return fractions**exponent if level >= 0 else 1 - (1 - fractions) ** exponent
