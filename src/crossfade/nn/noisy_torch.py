"""NoisyLinear (Fortunato et al. 2018, factorised noise) in torch; its twin is `noisy_jax.py`.

Noise enters as data: the caller draws `eps_in` and `eps_out` from a standard normal, once per forward pass.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NoisyLinear(nn.Module):
    """`y = (mu_w + sigma_w * f(eps_out) f(eps_in)^T) x + mu_b + sigma_b * f(eps_out)`, `f(e) = sign(e) sqrt(|e|)`."""

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


def _scaled(eps: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return eps.sign() * eps.abs().sqrt()
