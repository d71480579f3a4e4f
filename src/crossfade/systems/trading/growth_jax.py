"""Networks that have grown, in JAX: what was there is computed as before, to the last bit. Twin: growth_torch.py.

New columns of zeros change no sum, but in one product they would: the kernels of matrix products sum in an order that
depends on the width. test_trading_transfer.py measures that they do not here.
"""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algos.ppo.network_jax import ActorCritic
from ...nn.layers_jax import RowsLinear, linear_of_rows as linear


def grown(policy: ActorCritic, old_inputs: int, old_outputs: tuple[int, ...]) -> ActorCritic:
    """The network with its first inputs computed apart from the others, and its actions by the growths that brought
    them: the first `old_outputs[0]`, those up to `old_outputs[1]`, ..., the rest."""
    first, last = policy.trunk[0], policy.actor[-1]
    layers = GrownLinear(first, old_inputs, ()), GrownLinear(last, last.weight.shape[1], old_outputs)
    return eqx.tree_at(lambda net: (net.trunk[0], net.actor[-1]), policy, layers)


class GrownLinear(RowsLinear):
    """y = W x + b with the parameters of a layer; its first inputs and its parts of outputs are computed apart."""

    old_in: int = eqx.field(static=True)
    old_out: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, layer: RowsLinear, old_in: int, old_out: tuple[int, ...]):
        for name, value in vars(layer).items():
            setattr(self, name, value)
        self.old_in, self.old_out = old_in, old_out

    def __call__(self, x: Float[Array, "*n i"], *, key: Any = None) -> Float[Array, "*n outputs"]:
        assert self.bias is not None
        one_row = x.size == x.shape[-1]  # XLA sums each output by itself, but would fuse a part into another kernel
        parts = pairwise((0, *(() if one_row else self.old_out), len(self.weight)))
        y = [self._part(x, self.weight[a:b], self.bias[a:b]) for a, b in parts]
        return jnp.concatenate(y, -1) if len(y) > 1 else y[0]

    def _part(
        self, x: Float[Array, "*n i"], weight: Float[Array, "part i"], bias: Float[Array, " part"]
    ) -> Float[Array, "*n part"]:
        i = self.old_in
        y = linear(x[..., :i], weight[:, :i], bias)
        return y if i == weight.shape[1] else y + linear(x[..., i:], weight[:, i:], None)
