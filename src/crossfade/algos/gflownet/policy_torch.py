"""The networks of a GFlowNet in torch. Twin: policy_jax.py, with the same names for the same parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, log_softmax

MASKED = -1e30  # finite, so that a row without a valid action gives numbers, not NaN


class PolicyOutput(NamedTuple):
    """What the networks say about each node."""

    log_pf: Float[Tensor, "*nodes a"]
    log_pb: Float[Tensor, "*nodes p"]
    log_flow: Float[Tensor, "*nodes"]  # log F; zero where the policy has no flow head
    logits: Float[Tensor, "*nodes a"]  # masked forward logits: the log edge flows of flow matching
    log_pb_stop: Float[Tensor, "*nodes"] | None = None  # of undoing stop, where that is not certain: a fault


class Policy(nn.Module):
    """P_F, P_B, the state flow F and log Z on a trunk of LeakyReLU layers."""

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        n_parents: int,
        hidden: int = 128,
        layers: int = 2,
        backward: str = "shared",
        flow: bool = False,
        z_dim: int = 1,
    ):
        super().__init__()

        def trunk() -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(hidden if i else observation_dim, hidden) for i in range(layers))

        width = hidden if layers else observation_dim
        self.trunk = trunk()
        self.forward_head = nn.Linear(width, n_actions)
        self.backward_trunk = trunk() if backward == "learned" else None
        self.backward_head = None if backward == "uniform" else nn.Linear(width, n_parents)
        self.flow_head = nn.Linear(width, 1) if flow else None
        self.log_z = nn.Parameter(torch.zeros(z_dim))

    def forward_logits(self, observation: Float[Tensor, "*nodes o"]) -> Float[Tensor, "*nodes a"]:
        """Unmasked logits of P_F: all that acting needs."""
        return self.forward_head(_features(self.trunk, observation))

    def forward(
        self,
        observation: Float[Tensor, "*nodes o"],
        forward_mask: Bool[Tensor, "*nodes a"],
        backward_mask: Bool[Tensor, "*nodes p"],
        log_pb: Float[Tensor, "*nodes p"] | None = None,
    ) -> PolicyOutput:
        """Outputs for each node; `log_pb` is a backward policy that is given, not learned."""
        h = _features(self.trunk, observation)
        logits = self.forward_head(h).masked_fill(~forward_mask, MASKED)
        if log_pb is not None:
            pass
        elif self.backward_head is None:
            log_pb = _uniform(backward_mask, logits.dtype)
        else:
            g = h if self.backward_trunk is None else _features(self.backward_trunk, observation)
            log_pb = log_softmax(self.backward_head(g).masked_fill(~backward_mask, MASKED), -1)
        log_flow = h.new_zeros(h.shape[:-1]) if self.flow_head is None else self.flow_head(h).squeeze(-1)
        return PolicyOutput(log_softmax(logits, -1), log_pb, log_flow, logits)


def _features(trunk: nn.ModuleList, h: Float[Tensor, "*nodes o"]) -> Float[Tensor, "*nodes h"]:
    for layer in trunk:
        h = leaky_relu(layer(h), 0.01)
    return h


def _uniform(mask: Bool[Tensor, "*nodes p"], dtype: torch.dtype) -> Float[Tensor, "*nodes p"]:
    """1 / number of parents on the valid ones."""
    return log_softmax(torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, MASKED), -1)
