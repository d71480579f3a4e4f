"""All models of IQN and their optimisers as arrays with an axis of models, trained side by side; in JAX.

In torch models are trained one after the other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from ...optim import sharing_jax as sharing
from ...optim.clipping_jax import clip_by_global_norm
from ...optim.ema_jax import ema
from .batch import Batch, Transitions
from .config import IQNConfig
from .losses_jax import Info, loss
from .networks_jax import Model, Network, Policy
from .optimizer import names, rates

TOLD = ("loss", "q", "error", "learned")
"""What an update tells."""


class Stacked(NamedTuple):
    """All models and what their optimisers remember, with an axis of models in front of every array."""

    models: Model
    opt_state: PyTree
    """As the optimiser of one network, without a mask, has it."""


def clipped_adam(config: IQNConfig, rate: float | Float[Array, ""]) -> optax.GradientTransformation:
    """Adam with this learning rate, behind clipping to `config.clip_norm`."""
    adam = optax.adam(rate)
    return adam if config.clip_norm is None else optax.chain(clip_by_global_norm(config.clip_norm), adam)


def stack(policy: Policy, opt_states: dict[str, PyTree], config: IQNConfig) -> Stacked:
    """Models and states of the optimisers, stacked.

    A state with a mask has the arrays of one without, in the same order.
    """
    columns = zip(*(jax.tree.leaves(opt_states[own]) for own in names(config)), strict=True)
    plain = jax.tree.structure(eqx.filter_eval_shape(clipped_adam(config, 0.0).init, policy.models[0].local))
    models = jax.tree.map(lambda *arrays: jnp.stack(arrays), *policy.models)
    return Stacked(models, jax.tree.unflatten(plain, [jnp.stack(column) for column in columns]))


def unstack(stacked: Stacked, policy: Policy, opt_states: dict[str, PyTree]) -> tuple[Policy, dict[str, PyTree]]:
    """The reverse of `stack`; of `policy` and `opt_states` the structure alone counts."""
    order = sorted(opt_states, key=lambda own: (len(own), own))  # JAX sorts a dictionary: model_10 before model_2
    at = lambda tree, number: [array[number] for array in jax.tree.leaves(tree)]
    models = tuple(
        jax.tree.unflatten(jax.tree.structure(model), at(stacked.models, number))
        for number, model in enumerate(policy.models)
    )
    states = {
        own: jax.tree.unflatten(jax.tree.structure(opt_states[own]), at(stacked.opt_state, number))
        for number, own in enumerate(order)
    }
    return Policy(models), states


def update_stacked(stacked: Stacked, batch: Batch, config: IQNConfig) -> tuple[Stacked, Info]:
    """One gradient step of every model, and the mean over the models of what to log; `learned` is 0 if not ready.

    Target networks are copied first if the batch says so, ready or not, and follow after the step if they are soft.
    """
    local, target = stacked.models.local, stacked.models.target
    target = jax.tree.map(lambda a, b: jnp.where(batch.copy, a, b), local, target)
    stacked = stacked._replace(models=Model(local, target))
    learn = lambda stacked: _learn(stacked, _part(batch.transitions, config), config)
    nothing = {key: jnp.zeros((), config.dtype) for key in TOLD}
    return jax.lax.cond(batch.ready, learn, lambda stacked: (stacked, nothing), stacked)


def _learn(stacked: Stacked, transitions: Transitions, config: IQNConfig) -> tuple[Stacked, Info]:
    lr = jnp.array(rates(config), config.dtype)
    separate = config.model_of == tuple(range(config.agents))
    if separate and not config.shares_batches:

        def both(given: tuple[Stacked, Transitions, Array]) -> tuple[Stacked, Info]:
            own, transitions, rate = given
            gradient, info = _gradient(own.models, transitions, config)
            return _step(own, gradient, rate, config), info

        stacked, infos = _each(both, (stacked, transitions, lr), config)
    else:

        def member(given: tuple[Array, Transitions]) -> tuple[Network, Info]:
            number, transitions = given
            model = jax.tree.map(lambda array: array[number], stacked.models)
            return _gradient(model, transitions, config)

        def mean(column: Array) -> Array:
            members = [np.array(config.members(number)) for number in range(config.n_models)]
            return jnp.stack([column[own].mean(0) for own in members])

        found = _each(member, (jnp.array(config.model_of), transitions), config)
        gradients, infos = _mean_over_parts(found if separate else jax.tree.map(mean, found), config)
        step = lambda own, gradient, rate: _step(own, gradient, rate, config)
        stacked = jax.vmap(step)(stacked, gradients, lr)
    info = {key: column.mean() for key, column in infos.items()}
    return stacked, info | {"learned": jnp.ones((), config.dtype)}


def _part(transitions: Transitions, config: IQNConfig) -> Transitions:
    """This device's part of every agent's transitions; the noise is that of all of them."""
    if not config.shares_batches:
        return transitions
    own = sharing.part(transitions._replace(fractions=None, noise=None), config.devices, 1)
    return own._replace(fractions=sharing.part(transitions.fractions, config.devices, 2), noise=transitions.noise)


def _mean_over_parts(tree: PyTree, config: IQNConfig) -> PyTree:
    """The mean over the devices, each of which has the mean over its part of a batch."""
    if not config.shares_batches:
        return tree
    return jax.tree.map(lambda x: x / config.devices, sharing.total_of_large(tree, config.devices))


def _gradient(model: Model, transitions: Transitions, config: IQNConfig) -> tuple[Network, Info]:
    """The gradient of one agent's loss with respect to the local network, and what to log."""
    of_local = lambda local: loss(Model(local, model.target), transitions, config)
    gradient, info = jax.grad(of_local, has_aux=True)(model.local)
    return gradient, info


def _step(own: Stacked, gradient: PyTree, rate: Float[Array, ""], config: IQNConfig) -> Stacked:
    """One model after a step of its optimiser."""
    updates, opt_state = clipped_adam(config, rate).update(gradient, own.opt_state)
    local = eqx.apply_updates(own.models.local, updates)
    target = ema(own.models.target, local, config.tau) if config.follows else own.models.target
    return Stacked(Model(local, target), opt_state)


def _each(function: Callable[[Any], Any], xs: PyTree, config: IQNConfig) -> Any:
    """The function of every row of `xs`, stacked."""
    n = len(jax.tree.leaves(xs)[0])
    rows = lambda at: jax.tree.map(lambda x: x[at], xs)
    if config.agent_axis == "vmap":
        return jax.vmap(function)(xs)
    if config.agent_axis == "unroll":
        return jax.tree.map(lambda *found: jnp.stack(found), *(function(rows(i)) for i in range(n)))
    if config.agent_axis == "map":
        return jax.lax.map(function, xs)
    padded = -(-n // config.devices) * config.devices
    own = sharing.part(jnp.arange(padded) % n, config.devices)
    return jax.tree.map(lambda x: x[:n], sharing.gather(jax.lax.map(function, rows(own)), config.devices))
