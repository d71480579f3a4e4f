"""Encoders of observations, in torch; encoders.py says what they compute. Twin: encoders_jax.py."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from . import encoders, layers
from .networks_torch import MLP

Images = Shaped[Tensor, "batch height width channels"]
"""Bytes, or floats from 0 to 255."""
Maps = Float[Tensor, "batch _channels _height _width"]


class MLPEncoder(nn.Module):
    """An MLP with layer norms whose last layer is linear."""

    def __init__(self, spec: encoders.MLPEncoder):
        super().__init__()
        self.spec = spec
        self.mlp = MLP(spec.mlp)

    def forward(self, observations: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch code"]:
        return self.mlp(observations)


class Impala(nn.Module):
    """Images of bytes through stacks of convolutions (Espeholt et al. 2018); encoders.py has the layers."""

    def __init__(self, spec: encoders.Impala):
        super().__init__()
        self.spec = spec
        before = (spec.shape[-1], *spec.stacks)
        self.stacks = nn.ModuleList(_Stack(*s, spec.blocks) for s in zip(before, spec.stacks, strict=False))
        self.norm = nn.LayerNorm(spec.stacks[-1], eps=layers.EPS) if spec.layer_norm else None
        self.mlp = MLP(spec.mlp)

    def forward(self, observations: Images) -> Float[Tensor, "batch code"]:
        x = _maps(observations, self.mlp.layers[0].weight) / 255
        for stack in self.stacks:
            x = stack(x)
        x = x.relu().permute(0, 2, 3, 1)
        x = x if self.norm is None else self.norm(x)
        return self.mlp(x.flatten(1))


class ResNet34(nn.Module):
    """Images of bytes through a residual network of 34 layers (He et al. 2016); encoders.py has the layers."""

    def __init__(self, spec: encoders.ResNet34):
        super().__init__()
        self.spec = spec
        self.stem = nn.Conv2d(spec.shape[-1] + 2, spec.channels, 7, stride=2, padding=3, bias=False)
        self.stem_norm = _group_norm(spec.channels)
        stages, before = [], spec.channels
        for i, blocks in enumerate(spec.stages):
            channels = spec.channels * 2**i
            first = _Residual(before, channels, stride=2 if i > 0 else 1)
            stages.append(nn.ModuleList([first, *(_Residual(channels, channels, 1) for _ in range(blocks - 1))]))
            before = channels
        self.stages: Sequence[Sequence[nn.Module]] = nn.ModuleList(stages)  # pyright: ignore

    def forward(self, observations: Images) -> Float[Tensor, "batch code"]:
        x = _with_coordinates(_maps(observations, self.stem.weight) / 127.5 - 1)
        x = _pooled(F.silu(self.stem_norm(self.stem(x))))
        for block in (block for stage in self.stages for block in stage):
            x = block(x)
        return x.mean((2, 3))


def make_encoder(spec: encoders.Encoder) -> nn.Module:
    """The encoder of a specification."""
    match spec:
        case encoders.MLPEncoder():
            return MLPEncoder(spec)
        case encoders.Impala():
            return Impala(spec)
        case encoders.ResNet34():
            return ResNet34(spec)


class _Stack(nn.Module):
    """A convolution, max-pooling and residual blocks of Impala."""

    def __init__(self, before: int, channels: int, blocks: int):
        super().__init__()
        self.conv = nn.Conv2d(before, channels, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(channels) for _ in range(blocks))

    def forward(self, x: Maps) -> Maps:
        x = _pooled(self.conv(x))
        for block in self.blocks:
            x = block(x)
        return x


class _Block(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv_0 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "*maps"]) -> Float[Tensor, "*maps"]:
        return x + self.conv_1(self.conv_0(x.relu()).relu())


class _Residual(nn.Module):
    """swish(shortcut(x) + norm(conv(swish(norm(conv(x))))))."""

    def __init__(self, before: int, channels: int, stride: int):
        super().__init__()
        self.stride = stride
        self.conv_0 = nn.Conv2d(before, channels, 3, stride=stride, bias=False)
        self.norm_0 = _group_norm(channels)
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_1 = _group_norm(channels)
        projected = before != channels or stride > 1
        self.shortcut = nn.Conv2d(before, channels, 1, stride=stride, bias=False) if projected else None
        self.shortcut_norm = _group_norm(channels) if projected else None

    def forward(self, x: Maps) -> Maps:
        y = F.silu(self.norm_0(self.conv_0(_padded(x, 3, self.stride))))
        y = self.norm_1(self.conv_1(y))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x))
        return F.silu(x + y)


def _group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(4, channels, eps=1e-5)


def _maps(images: Images, like: Tensor) -> Maps:
    """Channels first, in the precision of the network."""
    return images.permute(0, 3, 1, 2).to(like.dtype)


def _with_coordinates(x: Maps) -> Maps:
    """Two more channels: the row and the column, from -1 to 1."""
    batch, _, height, width = x.shape
    line = lambda n: torch.linspace(-1, 1, n, dtype=x.dtype, device=x.device)
    rows, columns = line(height)[:, None], line(width)[None]
    each = [part.expand(batch, 1, height, width) for part in (rows, columns)]
    return torch.cat((x, *each), 1)


def _pooled(x: Maps) -> Maps:
    """Max-pooling 3x3 with stride 2, padding SAME."""
    return F.max_pool2d(_padded(x, 3, 2, -math.inf), 3, 2)


def _padded(x: Maps, kernel: int, stride: int, value: float = 0.0) -> Maps:
    """XLA's padding SAME: as many outputs as steps fit, rounded up, and the greater half of it behind."""
    pads = []
    for size in (x.shape[3], x.shape[2]):
        missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        pads += [missing // 2, missing - missing // 2]
    return F.pad(x, pads, value=value)
