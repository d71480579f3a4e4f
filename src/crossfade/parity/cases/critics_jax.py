"""TD learning of an ensemble of critics with slow targets, in JAX. Twin: critics_torch.py."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

DISCOUNT, TAU = 0.99, 0.005


class Critic(eqx.Module):
    """Q(s, a) by two hidden layers."""

    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear
    q: eqx.nn.Linear

    def __init__(self, obs_size: int, action_size: int, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.fc1 = eqx.nn.Linear(obs_size + action_size, width, key=keys[0])
        self.fc2 = eqx.nn.Linear(width, width, key=keys[1])
        self.q = eqx.nn.Linear(width, "scalar", key=keys[2])

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, ""]:
        h = jax.nn.relu(self.fc1(jnp.concatenate([obs, action])))
        return self.q(jax.nn.relu(self.fc2(h)))


class Critics(eqx.Module):
    """An ensemble of critics and their target networks, which are moved by an exponential average alone."""

    online: Critic
    target: Critic

    def __init__(self, obs_size: int = 3, action_size: int = 2, width: int = 16, n: int = 2, *, key: PRNGKeyArray):
        ensemble = eqx.filter_vmap(lambda key: Critic(obs_size, action_size, width, key=key))
        keys = jax.random.split(key, (2, n))
        self.online, self.target = ensemble(keys[0]), ensemble(keys[1])

    def __call__(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        evaluate = eqx.filter_vmap(lambda critic: critic(obs, action))
        return evaluate(self.online), evaluate(self.target)


def td_loss(critics: Critics, batch: dict[str, Array]) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Squared distance of every critic from the reward plus the smallest discounted target value."""
    q, _ = jax.vmap(critics)(batch["obs"], batch["action"])
    _, next_q = jax.vmap(critics)(batch["next_obs"], batch["next_action"])
    backup = batch["reward"] + DISCOUNT * (1 - batch["terminal"]) * next_q.min(-1)
    backup = jax.lax.stop_gradient(backup)
    loss = jnp.square(q - backup[:, None]).mean()
    return loss, {"q": q.mean(), "backup": backup.mean()}


def update(
    critics: Critics, tx: optax.GradientTransformation, opt_state: PyTree, batch: dict[str, Array]
) -> tuple[Critics, PyTree, dict[str, Array]]:
    """One step down the loss; then the targets follow the new critics."""
    (loss, info), grads = eqx.filter_value_and_grad(td_loss, has_aux=True)(critics, batch)
    updates, opt_state = tx.update(grads, opt_state, eqx.filter(critics, eqx.is_inexact_array))
    critics = eqx.apply_updates(critics, updates)
    target = jax.tree.map(lambda slow, fast: slow + TAU * (fast - slow), critics.target, critics.online)
    return eqx.tree_at(lambda c: c.target, critics, target), opt_state, {"loss": loss, **info}
