"""Convolutions beyond the encoder: transposed ones in decoders, in one, two and three dimensions, IMPALA's residual
blocks, and a U-shaped net."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn
from torch.nn import functional as F

from gallery.case import Case, haiku, keys, normal

relu = jax.nn.relu
same = ((1, 1), (1, 1))


class Decoder(nn.Module):
    """From a vector to an image: a flat layer unflattened, then transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 4 * 2 * 3)
        self.up1 = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
        self.up2 = nn.ConvTranspose2d(6, 2, 4, stride=2)

    def forward(self, z: Tensor) -> Tensor:
        h = F.relu(self.fc(z)).view(-1, 4, 2, 3)
        return self.up2(F.relu(self.up1(h)))


def _padding(kernel: int, padding: int, output: int) -> tuple[int, int]:
    return kernel - 1 - padding, kernel - 1 - padding + output


class LinenDecoder(linen.Module):
    transpose_kernel: bool = False
    first: str = "HWC"

    @linen.compact
    def __call__(self, z):
        h = relu(linen.Dense(24)(z))
        h = h.reshape(-1, 2, 3, 4) if self.first == "HWC" else jnp.moveaxis(h.reshape(-1, 4, 2, 3), 1, -1)
        up = lambda features, kernel, padding: linen.ConvTranspose(
            features, (kernel, kernel), (2, 2), padding, transpose_kernel=self.transpose_kernel
        )
        h = relu(up(6, 3, [_padding(3, 1, 1)] * 2)(h))
        return up(2, 4, [_padding(4, 0, 0)] * 2)(h)


class NnxDecoder(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.c = nnx.Linear(5, 24, rngs=rngs)
        self.b = nnx.ConvTranspose(4, 6, (3, 3), 2, padding=[_padding(3, 1, 1)] * 2, rngs=rngs)
        self.a = nnx.ConvTranspose(6, 2, (4, 4), 2, padding=[_padding(4, 0, 0)] * 2, rngs=rngs)

    def __call__(self, z):
        return self.a(relu(self.b(relu(self.c(z)).reshape(-1, 2, 3, 4))))


class EqxDecoder(eqx.Module):
    fc: eqx.nn.Linear
    ups: list

    def __init__(self):
        k = keys(3)
        up = eqx.nn.ConvTranspose2d
        self.fc = eqx.nn.Linear(5, 24, key=k[0])
        self.ups = [up(6, 2, 4, 2, key=k[1]), up(4, 6, 3, 2, output_padding=1, padding=1, key=k[2])]

    def __call__(self, z):
        return self.ups[0](relu(self.ups[1](relu(self.fc(z)).reshape(4, 2, 3))))


def haiku_decoder(z):
    h = relu(hk.Linear(24)(z)).reshape(-1, 2, 3, 4)
    h = relu(hk.Conv2DTranspose(6, 3, 2, padding=[_padding(3, 1, 1)] * 2)(h))
    return hk.Conv2DTranspose(2, 4, 2, padding=[_padding(4, 0, 0)] * 2)(h)


class Wave(nn.Module):
    """Down and up again over time, the way up in groups."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(2, 4, 3, stride=2), nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.relu(self.down(x)))


class EqxWave(eqx.Module):
    a: eqx.nn.ConvTranspose1d
    b: eqx.nn.Conv1d

    def __init__(self):
        k = keys(2)
        self.a, self.b = eqx.nn.ConvTranspose1d(4, 6, 3, 2, groups=2, key=k[0]), eqx.nn.Conv1d(2, 4, 3, 2, key=k[1])

    def __call__(self, x):
        return self.a(relu(self.b(x)))


class Wave1(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(2, 4, 3, stride=2), nn.ConvTranspose1d(4, 3, 4, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.relu(self.down(x)))


class LinenWave(linen.Module):
    transpose_kernel: bool = False

    @linen.compact
    def __call__(self, x):
        h = relu(linen.Conv(4, (3,), 2, padding="VALID")(x))
        return linen.ConvTranspose(3, (4,), (2,), "VALID", transpose_kernel=self.transpose_kernel)(h)


class Volume(nn.Module):
    """Voxels, flattened in the end."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv3d(2, 3, 2), nn.Conv3d(3, 2, 2, stride=(1, 2, 1))
        self.fc = nn.Linear(2 * 1 * 2 * 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1))


class LinenVolume(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = relu(linen.Conv(3, (2, 2, 2), padding="VALID")(x))
        h = relu(linen.Conv(2, (2, 2, 2), (1, 2, 1), padding="VALID")(h))
        return linen.Dense(4)(h.reshape(len(h), -1))


class EqxVolume(eqx.Module):
    a: eqx.nn.Conv3d
    b: eqx.nn.Conv3d
    c: eqx.nn.Linear

    def __init__(self):
        k = keys(3)
        self.a, self.b = eqx.nn.Conv3d(2, 3, 2, key=k[0]), eqx.nn.Conv3d(3, 2, 2, (1, 2, 1), key=k[1])
        self.c = eqx.nn.Linear(12, 4, key=k[2])

    def __call__(self, x):
        return self.c(relu(self.b(relu(self.a(x)))).ravel())


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv0, self.conv1 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv1(F.relu(self.conv0(F.relu(x))))


class Impala(nn.Module):
    """Sequences of a convolution, a pooling and two residual blocks; two heads."""

    def __init__(self):
        super().__init__()
        sequence = lambda i, o: nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1), Residual(o), Residual(o)
        )
        self.network = nn.Sequential(sequence(3, 4), sequence(4, 5), nn.Flatten(), nn.ReLU(), nn.Linear(5 * 2 * 3, 8))
        self.actor, self.critic = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.network(x / 255.0))
        return self.actor(h), self.critic(h)


class LinenImpala(linen.Module):
    pool: str = "max"

    @linen.compact
    def __call__(self, x):
        x = x / 255.0
        for features in (4, 5):
            conv = lambda x, features=features: linen.Conv(features, (3, 3), padding=same)(x)
            x = conv(x)
            if self.pool == "max":
                x = linen.max_pool(x, (3, 3), (2, 2), same)
            else:
                x = linen.avg_pool(x, (3, 3), (2, 2), same)
            for _ in range(2):
                x = x + conv(relu(conv(relu(x))))
        h = relu(linen.Dense(8)(relu(x.reshape(len(x), -1))))
        value = linen.Dense(1)(h)
        return linen.Dense(4)(h), value


class EqxImpala(eqx.Module):
    convs: list
    fc: list

    def __init__(self):
        k = keys(13)
        sizes = [(3, 4), *[(4, 4)] * 4, (4, 5), *[(5, 5)] * 4]
        self.convs = [eqx.nn.Conv2d(i, o, 3, padding=1, key=key) for (i, o), key in zip(sizes, k, strict=False)]
        self.fc = [eqx.nn.Linear(i, o, key=key) for (i, o), key in zip([(8, 1), (30, 8), (8, 4)], k[10:], strict=True)]

    def __call__(self, x):
        x = x / 255.0
        for stage in (self.convs[:5], self.convs[5:]):
            x = eqx.nn.MaxPool2d(3, 2, padding=1)(stage[0](x))
            for first, second in (stage[1:3], stage[3:5]):
                x = x + second(relu(first(relu(x))))
        h = relu(self.fc[1](relu(x.ravel())))
        return self.fc[2](h), self.fc[0](h)


class Diffuser(nn.Module):
    """A U over time with group norms, as trajectories are denoised."""

    def __init__(self):
        super().__init__()
        self.inside, self.norm1 = nn.Conv1d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.down, self.up = nn.Conv1d(4, 4, 3, stride=2, padding=1), nn.ConvTranspose1d(4, 4, 4, stride=2, padding=1)
        self.norm2, self.out = nn.GroupNorm(2, 8), nn.Conv1d(8, 3, 1)
        self.time = nn.Sequential(nn.Linear(1, 6), nn.Mish(), nn.Linear(6, 4))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = F.mish(self.norm1(self.inside(x))) + self.time(time)[:, :, None]
        return self.out(self.norm2(torch.cat([h, self.up(F.mish(self.down(h)))], 1)))


class LinenDiffuser(linen.Module):
    groups: int = 2

    @linen.compact
    def __call__(self, x, time):
        norm = lambda x: linen.GroupNorm(self.groups, epsilon=1e-5)(x)
        mish = lambda x: x * jnp.tanh(jax.nn.softplus(x))
        when = linen.Dense(4)(mish(linen.Dense(6)(time)))
        h = mish(norm(linen.Conv(4, (3,), padding=1)(x))) + when[:, None]
        inner = mish(linen.Conv(4, (3,), 2, padding=1)(h))
        up = linen.ConvTranspose(4, (4,), (2,), [_padding(4, 1, 0)])(inner)
        return linen.Conv(3, (1,))(norm(jnp.concatenate([h, up], -1)))


CASES = {
    "decoder": Case(
        Decoder,
        lambda: normal(2, 5),
        {
            "linen": LinenDecoder,
            "linen transposed kernel": lambda: LinenDecoder(transpose_kernel=True),
            "linen channels first": lambda: LinenDecoder(first="CHW"),
            "nnx": NnxDecoder,
            "equinox": EqxDecoder,
            "haiku": lambda: haiku(haiku_decoder),
        },
    ),
    "wave": Case(
        Wave1,
        lambda: normal(2, 2, 9),
        {"linen": LinenWave, "linen transposed kernel": lambda: LinenWave(transpose_kernel=True)},
    ),
    "wave in groups": Case(Wave, lambda: normal(2, 2, 9), {"equinox": EqxWave}),
    "volume": Case(Volume, lambda: normal(2, 2, 3, 5, 5), {"linen": LinenVolume, "equinox": EqxVolume}),
    "impala": Case(
        Impala,
        lambda: normal(2, 3, 8, 10),
        {"linen": LinenImpala, "equinox": EqxImpala},
        {"average": lambda: LinenImpala(pool="average")},
    ),
    "diffuser": Case(
        Diffuser,
        lambda: (normal(2, 3, 8), normal(2, 1, seed=1)),
        {"linen": LinenDiffuser},
        {"groups": lambda: LinenDiffuser(groups=1)},
    ),
}
