"""Training compiled: collecting and learning, many updates in one program."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...envs.world import BoundWorld, World, keeps_observations
from ...nn.normalizer_jax import Statistics
from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE, SHARED
from .acting_jax import Actor
from .batch import Carry, Minibatch, Rollout, Seen, Segment, ends
from .config import PPOConfig
from .hook import KEY, CompiledHook
from .learner_jax import Info, advantages, make_actions, update_epochs
from .losses_jax import explained_variance
from .network_jax import ActorCritic
from .rollout_jax import as_seen, collect, draw

Trained = tuple[ActorCritic, PyTree, Carry, dict[str, Float[Array, " n"]]]
PLACES = EVERYWHERE, EVERYWHERE, Carry(SHARED, EVERYWHERE, SHARED, SHARED, EVERYWHERE)
"""Of policy, optimiser and carry."""


@partial(jax.jit, static_argnames=("tx", "world", "config", "hook"), donate_argnames=("policy", "opt_state", "carry"))
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
    hook: CompiledHook | None = None,
    hook_data: Any = None,
) -> Trained:
    """`n` updates, each on a rollout of its own; the metrics hold a value for each.

    `settings` hold `n` values in every leaf, one per update, as `learning_rate` does: no other value of them compiles
    anew. Update i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy`, `opt_state` and `carry` is given away: go on with the returned ones. A hook's `Aux` is in the carry.
    """
    actions = make_actions(config, world.action_space)

    def several(
        policy: ActorCritic,
        opt_state: PyTree,
        carry: Carry,
        data: Any,
        settings: Any,
        learning_rate: Float[Array, " n"],
        key: PRNGKeyArray,
        first_step: int | Array,
        hook_data: Any,
    ) -> Trained:
        def one(now: tuple[ActorCritic, PyTree, Carry], given: tuple[Array, Any, Array]) -> tuple[tuple, Info]:
            policy, opt_state, carry = now
            step, settings, rate = given
            envs = BoundWorld(world, data, settings)
            own = jax.random.fold_in(key, step)
            noise = draw(own, config, actions, world.start_numbers)
            watch = None if hook is None else partial(hook.watch_compiled, envs)
            rollout, after, about = collect(Actor(policy, actions), envs, carry, noise, config, watch)
            if hook is not None:
                hook_key = jax.random.fold_in(own, KEY)
                reward, aux, told = hook(
                    hook_data, after.aux, rollout.watched, rollout.reward, hook_key, config.devices
                )
                rollout, after = rollout._replace(reward=reward, watched=None), after._replace(aux=aux)
                about = {**about, **told}
            statistics = (after if config.join_first else carry).statistics
            minibatch, critic = minibatch_of(envs, rollout, statistics, config)
            policy, opt_state, info = update_epochs(
                policy, tx, opt_state, minibatch, noise.order, rate, actions, config, noise.entropy
            )
            return (policy, opt_state, after), {**info, **about, **critic}

        given = first_step + jnp.arange(len(learning_rate)), settings, learning_rate
        (policy, opt_state, carry), metrics = jax.lax.scan(one, (policy, opt_state, carry), given)
        return policy, opt_state, carry, metrics

    inputs = policy, opt_state, carry, data, settings, learning_rate, key, first_step, hook_data
    places = (*PLACES, *[EVERYWHERE] * 6)
    return sharing.spread(several, config.devices, places, (*PLACES, EVERYWHERE))(*inputs)


def minibatch_of(
    envs: BoundWorld, rollout: Rollout, statistics: Statistics, config: PPOConfig
) -> tuple[Callable[[Int[Array, " size"]], Minibatch], Info]:
    """The function that gives the steps of a rollout with these numbers; and what to log of its critic.

    Most worlds do not keep observations: states are kept, which are small, and observations made again from them.
    """
    advantage, returns = advantages(rollout, config)
    columns = rollout.state, rollout.action, rollout.log_prob, rollout.value, returns, advantage
    segment, last = None, sharing.gather(rollout.last, config.devices)
    if config.segments:
        segment = rollout.reward, rollout.terminated, rollout.truncated
    gathered = sharing.gather((*columns, segment), config.devices, axis=1)
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), gathered)  # steps and environments on one axis
    keeps, see = keeps_observations(envs.world), lambda raw: as_seen(raw, statistics, config)
    if keeps:
        (raw, mask), *others = steps
        steps = Seen(see(raw), mask), *others

    def minibatch(index: Int[Array, " size"]) -> Minibatch:
        take = lambda column: column.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
        state, *others, segment = jax.tree.map(take, steps)
        seen, mask = state if keeps else (see(envs.observe(state)), envs.mask(state))
        if segment is not None:
            segment = Segment(*segment, last=see(last[ends(index, config.n_envs, config.n_steps)]))
        return Minibatch(seen, mask, *others, segment=segment)

    value, returns = gathered[3].ravel(), gathered[4].ravel()
    return minibatch, {"explained_variance": explained_variance(value, returns)}
