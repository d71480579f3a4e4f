"""Actor and critic on one trunk, in torch. Twin: network_jax.py, with the same names for the same parameters."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear


class ActorCritic(nn.Module):
    """Logits of the actions and the value of the state.

    `mlp`: tanh layers, then a linear actor and a linear critic. `seed`: two times Linear, ReLU, LayerNorm of width 256,
    then for each head Linear, ReLU of width 128 and Linear. `base` are the inputs and actions of the network that this
    one has grown from, if it has.
    """

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        network: str = "mlp",
        hidden: int = 64,
        layers: int = 2,
        base: tuple[int, int] | None = None,
    ):
        super().__init__()
        self.published = network == "seed"
        widths = [observation_dim, 256, 256] if self.published else [observation_dim, *[hidden] * layers]
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:] if self.published)
        self.actor, self.critic = (self._head(widths[-1], outputs) for outputs in (n_actions, 1))
        if base is not None:
            self.trunk[0] = _Grown(observation_dim, widths[1], base[0], widths[1])
            inputs = 128 if self.published else widths[-1]
            self.actor[-1] = _Grown(inputs, n_actions, inputs, base[1])

    def _head(self, width: int, outputs: int) -> nn.ModuleList:
        sizes = [width, 128, outputs] if self.published else [width, outputs]
        return nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))

    def forward(
        self, observation: Float[Tensor, "*batch o"]
    ) -> tuple[Float[Tensor, "*batch a"], Float[Tensor, "*batch"]]:
        h = observation
        for i, layer in enumerate(self.trunk):
            h = self.norms[i](layer(h).relu()) if self.published else layer(h).tanh()
        return _apply(self.actor, h), _apply(self.critic, h).squeeze(-1)


class _Grown(nn.Linear):
    """A linear layer that computes its first inputs and outputs apart from those it grew.

    New columns of zeros then leave every bit of the old outputs alone. In one product they would not: the kernels of
    torch's matrix products sum in an order that depends on the width.
    """

    def __init__(self, fan_in: int, fan_out: int, old_in: int, old_out: int):
        super().__init__(fan_in, fan_out)
        self.old_in, self.old_out = old_in, old_out

    def forward(self, input: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch outputs"]:
        i, o, weight, bias = self.old_in, self.old_out, self.weight, self.bias
        y = linear(input[..., :i], weight[:o, :i], bias[:o])
        if i < self.in_features:
            y = y + linear(input[..., i:], weight[:o, i:])
        return torch.cat([y, linear(input, weight[o:], bias[o:])], -1) if o < self.out_features else y


def _apply(head: nn.ModuleList, h: Float[Tensor, "*batch h"]) -> Float[Tensor, "*batch outputs"]:
    *hidden, last = head
    for layer in hidden:
        h = layer(h).relu()
    return last(h)
