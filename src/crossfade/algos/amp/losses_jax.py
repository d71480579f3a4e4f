"""The losses of adversarial motion priors (Peng et al. 2021), in JAX. Twin: losses_torch.py.

A convention is a loss, the style reward that belongs to its targets, and the score between them. All three are read off
one word, so that a reward cannot meet the targets of another loss.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .batch import Transitions
from .config import AMPConfig, Convention
from .discriminator_jax import Discriminator

Scalar = Float[Array, ""]
Vector = Float[Array, " n"]


def adversarial_loss(reference: Vector, policy: Vector, convention: Convention) -> Scalar:
    """What makes scores D of reference transitions large and those of the policy small.

    lsgan_pm1: E (D_ref - 1)^2 + E (D_pi + 1)^2. lsgan_01: 1/2 E (D_ref - 1)^2 + 1/2 E D_pi^2. bce: E softplus(-D_ref)
    + E softplus(D_pi).
    """
    match convention:
        case "lsgan_pm1":
            return jnp.square(reference - 1).mean() + jnp.square(policy + 1).mean()
        case "lsgan_01":
            return 0.5 * jnp.square(reference - 1).mean() + 0.5 * jnp.square(policy).mean()
        case "bce":
            return jax.nn.softplus(-reference).mean() + jax.nn.softplus(policy).mean()


def style_reward(score: Float[Array, "*n"], convention: Convention) -> Float[Array, "*n"]:
    """What a transition with this score earns.

    lsgan_pm1: max(0, 1 - (D - 1)^2 / 4). lsgan_01: D, clipped to [0, 1]. bce: -log(1 - sigmoid(D)) = softplus(D).
    """
    match convention:
        case "lsgan_pm1":
            return jnp.maximum(1 - 0.25 * jnp.square(score - 1), 0)
        case "lsgan_01":
            return jnp.clip(score, 0, 1)
        case "bce":
            return jax.nn.softplus(score)


def boundary(convention: Convention) -> float:
    """The score half way between the targets: above it a transition is taken for one of the reference."""
    return 0.5 if convention == "lsgan_01" else 0.0


def accuracy(reference: Vector, policy: Vector, convention: Convention) -> Scalar:
    """Share of the transitions on the right side of the boundary, both kinds counted alike."""
    middle, share = boundary(convention), lambda right: right.mean(dtype=reference.dtype)
    return 0.5 * (share(reference > middle) + share(policy < middle))


def gradient_penalty(discriminator: Discriminator, x: Float[Array, "n x"]) -> Scalar:
    """E |grad_x D(x)|^2, each row's gradient by itself. Its own gradient is of second order."""
    slope = jax.grad(lambda x: discriminator(x).sum())(x)
    return jnp.square(slope).sum(-1).mean()


def loss(discriminator: Discriminator, batch: Transitions, config: AMPConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """L(D_ref, D_pi) + w/2 E_ref |grad_x D|^2 with w = config.penalty, and what to log about it."""
    reference, policy = discriminator(batch.reference), discriminator(batch.policy)
    slope = gradient_penalty(discriminator, batch.reference)
    total = adversarial_loss(reference, policy, config.convention) + 0.5 * config.penalty * slope
    return total, {
        "disc_loss": total,
        "disc_penalty": slope,
        "disc_reference": reference.mean(),
        "disc_policy": policy.mean(),
        "disc_accuracy": accuracy(reference, policy, config.convention),
    }
