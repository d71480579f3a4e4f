"""The distribution of an actor's actions, in torch. Twin: distribution_jax.py."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Normal:
    """Independent normal numbers, N(mean, std^2), or tanh of them if `squashed`."""

    mean: Float[Tensor, "*batch action"]
    log_std: Float[Tensor, "*batch action"]
    squashed: bool = False

    def mode(self) -> Float[Tensor, "*batch action"]:
        """The mean; squashed, tanh of it."""
        return self.mean.tanh() if self.squashed else self.mean

    def sample(self, noise: Float[Tensor, "*batch action"]) -> Float[Tensor, "*batch action"]:
        """mean + std noise with standard normal noise; squashed, tanh of it."""
        u = self.mean + self.log_std.exp() * noise
        return u.tanh() if self.squashed else u

    def log_prob(self, action: Float[Tensor, "*batch action"]) -> Float[Tensor, "*batch"]:
        """log N(u; mean, std^2), summed over the numbers of an action, where u is the action itself.

        Squashed, u = artanh(action), less sum log(1 - tanh(u)^2), computed as 2 (log 2 - u - softplus(-2 u)).
        """
        u = action.atanh() if self.squashed else action
        z = (u - self.mean) * (-self.log_std).exp()
        log_p = -(0.5 * z.square() + self.log_std + 0.5 * math.log(2 * math.pi))
        if self.squashed:
            log_p = log_p - 2 * (math.log(2) - u - torch.logaddexp(-2 * u, torch.zeros_like(u)))
        return log_p.sum(-1)
