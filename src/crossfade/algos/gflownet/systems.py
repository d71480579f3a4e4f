"""Which system a config asks for: objects built by discrete actions, or points reached by continuous moves."""

from typing import Any

from .config import GFlowNetConfig


def torch_system(config: GFlowNetConfig) -> Any:
    """The torch side."""
    if config.continuous:
        from .continuous.system_torch import System
    else:
        from .system_torch import System
    return System(config)


def jax_system(config: GFlowNetConfig) -> Any:
    """The JAX side."""
    if config.continuous:
        from .continuous.system_jax import System
    else:
        from .system_jax import System
    return System(config)
