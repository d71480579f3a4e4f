"""Robots that walk: models read from MJCF, two physics and an environment, each in NumPy and in JAX.

Importing this package imports neither a framework nor MuJoCo nor Gymnasium.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .engines import Engine as Engine, make_engine as make_engine
    from .gymnasium_env import RobotEnv as RobotEnv
    from .mjcf import load as load
    from .model import (
        Base as Base,
        Body as Body,
        Foot as Foot,
        Frames as Frames,
        Link as Link,
        RobotModel as RobotModel,
        Variation as Variation,
    )
    from .params import RobotParams as RobotParams

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "Base": "model",
        "Body": "model",
        "Engine": "engines",
        "Foot": "model",
        "Frames": "model",
        "Link": "model",
        "RobotEnv": "gymnasium_env",
        "RobotModel": "model",
        "RobotParams": "params",
        "Variation": "model",
        "load": "mjcf",
        "make_engine": "engines",
    },
)
