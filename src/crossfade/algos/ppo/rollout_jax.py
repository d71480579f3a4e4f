"""Collecting steps of many environments within a compiled program. Twin: rollout_numpy.py."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ...envs.world import BoundWorld, keeps_observations, told
from ...nn import normalizer_jax as normalizer
from ...nn.distribution import Distribution
from ...nn.normalizer_jax import Statistics
from ...optim import sharing_jax as sharing
from ...random import streams_jax as streams
from ...random.shuffling_jax import shuffled
from .acting_jax import Actor
from .batch import ENTROPY_KEY, Carry, Noise, Rollout, Seen, in_segments
from .config import PPOConfig
from .hook import Watched
from .learner_jax import Info

Sums = dict[str, Any]
"""What is added up over a rollout, by name; `told` is what the world wants logged, in its order."""

_AHEAD = 2**24  # bytes of beginnings that are computed before a rollout


def draw(key: PRNGKeyArray, config: PPOConfig, actions: Distribution, start_numbers: int) -> Noise:
    """The randomness of one update, from its key."""
    # On several devices: that of this device's environments, and the order of all steps.
    action, start, order = jax.random.split(key, 3)
    shape, devices = (config.n_steps, config.n_envs), config.devices
    numbers = {"gumbel": streams.gumbel, "normal": streams.normal}[actions.noise]

    def permutation(epoch: Array) -> Array:
        own = jax.random.fold_in(order, epoch)
        n = config.n_steps * config.n_envs
        return in_segments(shuffled(own, config.n_envs), config) if config.segments else shuffled(own, n)

    entropy = None
    if config.samples_entropy:
        of_steps = config.epochs, config.n_steps * config.n_envs, actions.noise_dim
        entropy = streams.normal(jax.random.fold_in(key, ENTROPY_KEY), of_steps, config.dtype)
    share = -(-config.epochs // devices)
    own = sharing.number(devices) * share + jnp.arange(share)
    return Noise(
        action=_own(numbers, action, (*shape, actions.noise_dim), config.dtype, devices),
        start=_own(streams.uniform, start, (*shape, start_numbers), "float32", devices),
        order=sharing.gather(jax.lax.map(permutation, own), devices)[: config.epochs],
        entropy=entropy,
    )


def _own(
    numbers: Callable[..., Array], key: PRNGKeyArray, shape: tuple[int, int, int], dtype: str, devices: int
) -> Float[Array, "steps envs n"]:
    """Of the numbers of all environments, those of this device's."""
    if devices == 1:
        return numbers(key, shape, dtype)
    steps, envs, n = shape
    env = sharing.part(jnp.arange(envs, dtype=jnp.uint32), devices)
    of_step, of_number = envs * n * np.arange(steps, dtype=np.uint32), np.arange(n, dtype=np.uint32)
    places = of_step[:, None, None] + n * env[None, :, None] + of_number[None, None]
    return numbers(key, places.shape, dtype, places)


def collect(
    actor: Actor,
    envs: BoundWorld,
    carry: Carry,
    noise: Noise,
    config: PPOConfig,
    watch: Callable[[Any], Any] | None = None,
) -> tuple[Rollout, Carry, Info]:
    """`config.n_steps` steps of every environment; what goes on to the next update; means to log.

    The network sees observations normalised by the statistics as they were; the raw ones of this rollout join those of
    the returned carry, and are learned from by those if `config.join_first`. `watch` is what a hook must know
    of states.
    """
    see = lambda raw: as_seen(raw, carry.statistics, config)
    value_of = lambda state: actor.value(see(envs.observe(state)))
    keeps, bootstraps = keeps_observations(envs.world), config.truncation == "bootstrap"
    joins = config.normalize_observations
    names: list[str] = []  # of what the world wants logged
    # Where steps are dear, so is a beginning: all at once, unless they take much memory.
    ahead = keeps and _bytes(jax.eval_shape(envs.begin, noise.start)) <= _AHEAD
    starts = envs.begin(noise.start) if ahead else noise.start

    def step(now: Carry, given: tuple[Array, Any]) -> tuple[Carry, tuple[Rollout, Sums, Any]]:
        noise, fresh = given
        raw, mask = envs.observe(now.state), envs.mask(now.state)
        action, executed, log_prob, value = actor.act(see(raw), mask, noise)
        after, outcome = envs.step(now.state, executed)
        reward, ended = outcome.reward.astype(value.dtype), outcome.terminated | outcome.truncated
        episode_return, episode_length = now.episode_return + reward, now.episode_length + 1
        sums: Sums = {
            "episodes": ended.sum(),
            "episode_return": jnp.where(ended, episode_return, 0).sum(),
            "episode_length": jnp.where(ended, episode_length, 0).sum(),
        }
        if jnp.issubdtype(action.dtype, jnp.integer):
            chosen = jax.nn.one_hot(action, noise.shape[-1], dtype=bool)
            legal = jnp.ones_like(chosen) if mask is None else mask
            sums |= {"legal": legal.sum(0), "taken": (chosen & legal).sum(0)}
        if mask is not None:
            sums["illegal"] = (~jnp.take_along_axis(mask, action[:, None], 1)).sum()
        if numbers := told(outcome):  # one sum of many columns instead of many sums
            names[:] = numbers
            sums["told"] = jnp.stack([column.astype(value.dtype) for column in numbers.values()]).sum(-1)
        taken = Rollout(
            state=Seen(raw, mask) if keeps else now.state,
            action=action,
            log_prob=log_prob,
            value=value,
            next_value=None,
            reward=reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            watched=None if watch is None else Watched(watch(now.state), watch(after)),
        )
        following = Carry(
            state=_where(ended, fresh if ahead else envs.begin(fresh), after),
            statistics=normalizer.merge(now.statistics, raw) if joins and not keeps else now.statistics,
            episode_return=jnp.where(ended, 0, episode_return),
            episode_length=jnp.where(ended, 0, episode_length),
        )
        return following, (taken, sums, envs.observe(after) if keeps and bootstraps else None)

    nothing = normalizer.start(envs.world.observation_dim, config.dtype)
    begun = carry._replace(statistics=nothing, aux=None)
    after, (taken, sums, final) = jax.lax.scan(step, begun, (noise.action, starts))
    if joins and keeps:  # all at once
        rows = taken.state.observation
        after = after._replace(statistics=normalizer.merge(nothing, rows.reshape(-1, rows.shape[-1])))
    after = after._replace(statistics=_joined(carry.statistics, after.statistics, config), aux=carry.aux)
    taken = taken._replace(next_value=jnp.concatenate([taken.value[1:], value_of(after.state)[None]]))
    if bootstraps and keeps:
        taken = taken._replace(next_value=_values_where_cut_off(taken, final, lambda raw: actor.value(see(raw))))
    elif bootstraps:
        step_again = lambda state, action: envs.step(state, actor.actions.executed(action))[0]
        again = taken.state, taken.action
        taken = taken._replace(next_value=_values_where_cut_off(taken, again, lambda it: value_of(step_again(*it))))
    if config.segments:
        taken = taken._replace(last=envs.observe(after.state))
    return taken, after, _info(taken, sums, names, config.devices)


def as_seen(raw: Float[Array, "*n o"], statistics: Statistics, config: PPOConfig) -> Float[Array, "*n o"]:
    """Observations as the network sees them."""
    return normalizer.normalize(statistics, raw) if config.normalize_observations else raw.astype(config.dtype)


def _values_where_cut_off(
    rollout: Rollout, given: PyTree, value: Callable[[PyTree], Float[Array, " envs"]]
) -> Float[Array, "steps envs"]:
    """`next_value`, with the value of the final state where an episode was cut off, computed from what was `given`.

    That is its observation, or the state and the action before it. Such steps are few: their values are computed, or
    they are made once more, as many at a time as there are environments.
    """
    envs, n = rollout.value.shape[1], rollout.value.size
    cut_off = rollout.truncated.ravel()
    number = jnp.nonzero(cut_off, size=n, fill_value=n)[0]
    rows = jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), given)

    def block(i: Array, next_value: Float[Array, " n"]) -> Float[Array, " n"]:
        index = jax.lax.dynamic_slice(number, (i * envs,), (envs,))
        own = jax.tree.map(lambda column: column.at[index].get(mode="clip"), rows)
        return next_value.at[index].set(value(own), mode="drop")

    blocks = (cut_off.sum() + envs - 1) // envs
    return jax.lax.fori_loop(0, blocks, block, rollout.next_value.ravel()).reshape(rollout.value.shape)


def _joined(before: Statistics, seen: Statistics, config: PPOConfig) -> Statistics:
    """The statistics of all observations so far, those of all devices among them."""
    if not config.normalize_observations:
        return before
    return reduce(normalizer.join, sharing.gather_list(seen, config.devices), before)


def _info(rollout: Rollout, sums: Sums, names: list[str], devices: int) -> Info:
    """Means over the steps, and over the episodes that ended; of each discrete action, the share of the steps in which
    it was legal that took it. 0 where there were none."""
    dtype = rollout.value.dtype
    sums = jax.tree.map(lambda column: column.sum(0).astype(dtype), sums)
    sums = sharing.total({**sums, "reward": rollout.reward.mean()}, devices)
    ended = jnp.maximum(sums["episodes"], 1)
    info = {
        "mean_reward": sums["reward"] / devices,
        "mean_episode_return": sums["episode_return"] / ended,
        "mean_episode_length": sums["episode_length"] / ended,
        "episodes": sums["episodes"],
    }
    if names:
        info |= zip(names, sums["told"] / (rollout.value.size * devices), strict=True)
    if "legal" in sums:
        shares = sums["taken"] / jnp.maximum(sums["legal"], 1)
        info |= {f"action_{i}": share for i, share in enumerate(shares)}
    return info | ({"illegal": sums["illegal"]} if "illegal" in sums else {})


def _bytes(shapes: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _where(condition: Bool[Array, " n"], yes: PyTree, no: PyTree) -> PyTree:
    along = lambda x: jnp.broadcast_to(condition.reshape(-1, *[1] * (x.ndim - 1)), x.shape)
    return jax.tree.map(lambda a, b: jnp.where(along(a), a, b), yes, no)
