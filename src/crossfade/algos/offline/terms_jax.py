"""Pieces of which several agents make their losses, in JAX. Twin: terms_torch.py."""

import math
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .distribution_jax import Normal

Module = TypeVar("Module")
Scalar = Float[Array, ""]
Info = dict[str, Scalar]
Number = float | Scalar
"""A setting: of a population, each member has its own."""


def frozen(module: Module) -> Module:
    """The module with its parameters as constants; gradients still pass through its inputs."""
    return jax.tree.map(stop_gradient, module)


def expectile_loss(
    advantage: Float[Array, "*n"], difference: Float[Array, "*n"], expectile: Number
) -> Float[Array, "*n"]:
    """|k - 1{advantage < 0}| difference^2, element by element (Newey and Powell 1987)."""
    return jnp.where(advantage < 0, 1 - expectile, expectile) * jnp.square(difference)


def clone_loss(distribution: Normal, actions: Float[Array, "batch action"]) -> tuple[Scalar, Info]:
    """-mean log pi(a), and what to log: the log density and the squared error of the mode."""
    log_prob = distribution.log_prob(actions).mean()
    return -log_prob, {"log_prob": log_prob, "mse": jnp.square(distribution.mode() - actions).mean()}


def policy_action(distribution: Normal, noise: Float[Array, "batch action"] | None) -> Float[Array, "batch action"]:
    """The mode, or a sample where there is noise, clipped to [-1, 1]."""
    return jnp.clip(distribution.mode() if noise is None else distribution.sample(noise), -1, 1)


def q_loss(q: Float[Array, "*n"], normalize: bool) -> Scalar:
    """-lambda mean q, with lambda the constant 1 / mean |q| if `normalize`, else 1."""
    return -q.mean() / stop_gradient(jnp.abs(q).mean()) if normalize else -q.mean()


def aggregate(values: Float[Array, "members ..."], how: Literal["mean", "min"]) -> Float[Array, "..."]:
    """Members, the first axis, brought together by their mean or minimum."""
    return values.mean(0) if how == "mean" else values.min(0)


def on_sphere(vectors: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """sqrt(d) v / |v|, row by row."""
    return math.sqrt(vectors.shape[-1]) * vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def iql_value_loss(q: Float[Array, " batch"], v: Float[Array, " batch"], expectile: Number) -> Scalar:
    """mean L_k(q - v, q - v); q is a constant."""
    difference = stop_gradient(q) - v
    return expectile_loss(difference, difference, expectile).mean()


def iql_critic_loss(q: Float[Array, "members batch"], target: Float[Array, " batch"]) -> Scalar:
    """mean_b sum_e (q_e - target)^2; the target is a constant."""
    return jnp.square(q - stop_gradient(jnp.broadcast_to(target, q.shape))).sum(0).mean()


def awr_loss(advantage: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: Number) -> Scalar:
    """-mean min(exp(alpha advantage), 100) log_prob; the advantage is a constant."""
    weight = jnp.minimum(jnp.exp(alpha * stop_gradient(advantage)), 100.0)
    return -(weight * log_prob).mean()
