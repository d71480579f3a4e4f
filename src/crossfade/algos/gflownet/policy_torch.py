"""The networks of a GFlowNet in torch. Twin: policy_jax.py, with the same names for the same parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, log_softmax

from .batch import MASKED


class PolicyOutput(NamedTuple):
    """What the networks say about each node."""

    log_pf: Float[Tensor, "*nodes a"]
    log_pb: Float[Tensor, "*nodes p"]
    log_flow: Float[Tensor, "*nodes"]  # log F; zero where the policy has no flow head
    logits: Float[Tensor, "*nodes a"]  # masked forward logits: the log edge flows of flow matching
    log_pb_stop: Float[Tensor, "*nodes"] | None = None  # of undoing stop, where that is not certain: a fault


class Policy(nn.Module):
    """P_F, P_B, the state flow F and log Z on a trunk of LeakyReLU layers.

    P_B is a head on that trunk (`backward="shared"`) or on one of its own ("learned"), or has no parameters: "uniform",
    "fixed" by `backward_logits`, or "maxent", which is not known here but given with the nodes. `undo_stop` adds an
    output to its head: the fault `legacy_finished_mask`.
    """

    backward_logits: Tensor  # where P_B has no parameters

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
        backward_logits: tuple[float, ...] = (),
        undo_stop: bool = False,
    ):
        super().__init__()

        def trunk() -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(hidden if i else observation_dim, hidden) for i in range(layers))

        width = hidden if layers else observation_dim
        self.n_parents = n_parents
        self.trunk = trunk()
        self.forward_head = nn.Linear(width, n_actions)
        self.backward_trunk = trunk() if backward == "learned" else None
        self.backward_head = nn.Linear(width, n_parents + undo_stop) if backward in ("shared", "learned") else None
        constant = {"uniform": (0.0,) * n_parents, "maxent": (torch.nan,) * n_parents, "fixed": backward_logits}
        logits = torch.tensor(constant.get(backward, ()), dtype=torch.float64)
        self.register_buffer("backward_logits", logits, persistent=False)
        self.flow_head = nn.Linear(width, 1) if flow else None
        self.log_z = nn.Parameter(torch.zeros(z_dim))

    def forward_logits(self, observation: Float[Tensor, "*nodes o"]) -> Float[Tensor, "*nodes a"]:
        """Unmasked logits of P_F: all that acting needs."""
        return self.forward_head(_features(self.trunk, observation))

    def log_backward(
        self, observation: Float[Tensor, "*nodes o"], backward_mask: Bool[Tensor, "*nodes p"]
    ) -> Float[Tensor, "*nodes p"]:
        """log P_B: all that building backwards needs."""
        return self._backward(_features(self.trunk, observation), observation, backward_mask)[0]

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
        log_pb_stop = None
        if log_pb is None:
            log_pb, log_pb_stop = self._backward(h, observation, backward_mask)
        log_flow = h.new_zeros(h.shape[:-1]) if self.flow_head is None else self.flow_head(h).squeeze(-1)
        return PolicyOutput(log_softmax(logits, -1), log_pb, log_flow, logits, log_pb_stop)

    def _backward(
        self,
        h: Float[Tensor, "*nodes h"],
        observation: Float[Tensor, "*nodes o"],
        mask: Bool[Tensor, "*nodes p"],
    ) -> tuple[Float[Tensor, "*nodes p"], Float[Tensor, "*nodes"] | None]:
        """log P_B of moves and, under the fault, of undoing stop beside the moves that should not be there."""
        if self.backward_head is None:
            return log_softmax(self.backward_logits.expand(mask.shape).masked_fill(~mask, MASKED), -1), None
        g = h if self.backward_trunk is None else _features(self.backward_trunk, observation)
        logits = self.backward_head(g)
        moves = logits[..., : self.n_parents].masked_fill(~mask, MASKED)
        log_pb = log_softmax(moves, -1)
        if logits.shape[-1] == self.n_parents:
            return log_pb, None
        return log_pb, log_softmax(torch.cat([moves, logits[..., -1:]], -1), -1)[..., -1]


def _features(trunk: nn.ModuleList, h: Float[Tensor, "*nodes o"]) -> Float[Tensor, "*nodes h"]:
    for layer in trunk:
        h = leaky_relu(layer(h), 0.01)
    return h
