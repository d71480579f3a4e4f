"""The JAX half. Twin: system_torch.py."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from crossfade.nn.layers_jax import apply, name, trunk
from crossfade.optim import masking_jax
from crossfade.optim.clipping_jax import clip_by_global_norm
from crossfade.optim.ema_jax import ema
from crossfade.trainers.system import Objective

from . import CLIP_NORM, DECAY, GAMMA, MOMENTUM, NETWORKS, PERIOD, RATE, STATES, TRANSITIONS, Batch, Shared

Layers = tuple[eqx.nn.Linear, ...]


class Policy(eqx.Module):
    actor: Layers
    critic: Layers
    target_actor: Layers
    target_critic: Layers
    mean: Array
    updates: Array


def network(layers: Layers, x: Array) -> Array:
    return apply(layers[1], jnp.tanh(apply(layers[0], x)))


def action(policy: Policy, actor: Layers, state: Array) -> Array:
    return jnp.tanh(network(actor, state - policy.mean[None]))


def value(policy: Policy, critic: Layers, state: Array, action: Array) -> Array:
    return network(critic, jnp.concatenate([state - policy.mean[None], action], -1))[:, 0]


def critic_loss(policy: Policy, batch: Batch):
    """mean (Q(s, a) - r - gamma Q'(s', mu'(s')))^2."""
    after = action(policy, policy.target_actor, batch.after)
    goal = batch.reward + GAMMA * value(policy, policy.target_critic, batch.after, after)
    loss = jnp.square(value(policy, policy.critic, batch.state, batch.action) - jax.lax.stop_gradient(goal)).mean()
    return loss, {"critic_loss": loss}


def actor_loss(policy: Policy, batch: Batch):
    """-mean Q(s, mu(s))."""
    loss = -value(policy, policy.critic, batch.state, action(policy, policy.actor, batch.state)).mean()
    return loss, {"actor_loss": loss}


class ActorCritic(Shared):
    def make_policy(self, parameters):
        networks = {name: trunk(list(widths)) for name, widths in NETWORKS.items()}
        targets = {f"target_{name}": network for name, network in networks.items()}
        policy = Policy(**networks, **targets, mean=jnp.zeros(STATES), updates=jnp.zeros((), int))
        return jax.tree_util.tree_map_with_path(lambda path, _: jnp.array(parameters[name(path)]), policy)

    def make_optimizers(self, policy):
        schedule = lambda count: self.config.lr * DECAY ** (count // PERIOD)
        critic = optax.chain(optax.trace(MOMENTUM), optax.scale_by_learning_rate(schedule))
        actor = optax.chain(clip_by_global_norm(CLIP_NORM), optax.adam(self.config.lr / 5))
        made = {"critic": critic, "actor": actor}
        return {name: masking_jax.only(tx, self.owned(name)) for name, tx in made.items()}

    def objectives(self):
        return {"critic": Objective(critic_loss), "actor": Objective(actor_loss, CLIP_NORM)}

    def update(self, policy, optimizers, opt_states, batch):
        updates = policy.updates + 1
        mean = policy.mean + (batch.state.mean(0) - policy.mean) / updates
        policy = eqx.tree_at(lambda p: (p.mean, p.updates), policy, (mean, updates))
        learn = lambda name, loss, policy: masking_jax.update(policy, optimizers[name], opt_states[name], loss, batch)
        policy, critic, info = learn("critic", critic_loss, policy)
        skip = lambda policy: (policy, opt_states["actor"], {"actor_loss": jnp.zeros((), mean.dtype)})
        policy, actor, told = jax.lax.cond(
            batch.update % 2 == 1, lambda policy: learn("actor", actor_loss, policy), skip, policy
        )
        targets = lambda p: (p.target_actor, p.target_critic)
        policy = eqx.tree_at(targets, policy, ema(targets(policy), (policy.actor, policy.critic), RATE))
        return policy, {"critic": critic, "actor": actor}, info | told

    def train(self, policy, optimizers, opt_states, buffer, step, n):
        steps = step + jnp.arange(n, dtype=jnp.int32)
        (policy, opt_states), info = self._train((policy, opt_states), optimizers, steps, self.dataset)
        return policy, opt_states, buffer, info

    @eqx.filter_jit
    def _train(self, state, optimizers, steps, dataset):
        key = jax.random.wrap_key_data(jnp.asarray(self.key))

        def once(state, step):
            own, n = jax.random.fold_in(key, step), self.config.batch_size
            index = jax.random.randint(own, (n,), 0, TRANSITIONS, jnp.int32)
            batch = Batch(*(column[index] for column in dataset), step)
            policy, opt_states, info = self.update(state[0], optimizers, state[1], batch)
            return (policy, opt_states), info

        return jax.lax.scan(once, state, steps)

    def act(self, policy, state):
        return np.asarray(action(policy, policy.actor, state))
