"""Which runs can share their trajectories among devices."""

from ...algos.gflownet.config import GFlowNetConfig
from ...errors import UsageError


def check_devices(config: GFlowNetConfig) -> None:
    """UsageError unless every device gets the same number of trajectories of each kind."""
    if config.devices == 1:
        return
    if config.objective == "expected":
        raise UsageError(
            f"devices: expected 1 with objective=expected, which samples no trajectories to share, got "
            f"{config.devices}. Leave devices out, or use objective=sampled."
        )
    for name in ("batch_size", "replay_batch", "data_batch"):
        if (n := getattr(config, name)) % config.devices:
            raise UsageError(
                f"devices: expected a divisor of {name} = {n}, got {config.devices}. Change either, so that every "
                f"device gets the same number of trajectories."
            )
