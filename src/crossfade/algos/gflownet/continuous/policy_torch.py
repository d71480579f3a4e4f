"""The networks of a continuous GFlowNet in torch. Twin: policy_jax.py, with the same names for the same parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from .batch import Kind
from .initial_parameters import n_outputs


class Choice(NamedTuple):
    """What a head says of each node: how to move, and whether to jump instead."""

    raw: Float[Tensor, "*nodes d c 3"]  # of the density of ratios, see density_torch.py
    jump: Float[Tensor, "*nodes"]  # logit of a jump


class PolicyOutput(NamedTuple):
    """What the networks say about each node."""

    forward: Choice
    backward: Choice | None  # None where P_B is fixed: every ratio uniform, a jump as likely as a move
    log_flow: Float[Tensor, "*nodes"]  # log F; zero where the policy has no flow head


class Policy(nn.Module):
    """P_F, P_B, the state flow F and log Z on a trunk of LeakyReLU layers."""

    def __init__(
        self,
        kind: Kind,
        observation_dim: int,
        n_dim: int,
        components: int = 5,
        hidden: int = 128,
        layers: int = 2,
        backward: str = "shared",
        flow: bool = False,
        z_dim: int = 1,
    ):
        super().__init__()

        def trunk() -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(hidden if i else observation_dim, hidden) for i in range(layers))

        width, outputs = hidden if layers else observation_dim, n_outputs(n_dim, components)
        self.kind: Kind = kind
        self.shape = n_dim, components, 3
        self.trunk = trunk()
        self.forward_head = nn.Linear(width, outputs)
        self.backward_trunk = trunk() if backward == "learned" else None
        self.backward_head = None if backward == "fixed" else nn.Linear(width, outputs)
        self.flow_head = nn.Linear(width, 1) if flow else None
        self.log_z = nn.Parameter(torch.zeros(z_dim))

    def forward_choice(self, observation: Float[Tensor, "*nodes o"]) -> Choice:
        """P_F alone: all that acting needs."""
        return self._choice(self.forward_head, _features(self.trunk, observation))

    def backward_choice(self, observation: Float[Tensor, "*nodes o"]) -> Choice | None:
        """P_B alone: all that walking back needs."""
        return self._backward(observation, _features(self.trunk, observation))

    def forward(self, observation: Float[Tensor, "*nodes o"]) -> PolicyOutput:
        h = _features(self.trunk, observation)
        log_flow = h.new_zeros(h.shape[:-1]) if self.flow_head is None else self.flow_head(h).squeeze(-1)
        return PolicyOutput(self._choice(self.forward_head, h), self._backward(observation, h), log_flow)

    def _backward(self, observation: Float[Tensor, "*nodes o"], h: Float[Tensor, "*nodes h"]) -> Choice | None:
        if self.backward_head is None:
            return None
        own = h if self.backward_trunk is None else _features(self.backward_trunk, observation)
        return self._choice(self.backward_head, own)

    def _choice(self, head: nn.Linear, h: Float[Tensor, "*nodes h"]) -> Choice:
        numbers = head(h)
        return Choice(numbers[..., :-1].unflatten(-1, self.shape), numbers[..., -1])


def _features(trunk: nn.ModuleList, h: Float[Tensor, "*nodes o"]) -> Float[Tensor, "*nodes h"]:
    for layer in trunk:
        h = leaky_relu(layer(h), 0.01)
    return h
