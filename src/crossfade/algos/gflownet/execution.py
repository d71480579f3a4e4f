"""Which states the networks are evaluated on, decided by cost."""

from typing import Any, Literal

from ...errors import UsageError
from .config import GFlowNetConfig

Execution = Literal["table", "dense", "unique"]


def resolve(config: GFlowNetConfig, env: Any) -> Execution:
    """The config's choice, or the cheaper one: a table costs one evaluation per state of the environment, a dense
    batch one per step and trajectory."""
    visited = (env.max_steps + 1) * config.batch_size
    if config.execution == "table" and env.n_states is None:
        raise UsageError(f"execution=table: {env} has too many states to number. Use execution=dense or unique.")
    if config.execution != "auto":
        return config.execution
    return "table" if env.n_states is not None and env.n_states <= visited else "dense"
