"""The loss of IQN (Dabney et al. 2018), in torch. Twin: losses_jax.py."""

from contextlib import nullcontext

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .averages_torch import averaged
from .batch import Transitions
from .config import IQNConfig
from .networks_torch import Model, Policy

Scalar = Float[Tensor, ""]


def quantile_huber(
    u: Float[Tensor, "batch n m"], fractions: Float[Tensor, "batch n"], kappa: int | float
) -> Float[Tensor, " batch"]:
    """mean_ij |tau_i - 1{u_ij < 0}| L(u_ij) / kappa, where u_ij is the error of the value at tau_i against target j.

    L(u) = u^2 / 2 if |u| <= kappa, else kappa (|u| - kappa / 2) (Dabney et al. 2018, eq. 3). A mean over both i and j;
    the paper sums over i.
    """
    size = u.abs()
    huber = torch.where(size <= kappa, 0.5 * u.square(), kappa * (size - 0.5 * kappa))
    weight = (fractions[:, :, None] - (u < 0).to(u.dtype)).abs()
    return (weight * huber / kappa).mean((1, 2))


def loss(model: Model, batch: Transitions, config: IQNConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The loss of one agent on its transitions, and what to log about it. With fractions tau, tau', tau'':

        a*      = argmax_a mean_n local(s', tau)[n, a], by the target network's own pass without `double`
        y_j     = reward + discount target(s', tau')[j, a*]
        theta_i = local(s, tau'')[i, action]
        loss    = mean_b valid_b quantile_huber(y_j - theta_i, tau''_i)

    y is a constant; with the quirk `attached_target` the gradient reaches the target network too, which no optimiser
    takes.
    """
    with nullcontext() if config.has("attached_target") else torch.no_grad():
        y = _targets(model, batch, config)
    theta = _taken(model.local(batch.state, batch.fractions[2], batch.noise[2]), batch.action)
    u = y[:, None, :] - theta[:, :, None]
    value = (batch.valid * quantile_huber(u, batch.fractions[2], config.kappa)).mean()
    info = {"loss": value, "q": theta.mean(), "error": u.abs().mean()}
    return value, {name: told.detach() for name, told in info.items()}


def model_loss(policy: Policy, number: int, batch: Transitions, config: IQNConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The mean loss of the agents that act by a model, and of what to log; `batch` has an axis of agents in front."""
    model, members = policy.models[number], config.members(number)
    each = [loss(model, Transitions(*(part[agent] for part in batch)), config) for agent in members]
    return torch.stack([value for value, _ in each]).mean(), averaged([info for _, info in each])


def _targets(model: Model, batch: Transitions, config: IQNConfig) -> Float[Tensor, "batch m"]:
    """y; the choice of a* never has a gradient."""
    after = model.target(batch.next_state, batch.fractions[1], batch.noise[1])
    with torch.no_grad():
        own = batch.next_state, batch.fractions[0], batch.noise[0]
        choosing = model.local(*own) if config.double else after
        action = choosing.mean(1).argmax(1)
    return batch.reward[:, None] + batch.discount[:, None] * _taken(after, action)


def _taken(values: Float[Tensor, "batch n actions"], action: Int[Tensor, " batch"]) -> Float[Tensor, "batch n"]:
    """The values of one action of each state."""
    return values.take_along_dim(action.long()[:, None, None], 2).squeeze(2)
