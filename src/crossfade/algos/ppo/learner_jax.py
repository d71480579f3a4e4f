"""Making an actor-critic and updating it on a rollout, in JAX. Twin: learner_torch.py."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from ...envs.world import ActionSpace, Discrete
from ...nn.categorical_jax import Categorical
from ...nn.distribution import Distribution
from ...nn.gaussian_jax import Gaussian
from ...nn.layers_jax import filled
from ...optim import sharing_jax as sharing
from ...optim.clipping_jax import clip_by_global_norm
from ...optim.masking_jax import only
from .architecture import Architecture
from .batch import Minibatch, Rollout
from .config import PPOConfig, continuous
from .gae_jax import estimates, normalized
from .losses_jax import loss
from .network_jax import ActorCritic

Info = dict[str, Array]
Updated = tuple[ActorCritic, PyTree, Info]
_CACHE = 2**20  # bytes of a core's second cache
_SMALL = 2**14
"""Parameters of a network whose optimiser is many tiny operations. On a longer vector XLA shares each operation among
its threads, which then takes five times as long: 128 x 128 apart on two devices, 15.7 ms an update, unpacked 12.2."""


class _Alike(optax.GradientTransformation):
    """An optimiser to which it is the same whether parameters are many arrays or one vector."""


def make_actions(config: PPOConfig, space: ActionSpace) -> Distribution:
    """The action distribution of a world: categorical, or normal with the config's kind of deviations."""
    if isinstance(space, Discrete):
        return Categorical(space.n, config.floor)
    own = continuous(config)
    return Gaussian(space.dim, own.squashed, own.log_std, own.deviation)


def make_policy(
    config: PPOConfig,
    observation_dim: int,
    actions: Distribution,
    parameters: Mapping[str, np.ndarray],
    make_network: Callable[[int, Distribution, Architecture], ActorCritic] = ActorCritic,
) -> ActorCritic:
    """The network of a config with the given parameters, by name, in `config.dtype`."""
    return filled(make_network(observation_dim, actions, config.architecture), parameters, config.dtype)


def make_optimizer(
    config: PPOConfig, policy: ActorCritic, names: Collection[str] | None = None
) -> optax.GradientTransformation:
    """Adam; every update is given its learning rate, and clips the gradient to `config.clip_norm` as torch does.

    Of the parameters with these names alone, if names are given.
    """
    adam = optax.scale_by_adam(eps=config.adam_eps)
    tx = adam if config.clip_norm is None else optax.chain(clip_by_global_norm(config.clip_norm), adam)
    return _Alike(*tx) if names is None else only(tx, names)


def advantages(rollout: Rollout, config: PPOConfig) -> tuple[Float[Array, "steps envs"], Float[Array, "steps envs"]]:
    """What every step of a rollout is weighed by, and the returns that the critic learns."""
    return estimates(rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.truncated, config)


def update(
    policy: ActorCritic,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    minibatch: Callable[[Int[Array, " size"]], Minibatch],
    index: Int[Array, " n"],
    learning_rate: Float[Array, ""],
    actions: Distribution,
    config: PPOConfig,
    noise: Float[Array, "n noise"] | None = None,
) -> Updated:
    """One gradient step on a minibatch, and the parts of its loss."""
    gradient, info = _gradient(policy, minibatch, index, actions, config, noise)
    params: PyTree = policy
    return *_descent(tx, params, opt_state, gradient, learning_rate), info


def _gradient(
    policy: ActorCritic,
    minibatch: Callable[[Int[Array, " size"]], Minibatch],
    index: Int[Array, " n"],
    actions: Distribution,
    config: PPOConfig,
    noise: Float[Array, "n noise"] | None = None,
) -> tuple[PyTree, Info]:
    """The gradient of the loss of a minibatch, and its parts."""
    # The loss is a mean over the steps, so its gradient is the mean of those of equal pieces. Each device has a share
    # of the minibatch; on a CPU it is taken in pieces whose observations stay in a core's cache, which saves a tenth.
    devices = config.devices if _shares_gradients(policy, len(index), config) else 1
    advantage = normalized(minibatch(index).advantage, config)
    own = sharing.part((index, advantage, noise), devices)
    n = 1 if config.segments else _pieces(minibatch, own[0], config.devices)
    pieces = jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), own)

    def of_piece(piece: tuple[Array, Array, Array | None]) -> tuple[PyTree, Info]:
        index, advantage, noise = piece
        batch = minibatch(index)._replace(advantage=advantage, noise=noise)
        (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(policy, batch, actions, config)
        return gradient, info

    return sharing.mean(_mean(of_piece, pieces), devices)


def _descent(
    tx: optax.GradientTransformation, params: PyTree, opt_state: PyTree, gradient: PyTree, rate: Float[Array, ""]
) -> tuple[Any, PyTree]:
    updates, opt_state = tx.update(gradient, opt_state, params)
    return eqx.apply_updates(params, jax.tree.map(lambda u: -rate * u, updates)), opt_state


def _shares_gradients(policy: ActorCritic, size: int, config: PPOConfig) -> bool:
    """Whether devices share the gradient steps on minibatches of this size, rather than make each the whole of them."""
    if config.segments or config.share_gradients is not None:
        return bool(config.share_gradients)
    weights = sum(leaf.size for leaf in jax.tree.leaves(policy) if leaf.ndim > 1)
    return size % config.devices == 0 and sharing.pays(6 * weights * size, config.devices)  # forward 2, backward 4


def update_epochs(
    policy: ActorCritic,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    minibatch: Callable[[Int[Array, " size"]], Minibatch],
    order: Int[Array, "epochs n"],
    learning_rate: Float[Array, ""],
    actions: Distribution,
    config: PPOConfig,
    noise: Float[Array, "epochs n noise"] | None = None,
) -> Updated:
    """All gradient steps on a rollout, and the mean over them of the parts of the loss.

    `minibatch` gives the steps of the rollout with these numbers, `noise` is `Noise.entropy`. Once the policy has
    moved further than `config.target_kl` the remaining minibatches are skipped; `gradient_steps` counts those that were
    not.
    """
    packed, unpacked = _packing(policy, tx)

    def one(carry: tuple[PyTree, PyTree, Array], given: tuple[Array, Any]) -> tuple[tuple, tuple[Array, Info]]:
        (params, opt_state, kl), (index, noise) = carry, given

        def learn(params: PyTree, opt_state: PyTree) -> tuple[PyTree, PyTree, Info]:
            gradient, info = _gradient(unpacked(params), minibatch, index, actions, config, noise)
            return *_descent(tx, params, opt_state, packed(gradient), learning_rate), info

        if config.target_kl is None:
            params, opt_state, info = learn(params, opt_state)
            return (params, opt_state, kl), (jnp.array(True), info)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(learn, params, opt_state)[2])
        skip = lambda params, opt_state: (params, opt_state, nothing)
        goes_on = kl <= config.target_kl
        params, opt_state, info = jax.lax.cond(goes_on, learn, skip, params, opt_state)
        return (params, opt_state, jnp.where(goes_on, info["approx_kl"], kl)), (goes_on, info)

    like_policy = lambda tree: jax.tree.structure(tree) == jax.tree.structure(policy)  # moments are
    each = lambda function, *trees: jax.tree.map(function, *trees, is_leaf=like_policy)
    moments = each(lambda part: packed(part) if like_policy(part) else part, opt_state)
    start = packed(policy), moments, jnp.zeros((), config.dtype)
    index = order.reshape(config.epochs * config.minibatches, -1)
    noises = None if noise is None else noise.reshape(*index.shape, -1)
    (params, moments, _), (used, infos) = jax.lax.scan(one, start, (index, noises))
    opt_state = each(lambda old, new: unpacked(new) if like_policy(old) else new, opt_state, moments)
    steps = used.sum(dtype=config.dtype)
    info = {name: column.sum() / steps for name, column in infos.items()}
    return unpacked(params), opt_state, {**info, "gradient_steps": steps}


def _packing(policy: ActorCritic, tx: optax.GradientTransformation) -> tuple[Callable[[Any], Any], ...]:
    """How the parameters of a small network become one vector, and a network again: its optimiser then has a few
    operations instead of many tiny ones. Others stay as they are."""
    keep = lambda tree: tree
    vector, unpacked = ravel_pytree(policy)
    if not isinstance(tx, _Alike) or vector.size > _SMALL:
        return keep, keep
    return lambda tree: ravel_pytree(tree)[0], unpacked


def _mean(function: Callable[[Any], PyTree], pieces: PyTree) -> PyTree:
    """The mean of a function's values over the pieces, one after another."""
    n, first = len(jax.tree.leaves(pieces)[0]), jax.tree.map(lambda x: x[0], pieces)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, first))
    add = lambda total, piece: (jax.tree.map(jnp.add, total, function(piece)), None)
    return jax.tree.map(lambda x: x / n, jax.lax.scan(add, nothing, pieces)[0])


def _pieces(minibatch: Callable[[Int[Array, " size"]], Minibatch], index: Int[Array, " n"], devices: int) -> int:
    """How many a device's part of a minibatch is cut into: as few as the caches of its cores ask for."""
    if jax.default_backend() != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n, seen = len(index), jax.eval_shape(minibatch, index).observation
    most = _CACHE * max(1, cores // devices) * n // (seen.size * seen.dtype.itemsize)
    fewest = next(pieces for pieces in range(1, n + 1) if n % pieces == 0 and n // pieces <= max(most, 1))
    return fewest if n // fewest > most // 4 else 1  # numbers with few divisors: rather none than crumbs
