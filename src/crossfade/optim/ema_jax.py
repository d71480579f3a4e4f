"""Exponential moving averages of parameters, in JAX. Twin: ema_torch.py."""

import jax
from jaxtyping import Array, Float, PyTree


def ema(average: PyTree, online: PyTree, rate: float | Float[Array, ""]) -> PyTree:
    """(1 - rate) average + rate online, array by array: the soft update of a target network (Polyak averaging)."""
    return jax.tree.map(lambda a, b: (1 - rate) * a + rate * b, average, online)
