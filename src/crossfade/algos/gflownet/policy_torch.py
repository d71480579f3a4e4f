"""The networks of a GFlowNet, in torch. Twin: policy_jax.py, with the same parameter names."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from . import trunk_torch
from .batch import MASKED


class PolicyOutput(NamedTuple):
    """What the networks compute for every node."""

    log_pf: Float[Tensor, "*nodes actions"]
    log_pb: Float[Tensor, "*nodes parents"]
    log_flow: Float[Tensor, "*nodes"]
    """log F; zero without a flow head."""
    logits: Float[Tensor, "*nodes actions"]
    """The logits of P_F, masked: flow matching reads them as log edge flows."""
    log_pb_stop: Float[Tensor, "*nodes"] | None = None
    """log P_B of undoing stop where that is not certain, which is a fault."""


class Policy(nn.Module):
    """P_F, P_B, the state flow F and log Z: linear heads on a trunk of LeakyReLU layers. `make_policy` fills it.

    P_B is a head on the trunk (`backward="shared"`), a network of its own ("learned"), or has no parameters: "uniform",
    "fixed" by `backward_logits`, one for each backward action, or "maxent", which is given with the nodes. log Z is the
    sum of the `z_dim` entries of `log_z`. With `layers=0` the heads read the observation, so on one-hot observations of
    the state the policy is a table. `finished_mask` is a published fault: P_B has one more output, to undo stop, and at
    a finished object the others stay valid beside it.
    """

    backward_logits: Tensor
    """The logits of a P_B without a network, one for each backward action."""

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        n_parents: int,
        hidden: int = 128,
        layers: int = 2,
        backward: Literal["shared", "learned", "uniform", "maxent", "fixed"] = "shared",
        flow: bool = False,
        z_dim: int = 1,
        backward_logits: tuple[float, ...] = (),
        finished_mask: bool = False,
    ):
        super().__init__()
        widths = [observation_dim, *[hidden] * layers]
        learned = backward in ("shared", "learned")
        self.trunk = trunk_torch.trunk(widths)
        self.forward_head = nn.Linear(widths[-1], n_actions)
        self.backward_trunk = trunk_torch.trunk(widths) if backward == "learned" else nn.ModuleList()
        self.backward_head = nn.Linear(widths[-1], n_parents + finished_mask) if learned else None
        self.flow_head = nn.Linear(widths[-1], 1) if flow else None
        self.log_z = nn.Parameter(torch.zeros(z_dim))
        self.backward = backward
        self.finished_mask = finished_mask
        logits = torch.tensor(backward_logits or (0.0,) * n_parents, dtype=torch.float64)
        self.register_buffer("backward_logits", logits, persistent=False)

    def forward(
        self,
        observation: Float[Tensor, "*nodes observation"],
        forward_mask: Bool[Tensor, "*nodes actions"],
        backward_mask: Bool[Tensor, "*nodes parents"],
        log_pb: Float[Tensor, "*nodes parents"] | None = None,
    ) -> PolicyOutput:
        """log P_F, log P_B, log F and logits of every node; `log_pb` is a backward policy given, not learned."""
        features = trunk_torch.features(self.trunk, observation)
        logits = _masked(self.forward_head(features), forward_mask)
        backward_logits = self._backward_logits(observation, features)
        return PolicyOutput(
            log_pf=log_softmax(logits, -1),
            log_pb=self._log_pb(backward_logits, backward_mask) if log_pb is None else log_pb,
            log_flow=(
                features.new_zeros(features.shape[:-1])
                if self.flow_head is None
                else self.flow_head(features).squeeze(-1)
            ),
            logits=logits,
            log_pb_stop=_log_undo_stop(backward_logits, backward_mask) if self.finished_mask else None,
        )

    def forward_logits(self, observation: Float[Tensor, "*nodes observation"]) -> Float[Tensor, "*nodes actions"]:
        """The logits of P_F without a mask: all that acting needs."""
        return self.forward_head(trunk_torch.features(self.trunk, observation))

    def log_pb(
        self, observation: Float[Tensor, "*nodes observation"], backward_mask: Bool[Tensor, "*nodes parents"]
    ) -> Float[Tensor, "*nodes parents"]:
        """log P_B alone: all that sampling backwards needs."""
        return self._log_pb(
            self._backward_logits(observation, trunk_torch.features(self.trunk, observation)), backward_mask
        )

    def _backward_logits(
        self, observation: Float[Tensor, "*nodes observation"], features: Float[Tensor, "*nodes features"]
    ) -> Float[Tensor, "*nodes outputs"]:
        if self.backward_head is not None:
            own = trunk_torch.features(self.backward_trunk, observation) if self.backward == "learned" else features
            return self.backward_head(own)
        constant = self.backward_logits.expand(*observation.shape[:-1], -1)
        return torch.full_like(constant, torch.nan) if self.backward == "maxent" else constant  # maxent: not known here

    def _log_pb(
        self, logits: Float[Tensor, "*nodes outputs"], backward_mask: Bool[Tensor, "*nodes parents"]
    ) -> Float[Tensor, "*nodes parents"]:
        return log_softmax(_masked(logits[..., :-1] if self.finished_mask else logits, backward_mask), -1)


def _log_undo_stop(
    logits: Float[Tensor, "*nodes outputs"], backward_mask: Bool[Tensor, "*nodes parents"]
) -> Float[Tensor, "*nodes"]:
    """log P_B of the last output where the ordinary backward actions are valid too."""
    mask = torch.cat([backward_mask, torch.ones_like(backward_mask[..., :1])], -1)
    return log_softmax(_masked(logits, mask), -1)[..., -1]


def _masked(logits: Float[Tensor, "*nodes choices"], mask: Bool[Tensor, "*nodes choices"]) -> Float[Tensor, "..."]:
    return logits.masked_fill(~mask, MASKED)
