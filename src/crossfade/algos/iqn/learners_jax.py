"""All models of IQN with their optimisers, trained one after the other or side by side; in JAX.

In torch models are trained one after the other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

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
AT_HAND = 2**19
"""Numbers of a layer, 2 MB in float32, beyond which a batch is learned from in parts. On a CPU with a cache of 1 MB for
each core the gradient of 256 transitions takes 1.25 times as long as in halves; quarters gain nothing more."""


class Learner(NamedTuple):
    """A model and what its optimiser remembers."""

    model: Model
    opt_state: PyTree
    """As the optimiser of one network, without a mask, has it."""


Learners = tuple[Learner, ...]
"""Those of all models. Apart: in one array for all, XLA would copy each model out of it and back at every step."""


def clipped_adam(config: IQNConfig, rate: float | Float[Array, ""]) -> optax.GradientTransformation:
    """Adam with this learning rate, behind clipping to `config.clip_norm`."""
    adam = optax.adam(rate)
    return adam if config.clip_norm is None else optax.chain(clip_by_global_norm(config.clip_norm), adam)


def split(policy: Policy, opt_states: dict[str, PyTree], config: IQNConfig) -> Learners:
    """Every model with the state of its optimiser.

    A state with a mask has the arrays of one without, in the same order.
    """
    plain = jax.tree.structure(eqx.filter_eval_shape(clipped_adam(config, 0.0).init, policy.models[0].local))
    state = lambda own: jax.tree.unflatten(plain, jax.tree.leaves(opt_states[own]))
    return tuple(Learner(model, state(own)) for own, model in zip(names(config), policy.models, strict=True))


def join(learners: Learners, opt_states: dict[str, PyTree], config: IQNConfig) -> tuple[Policy, dict[str, PyTree]]:
    """The reverse of `split`; of `opt_states` the structure alone counts."""
    state = lambda own, learner: jax.tree.unflatten(
        jax.tree.structure(opt_states[own]), jax.tree.leaves(learner.opt_state)
    )
    states = {own: state(own, learner) for own, learner in zip(names(config), learners, strict=True)}
    return Policy(tuple(learner.model for learner in learners)), states


def update_learners(learners: Learners, batch: Batch, config: IQNConfig) -> tuple[Learners, Info]:
    """One gradient step of every model, and the mean over the models of what to log; `learned` is 0 if not ready.

    Target networks are copied first if the batch says so, ready or not, and follow after the step if they are soft.
    """
    local, target = ([getattr(learner.model, name) for learner in learners] for name in ("local", "target"))
    target = _if(batch.copy, lambda _: local, target)
    learners = tuple(
        learner._replace(model=Model(*pair)) for learner, *pair in zip(learners, local, target, strict=True)
    )
    nothing = {key: jnp.zeros((), config.dtype) for key in TOLD}
    learn = lambda now: _learn(now[0], _part(batch.transitions, config), config)
    return _if(batch.ready, learn, (learners, nothing))


def _if(condition: Bool[Array, ""], function: Callable[[Any], Any], value: Any) -> Any:
    """`function(value)` if the condition holds, else `value`.

    As a loop of one turn or none, which works in place: `lax.cond` copies what it hands on.
    """
    return jax.lax.fori_loop(0, jnp.asarray(condition, jnp.int32), lambda _, value: function(value), value)


def _learn(learners: Learners, transitions: Transitions, config: IQNConfig) -> tuple[Learners, Info]:
    lr = [jnp.asarray(rate, config.dtype) for rate in rates(config)]
    batches = [jax.tree.map(lambda column, k=agent: column[k], transitions) for agent in range(config.agents)]
    step = partial(_step, config=config)
    gradient = lambda model, batch: _gradient(model, batch, config)
    if config.n_models == config.agents:

        def one(own: Learner, batch: Transitions, rate: Float[Array, ""]) -> tuple[Learner, Info]:
            found, info = _mean_over_parts(gradient(own.model, batch), config)
            return step(own, found, rate), info

        order = [config.members(number)[0] for number in range(config.n_models)]
        rows = zip(learners, [batches[agent] for agent in order], lr, strict=True)
        learned, infos = zip(*_each(one, list(rows), config), strict=True)
    else:
        rows = [(learners[number].model, batch) for number, batch in zip(config.model_of, batches, strict=True)]
        found = _each(gradient, rows, config)
        members = [[found[agent] for agent in config.members(number)] for number in range(config.n_models)]
        gradients, infos = zip(*_mean_over_parts([_mean(own) for own in members], config), strict=True)
        learned = [step(*own) for own in zip(learners, gradients, lr, strict=True)]
    return tuple(learned), _mean(infos) | {"learned": jnp.ones((), config.dtype)}


def _mean(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *arrays: sum(arrays) / len(arrays), *trees)


def _part(transitions: Transitions, config: IQNConfig) -> Transitions:
    """This device's part of every agent's transitions; the noise is that of all of them."""
    if not config.shares_batches:
        return transitions
    own = sharing.part(transitions._replace(fractions=None, noise=None), config.devices, 1)
    return own._replace(fractions=sharing.part(transitions.fractions, config.devices, 2), noise=transitions.noise)


def _mean_over_parts(tree: PyTree, config: IQNConfig) -> PyTree:
    """The mean over the devices, each of which has the mean over its part of a batch."""
    return sharing.mean(tree, config.devices) if config.shares_batches else tree


def _gradient(model: Model, transitions: Transitions, config: IQNConfig) -> tuple[Network, Info]:
    """The gradient of one agent's loss with respect to the local network, and what to log."""

    def of(own: Transitions) -> tuple[Network, Info]:
        return jax.grad(lambda local: loss(Model(local, model.target), own, config), has_aux=True)(model.local)

    rows = len(transitions.action)
    while rows * config.quantiles * config.hidden > AT_HAND and rows % 2 == 0:
        rows //= 2
    n = len(transitions.action) // rows
    if n == 1:
        return of(transitions)
    cut = lambda x, axis: jnp.moveaxis(x.reshape(*x.shape[:axis], n, rows, *x.shape[axis + 1 :]), axis, 0)
    columns = jax.tree.map(lambda x: cut(x, 0), transitions._replace(fractions=None, noise=None))
    part = lambda own, fractions: of(own._replace(fractions=fractions, noise=transitions.noise))
    add = lambda total, given: (jax.tree.map(jnp.add, total, part(*given)), None)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of, transitions))
    total, _ = jax.lax.scan(add, nothing, (columns, cut(transitions.fractions, 1)))
    return jax.tree.map(lambda x: x / n, total)


def _step(own: Learner, gradient: PyTree, rate: Float[Array, ""], config: IQNConfig) -> Learner:
    """One model after a step of its optimiser."""
    updates, opt_state = clipped_adam(config, rate).update(gradient, own.opt_state)
    local = eqx.apply_updates(own.model.local, updates)
    target = ema(own.model.target, local, config.tau) if config.follows else own.model.target
    return Learner(Model(local, target), opt_state)


def _each(function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], config: IQNConfig) -> list[Any]:
    """The function of the arguments in every row."""
    if config.agent_axis == "unroll":
        return [function(*row) for row in rows]
    n, xs = len(rows), jax.tree.map(lambda *column: jnp.stack(column), *rows)
    if config.agent_axis == "vmap":
        found = jax.vmap(function)(*xs)
    elif config.agent_axis == "map":
        found = jax.lax.map(lambda row: function(*row), xs)
    else:
        padded = -(-n // config.devices) * config.devices
        own = sharing.part(jnp.arange(padded) % n, config.devices)
        mine = jax.lax.map(lambda row: function(*row), jax.tree.map(lambda x: x[own], xs))
        found = sharing.gather(mine, config.devices)
    return [jax.tree.map(lambda x, k=k: x[k], found) for k in range(n)]
