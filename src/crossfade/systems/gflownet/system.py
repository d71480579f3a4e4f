"""Which system a config asks for: objects built by discrete actions, or points reached by continuous moves."""

from typing import Any

from ...algos.gflownet.config import GFlowNetConfig
from ...errors import NoCounterpart


def torch_system(config: GFlowNetConfig) -> Any:
    """The torch side."""
    if config.mode == "jax_minimal" and config.clip_norm is not None:
        raise NoCounterpart(
            "clip_norm: bridge.Step clips all parameters together, this system only some of them. Leave clip_norm "
            "at none in mode=jax_minimal, or use another mode."
        )
    if config.continuous:
        from .continuous_torch import System
    else:
        from .discrete_torch import System
    return System(config)


def jax_system(config: GFlowNetConfig) -> Any:
    """The JAX side."""
    if config.continuous:
        from .continuous_jax import System
    else:
        from .discrete_jax import System
    return System(config)
