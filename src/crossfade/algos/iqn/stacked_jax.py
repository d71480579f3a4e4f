"""All models of IQN and their optimisers as arrays with an axis of models, trained side by side; in JAX.

In torch models are trained one after the other. A device holds runs of models: one of its own, and one of those that
all devices train together, each by its part of a batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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

Tree = TypeVar("Tree")
TOLD = ("loss", "q", "error", "learned")
"""What an update tells."""
ROWS = 128
"""Transitions that a gradient is computed from at once."""


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
    batch = batch._replace(transitions=own_runs(batch.transitions, config))
    runs, info = update_own(own_runs(stacked, config), batch, config)
    return whole(runs, config), info


def update_own(runs: list[Stacked], batch: Batch, config: IQNConfig) -> tuple[list[Stacked], Info]:
    """`update_stacked` of this device's runs of models; those of the batch are its transitions."""
    nothing = {key: jnp.zeros((), config.dtype) for key in TOLD}
    learn = lambda runs: _learn(runs, batch, config)
    copy = lambda runs: [run._replace(models=_copied(run.models, batch.copy)) for run in runs]
    return jax.lax.cond(batch.ready, learn, lambda runs: (copy(runs), nothing), runs)


def local_networks(runs: list[Stacked], config: IQNConfig) -> list[Network]:
    """The local network of every model, everywhere."""
    own, *shared = (run.models.local for run in runs)
    if config.own_agents not in (0, config.agents):
        own = sharing.gather(own, config.devices)
    rows = lambda stack: range(len(jax.tree.leaves(stack)[0]))
    return [jax.tree.map(lambda x, k=k: x[k], stack) for stack in (own, *shared) for k in rows(stack)]


def runs_of(config: IQNConfig) -> list[tuple[int | Array, int]]:
    """The agents that a device trains, as the first and the number of each run of them.

    It has its own, if it has any; then come those that all devices train, each by its part of their batches.
    """
    own = config.own_agents
    found = [(sharing.number(config.devices) * own, own), (own * config.devices, config.agents - own * config.devices)]
    return [(first, n) for first, n in found if n]


def own_runs(tree: Tree, config: IQNConfig) -> list[Tree]:
    """This device's runs of arrays with an axis of agents, or of models, in front."""
    if config.own_agents in (0, config.agents):
        return [tree]
    cut = jax.lax.dynamic_slice_in_dim
    return [jax.tree.map(lambda x, first=first, n=n: cut(x, first, n), tree) for first, n in runs_of(config)]


def whole(runs: list[Tree], config: IQNConfig) -> Tree:
    """The reverse of `own_runs`, everywhere."""
    if config.own_agents in (0, config.agents):
        return runs[0]
    own, *shared = runs
    gathered = sharing.gather(own, config.devices)
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), gathered, *shared)


def _learn(runs: list[Stacked], batch: Batch, config: IQNConfig) -> tuple[list[Stacked], Info]:
    shared = [False] * bool(config.own_agents) + [True] * config.shares_batches
    rates_of = own_runs(jnp.array(rates(config), config.dtype), config)
    given = zip(runs, batch.transitions, rates_of, shared, strict=True)
    found = [_learn_run(*one, batch.copy, config) for one in given]
    everywhere = lambda info, one: info if one else sharing.total(info, config.devices)
    sums = [everywhere(info, one) for (_, info), one in zip(found, shared, strict=True)]
    info = jax.tree.map(lambda *columns: sum(columns) / config.n_models, *sums)
    return [run for run, _ in found], info | {"learned": jnp.ones((), config.dtype)}


def _learn_run(
    run: Stacked,
    transitions: Transitions,
    lr: Float[Array, " models"],
    shared: bool,
    copy: Bool[Array, ""],
    config: IQNConfig,
) -> tuple[Stacked, Info]:
    """A step of some models, and the sums over them of what to log; `shared` if each device has its part of a batch."""
    # Targets are copied where they are read, twice: to write them would be one more pass over all parameters.
    separate = config.model_of == tuple(range(config.agents))

    def member(given: tuple[Array, Transitions]) -> tuple[Network, Info]:
        number, transitions = given
        model = jax.tree.map(lambda array: array[number], run.models)
        return _gradient(_copied(model, copy), transitions, config)

    def mean(column: Array) -> Array:
        members = [np.array(config.members(number)) for number in range(config.n_models)]
        return jnp.stack([column[own].mean(0) for own in members])

    numbers = jnp.arange(len(lr)) if separate else jnp.array(config.model_of)
    found = _each(member, (numbers, _part(transitions, config) if shared else transitions), config)
    found = found if separate else jax.tree.map(mean, found)
    gradients, infos = _mean_over_parts(found, config) if shared else found
    step = lambda own, gradient, rate: _step(own._replace(models=_copied(own.models, copy)), gradient, rate, config)
    return jax.vmap(step)(run, gradients, lr), {key: column.sum() for key, column in infos.items()}


def _copied(model: Model, copy: Bool[Array, ""]) -> Model:
    """The model, its target network a copy of the local one if so told."""
    return Model(model.local, jax.tree.map(lambda a, b: jnp.where(copy, a, b), model.local, model.target))


def _part(transitions: Transitions, config: IQNConfig) -> Transitions:
    """This device's part of every agent's transitions; the noise is that of all of them."""
    own = sharing.part(transitions._replace(fractions=None, noise=None), config.devices, 1)
    return own._replace(fractions=sharing.part(transitions.fractions, config.devices, 2), noise=transitions.noise)


def _mean_over_parts(tree: PyTree, config: IQNConfig) -> PyTree:
    """The mean over the devices, each of which has the mean over its part of a batch."""
    return jax.tree.map(lambda x: x / config.devices, sharing.total_of_large(tree, config.devices))


def _gradient(model: Model, transitions: Transitions, config: IQNConfig) -> tuple[Network, Info]:
    """The gradient of one agent's loss with respect to the local network, and what to log."""

    def of_part(part: Transitions) -> tuple[Network, Info]:
        return jax.grad(lambda local: loss(Model(local, model.target), part, config), has_aux=True)(model.local)

    n = passes(len(transitions.action))
    if n == 1:
        return of_part(transitions)
    cut = lambda x, axis=0: jnp.moveaxis(x.reshape(*x.shape[:axis], n, -1, *x.shape[axis + 1 :]), axis, 0)
    parts = jax.tree.map(cut, transitions._replace(fractions=None, noise=None))
    parts = parts._replace(fractions=cut(transitions.fractions, 1))
    add = lambda total, part: (jax.tree.map(jnp.add, total, of_part(part._replace(noise=transitions.noise))), None)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_part, transitions))
    return jax.tree.map(lambda x: x / n, jax.lax.scan(add, nothing, parts)[0])


def passes(batch: int) -> int:
    """How many equal parts a batch is learned from in, one after the other: one, unless it is large and has such parts.

    What the passes of a large part write for its gradient does not stay in the cache.
    """
    if batch <= ROWS:
        return 1
    return next((n for n in range(-(-batch // ROWS), 2 * batch // ROWS + 1) if batch % n == 0), 1)


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
    return jax.lax.map(function, xs)
