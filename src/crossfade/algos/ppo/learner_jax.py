"""Making an actor-critic and updating it on a rollout, in JAX. Twin: learner_torch.py."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
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
from .gae_jax import gae
from .losses_jax import loss
from .network_jax import ActorCritic

Info = dict[str, Array]
Updated = tuple[ActorCritic, PyTree, Info]
_CACHE = 2**20  # bytes of a core's second cache


def make_actions(config: PPOConfig, space: ActionSpace) -> Distribution:
    """The action distribution of a world: categorical, or normal with the config's kind of deviations."""
    if isinstance(space, Discrete):
        return Categorical(space.n, config.floor)
    return Gaussian(space.dim, continuous(config).squashed, continuous(config).log_std)


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
    return tx if names is None else only(tx, names)


def advantages(rollout: Rollout, config: PPOConfig) -> Float[Array, "steps envs"]:
    """The generalised advantage estimate of every step of a rollout."""
    return gae(
        rollout.reward,
        rollout.value,
        rollout.next_value,
        rollout.terminated,
        rollout.truncated,
        config.gamma,
        config.gae_lambda,
        config.truncation,
    )


def normalized(advantage: Float[Array, " n"], config: PPOConfig) -> Float[Array, " n"]:
    """(A - E A) / (sd(A) + 1e-8) over a minibatch, with the biased deviation; A itself if not so configured."""
    if not config.normalize_advantages:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def update(
    policy: ActorCritic,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    minibatch: Callable[[Int[Array, " size"]], Minibatch],
    index: Int[Array, " n"],
    learning_rate: Float[Array, ""],
    actions: Distribution,
    config: PPOConfig,
) -> Updated:
    """One gradient step on a minibatch, and the parts of its loss."""
    # The loss is a mean over the steps, so its gradient is the mean of those of equal pieces. Each device has a share
    # of the minibatch; on a CPU it is taken in pieces whose observations stay in a core's cache, which saves a tenth.
    devices = config.devices if shares_gradients(policy, len(index), config) else 1
    advantage = normalized(minibatch(index).advantage, config)
    own = sharing.part((index, advantage), devices)
    pieces = jax.tree.map(lambda x: x.reshape(_pieces(minibatch, own[0], config.devices), -1), own)

    def gradient_of(piece: tuple[Array, Array]) -> tuple[PyTree, Info]:
        index, advantage = piece
        batch = minibatch(index)._replace(advantage=advantage)
        (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(policy, batch, actions, config)
        return gradient, info

    gradient, info = sharing.mean(_mean(gradient_of, pieces), devices)
    params: PyTree = policy
    updates, opt_state = tx.update(gradient, opt_state, params)
    return eqx.apply_updates(policy, jax.tree.map(lambda u: -learning_rate * u, updates)), opt_state, info


def shares_gradients(policy: ActorCritic, size: int, config: PPOConfig) -> bool:
    """Whether devices share the gradient steps on minibatches of this size, rather than make each the whole of them."""
    if config.share_gradients is not None:
        return config.share_gradients
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
) -> Updated:
    """All gradient steps on a rollout, and the mean over them of the parts of the loss.

    `minibatch` gives the steps of the rollout with these numbers. Once the policy has moved further than
    `config.target_kl` the remaining minibatches are skipped; `gradient_steps` counts those that were not.
    """

    def one(carry: tuple[ActorCritic, PyTree, Array], index: Int[Array, " size"]) -> tuple[tuple, tuple[Array, Info]]:
        policy, opt_state, kl = carry

        def learn(policy: ActorCritic, opt_state: PyTree) -> Updated:
            return update(policy, tx, opt_state, minibatch, index, learning_rate, actions, config)

        if config.target_kl is None:
            policy, opt_state, info = learn(policy, opt_state)
            return (policy, opt_state, kl), (jnp.array(True), info)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(learn, policy, opt_state)[2])
        skip = lambda policy, opt_state: (policy, opt_state, nothing)
        goes_on = kl <= config.target_kl
        policy, opt_state, info = jax.lax.cond(goes_on, learn, skip, policy, opt_state)
        return (policy, opt_state, jnp.where(goes_on, info["approx_kl"], kl)), (goes_on, info)

    start = policy, opt_state, jnp.zeros((), config.dtype)
    index = order.reshape(config.epochs * config.minibatches, -1)
    (policy, opt_state, _), (used, infos) = jax.lax.scan(one, start, index)
    steps = used.sum(dtype=config.dtype)
    return policy, opt_state, {name: column.sum() / steps for name, column in infos.items()} | {"gradient_steps": steps}


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
