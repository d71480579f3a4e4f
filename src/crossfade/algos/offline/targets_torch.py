"""Which targets follow in an update, and what a policy is made of, in torch; in JAX it is part of the compiled step."""

from typing import Any

from .batch import Batch
from .config import OfflineConfig
from .modules import Module
from .networks_torch import Modules


def followed(batch: Batch, config: OfflineConfig) -> tuple[str, ...]:
    """The modules whose targets follow them in this update."""
    agent = config.agent
    if agent.averages_when_full and batch.phase == "finetuning" and not bool(batch.full):
        return ()
    return agent.followed(batch.phase, config.encoding is not None)


def specifications(policy: Modules) -> dict[str, Module]:
    """What the modules were made from."""
    specs: dict[str, Any] = {name: module.spec for name, module in policy.items()}
    return specs
