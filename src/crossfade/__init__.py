"""crossfade: move reinforcement-learning systems between PyTorch and JAX, one component at a time, with proof.

Importing this package imports neither torch nor jax; a subpackage loads what it needs on first use.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import bridge as bridge, checkpoint as checkpoint, nn as nn, parity as parity, random as random
    from .bridge import accelerate as accelerate

__all__ = ["accelerate", "bridge", "checkpoint", "nn", "parity", "random"]


def __getattr__(name: str):
    if name == "accelerate":
        return importlib.import_module(f"{__name__}.bridge").accelerate
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
