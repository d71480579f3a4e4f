"""Environments, each written twice (`<env>_numpy.py` beside `<env>_jax.py`) from one framework-free `params.py`."""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .enumeration import Graph as Graph, enumerate_states as enumerate_states
    from .registry import CONTINUOUS as CONTINUOUS, ENVS as ENVS, make as make, params_class as params_class

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "CONTINUOUS": "registry",
        "ENVS": "registry",
        "Graph": "enumeration",
        "enumerate_states": "enumeration",
        "make": "registry",
        "params_class": "registry",
    },
)
