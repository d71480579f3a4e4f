"""The loss of an offline agent: the sum of its terms, in torch. Twin: losses_jax.py."""

from .batch import Batch
from .config import OfflineConfig
from .dispatch_torch import functions, summed
from .networks_torch import Modules
from .terms_torch import Info, Scalar


def loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """The sum of the terms of the batch's phase, and what to log: each term by its name, and `<term>/<key>` of what it
    tells.

    In fine-tuning the terms `when_full` count in full updates only; else they and what they tell are 0.
    """
    return summed(functions(config), modules, batch, config)


def terms(modules: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Scalar]:
    """Each term of the batch's phase by itself, for the detach matrix."""
    own = functions(config)
    prepared = own.prepare(modules, batch, config)
    return {name: getattr(own, name)(modules, prepared, config)[0] for name in config.agent.terms[batch.phase]}
