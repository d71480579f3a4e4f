"""Encoders of images in torch, against explicit loops over pixels in NumPy."""

import math

import numpy as np
import pytest
import torch
from offline_torch_cases import Arrays, mlp, norm

from crossfade.algos.offline import encoders
from crossfade.algos.offline.encoders_torch import make_encoder
from crossfade.algos.offline.terms_torch import frozen
from crossfade.nn.parameters_torch import filled

RNG = np.random.default_rng(2)


def made(spec: encoders.Encoder) -> tuple[torch.nn.Module, Arrays]:
    found = {}
    for name, (_, shape) in spec.laws.items():
        scale = 1 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.5
        found[name] = scale * RNG.normal(size=shape) + ("norm" in name and name.endswith("weight"))
    return filled(make_encoder(spec), found, "float64"), found


def window(x: np.ndarray, kernel: int, stride: int, value: float, pad: int | None = None) -> np.ndarray:
    """What a kernel sees at each place of an image: (height, width, kernel, kernel, channels).

    Padding SAME: ceil(n / stride) places, and of the padding that they need the greater half behind.
    """
    sides = []
    for n in x.shape[:2]:
        missing = max((-(-n // stride) - 1) * stride + kernel - n, 0)
        sides.append((missing // 2, missing - missing // 2) if pad is None else (pad, pad))
    x = np.pad(x, (*sides, (0, 0)), constant_values=value)
    places = [(n - kernel) // stride + 1 for n in x.shape[:2]]
    found = np.zeros((*places, kernel, kernel, x.shape[2]))
    for i, j in np.ndindex(*places):
        found[i, j] = x[i * stride : i * stride + kernel, j * stride : j * stride + kernel]
    return found


def conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0, stride: int = 1, pad: int | None = None):
    return np.einsum("hwklc,ockl->hwo", window(x, weight.shape[-1], stride, 0, pad), weight) + bias


def pool(x: np.ndarray) -> np.ndarray:
    return window(x, 3, 2, -np.inf).max((2, 3))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def swish(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def group_norm(x: np.ndarray, p: Arrays, name: str) -> np.ndarray:
    height, width, channels = x.shape
    groups = x.reshape(height, width, 4, channels // 4)
    mean = groups.mean((0, 1, 3), keepdims=True)
    variance = ((groups - mean) ** 2).mean((0, 1, 3), keepdims=True)
    flat = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    return flat * p[f"{name}.weight"] + p[f"{name}.bias"]


def impala(p: Arrays, spec: encoders.Impala, image: np.ndarray) -> np.ndarray:
    x = image / 255
    at = lambda x, name: conv(x, p[f"{name}.weight"], p[f"{name}.bias"])
    for i in range(len(spec.stacks)):
        x = pool(at(x, f"stacks.{i}.conv"))
        for j in range(spec.blocks):
            name = f"stacks.{i}.blocks.{j}"
            x = x + at(relu(at(relu(x), f"{name}.conv_0")), f"{name}.conv_1")
    x = relu(x)
    x = norm(x, p["norm.weight"], p["norm.bias"]) if spec.layer_norm else x
    return mlp(p, "mlp", x.reshape(-1), final=True)


def resnet(p: Arrays, spec: encoders.ResNet34, image: np.ndarray) -> np.ndarray:
    height, width, _ = image.shape
    rows, columns = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    x = np.concatenate([image / 127.5 - 1, rows[..., None], columns[..., None]], -1)
    x = pool(swish(group_norm(conv(x, p["stem.weight"], stride=2, pad=3), p, "stem_norm")))
    for i, blocks in enumerate(spec.stages):
        for j in range(blocks):
            name, stride = f"stages.{i}.{j}", 2 if i > 0 and j == 0 else 1
            y = swish(group_norm(conv(x, p[f"{name}.conv_0.weight"], stride=stride), p, f"{name}.norm_0"))
            y = group_norm(conv(y, p[f"{name}.conv_1.weight"]), p, f"{name}.norm_1")
            if f"{name}.shortcut.weight" in p:
                x = group_norm(conv(x, p[f"{name}.shortcut.weight"], stride=stride), p, f"{name}.shortcut_norm")
            x = swish(x + y)
    return x.mean((0, 1))


IMPALA = {
    "even": encoders.Impala((16, 16, 3), stacks=(4, 5), blocks=1, width=6),
    "odd": encoders.Impala((9, 14, 2), stacks=(3, 4, 4), blocks=2, width=5),
    "norm": encoders.Impala((16, 16, 3), stacks=(4, 4), blocks=1, width=6, layer_norm=True),
}


@pytest.mark.parametrize("spec", IMPALA.values(), ids=IMPALA)
def test_impala(spec):
    net, p = made(spec)
    images = RNG.integers(0, 256, (2, *spec.shape), dtype=np.uint8)
    got = net(torch.from_numpy(images)).detach().numpy()
    expected = np.stack([impala(p, spec, image) for image in images])
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    floats = net(torch.from_numpy(images.astype(float))).detach().numpy()
    assert (got == floats).all()


@pytest.mark.parametrize("shape", [(16, 16, 3), (33, 20, 1)])
def test_resnet(shape):
    spec = encoders.ResNet34(shape, stages=(2, 1, 2), channels=4)
    net, p = made(spec)
    images = RNG.integers(0, 256, (2, *shape), dtype=np.uint8)
    expected = np.stack([resnet(p, spec, image) for image in images])
    got = net(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["impala", "impala_small", "impala_large", "impala_debug", "resnet_34", "mlp"])
def test_every_encoder_can_be_made(name):
    shape = (5,) if name == "mlp" else (16, 16, 3)
    spec = encoders.encoder(name, shape)
    assert spec is not None
    net, found = made(spec)
    assert {key: p.shape for key, p in net.state_dict().items()} == {key: a.shape for key, a in found.items()}
    images = RNG.integers(0, 256, (1, *shape), dtype=np.uint8)
    given = torch.from_numpy(images.astype(float) if name == "mlp" else images)
    assert net(given).shape == (1, spec.outputs)
    assert torch.equal(frozen(net)(given), net(given)) and not frozen(net)(given).requires_grad
