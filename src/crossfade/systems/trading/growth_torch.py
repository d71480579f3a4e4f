"""Networks that have grown, in torch: what was there is computed as before, to the last bit. Twin: growth_jax.py.

New columns of zeros change no sum, but in one product they would: the kernels of matrix products sum in an order that
depends on the width. test_trading_transfer.py measures that they do not here.
"""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ...algos.ppo.network_torch import ActorCritic


def grown(policy: ActorCritic, old_inputs: int, old_outputs: tuple[int, ...]) -> ActorCritic:
    """The network with its first inputs computed apart from the others, and its actions by the growths that brought
    them: the first `old_outputs[0]`, those up to `old_outputs[1]`, ..., the rest."""
    first, last = policy.trunk[0], policy.actor[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    policy.trunk[0] = GrownLinear(first, old_inputs, ())
    policy.actor[-1] = GrownLinear(last, last.in_features, old_outputs)
    return policy


class GrownLinear(nn.Linear):
    """y = W x + b with the parameters of a layer; its first inputs and its parts of outputs are computed apart."""

    def __init__(self, layer: nn.Linear, old_in: int, old_out: tuple[int, ...]):
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias, self.old_in, self.old_out = layer.weight, layer.bias, old_in, old_out

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "*n i"]
    ) -> Float[Tensor, "*n outputs"]:
        parts = pairwise((0, *self.old_out, self.out_features))
        y = [self._part(x, self.weight[a:b], self.bias[a:b]) for a, b in parts]
        return torch.cat(y, -1) if len(y) > 1 else y[0]

    def _part(
        self, x: Float[Tensor, "*n i"], weight: Float[Tensor, "part i"], bias: Float[Tensor, " part"]
    ) -> Float[Tensor, "*n part"]:
        i = self.old_in
        y = linear(x[..., :i], weight[:, :i], bias)
        return y if i == self.in_features else y + linear(x[..., i:], weight[:, i:])
