"""Convolutions with the parameters of `torch.nn.Conv1d` and `Conv2d`; the bias of Equinox's has shape (O, 1, 1)."""

import math
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


class _Conv(eqx.Module):
    """One unbatched image `(in_channels, *space)` -> `(out_channels, *space)`; `jax.vmap` for a batch."""

    space: ClassVar[int]
    weight: Float[Array, "out_channels in_per_group *kernel"]
    bias: Float[Array, " out_channels"] | None
    stride: tuple[int, ...] = eqx.field(static=True)
    padding: tuple[int, ...] = eqx.field(static=True)
    dilation: tuple[int, ...] = eqx.field(static=True)
    groups: int = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        key: PRNGKeyArray,
    ):
        kernel = self._spread(kernel_size)
        weight_key, bias_key = jax.random.split(key)
        bound = (in_channels // groups * math.prod(kernel)) ** -0.5  # torch's initial range
        uniform = lambda key, shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)
        self.weight = uniform(weight_key, (out_channels, in_channels // groups, *kernel))
        self.bias = uniform(bias_key, (out_channels,)) if bias else None
        self.stride, self.padding, self.dilation = map(self._spread, (stride, padding, dilation))
        self.groups = groups

    def _spread(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,) * self.space

    def __call__(self, x: Float[Array, "in_channels ..."]) -> Float[Array, "out_channels ..."]:
        y = jax.lax.conv_general_dilated(
            x[None],
            self.weight,
            window_strides=self.stride,
            padding=[(p, p) for p in self.padding],
            rhs_dilation=self.dilation,
            feature_group_count=self.groups,
        )[0]
        return y if self.bias is None else y + self.bias.reshape(-1, *(1,) * self.space)


class Conv1d(_Conv):
    """`torch.nn.Conv1d`, zero padding."""

    space: ClassVar[int] = 1


class Conv2d(_Conv):
    """`torch.nn.Conv2d`, zero padding."""

    space: ClassVar[int] = 2
