"""Clipping, averages and gradient steps in both frameworks: the same numbers, and torch's own where it has them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

from crossfade.optim import clipping_jax, clipping_torch, eager_torch, ema_jax, ema_torch, functional_torch, masking_jax
from crossfade.optim.state import OptimizerState, adam_group

SHAPES = {"weight": (3, 2), "bias": (3,), "scale": ()}


def arrays(seed: int, size: float = 1.0, dtype: str = "float64") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(size * rng.normal(size=shape), dtype) for name, shape in SHAPES.items()}


def tensors(named: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in named.items()}


def assert_close(found, expected, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert np.asarray(found[name]).dtype == np.asarray(expected[name]).dtype, name
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(expected[name]), rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("size", [1e-9, 0.05, 1.0, 1e6], ids=lambda s: f"{s:g}")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
def test_gradients_are_clipped_as_torch_does(size, dtype, tolerance, x64):
    grads = arrays(1, size, dtype)
    expected = {name: nn.Parameter(torch.zeros_like(g)) for name, g in tensors(grads).items()}
    for name, g in tensors(grads).items():
        expected[name].grad = g
    nn.utils.clip_grad_norm_(expected.values(), 0.5)
    expected = {name: p.grad.numpy() for name, p in expected.items()}
    clipped = not np.array_equal(expected["weight"], grads["weight"])
    assert clipped == (size >= 1.0)  # both sides of the bound are tried

    assert_close(clipping_torch.clip_by_global_norm(0.5)(tensors(grads)), expected, tolerance)
    clip = clipping_jax.clip_by_global_norm(0.5)
    given = {name: jnp.array(g) for name, g in grads.items()}
    assert_close(clip.update(given, clip.init(given))[0], expected, tolerance)


def test_gradients_of_zero_stay_zero(x64):
    zeros = {name: 0 * g for name, g in arrays(0).items()}
    assert_close(clipping_torch.clip_by_global_norm(1.0)(tensors(zeros)), zeros, 0)
    clip = clipping_jax.clip_by_global_norm(1.0)
    assert_close(clip.update(jax.tree.map(jnp.array, zeros), clip.init(zeros))[0], zeros, 0)


@pytest.mark.parametrize("rate", [0.0, 0.005, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_averages_are_the_same_in_both(rate, dtype, x64):
    average, online = arrays(1, dtype=dtype), arrays(2, dtype=dtype)
    expected = {n: ((1 - rate) * average[n] + rate * online[n]).astype(dtype) for n in SHAPES}
    tolerance = 1e-15 if dtype == "float64" else 1e-6
    assert_close(ema_torch.ema(tensors(average), tensors(online), rate), expected, tolerance)
    assert_close(
        ema_jax.ema(jax.tree.map(jnp.array, average), jax.tree.map(jnp.array, online), rate), expected, tolerance
    )


def test_an_average_of_many_steps_is_the_sum_of_a_series(x64):
    start, online = arrays(1), arrays(2)
    ours, theirs = tensors(start), jax.tree.map(jnp.array, start)
    for _ in range(50):
        ours = ema_torch.ema(ours, tensors(online), 0.1)
        theirs = ema_jax.ema(theirs, jax.tree.map(jnp.array, online), 0.1)
    expected = {n: 0.9**50 * start[n] + (1 - 0.9**50) * online[n] for n in SHAPES}
    assert_close(ours, expected, 1e-13)
    assert_close(theirs, expected, 1e-13)


# A gradient step of an optimiser that owns some of the parameters


class TorchPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.owned, self.other = nn.Linear(2, 3, dtype=torch.float64), nn.Linear(3, 1, dtype=torch.float64)
        self.register_buffer("seen", torch.tensor(4))
        self.register_buffer("mean", torch.tensor([0.5, -0.5], dtype=torch.float64))


class JaxPair(eqx.Module):
    owned: eqx.nn.Linear
    other: eqx.nn.Linear
    seen: jax.Array
    mean: jax.Array


OWNED = ["owned.weight", "owned.bias"]
X = np.random.default_rng(5).normal(size=(7, 2))


def torch_loss(pair, x):
    value = pair.other((pair.owned(x - pair.mean) / pair.seen).tanh()).square().mean()
    return value, {"loss": value}


def jax_loss(pair, x):
    hidden = jnp.tanh(jax.vmap(pair.owned)(x - pair.mean[None]) / pair.seen)
    value = jnp.square(jax.vmap(pair.other)(hidden)).mean()
    return value, {"loss": value}


def torch_pair() -> TorchPair:
    torch.manual_seed(0)
    return TorchPair()


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_a_step_moves_what_its_optimiser_owns_alike_in_three_forms(clip_norm, x64):
    eager, start = torch_pair(), {n: t.clone() for n, t in torch_pair().state_dict().items()}
    adam = torch.optim.Adam([{"params": eager.owned.parameters()}], lr=0.1)
    record = OptimizerState("Adam", (adam_group(OWNED, 0.1),), {})
    step = functional_torch.descent(torch_pair(), record, torch_loss, clip_norm)
    zeros = {
        n: {slot: np.zeros(start[n].shape) for slot in ("exp_avg", "exp_avg_sq")} | {"step": np.float32(0)}
        for n in OWNED
    }
    params, moments = start, functional_torch.init(OptimizerState("Adam", record.groups, zeros))

    linear = lambda name: eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        eqx.nn.Linear(*start[f"{name}.weight"].shape[::-1], key=jax.random.key(0)),
        (jnp.array(start[f"{name}.weight"].numpy()), jnp.array(start[f"{name}.bias"].numpy())),
    )
    policy = JaxPair(linear("owned"), linear("other"), jnp.array(4), jnp.array(start["mean"].numpy()))
    chain = (
        optax.adam(0.1)
        if clip_norm is None
        else optax.chain(clipping_jax.clip_by_global_norm(clip_norm), optax.adam(0.1))
    )
    tx = masking_jax.only(chain, OWNED)
    opt_state = tx.init(policy)
    assert {leaf.shape for leaf in jax.tree.leaves(opt_state)} == {(), (3, 2), (3,)}  # no moments of the others

    for _ in range(5):
        info = eager_torch.update(eager, adam, torch_loss, torch.tensor(X), clip_norm)
        params, moments, told = step(params, moments, torch.tensor(X))
        policy, opt_state, said = masking_jax.update(policy, tx, opt_state, jax_loss, jnp.array(X))
        losses = [float(each["loss"]) for each in (info, told, said)]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-12)

    expected = eager.state_dict()
    for name, tensor in expected.items():
        assert torch.equal(tensor, start[name]) == (name not in OWNED), name
        np.testing.assert_allclose(params[name], tensor, rtol=1e-12, err_msg=name)
    theirs = {"owned.weight": policy.owned.weight, "owned.bias": policy.owned.bias, "other.weight": policy.other.weight}
    for name, leaf in theirs.items():
        np.testing.assert_allclose(np.asarray(leaf), expected[name], rtol=1e-12, err_msg=name)
    assert policy.seen == 4 and all(p.grad is None for p in eager.other.parameters())


def test_a_clipped_step_is_shorter():
    moved = []
    for clip_norm in (None, 1e-4):
        pair = torch_pair()
        eager_torch.update(
            pair, torch.optim.SGD(pair.owned.parameters(), lr=1.0), torch_loss, torch.tensor(X), clip_norm
        )
        moved.append((pair.owned.weight - torch_pair().owned.weight).norm())
    assert moved[1] <= 1e-4 < moved[0]
