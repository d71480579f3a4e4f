"""`torch.nn.BatchNorm1d/2d` as a function of a batch and running statistics, with torch's two habits.

`momentum` is the weight of the new value (JAX libraries: of the old one), and the running variance is unbiased while
the batch is normalised with the biased one.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class BatchStats(eqx.Module):
    """Running statistics, under torch's names."""

    running_mean: Float[Array, " channels"]
    running_var: Float[Array, " channels"]


class BatchNorm(eqx.Module):
    """Normalises each channel of a batch `(batch, channels, *space)`."""

    weight: Float[Array, " channels"]
    bias: Float[Array, " channels"]
    eps: float = eqx.field(static=True)
    momentum: float = eqx.field(static=True)

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1):
        self.weight, self.bias = jnp.ones(channels), jnp.zeros(channels)
        self.eps, self.momentum = eps, momentum

    def init_stats(self) -> BatchStats:
        """The statistics before the first batch: mean zero, variance one."""
        return BatchStats(jnp.zeros_like(self.bias), jnp.ones_like(self.weight))

    def __call__(
        self, x: Float[Array, "batch channels *space"], stats: BatchStats, *, train: bool
    ) -> tuple[Float[Array, "batch channels *space"], BatchStats]:
        """The normalised batch and the new statistics (the same ones when not training)."""
        along = lambda v: v.reshape(1, -1, *(1,) * (x.ndim - 2))
        mean, var = stats.running_mean, stats.running_var
        if train:
            axes = (0, *range(2, x.ndim))
            mean, var = x.mean(axes), x.var(axes)
            count = x.size // x.shape[1]
            old, new = 1 - self.momentum, self.momentum
            stats = BatchStats(
                old * stats.running_mean + new * mean,
                old * stats.running_var + new * var * (count / (count - 1)),
            )
        y = (x - along(mean)) / jnp.sqrt(along(var) + self.eps)
        return y * along(self.weight) + along(self.bias), stats
