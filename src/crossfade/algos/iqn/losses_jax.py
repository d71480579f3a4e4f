"""The loss of IQN (Dabney et al. 2018), in JAX. Twin: losses_torch.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .batch import Transitions
from .config import IQNConfig
from .networks_jax import Model, Policy

Scalar = Float[Array, ""]
Info = dict[str, Scalar]


def quantile_huber(
    u: Float[Array, "batch n m"], fractions: Float[Array, "batch n"], kappa: int | float
) -> Float[Array, " batch"]:
    """mean_ij |tau_i - 1{u_ij < 0}| L(u_ij) / kappa, where u_ij is the error of the value at tau_i against target j.

    L(u) = u^2 / 2 if |u| <= kappa, else kappa (|u| - kappa / 2) (Dabney et al. 2018, eq. 3). A mean over both i and j;
    the paper sums over i.
    """
    size = jnp.abs(u)
    huber = jnp.where(size <= kappa, 0.5 * jnp.square(u), kappa * (size - 0.5 * kappa))
    tau = jnp.broadcast_to(fractions[..., None], u.shape).astype(u.dtype)
    return (jnp.abs(tau - (u < 0)) * huber / kappa).mean((1, 2))


def loss(model: Model, batch: Transitions, config: IQNConfig) -> tuple[Scalar, Info]:
    """The loss of one agent on its transitions, and what to log about it. With fractions tau, tau', tau'':

        a*      = argmax_a mean_n local(s', tau)[n, a], by the target network's own pass without `double`
        y_j     = reward + discount target(s', tau')[j, a*]
        theta_i = local(s, tau'')[i, action]
        loss    = mean_b valid_b quantile_huber(y_j - theta_i, tau''_i)

    y is a constant; with the quirk `attached_target` the gradient reaches the target network too, which no optimiser
    takes.
    """
    y = _targets(model, batch, config)
    theta = _of_action(model.local(batch.state, batch.fractions[2], batch.noise[2]), batch.action)
    shape = *theta.shape, y.shape[1]
    u = jnp.broadcast_to(y[:, None, :], shape) - jnp.broadcast_to(theta[:, :, None], shape)
    value = (quantile_huber(u, batch.fractions[2], config.kappa) * batch.valid).mean()
    return value, {"loss": value, "q": theta.mean(), "error": jnp.abs(u).mean()}


def model_loss(policy: Policy, number: int, batch: Transitions, config: IQNConfig) -> tuple[Scalar, Info]:
    """The mean loss of the agents that act by a model, and of what to log; `batch` has an axis of agents in front."""
    of = lambda agent: jax.tree.map(lambda column: column[agent], batch)
    infos = [loss(policy.models[number], of(agent), config)[1] for agent in config.members(number)]
    info = jax.tree.map(lambda *values: sum(values) / len(values), *infos)
    return info["loss"], info


def _targets(model: Model, batch: Transitions, config: IQNConfig) -> Float[Array, "batch n"]:
    """y; the choice of a* never has a gradient."""
    there = model.target(batch.next_state, batch.fractions[1], batch.noise[1])
    judged = model.local(batch.next_state, batch.fractions[0], batch.noise[0]) if config.double else there
    chosen = jnp.argmax(jax.lax.stop_gradient(judged).mean(1), -1)
    spread = lambda column: jnp.broadcast_to(column[:, None], there.shape[:2])
    y = spread(batch.reward) + spread(batch.discount) * _of_action(there, chosen)
    return y if config.has("attached_target") else jax.lax.stop_gradient(y)


def _of_action(values: Float[Array, "batch n actions"], action: Int[Array, " batch"]) -> Float[Array, "batch n"]:
    """The values of one action of each state."""
    chosen = jax.nn.one_hot(action, values.shape[-1], dtype=bool)
    return jnp.where(jnp.broadcast_to(chosen[:, None], values.shape), values, 0).sum(-1)
