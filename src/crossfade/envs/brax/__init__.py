"""Brax, both ways: a world of ours as one of its environments, and any of its environments as a world.

Importing this package imports neither JAX nor Brax.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .env_jax import WorldEnv as WorldEnv, train as train
    from .params import BraxParams as BraxParams

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "BraxParams": "params",
        "WorldEnv": "env_jax",
        "train": "env_jax",
    },
)
