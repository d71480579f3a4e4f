"""The loss of an offline agent: the sum of its terms, in JAX. Twin: losses_torch.py."""

from importlib import import_module
from types import ModuleType

import jax
import jax.numpy as jnp

from .batch import Batch
from .config import OfflineConfig
from .networks_jax import Modules
from .terms_jax import Info, Scalar


def loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """The sum of the terms of the batch's phase, and what to log: each term by its name, and `<term>/<key>` of what it
    tells.

    In fine-tuning the terms `when_full` count in full updates only; else they and what they tell are 0.
    """
    agent = _agent(config)
    batch = agent.prepare(modules, batch, config)
    values, info = {}, {}
    for name in config.agent.terms[batch.phase]:
        sometimes = batch.phase == "finetuning" and name in config.agent.when_full
        values[name], told = (_if_full if sometimes else _always)(agent, name, modules, batch, config)
        info |= {name: values[name]} | {f"{name}/{key}": value for key, value in told.items()}
    total = jnp.stack(list(values.values())).sum()
    return total, {"loss": total, **info}


def terms(modules: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Scalar]:
    """Each term of the batch's phase by itself, for the detach matrix."""
    agent = _agent(config)
    batch = agent.prepare(modules, batch, config)
    return {name: _always(agent, name, modules, batch, config)[0] for name in config.agent.terms[batch.phase]}


def _agent(config: OfflineConfig) -> ModuleType:
    return import_module(config.agent.jax)


def _always(agent: ModuleType, name: str, modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    return getattr(agent, name)(modules, batch, config)


def _if_full(
    agent: ModuleType, name: str, modules: Modules, batch: Batch, config: OfflineConfig
) -> tuple[Scalar, Info]:
    """The term and what it tells in full updates, else zeros: one program for both."""
    term = lambda modules: _always(agent, name, modules, batch, config)
    nothing = jax.tree.map(lambda told: jnp.zeros(told.shape, told.dtype), jax.eval_shape(term, modules))
    return jax.lax.cond(batch.full, term, lambda _: nothing, modules)
