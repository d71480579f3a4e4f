"""Collecting steps of many environments within a compiled program. Twin: rollout_numpy.py."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ...nn import normalizer_jax as normalizer
from ...nn.categorical_jax import choose, log_prob_of, log_probs
from ...nn.normalizer_jax import Statistics
from ...optim import sharing_jax as sharing
from ...random import streams_jax as streams
from ...random.shuffling_jax import shuffled
from .batch import Carry, Minibatch, Noise, Rollout
from .config import START_NUMBERS, PPOConfig
from .learner_jax import Info
from .network_jax import ActorCritic


@runtime_checkable
class World(Protocol):
    """Environments that are stepped together, as pure functions of their states. Hashable: programs are made for it.

    `data` and `settings` are arrays it reads; settings may be others in the next update.
    """

    @property
    def params(self) -> Any:
        """What has `observation_dim` and `n_actions`."""
        ...

    def begin(self, data: Any, settings: Any, uniform: Float[Array, "*n numbers"]) -> Any:
        """States in which episodes begin, drawn by `START_NUMBERS` uniform numbers each."""
        ...

    def observe(self, data: Any, settings: Any, state: Any) -> Float[Array, "*n o"]: ...

    def mask(self, data: Any, settings: Any, state: Any) -> Bool[Array, "*n a"]:
        """The legal actions."""
        ...

    def step(self, data: Any, settings: Any, state: Any, action: Int[Array, "*n"]) -> tuple[Any, Any]:
        """The states after the action, without any reset, and what has `reward`, `terminated` and `truncated`."""
        ...


def draw(key: PRNGKeyArray, config: PPOConfig, n_actions: int) -> Noise:
    """The randomness of one update, from its key: of this device's environments, and the order of all steps."""
    gumbel, start, order = jax.random.split(key, 3)
    shape, devices = (config.n_steps, config.n_envs), config.devices
    permutation = lambda epoch: shuffled(jax.random.fold_in(order, epoch), config.n_steps * config.n_envs)
    each = -(-config.epochs // devices)
    own = sharing.number(devices) * each + jnp.arange(each)
    return Noise(
        gumbel=sharing.part(streams.gumbel(gumbel, (*shape, n_actions), config.dtype), devices, axis=1),
        start=sharing.part(streams.uniform(start, (*shape, START_NUMBERS), "float32"), devices, axis=1),
        order=sharing.gather(jax.lax.map(permutation, own), devices)[: config.epochs],
    )


def collect(
    policy: ActorCritic, world: World, data: Any, settings: Any, carry: Carry, noise: Noise, config: PPOConfig
) -> tuple[Rollout, Carry, Info]:
    """`config.n_steps` steps of every environment, the environments after them, and what to tell about them.

    The network sees observations by the statistics as they were; the raw ones join those of the returned carry.
    """
    see = lambda raw: _as_seen(raw, carry.statistics, config)
    value_of = lambda state: policy(see(world.observe(data, settings, state)))[1]

    def step(now: Carry, noise: tuple[Array, Array]) -> tuple[Carry, tuple[Rollout, Info]]:
        gumbel, uniform = noise
        raw, mask = world.observe(data, settings, now.state), world.mask(data, settings, now.state)
        logits, value = policy(see(raw))
        log_p = log_probs(logits, mask, config.floor)
        action = choose(log_p, gumbel)
        after, outcome = world.step(data, settings, now.state, action)
        reward, ended = outcome.reward.astype(value.dtype), outcome.terminated | outcome.truncated
        episode_return, episode_length = now.episode_return + reward, now.episode_length + 1
        told = {
            "episodes": ended.sum(),
            "episode_return": jnp.where(ended, episode_return, 0).sum(),
            "episode_length": jnp.where(ended, episode_length, 0).sum(),
            "illegal": (~jnp.take_along_axis(mask, action[:, None], 1)).sum(),
        }
        taken = Rollout(
            state=now.state,
            action=action,
            log_prob=log_prob_of(log_p, action),
            value=value,
            next_value=None,
            reward=reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
        )
        following = Carry(
            state=_where(ended, world.begin(data, settings, uniform), after),
            statistics=normalizer.merge(now.statistics, raw) if config.normalize_observations else now.statistics,
            episode_return=jnp.where(ended, 0, episode_return),
            episode_length=jnp.where(ended, 0, episode_length),
        )
        return following, (taken, told)

    nothing = normalizer.start(world.params.observation_dim, config.dtype)
    after, (taken, told) = jax.lax.scan(step, carry._replace(statistics=nothing), (noise.gumbel, noise.start))
    after = after._replace(statistics=_joined(carry.statistics, after.statistics, config))
    taken = taken._replace(next_value=jnp.concatenate([taken.value[1:], value_of(after.state)[None]]))
    if config.truncation == "bootstrap":
        step_again = lambda state, action: world.step(data, settings, state, action)[0]
        taken = taken._replace(next_value=_values_where_cut_off(taken, value_of, step_again))
    return taken, after, _telling(taken, told, noise.gumbel.shape[-1], config.devices)


def minibatch_of(
    world: World,
    data: Any,
    settings: Any,
    rollout: Rollout,
    advantage: Float[Array, "steps envs"],
    statistics: Statistics,
    config: PPOConfig,
) -> Callable[[Int[Array, " size"]], Minibatch]:
    """The steps of a rollout with given numbers; their observations are made again from the states."""
    returns = rollout.value + advantage
    columns = rollout.state, rollout.action, rollout.log_prob, rollout.value, returns, advantage
    steps = _flat(sharing.gather(columns, config.devices, axis=1))

    def rows(index: Int[Array, " size"]) -> Minibatch:
        take = lambda column: column.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
        state, *others = jax.tree.map(take, steps)
        observation = _as_seen(world.observe(data, settings, state), statistics, config)
        return Minibatch(observation, world.mask(data, settings, state), *others)

    return rows


def _values_where_cut_off(
    rollout: Rollout, value_of: Callable[[Any], Array], step_again: Callable[[Any, Array], Any]
) -> Float[Array, "steps envs"]:
    """`next_value`, with the value of the final state where an episode was cut off.

    Those steps are few: they are made once more, as many at a time as there are environments.
    """
    envs, n = rollout.action.shape[1], rollout.action.size
    cut_off = rollout.truncated.ravel()
    number = jnp.nonzero(cut_off, size=n, fill_value=n)[0]
    state, action = _flat((rollout.state, rollout.action))

    def block(i: Array, next_value: Float[Array, " n"]) -> Float[Array, " n"]:
        index = jax.lax.dynamic_slice(number, (i * envs,), (envs,))
        again = jax.tree.map(lambda column: column.at[index].get(mode="clip"), (state, action))
        return next_value.at[index].set(value_of(step_again(*again)), mode="drop")

    blocks = (cut_off.sum() + envs - 1) // envs
    return jax.lax.fori_loop(0, blocks, block, rollout.next_value.ravel()).reshape(rollout.value.shape)


def _joined(before: Statistics, seen: Statistics, config: PPOConfig) -> Statistics:
    """The statistics of all observations so far, those of all devices among them."""
    if not config.normalize_observations:
        return before
    return reduce(normalizer.join, sharing.gather_list(seen, config.devices), before)


def _telling(rollout: Rollout, told: Info, n_actions: int, devices: int) -> Info:
    """Means of an update; those of episodes are over the ones that ended in it, and 0 if none did."""
    sums = {name: each.sum().astype(rollout.value.dtype) for name, each in told.items()}
    sums = sharing.total(sums, devices)
    ended = jnp.maximum(sums["episodes"], 1)
    share = lambda action: (rollout.action == action).mean(dtype=rollout.value.dtype)
    means = {
        "mean_reward": rollout.reward.mean(),
        **{f"action_share_{action}": share(action) for action in range(n_actions)},
    }
    return {
        "mean_episode_return": sums["episode_return"] / ended,
        "mean_episode_length": sums["episode_length"] / ended,
        "episodes": sums["episodes"],
        "illegal": sums["illegal"],
        **sharing.mean(means, devices),
    }


def _as_seen(raw: Float[Array, "*n o"], statistics: Statistics, config: PPOConfig) -> Float[Array, "*n o"]:
    return normalizer.normalize(statistics, raw) if config.normalize_observations else raw.astype(config.dtype)


def _flat(tree: PyTree) -> PyTree:
    """Steps and environments on one axis."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def _where(condition: Bool[Array, " n"], yes: PyTree, no: PyTree) -> PyTree:
    along = lambda x: jnp.broadcast_to(condition.reshape(-1, *[1] * (x.ndim - 1)), x.shape)
    return jax.tree.map(lambda a, b: jnp.where(along(a), a, b), yes, no)
