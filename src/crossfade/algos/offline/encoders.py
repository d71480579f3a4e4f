"""Encoders of the offline agents as data: what they make of an observation. Framework-free. Twins: encoders_*."""

from dataclasses import dataclass

from ...nn.initial import Shape, he_normal
from .layers import MLP, Laws, conv, norm, within


@dataclass(frozen=True)
class MLPEncoder:
    """An MLP with layer norms whose last layer is linear."""

    inputs: int
    widths: tuple[int, ...] = (512, 512, 512, 512)

    @property
    def outputs(self) -> int:
        return self.widths[-1]

    @property
    def mlp(self) -> MLP:
        return MLP(self.inputs, self.widths, layer_norm=True)

    @property
    def laws(self) -> Laws:
        return within("mlp", self.mlp.laws)


@dataclass(frozen=True)
class Impala:
    """Images (height, width, channels) of bytes through stacks of convolutions (Espeholt et al. 2018).

    x / 255; for each of `stacks` (its number of channels): a 3x3 convolution, max-pooling 3x3 with stride 2, and
    `blocks` times x + conv(relu(conv(relu(x)))), all with padding SAME; relu; with `layer_norm` a norm over channels;
    flattened in the order height, width, channels; an MLP of one layer, `width`, gelu behind it. Parameters:
    `stacks.i.conv.*`, `stacks.i.blocks.j.conv_0.*`, `stacks.i.blocks.j.conv_1.*`, `norm.*`, `mlp.*`; a convolution's
    weight is (out, in, 3, 3).
    """

    shape: tuple[int, int, int]
    stacks: tuple[int, ...] = (16, 32, 32)
    blocks: int = 2
    width: int = 512
    layer_norm: bool = False

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def flat(self) -> int:
        """Numbers behind the last stack: each halves height and width, rounded up."""
        height, width, _ = self.shape
        for _ in self.stacks:
            height, width = -(-height // 2), -(-width // 2)
        return height * width * self.stacks[-1]

    @property
    def mlp(self) -> MLP:
        return MLP(self.flat, (self.width,), activate_final=True)

    @property
    def laws(self) -> Laws:
        found: Laws = {}
        for i, (before, channels) in enumerate(zip((self.shape[-1], *self.stacks), self.stacks, strict=False)):
            found |= conv(f"stacks.{i}.conv", before, channels)
            for j in range(self.blocks):
                found |= conv(f"stacks.{i}.blocks.{j}.conv_0", channels, channels)
                found |= conv(f"stacks.{i}.blocks.{j}.conv_1", channels, channels)
        found |= norm("norm", self.stacks[-1]) if self.layer_norm else {}
        return found | within("mlp", self.mlp.laws)


@dataclass(frozen=True)
class ResNet34:
    """Images of bytes through a residual network of 34 layers (He et al. 2016) with group norms.

    x / 127.5 - 1 with two more channels, the row and the column from -1 to 1; a 7x7 convolution with stride 2 and
    padding 3, group norm (4 groups, eps 1e-5), swish, max-pooling 3x3 with stride 2 (SAME); stages of 3, 4, 6 and 3
    blocks with 64, 128, 256 and 512 channels, the first block of each but the first with stride 2; the mean over the
    image. A block is swish(shortcut(x) + norm(conv(swish(norm(conv(x)))))) with 3x3 convolutions (SAME); where shapes
    differ the shortcut is a 1x1 convolution and a norm. Convolutions have no bias. Parameters: `stem.weight`,
    `stem_norm.*`, `stages.i.j.conv_0.weight`, `.norm_0.*`, `.conv_1.weight`, `.norm_1.*`, and `.shortcut.weight`,
    `.shortcut_norm.*`.
    """

    shape: tuple[int, int, int]
    stages: tuple[int, ...] = (3, 4, 6, 3)
    channels: int = 64

    @property
    def outputs(self) -> int:
        return self.channels * 2 ** (len(self.stages) - 1)

    @property
    def laws(self) -> Laws:
        found = {
            "stem.weight": (he_normal(), (self.channels, self.shape[-1] + 2, 7, 7)),
            **norm("stem_norm", self.channels),
        }
        before = self.channels
        for i, blocks in enumerate(self.stages):
            channels = self.channels * 2**i
            for j in range(blocks):
                name = f"stages.{i}.{j}"
                found[f"{name}.conv_0.weight"] = he_normal(), (channels, before, 3, 3)
                found |= norm(f"{name}.norm_0", channels)
                found[f"{name}.conv_1.weight"] = he_normal(), (channels, channels, 3, 3)
                found |= norm(f"{name}.norm_1", channels)
                if before != channels or (i > 0 and j == 0):
                    found[f"{name}.shortcut.weight"] = he_normal(), (channels, before, 1, 1)
                    found |= norm(f"{name}.shortcut_norm", channels)
                before = channels
        return found


Encoder = MLPEncoder | Impala | ResNet34


def encoder(name: str | None, shape: Shape, widths: tuple[int, ...] = (512, 512, 512, 512)) -> Encoder | None:
    """The encoder with this name for observations of a shape; None for none. `widths` are those of `mlp`."""
    match name:
        case None:
            return None
        case "mlp":
            return MLPEncoder(shape[0], widths)
        case "impala":
            return Impala(_image(shape))
        case "impala_small":
            return Impala(_image(shape), blocks=1)
        case "impala_large":
            return Impala(_image(shape), stacks=(64, 128, 128), width=1024)
        case "impala_debug":
            return Impala(_image(shape), stacks=(4, 4), blocks=1)
        case "resnet_34":
            return ResNet34(_image(shape))
        case _:
            raise ValueError(name)


def code_dim(encoder: Encoder | None, shape: Shape) -> int:
    """Numbers that a network reads of an observation: its code, or itself."""
    return shape[0] if encoder is None else encoder.outputs


def _image(shape: Shape) -> tuple[int, int, int]:
    height, width, channels = shape
    return height, width, channels
