"""Training compiled as a whole: collecting and learning, many updates in one program."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE, SHARED
from .batch import Carry
from .config import PPOConfig
from .learner_jax import Info, advantages, update_epochs
from .network_jax import ActorCritic
from .rollout_jax import World, collect, draw, minibatch_of

Trained = tuple[ActorCritic, PyTree, Carry, dict[str, Float[Array, " n"]]]
PLACES = EVERYWHERE, EVERYWHERE, Carry(SHARED, EVERYWHERE, SHARED, SHARED)
"""Of policy, optimiser and carry."""


@partial(jax.jit, static_argnames=("tx", "world", "config"), donate_argnames=("policy", "opt_state", "carry"))
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

    def several(
        policy: ActorCritic,
        opt_state: PyTree,
        carry: Carry,
        data: Any,
        settings: Any,
        learning_rate: Float[Array, " n"],
        key: PRNGKeyArray,
        first_step: int | Array,
    ) -> Trained:
        def one(now: tuple[ActorCritic, PyTree, Carry], given: tuple[Array, Any, Array]) -> tuple[tuple, Info]:
            policy, opt_state, carry = now
            step, settings, rate = given
            noise = draw(jax.random.fold_in(key, step), config, world.params.n_actions)
            rollout, after, told = collect(policy, world, data, settings, carry, noise, config)
            advantage = advantages(rollout, config)
            rows = minibatch_of(world, data, settings, rollout, advantage, carry.statistics, config)
            policy, opt_state, info = update_epochs(policy, tx, opt_state, rows, noise.order, rate, config)
            return (policy, opt_state, after), {**info, **told}

        given = first_step + jnp.arange(len(learning_rate)), settings, learning_rate
        (policy, opt_state, carry), metrics = jax.lax.scan(one, (policy, opt_state, carry), given)
        return policy, opt_state, carry, metrics

    inputs = policy, opt_state, carry, data, settings, learning_rate, key, first_step
    places = (*PLACES, *[EVERYWHERE] * 5)
    return sharing.spread(several, config.devices, places, (*PLACES, EVERYWHERE))(*inputs)
