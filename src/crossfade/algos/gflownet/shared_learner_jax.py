"""Learning from a batch whose trajectories are shared among devices: the part that each of them contributes.

Parts add up over the devices to the loss of the batch, and so do their gradients. With one device a part is the loss.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from ...optim import sharing_jax as sharing
from . import losses_jax
from .batch import Batch
from .config import GFlowNetConfig
from .losses_jax import LogZ, Terms
from .policy_jax import PolicyOutput

Scalar = Float[Array, ""]
Part = tuple[Scalar, dict[str, Scalar]]


def loss(output: PolicyOutput, batch: Batch, log_z: LogZ, config: GFlowNetConfig) -> Part:
    """This device's part of the loss that the config names, and of what is logged, from the networks' output."""
    terms = losses_jax.terms(output, batch)
    if config.loss != "fm":
        return balance(terms, log_z, config)
    return _part(losses_jax.flow_matching(output, batch, config.regression), terms, log_z, config)


def balance(terms: Terms, log_z: LogZ, config: GFlowNetConfig) -> Part:
    """This device's part of a loss of trajectories, and of what is logged."""
    if config.loss == "vargrad":  # trajectory balance against the mean estimate of log Z over all devices
        estimate = jax.lax.stop_gradient(losses_jax.log_z_estimate(terms).mean())
        mean = sharing.mean(estimate, config.devices)
        value = losses_jax.trajectory_balance(terms, mean[None], config.regression)
    else:
        value = losses_jax.balance(terms, log_z, config)
    return _part(value, terms, log_z, config)


def update(
    policy: PyTree,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    part: tuple[PyTree, dict[str, Scalar]],
    config: GFlowNetConfig,
) -> tuple[PyTree, PyTree, dict[str, Scalar]]:
    """One step of the optimiser, the same on every device; `part` is this device's part of gradient and info."""
    gradient, info = sharing.total(part, config.devices)
    updates, opt_state = tx.update(gradient, opt_state, policy)
    return eqx.apply_updates(policy, updates), opt_state, info


def _part(value: Scalar, terms: Terms, log_z: LogZ, config: GFlowNetConfig) -> Part:
    """A mean over this device's trajectories or transitions, weighted by its share of all of them."""
    n = _averaged_over(terms, config.loss)
    share = n.astype(value.dtype) / jnp.maximum(sharing.total(n, config.devices), 1)
    info = {name: part / config.devices for name, part in losses_jax.summary(value, log_z, terms).items()}
    return value * share, info | {"loss": value * share}


def _averaged_over(terms: Terms, name: str) -> Int[Array, ""]:
    """The number of trajectories or transitions over which a loss is a mean."""
    if name in ("tb", "vargrad", "subtb"):
        return jnp.array(terms.valid.shape[1])
    return (terms.valid & ~terms.stop if name == "mdb" else terms.valid).sum()
