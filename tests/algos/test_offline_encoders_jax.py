"""Encoders of observations in JAX against convolutions and pools in loops; InFOM and others on images."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from offline_cases_jax import (
    BATCH,
    batch_of,
    gelu,
    linear,
    mlp,
    norm,
    on_device,
    parameters_of,
    small,
    specs_of,
)
from offline_judge_jax import QUICK

from crossfade.algos.offline import encoders, modules
from crossfade.algos.offline.losses_jax import loss, terms
from crossfade.algos.offline.networks_jax import make_policy
from crossfade.algos.offline.parameters import laws
from crossfade.algos.offline.statistics_jax import gradient_statistics
from default_run import few

pytestmark = pytest.mark.usefixtures("x64")


def windows(x, size, stride, outside, padding=None):
    """(batch, rows, columns, size, size, channels): SAME puts what is odd behind, unless told a padding."""
    pads = []
    for n in x.shape[1:3]:
        total = max((-(-n // stride) - 1) * stride + size - n, 0)
        pads.append((padding, padding) if padding is not None else (total // 2, total - total // 2))
    x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=outside)
    rows, columns = ((n - size) // stride + 1 for n in x.shape[1:3])
    cut = lambda i, j: x[:, i * stride : i * stride + size, j * stride : j * stride + size]
    return np.stack([np.stack([cut(i, j) for j in range(columns)], 1) for i in range(rows)], 1)


def conv(p, at, x, stride=1, padding=None):
    weight = p[f"{at}.weight"]
    y = np.einsum("bijhwc,ochw->bijo", windows(x, weight.shape[-1], stride, 0.0, padding), weight)
    return y + p.get(f"{at}.bias", 0.0)


def pool(x):
    return windows(x, 3, 2, -np.inf).max((3, 4))


def relu(x):
    return np.maximum(x, 0)


def swish(x):
    return x / (1 + np.exp(-x))


def group_norm(p, at, x):
    out, width = np.zeros_like(x), x.shape[-1] // 4
    for b, g in np.ndindex(len(x), 4):
        part = x[b, ..., g * width : (g + 1) * width]
        out[b, ..., g * width : (g + 1) * width] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
    return out * p[f"{at}.weight"] + p[f"{at}.bias"]


def impala(p, at, x, spec):
    x = x / 255
    for i in range(len(spec.stacks)):
        x = pool(conv(p, f"{at}.stacks.{i}.conv", x))
        for j in range(spec.blocks):
            own = f"{at}.stacks.{i}.blocks.{j}"
            x = x + conv(p, f"{own}.conv_1", relu(conv(p, f"{own}.conv_0", relu(x))))
    x = relu(x)
    x = norm(p, f"{at}.norm", x) if spec.layer_norm else x
    return gelu(linear(p, f"{at}.mlp.layers.0", x.reshape(len(x), -1)))


def resnet(p, at, x, spec):
    x = x / 127.5 - 1
    rows, columns = np.meshgrid(np.linspace(-1, 1, x.shape[1]), np.linspace(-1, 1, x.shape[2]), indexing="ij")
    x = np.concatenate([x, np.broadcast_to(np.stack([rows, columns], -1), (*x.shape[:3], 2))], -1)
    x = pool(swish(group_norm(p, f"{at}.stem_norm", conv(p, f"{at}.stem", x, 2, 3))))
    for i, blocks in enumerate(spec.stages):
        for j in range(blocks):
            own, stride = f"{at}.stages.{i}.{j}", 2 if i > 0 and j == 0 else 1
            y = swish(group_norm(p, f"{own}.norm_0", conv(p, f"{own}.conv_0", x, stride)))
            y = group_norm(p, f"{own}.norm_1", conv(p, f"{own}.conv_1", y))
            if f"{own}.shortcut.weight" in p:
                x = group_norm(p, f"{own}.shortcut_norm", conv(p, f"{own}.shortcut", x, stride))
            x = swish(x + y)
    return x.mean((1, 2))


def made(spec):
    coder, rng = modules.Coder(spec), np.random.default_rng(0)
    p = {name: 0.5 * rng.normal(size=shape) for name, (_, shape) in laws({"x": coder}).items()}
    return eqx.filter_jit(make_policy({"x": coder}, p, "float64")["x"]), p


@pytest.mark.parametrize("shape", few([(16, 16, 3), (15, 18, 3)], (15, 18, 3)))
@pytest.mark.parametrize("layer_norm", few([False, True], True))
def test_impala(shape, layer_norm):
    spec = encoders.Impala(shape, stacks=(4, 6), blocks=2, width=5, layer_norm=layer_norm)
    module, p = made(spec)
    images = np.random.default_rng(1).integers(0, 256, size=(2, *shape)).astype(np.uint8)
    found = module(jnp.asarray(images))
    assert found.dtype == np.float64 and found.shape == (2, 5)
    np.testing.assert_allclose(found, impala(p, "x.encoder", images.astype(float), spec), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 16, 3), (15, 18, 3)])
def test_resnet(shape):
    spec = encoders.ResNet34(shape, stages=(2, 2), channels=8)
    module, p = made(spec)
    images = np.random.default_rng(1).integers(0, 256, size=(2, *shape)).astype(np.uint8)
    np.testing.assert_allclose(
        module(jnp.asarray(images)), resnet(p, "x.encoder", images.astype(float), spec), rtol=1e-10
    )


def test_the_mlp_encoder_ends_linearly():
    module, p = made(encoders.MLPEncoder(3, (5, 4)))
    x = np.random.default_rng(1).normal(size=(BATCH, 3))
    np.testing.assert_allclose(module(jnp.asarray(x)), mlp(p, "x.encoder.mlp", x), rtol=1e-12)


def imaged(config, phase):
    """A batch whose observations are images of bytes."""
    rng = np.random.default_rng(2)
    image = lambda *front: rng.integers(0, 256, size=(*front, BATCH, 8, 8, 3)).astype(np.uint8)
    batch = batch_of(config, phase, observation=(8, 8, 3))
    goals = {"value_goals": image(), "actor_goals": image(), "views": image(2), "bounds": None}
    return batch._replace(observations=image(), next_observations=image(), **goals)


@pytest.mark.parametrize(
    "agent",
    few(("infom", "dino_rebrac", "iql", "rebrac", "crl_infonce", "td_infonce", "fb_repr", "hilp"), "iql"),
)
def test_images_reach_the_modules_that_the_agent_states(agent):
    few = {"flow_steps": 2, "flow_goals": 2} if agent == "infom" else {}
    config = small(agent, encoder="impala_debug", **few)
    p = parameters_of(config, (8, 8, 3))
    p = {name: a / 500 if ".mlp." in name else a for name, a in p.items()}  # or tanh has no slope
    policy = make_policy(specs_of(config, (8, 8, 3)), p, "float64")
    for phase in ("pretraining", "finetuning"):
        names = tuple(config.agent.terms[phase])
        values = lambda p, b, names=names: jnp.stack([terms(p, b, config)[name] for name in names])
        measure = jax.jit(
            lambda p, b, f=values: (f(p, b), loss(p, b, config)[0], jax.jacrev(f)(p, b)), compiler_options=QUICK
        )
        found, total, gradients = measure(policy, on_device(imaged(config, phase)))
        np.testing.assert_allclose(total, found.sum(), rtol=1e-12)
        for i, term in enumerate(names):
            reached = {key for key, part in gradients.items() if any(leaf[i].any() for leaf in jax.tree.leaves(part))}
            assert reached == set(config.agent.reached(config.spec, True)[phase][term]), (phase, term)


def test_statistics_of_gradients():
    gradients = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([[12.0]])}
    assert {k: float(v) for k, v in gradient_statistics(gradients, False).items()} == {"max": 12, "min": -4, "norm": 13}
    assert float(gradient_statistics(gradients, True)["norm"]) == 17
