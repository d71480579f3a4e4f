"""The networks of a continuous GFlowNet, in torch. Twin: policy_jax.py, with the same parameter names."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..trunk_torch import features, trunk
from .batch import Kind
from .initial_parameters import n_outputs


class Choice(NamedTuple):
    """The output of a head: how to move, and whether to jump instead."""

    raw: Float[Tensor, "*nodes d c 3"]
    """For each dimension and component: logit of the weight, raw a, raw b (see density_torch.py)."""
    jump: Float[Tensor, "*nodes"]
    """Logit of a jump."""


class PolicyOutput(NamedTuple):
    """What the networks compute for every node."""

    forward: Choice
    backward: Choice | None
    """None where P_B is fixed: every ratio uniform, a jump as likely as a move."""
    log_flow: Float[Tensor, "*nodes"]
    """log F; zero without a flow head."""


class Policy(nn.Module):
    """P_F, P_B, the state flow F and log Z: linear heads on a trunk of LeakyReLU layers. `make_policy` fills it.

    P_B is a head on the trunk (`backward="shared"`), a network of its own ("learned"), or "fixed": every ratio uniform,
    a jump as likely as a move. log Z is the sum of the `z_dim` entries of `log_z`.
    """

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

        widths = [observation_dim, *[hidden] * layers]
        outputs = n_outputs(n_dim, components)
        self.trunk = trunk(widths)
        self.forward_head = nn.Linear(widths[-1], outputs)
        self.backward_trunk = trunk(widths) if backward == "learned" else nn.ModuleList()
        self.backward_head = None if backward == "fixed" else nn.Linear(widths[-1], outputs)
        self.flow_head = nn.Linear(widths[-1], 1) if flow else None
        self.log_z = nn.Parameter(torch.zeros(z_dim))
        self.kind: Kind = kind
        self.n_dim, self.components = n_dim, components

    def forward_choice(self, observation: Float[Tensor, "*nodes observation"]) -> Choice:
        """The forward head alone: all that acting needs."""
        return self._choice(self.forward_head, features(self.trunk, observation))

    def backward_choice(self, observation: Float[Tensor, "*nodes observation"]) -> Choice | None:
        """The backward head alone: all that sampling backwards needs."""
        return self._backward(observation, features(self.trunk, observation))

    def forward(self, observation: Float[Tensor, "*nodes observation"]) -> PolicyOutput:
        """The outputs of all heads for every node."""
        h = features(self.trunk, observation)
        log_flow = h.new_zeros(h.shape[:-1]) if self.flow_head is None else self.flow_head(h).squeeze(-1)
        return PolicyOutput(self._choice(self.forward_head, h), self._backward(observation, h), log_flow)

    def _backward(
        self, observation: Float[Tensor, "*nodes observation"], h: Float[Tensor, "*nodes features"]
    ) -> Choice | None:
        if self.backward_head is None:
            return None
        own = features(self.backward_trunk, observation) if self.backward_trunk else h
        return self._choice(self.backward_head, own)

    def _choice(self, head: nn.Linear, h: Float[Tensor, "*nodes features"]) -> Choice:
        numbers = head(h)
        return Choice(numbers[..., :-1].unflatten(-1, (self.n_dim, self.components, 3)), numbers[..., -1])
