"""A GFlowNet as the trainers see it, torch side. Twin: system_jax.py."""

from ...algos.gflownet.config import GFlowNetConfig
from . import continuous_torch, discrete_torch


def make_system(config: GFlowNetConfig) -> continuous_torch.System | discrete_torch.System:
    """The system of a config: objects built by discrete actions, or points reached by continuous moves."""
    return continuous_torch.System(config) if config.continuous else discrete_torch.System(config)
