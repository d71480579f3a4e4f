"""Normal distribution with independent components, also squashed by tanh, in torch. Twin: gaussian_jax.py."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..errors import UsageError

LOG_STD = (-20.0, 2.0)
"""Outputs beyond these bounds count as the bound: a deviation can neither vanish nor overflow."""
LEAST = 0.001
"""Least deviation that softplus makes."""


@dataclass(frozen=True)
class Gaussian:
    """`dim` independent normal numbers u ~ N(mean, std^2); `Distribution` says what its methods are.

    Outputs are `dim` means and then `dim` values of log std, these either the network's ("state") or parameters of
    their own ("free"); or `dim` numbers x with std = softplus(x) + 0.001. The world is given u clipped to [-1, 1], or
    tanh(u) if `squashed`. Actions are kept as u, from which everything is computed: tanh loses digits near its ends,
    and clipping all of them.
    """

    dim: int
    squashed: bool = False
    log_std: Literal["free", "state"] = "free"
    deviation: Literal["exp", "softplus"] = "exp"

    @property
    def n_outputs(self) -> int:
        return 2 * self.dim

    @property
    def n_free(self) -> int:
        return self.dim if self.log_std == "free" else 0

    @property
    def noise(self) -> Literal["normal"]:
        return "normal"

    @property
    def noise_dim(self) -> int:
        return self.dim

    def masked(
        self, outputs: Float[Tensor, "*n outputs"], mask: Bool[Tensor, "*n a"] | None
    ) -> Float[Tensor, "*n outputs"]:
        """The outputs as they are: all numbers are legal."""
        if mask is not None:
            raise UsageError(f"expected no mask for continuous actions, got one of shape {mask.shape}.")
        return outputs

    def sample(self, outputs: Float[Tensor, "*n outputs"], noise: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
        """u = mean + std e with standard normal noise e."""
        mean, log_std = self._parts(outputs)
        return mean + log_std.exp() * noise

    def log_prob(self, outputs: Float[Tensor, "*n outputs"], action: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        """log N(u; mean, std^2) = -sum (((u - mean) / std)^2 / 2 + log std + log(2 pi) / 2), the density of u.

        Squashed, the density of tanh(u): less sum log(1 - tanh(u)^2), computed as 2 (log 2 - u - softplus(-2 u)).
        """
        mean, log_std = self._parts(outputs)
        z = (action - mean) * (-log_std).exp()
        log_p = -(0.5 * z * z + log_std + 0.5 * math.log(2 * math.pi))
        if self.squashed:
            log_p = log_p - _log_slope(action)
        return log_p.sum(-1)

    def entropy(
        self, outputs: Float[Tensor, "*n outputs"], noise: Float[Tensor, "*n d"] | None = None
    ) -> Float[Tensor, "*n"]:
        """sum (log std + log(2 pi e) / 2), in nats: that of u, also if squashed.

        That of tanh(u) is less by the mean of -log(1 - tanh(u)^2), which has no closed form: with noise, by its value
        at the one sample that noise makes.
        """
        entropy = self._parts(outputs)[1] + 0.5 * math.log(2 * math.pi * math.e)
        if noise is not None:
            entropy = entropy + _log_slope(self.sample(outputs, noise))
        return entropy.sum(-1)

    def sample_with_log_prob(
        self, outputs: Float[Tensor, "*n outputs"], noise: Float[Tensor, "*n d"]
    ) -> tuple[Float[Tensor, "*n d"], Float[Tensor, "*n"]]:
        """`sample` and its `log_prob`."""
        action = self.sample(outputs, noise)
        return action, self.log_prob(outputs, action)

    def log_prob_and_entropy(
        self,
        outputs: Float[Tensor, "*n outputs"],
        action: Float[Tensor, "*n d"],
        noise: Float[Tensor, "*n d"] | None = None,
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """`log_prob` and `entropy`."""
        return self.log_prob(outputs, action), self.entropy(outputs, noise)

    def mode(self, outputs: Float[Tensor, "*n outputs"]) -> Float[Tensor, "*n d"]:
        """u = mean; squashed, the world is then given the median of tanh(u)."""
        return self._parts(outputs)[0]

    def executed(self, action: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
        """tanh(u) if squashed, else u clipped to [-1, 1]."""
        return action.tanh() if self.squashed else action.clamp(-1, 1)

    def _parts(self, outputs: Float[Tensor, "*n outputs"]) -> tuple[Float[Tensor, "*n d"], Float[Tensor, "*n d"]]:
        """Means and log std."""
        mean, x = outputs.chunk(2, -1)
        if self.deviation == "softplus":
            return mean, (torch.logaddexp(x, torch.zeros_like(x)) + LEAST).log()
        return mean, x.clamp(*LOG_STD)


def _log_slope(u: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))."""
    return 2 * (math.log(2) - u - torch.logaddexp(-2 * u, torch.zeros_like(u)))
