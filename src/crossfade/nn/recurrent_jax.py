"""Cells with the parameters of `torch.nn.LSTMCell` and `GRUCell`: both biases, so that training agrees as well.

Other JAX cells hold the sum of the two biases. The forward pass is the same, but torch moves each of the two by every
gradient, so the sum moves twice as fast there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class _Cell(eqx.Module):
    weight_ih: Float[Array, "gates inputs"]
    weight_hh: Float[Array, "gates hidden"]
    bias_ih: Float[Array, " gates"]
    bias_hh: Float[Array, " gates"]

    def __init__(self, gates: int, input_size: int, hidden_size: int, key: PRNGKeyArray):
        bound = hidden_size**-0.5  # torch's initial range
        shapes = ((input_size,), (hidden_size,), (), ())
        keys = jax.random.split(key, 4)
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = (
            jax.random.uniform(k, (gates * hidden_size, *shape), minval=-bound, maxval=bound)
            for k, shape in zip(keys, shapes, strict=True)
        )


class LSTMCell(_Cell):
    """`torch.nn.LSTMCell` for one example: gates in the order input, forget, cell, output."""

    def __init__(self, input_size: int, hidden_size: int, *, key: PRNGKeyArray):
        super().__init__(4, input_size, hidden_size, key)

    def __call__(
        self, x: Float[Array, " inputs"], state: tuple[Float[Array, " hidden"], Float[Array, " hidden"]]
    ) -> tuple[Float[Array, " hidden"], Float[Array, " hidden"]]:
        h, c = state
        gates = self.weight_ih @ x + self.bias_ih + self.weight_hh @ h + self.bias_hh
        i, f, g, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


class GRUCell(_Cell):
    """`torch.nn.GRUCell` for one example: the reset gate acts on the hidden product, bias included."""

    def __init__(self, input_size: int, hidden_size: int, *, key: PRNGKeyArray):
        super().__init__(3, input_size, hidden_size, key)

    def __call__(self, x: Float[Array, " inputs"], h: Float[Array, " hidden"]) -> Float[Array, " hidden"]:
        ir, iz, i_n = jnp.split(self.weight_ih @ x + self.bias_ih, 3)
        hr, hz, hn = jnp.split(self.weight_hh @ h + self.bias_hh, 3)
        r, z = jax.nn.sigmoid(ir + hr), jax.nn.sigmoid(iz + hz)
        n = jnp.tanh(i_n + r * hn)
        return (1 - z) * n + z * h
