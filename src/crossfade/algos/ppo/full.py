"""Training compiled as a whole: collecting and learning, many updates in one program."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from . import sharing
from .batch import Carry
from .config import PPOConfig
from .learner_jax import Info, advantages, update_epochs
from .network_jax import ActorCritic
from .rollout import World, collect, draw, minibatch_of
from .sharing import EVERYWHERE, SHARED

Trained = tuple[ActorCritic, PyTree, Carry, dict[str, Float[Array, " n"]]]
PLACES = Carry(state=SHARED, statistics=EVERYWHERE, episode_return=SHARED, episode_length=SHARED)


def train(
    policy: ActorCritic,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    carry: Carry,
    world: World,
    data: Any,
    settings: Any,
    learning_rate: Float[Array, " n"],
    key: PRNGKeyArray,
    first_step: int | Array,
    config: PPOConfig,
) -> Trained:
    """`n` updates, each on a rollout of its own; the metrics hold a value for each.

    `settings` hold `n` values in every leaf, one per update, as `learning_rate` does: no other value of them compiles
    anew. Update i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy`, `opt_state` and `carry` is given away: go on with the returned ones.
    """
    first_step = jnp.asarray(first_step)
    return program(config.devices)(
        policy, opt_state, carry, data, settings, learning_rate, key, first_step, tx=tx, world=world, config=config
    )


@cache
def program(devices: int) -> Callable[..., Trained]:
    """`train` compiled for so many devices."""
    # On a CPU every device has a core; products that spread over the cores of the others would wait for them.
    alone = {"xla_cpu_multi_thread_eigen": False} if devices > 1 else None
    return jax.jit(
        _train,
        static_argnames=("tx", "world", "config"),
        donate_argnames=("policy", "opt_state", "carry"),
        compiler_options=alone,
    )


def _train(policy, opt_state, carry, data, settings, learning_rate, key, first_step, *, tx, world, config):
    def updates(policy, opt_state, carry, data, settings, learning_rate, key, first_step):
        def one(now: tuple[ActorCritic, PyTree, Carry], given: tuple[Array, Any, Array]) -> tuple[tuple, Info]:
            policy, opt_state, carry = now
            step, settings, rate = given
            noise = draw(jax.random.fold_in(key, step), config, world.params.n_actions)
            rollout, after, told = collect(policy, world, data, settings, carry, noise, config)
            advantage = advantages(rollout, config)
            rows = minibatch_of(world, data, settings, rollout, advantage, carry.statistics, config)
            policy, opt_state, info = update_epochs(policy, tx, opt_state, rows, noise.order, rate, config)
            return (policy, opt_state, after), {**info, **told}

        steps = first_step + jnp.arange(len(learning_rate))
        (policy, opt_state, carry), metrics = jax.lax.scan(
            one, (policy, opt_state, carry), (steps, settings, learning_rate)
        )
        return policy, opt_state, carry, metrics

    places = EVERYWHERE, EVERYWHERE, PLACES
    spread = sharing.spread(updates, config.devices, (*places, *[EVERYWHERE] * 5), (*places, EVERYWHERE))
    return spread(policy, opt_state, carry, data, settings, learning_rate, key, first_step)
