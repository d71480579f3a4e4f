"""Actor and critic on a common trunk or apart, in torch. Twin: network_jax.py, with the same parameter names."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.distribution import Distribution
from .architecture import Architecture


class ActorCritic(nn.Module):
    """Outputs of the action distribution, and the value of the state.

    h = phi(W x + b) for each layer of the trunk, then LayerNorm(h) if so shaped; outputs and value are W h + b behind
    the hidden layers phi(W h + b) of their heads. Free outputs are the parameter `log_std`, whatever the state.
    Parameters are drawn by `Architecture.laws`: made here they mean nothing.
    """

    def __init__(self, observation_dim: int, actions: Distribution, architecture: Architecture):
        super().__init__()
        widths, head = architecture.trunk, architecture.head
        self.activation = architecture.activation
        self.log_std = nn.Parameter(torch.zeros(actions.n_free)) if actions.n_free else None
        self.trunk = _layers(observation_dim, *widths)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (widths if architecture.layer_norm else ()))
        seen = architecture.seen(observation_dim)
        self.actor = _layers(seen, *head, actions.n_outputs - actions.n_free)
        self.critic = _layers(seen, *head, 1)

    def forward(self, observation: Float[Tensor, "*n o"]) -> tuple[Float[Tensor, "*n outputs"], Float[Tensor, "*n"]]:
        h = observation
        for i, layer in enumerate(self.trunk):
            h = self._phi(layer(h))
            h = self.norms[i](h) if self.norms else h
        outputs = self._head(self.actor, h)
        if self.log_std is not None:
            free = self.log_std.expand(*outputs.shape[:-1], -1)
            outputs = torch.cat([outputs, free], -1)
        return outputs, self._head(self.critic, h).squeeze(-1)

    def _phi(self, x: Float[Tensor, "*n i"]) -> Float[Tensor, "*n i"]:
        return {"tanh": torch.tanh, "relu": torch.relu, "swish": nn.functional.silu}[self.activation](x)

    def _head(self, layers: Iterable[nn.Module], h: Float[Tensor, "*n i"]) -> Float[Tensor, "*n outputs"]:
        *hidden, last = layers
        for layer in hidden:
            h = self._phi(layer(h))
        return last(h)


def _layers(*widths: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(widths))
