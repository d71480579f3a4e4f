"""Encoders of observations, in JAX; encoders.py says what they compute. Twin: encoders_torch.py."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from . import encoders
from .networks_jax import MLP, _LayerNorm

Images = Shaped[Array, "batch height width channels"]
Maps = Float[Array, "batch _ _ _"]


class MLPEncoder(eqx.Module):
    """An MLP with layer norms whose last layer is linear."""

    mlp: MLP

    def __init__(self, spec: encoders.MLPEncoder):
        self.mlp = MLP(spec.mlp)

    def __call__(self, observations: Float[Array, "*batch inputs"]) -> Float[Array, "*batch code"]:
        return self.mlp(observations)


class Impala(eqx.Module):
    """Images of bytes through stacks of convolutions (Espeholt et al. 2018); encoders.py has the layers."""

    stacks: tuple["_Stack", ...]
    norm: _LayerNorm | None
    mlp: MLP

    def __init__(self, spec: encoders.Impala):
        channels = zip((spec.shape[-1], *spec.stacks), spec.stacks, strict=False)
        self.stacks = tuple(_Stack(*pair, spec.blocks) for pair in channels)
        self.norm = _LayerNorm(spec.stacks[-1]) if spec.layer_norm else None
        self.mlp = MLP(spec.mlp)

    def __call__(self, observations: Images) -> Float[Array, "batch code"]:
        x = observations.astype(self.mlp.layers[0].weight.dtype) / 255
        for stack in self.stacks:
            x = stack(x)
        x = jax.nn.relu(x)
        x = x if self.norm is None else self.norm(x)
        return self.mlp(x.reshape(len(x), -1))


class ResNet34(eqx.Module):
    """Images of bytes through a residual network of 34 layers (He et al. 2016); encoders.py has the layers."""

    stem: "_Conv"
    stem_norm: "_GroupNorm"
    stages: tuple[tuple["_Residual", ...], ...]

    def __init__(self, spec: encoders.ResNet34):
        self.stem = _Conv(spec.shape[-1] + 2, spec.channels, 7, bias=False)
        self.stem_norm = _GroupNorm(spec.channels)
        stages, before = [], spec.channels
        for i, blocks in enumerate(spec.stages):
            channels = spec.channels * 2**i
            strides = (2 if i > 0 else 1, *(1,) * (blocks - 1))
            stages.append(tuple(_Residual(before if j == 0 else channels, channels, s) for j, s in enumerate(strides)))
            before = channels
        self.stages = tuple(stages)

    def __call__(self, observations: Images) -> Float[Array, "batch code"]:
        x = observations.astype(self.stem.weight.dtype) / 127.5 - 1
        x = jnp.concatenate([x, *_coordinates(x)], -1)
        x = jax.nn.silu(self.stem_norm(self.stem(x, stride=2, padding=[(3, 3), (3, 3)])))
        x = _max_pool(x)
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return x.mean((1, 2))


def make_encoder(spec: encoders.Encoder) -> MLPEncoder | Impala | ResNet34:
    """The encoder of a specification."""
    match spec:
        case encoders.MLPEncoder():
            return MLPEncoder(spec)
        case encoders.Impala():
            return Impala(spec)
        case encoders.ResNet34():
            return ResNet34(spec)


class _Conv(eqx.Module):
    """A convolution over images whose last axis is that of channels."""

    weight: Float[Array, "after before height width"]
    bias: Float[Array, " after"] | None

    def __init__(self, before: int, after: int, size: int = 3, bias: bool = True):
        self.weight = jnp.zeros((after, before, size, size))
        self.bias = jnp.zeros((after,)) if bias else None

    def __call__(self, x: Maps, stride: int = 1, padding: str | list[tuple[int, int]] = "SAME") -> Maps:
        y = jax.lax.conv_general_dilated(
            x, self.weight, (stride, stride), padding, dimension_numbers=("NHWC", "OIHW", "NHWC")
        )
        return y if self.bias is None else y + jnp.broadcast_to(self.bias, y.shape)


class _Block(eqx.Module):
    """x + conv(relu(conv(relu(x))))."""

    conv_0: _Conv
    conv_1: _Conv

    def __init__(self, channels: int):
        self.conv_0, self.conv_1 = _Conv(channels, channels), _Conv(channels, channels)

    def __call__(self, x: Maps) -> Maps:
        return x + self.conv_1(jax.nn.relu(self.conv_0(jax.nn.relu(x))))


class _Stack(eqx.Module):
    """A convolution, max-pooling, blocks."""

    conv: _Conv
    blocks: tuple[_Block, ...]

    def __init__(self, before: int, channels: int, blocks: int):
        self.conv, self.blocks = _Conv(before, channels), tuple(_Block(channels) for _ in range(blocks))

    def __call__(self, x: Maps) -> Maps:
        x = _max_pool(self.conv(x))
        for block in self.blocks:
            x = block(x)
        return x


class _GroupNorm(eqx.Module):
    """Four groups of channels, each normed over its channels and the image; eps 1e-5."""

    weight: Float[Array, " channels"]
    bias: Float[Array, " channels"]

    def __init__(self, channels: int):
        self.weight, self.bias = jnp.zeros((channels,)), jnp.zeros((channels,))

    def __call__(self, x: Maps) -> Maps:
        groups = x.reshape(*x.shape[:3], 4, -1)
        centred = groups - groups.mean((1, 2, 4), keepdims=True)
        normed = centred * jax.lax.rsqrt(jnp.square(centred).mean((1, 2, 4), keepdims=True) + 1e-5)
        return normed.reshape(x.shape) * jnp.broadcast_to(self.weight, x.shape) + jnp.broadcast_to(self.bias, x.shape)


class _Residual(eqx.Module):
    """swish(shortcut(x) + norm(conv(swish(norm(conv(x))))))."""

    conv_0: _Conv
    norm_0: _GroupNorm
    conv_1: _Conv
    norm_1: _GroupNorm
    shortcut: _Conv | None
    shortcut_norm: _GroupNorm | None
    stride: int = eqx.field(static=True)

    def __init__(self, before: int, after: int, stride: int):
        self.conv_0, self.norm_0 = _Conv(before, after, bias=False), _GroupNorm(after)
        self.conv_1, self.norm_1 = _Conv(after, after, bias=False), _GroupNorm(after)
        differs = before != after or stride > 1
        self.shortcut = _Conv(before, after, 1, bias=False) if differs else None
        self.shortcut_norm = _GroupNorm(after) if differs else None
        self.stride = stride

    def __call__(self, x: Maps) -> Maps:
        y = self.norm_1(self.conv_1(jax.nn.silu(self.norm_0(self.conv_0(x, self.stride)))))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x, self.stride))
        return jax.nn.silu(x + y)


def _max_pool(x: Maps) -> Maps:
    """3x3 with stride 2; what lies outside the image is less than all."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _coordinates(x: Maps) -> tuple[Maps, Maps]:
    """The row and the column of every place, from -1 to 1."""
    shape = *x.shape[:3], 1
    along = lambda n: jnp.linspace(-1, 1, n, dtype=x.dtype)
    rows, columns = along(x.shape[1])[None, :, None, None], along(x.shape[2])[None, None, :, None]
    return jnp.broadcast_to(rows, shape), jnp.broadcast_to(columns, shape)
