"""Exponential moving averages of parameters, in torch. Twin: ema_jax.py."""

from torch import Tensor


def ema(average: dict[str, Tensor], online: dict[str, Tensor], rate: float) -> dict[str, Tensor]:
    """(1 - rate) average + rate online, array by array: the soft update of a target network (Polyak averaging)."""
    return {name: (1 - rate) * average[name] + rate * online[name] for name in average}
