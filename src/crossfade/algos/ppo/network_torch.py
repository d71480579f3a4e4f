"""Actor and critic on one trunk, in torch. Twin: network_jax.py, with the same names for the same parameters."""

from jaxtyping import Float
from torch import Tensor, nn


class ActorCritic(nn.Module):
    """Logits of the actions and the value of the state.

    `mlp`: tanh layers, then a linear actor and a linear critic. `seed`: two times Linear, ReLU, LayerNorm of width 256,
    then for each head Linear, ReLU of width 128 and a linear output.
    """

    def __init__(self, observation_dim: int, n_actions: int, network: str = "mlp", hidden: int = 64, layers: int = 2):
        super().__init__()
        self.published = network == "seed"
        widths = [observation_dim, 256, 256] if self.published else [observation_dim, *[hidden] * layers]
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:] if self.published)
        self.actor, self.critic = (self._head(widths[-1], outputs) for outputs in (n_actions, 1))

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


def _apply(head: nn.ModuleList, h: Float[Tensor, "*batch h"]) -> Float[Tensor, "*batch outputs"]:
    *hidden, last = head
    for layer in hidden:
        h = layer(h).relu()
    return last(h)
