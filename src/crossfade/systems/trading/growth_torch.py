"""Networks that have grown, in torch: what was there is computed as before, to the last bit.

New columns of zeros change no sum, but in one product they would: the kernels of torch's matrix products sum in an
order that depends on the width. XLA's do not, so the file has no twin; test_trading_transfer.py proves both.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ...algos.ppo.network_torch import ActorCritic


def grown(policy: ActorCritic, old_inputs: int, old_outputs: int) -> ActorCritic:
    """The network with its first inputs, and its first actions, computed apart from the others."""
    first, last = policy.trunk[0], policy.actor[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    policy.trunk[0] = GrownLinear(first, old_inputs, first.out_features)
    policy.actor[-1] = GrownLinear(last, last.in_features, old_outputs)
    return policy


class GrownLinear(nn.Linear):
    """y = W x + b with the parameters of a layer; its first inputs and outputs are computed apart from the rest."""

    def __init__(self, layer: nn.Linear, old_in: int, old_out: int):
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias, self.old_in, self.old_out = layer.weight, layer.bias, old_in, old_out

    def forward(self, input: Float[Tensor, "*n i"]) -> Float[Tensor, "*n outputs"]:
        i, o, weight, bias = self.old_in, self.old_out, self.weight, self.bias
        y = linear(input[..., :i], weight[:o, :i], bias[:o])
        if i < self.in_features:
            y = y + linear(input[..., i:], weight[:o, i:])
        return torch.cat([y, linear(input, weight[o:], bias[o:])], -1) if o < self.out_features else y
