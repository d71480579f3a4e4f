"""Linear layers with noise in their parameters (Fortunato et al. 2018) in Equinox; its twin is `noisy_torch.py`.

Noise enters as data: the caller draws it from a standard normal, once per forward pass.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .layers_jax import linear_of_rows


class NoisyLinear(eqx.Module):
    """Fortunato et al. 2018, factorised noise.

    `y = (mu_w + sigma_w * f(eps_out) f(eps_in)^T) x + mu_b + sigma_b * f(eps_out)`, `f(e) = sign(e) sqrt(|e|)`.
    """

    weight_mu: Float[Array, "outputs inputs"]
    weight_sigma: Float[Array, "outputs inputs"]
    bias_mu: Float[Array, " outputs"]
    bias_sigma: Float[Array, " outputs"]

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.5, *, key: PRNGKeyArray):
        bound = in_features**-0.5
        weight_key, bias_key = jax.random.split(key)
        self.weight_mu = jax.random.uniform(weight_key, (out_features, in_features), minval=-bound, maxval=bound)
        self.weight_sigma = jnp.full((out_features, in_features), sigma * bound)
        self.bias_mu = jax.random.uniform(bias_key, (out_features,), minval=-bound, maxval=bound)
        self.bias_sigma = jnp.full((out_features,), sigma * bound)

    def __call__(
        self,
        x: Float[Array, "*batch inputs"],
        eps_in: Float[Array, " inputs"],
        eps_out: Float[Array, " outputs"],
    ) -> Float[Array, "*batch outputs"]:
        f_in, f_out = _scaled(eps_in), _scaled(eps_out)
        weight = self.weight_mu + self.weight_sigma * jnp.outer(f_out, f_in)
        bias = self.bias_mu + self.bias_sigma * f_out
        y = x @ weight.T
        return y + jnp.broadcast_to(bias, y.shape)


class IndependentNoisyLinear(eqx.Module):
    """Fortunato et al. 2018, independent noise: a number for every weight and every bias.

    `y = (weight + sigma_weight * noise_weight) x + bias + sigma_bias * noise_bias`; without noise the means alone.
    """

    weight: Float[Array, "outputs inputs"]
    sigma_weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]
    sigma_bias: Float[Array, " outputs"]

    def __init__(self, in_features: int, out_features: int, *, key: PRNGKeyArray):
        bound = (3 / in_features) ** 0.5
        weight_key, bias_key = jax.random.split(key)
        self.weight = jax.random.uniform(weight_key, (out_features, in_features), minval=-bound, maxval=bound)
        self.sigma_weight = jnp.full((out_features, in_features), 0.017)
        self.bias = jax.random.uniform(bias_key, (out_features,), minval=-bound, maxval=bound)
        self.sigma_bias = jnp.full((out_features,), 0.017)

    def __call__(
        self,
        x: Float[Array, "*batch inputs"],
        noise_weight: Float[Array, "outputs inputs"] | None = None,
        noise_bias: Float[Array, " outputs"] | None = None,
    ) -> Float[Array, "*batch outputs"]:
        weight, bias = self.weight, self.bias
        if noise_weight is not None:
            weight = weight + self.sigma_weight * noise_weight.astype(weight.dtype)
        if noise_bias is not None:
            bias = bias + self.sigma_bias * noise_bias.astype(bias.dtype)
        return linear_of_rows(x, weight, bias)


def _scaled(eps: Float[Array, " n"]) -> Float[Array, " n"]:
    return jnp.sign(eps) * jnp.sqrt(jnp.abs(eps))
