"""The distribution of an actor's actions, in JAX. Twin: distribution_torch.py."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Normal(eqx.Module):
    """Independent normal numbers, N(mean, std^2), or tanh of them if `squashed`."""

    mean: Float[Array, "*batch action"]
    log_std: Float[Array, "*batch action"]
    squashed: bool = eqx.field(static=True, default=False)

    def mode(self) -> Float[Array, "*batch action"]:
        """The mean; squashed, tanh of it."""
        return jnp.tanh(self.mean) if self.squashed else self.mean

    def sample(self, noise: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """mean + std noise with standard normal noise; squashed, tanh of it."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(u) if self.squashed else u

    def log_prob(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch"]:
        """log N(u; mean, std^2), summed over the numbers of an action, where u is the action itself.

        Squashed, u = artanh(action), less sum log(1 - tanh(u)^2), computed as 2 (log 2 - u - softplus(-2 u)).
        """
        u = jnp.arctanh(action) if self.squashed else action
        z = (u - self.mean) * jnp.exp(-self.log_std)
        log_p = -(0.5 * jnp.square(z) + self.log_std + 0.5 * math.log(2 * math.pi))
        if self.squashed:
            log_p = log_p - 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
        return log_p.sum(-1)
