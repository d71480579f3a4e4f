"""Which states the networks are evaluated on, decided by cost."""

from typing import Any, Literal

from ....errors import UsageError
from ..config import GFlowNetConfig

Execution = Literal["table", "dense", "unique"]


def resolve(config: GFlowNetConfig, env: Any) -> Execution:
    """The config's choice, or the cheapest one.

    A table costs one evaluation per state of the environment, a dense batch one per step and trajectory. In one
    compiled program telling visited states apart costs little, and most are visited often or are padding.
    """
    visited = (env.max_steps + 1) * (config.batch_size + config.replay_batch + config.data_batch)
    if config.loss == "mdb" and not env.terminating:
        raise UsageError(f"loss=mdb: expected an environment where every object may stop, got {env}. Use loss=db.")
    if config.execution == "table" and env.n_states is None:
        raise UsageError(f"execution=table: {env} has too many states to number. Use execution=dense or unique.")
    if config.execution != "auto":
        return config.execution
    if env.n_states is not None and env.n_states <= visited:
        return "table"
    return "unique" if config.mode == "jax_full" else "dense"
