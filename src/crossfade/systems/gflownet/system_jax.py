"""A GFlowNet as the trainers see it, JAX side. Twin: system_torch.py."""

from ...algos.gflownet.config import GFlowNetConfig
from . import continuous_jax, discrete_jax


def make_system(config: GFlowNetConfig) -> continuous_jax.System | discrete_jax.System:
    """The system of a config: objects built by discrete actions, or points reached by continuous moves."""
    return continuous_jax.System(config) if config.continuous else discrete_jax.System(config)
