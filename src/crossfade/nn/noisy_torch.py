"""Linear layers with noise in their parameters (Fortunato et al. 2018) in torch; its twin is `noisy_jax.py`.

Noise enters as data: the caller draws it from a standard normal, once per forward pass.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NoisyLinear(nn.Module):
    """Fortunato et al. 2018, factorised noise.

    `y = (mu_w + sigma_w * f(eps_out) f(eps_in)^T) x + mu_b + sigma_b * f(eps_out)`, `f(e) = sign(e) sqrt(|e|)`.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.5):
        super().__init__()
        bound = in_features**-0.5
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma * bound))
        self.bias_mu = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma * bound))

    def forward(
        self,
        x: Float[Tensor, "*batch inputs"],
        eps_in: Float[Tensor, " inputs"],
        eps_out: Float[Tensor, " outputs"],
    ) -> Float[Tensor, "*batch outputs"]:
        f_in, f_out = _scaled(eps_in), _scaled(eps_out)
        weight = self.weight_mu + self.weight_sigma * torch.outer(f_out, f_in)
        bias = self.bias_mu + self.bias_sigma * f_out
        return nn.functional.linear(x, weight, bias)


class IndependentNoisyLinear(nn.Module):
    """Fortunato et al. 2018, independent noise: a number for every weight and every bias.

    `y = (weight + sigma_weight * noise_weight) x + bias + sigma_bias * noise_bias`; without noise the means alone.
    """

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        bound, sigma = math.sqrt(3 / in_features), 0.017
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.sigma_weight = nn.Parameter(torch.full((out_features, in_features), sigma))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.sigma_bias = nn.Parameter(torch.full((out_features,), sigma))

    def forward(
        self,
        x: Float[Tensor, "*batch inputs"],
        noise_weight: Float[Tensor, "outputs inputs"] | None = None,
        noise_bias: Float[Tensor, " outputs"] | None = None,
    ) -> Float[Tensor, "*batch outputs"]:
        weight = self.weight if noise_weight is None else self.weight + self.sigma_weight * noise_weight
        bias = self.bias if noise_bias is None else self.bias + self.sigma_bias * noise_bias
        return nn.functional.linear(x, weight, bias)


def _scaled(eps: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return eps.sign() * eps.abs().sqrt()
