"""The loss of an offline agent: the sum of its terms, in JAX. Twin: losses_torch.py."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .batch import Batch
from .config import OfflineConfig
from .networks_jax import Modules
from .terms_jax import Info, Scalar, frozen


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
    """The term and what it tells in full updates, else zeros: one program for both.

    Its gradient is computed together with it, so that beside it nothing needs to be kept, or set to 0, for later: in
    ReBRAC that alone took a third of an update without the actor. What it tells has no gradient.
    """
    reached = config.agent.reached(config.spec, config.encoding is not None)[batch.phase][name]
    learning = {key: modules[key] for key in reached}
    others = frozen({key: module for key, module in modules.items() if key not in reached})
    term = lambda learning, others, batch: _always(agent, name, {**learning, **others}, batch, config)

    @jax.custom_vjp
    def value(learning: Modules, others: Modules, batch: Batch) -> tuple[Scalar, Info]:
        return _or_zeros(batch.full, term, learning, others, batch)

    def forward(learning: Modules, others: Modules, batch: Batch) -> tuple[tuple[Scalar, Info], Modules]:
        return _or_zeros(batch.full, jax.value_and_grad(term, has_aux=True), learning, others, batch)

    def backward(gradient: Modules, factors: tuple[Scalar, Info]) -> tuple[Modules, None, None]:
        return jax.tree.map(lambda leaf: factors[0] * leaf, gradient), None, None

    value.defvjp(forward, backward)
    return value(learning, others, batch)


def _or_zeros(condition: Bool[Array, ""] | bool, function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """What the function gives, or as many zeros."""
    shapes = jax.eval_shape(function, *arguments)
    zeros = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.cond(condition, function, zeros, *arguments)
