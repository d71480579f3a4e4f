"""How a function that `bridge.import_torch` made is used: shapes, buffers, randomness, what it closes over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bridge.import_torch_cases import made, n
from bridge.import_torch_modules import NoisyLinear, mlp
from crossfade import bridge, random
from crossfade.errors import TransferError, UsageError


def squares(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x).square().sum(-1)


def test_another_shape_is_recorded_anew_and_the_same_is_not():
    module = made(lambda: mlp(4, 2)).float()
    imported = bridge.import_torch(squares, module, torch.zeros(3, 4))
    params = imported.params()
    assert imported.traces == 1
    for rows, traces in ((3, 1), (5, 2), (3, 2), (5, 2)):
        x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
        found = jax.jit(imported)(params, jnp.asarray(x))
        np.testing.assert_allclose(found, squares(module, torch.from_numpy(x)).detach(), rtol=1e-5)
        assert imported.traces == traces


def test_it_can_be_jitted_differentiated_and_vmapped(x64):
    module = made(lambda: mlp(4, 2))
    imported = bridge.import_torch(squares, module, n(4))
    params, x = imported.params(), jnp.asarray(n(5, 4).numpy())
    one_by_one = jnp.stack([imported(params, row) for row in x])
    np.testing.assert_allclose(jax.vmap(imported, (None, 0))(params, x), one_by_one, rtol=1e-12)
    hessian = jax.jit(jax.hessian(lambda x: imported(params, x)))(x[0])
    expected = torch.autograd.functional.hessian(lambda x: squares(module, x), torch.tensor(np.asarray(x[0])))
    np.testing.assert_allclose(hessian, expected, rtol=1e-10, atol=1e-12)


def test_a_float64_example_is_used_in_float32_and_integers_in_32_bits():
    function = lambda x, k: (x * torch.ones(2, dtype=x.dtype) + x.new_tensor([1.0, 2.0]), F.one_hot(k, 3), x[k] / 3)
    imported = bridge.import_torch(function, n(2), torch.tensor([1, 0]))
    x, k = jnp.asarray([0.5, 1.5], jnp.float32), jnp.asarray([1, 0])
    found = imported(x, k)
    assert [part.dtype for part in found] == [jnp.float32, jnp.int32, jnp.float32]
    expected = function(torch.tensor([0.5, 1.5]), torch.tensor([1, 0]))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_constant_that_does_not_fit_32_bits_is_refused():
    large = torch.tensor([2**40])
    imported = bridge.import_torch(lambda k: k + large, torch.tensor([1]))
    with pytest.raises(TransferError, match="fit int32"):
        imported(jnp.asarray([1]))


def test_constants_are_part_of_the_record(x64):
    imported = bridge.import_torch(lambda x, gamma, mode: x * gamma if mode == "mul" else x + gamma, n(2), 0.9, "mul")
    x = jnp.ones(2)
    assert imported(x, 0.5, "mul").tolist() == [0.5, 0.5]
    assert imported(x, 0.5, "add").tolist() == [1.5, 1.5]
    assert imported.traces == 3
    assert jax.jit(lambda x, g: imported(x, g, "add"))(x, 2.0).tolist() == [3.0, 3.0]  # a number that jit traces


def test_an_nn_module_is_imported_by_itself(x64):
    module = made(lambda: mlp(4, 2))
    imported = bridge.import_torch(module, n(3, 4))
    x = n(3, 4)
    np.testing.assert_allclose(imported(imported.params(), x), module(x).detach(), rtol=1e-12)


def test_tied_parameters_have_one_name_and_their_gradients_add_up(x64):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x)).sum()

    module, x = made(Tied), n(2, 3)
    imported = bridge.import_torch(module, x)
    assert list(imported.params()) == ["a.weight"]
    grads = jax.grad(imported)(imported.params(), x)
    module(x).backward()
    np.testing.assert_allclose(grads["a.weight"], module.a.weight.grad, rtol=1e-12)


def test_recurrent_layers_are_not_unrolled():
    module = nn.LSTM(3, 4)
    imported = bridge.import_torch(module, torch.zeros(5, 2, 3))
    sizes = [len(jax.make_jaxpr(imported)(imported.params(), jnp.zeros((t, 2, 3))).eqns) for t in (5, 50)]
    assert sizes[0] == sizes[1]


# Buffers


def test_batch_norm_statistics_come_back(x64):
    module = made(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4, momentum=None))
    )
    module[3].momentum = 0.3
    before = {name: b.clone() for name, b in module.named_buffers()}
    imported = bridge.import_torch(module, n(6, 3))
    assert all(torch.equal(b, before[name]) for name, b in module.named_buffers())
    state = imported.state()
    for _ in range(3):
        x = n(6, 3)
        found, buffers = imported.with_buffers(state, x)
        np.testing.assert_allclose(found, module(x).detach(), rtol=1e-12)
        assert set(buffers) == set(before)
        state = {**state, **buffers}
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[name], buffer, rtol=1e-12)


def test_buffers_that_are_not_given_keep_their_values_at_import(x64):
    module = made(lambda: nn.BatchNorm1d(4), training=False)
    imported = bridge.import_torch(module, n(6, 4))
    x, params = n(6, 4), imported.params()
    before = module(x).detach()
    module.running_mean.add_(1.0)
    np.testing.assert_allclose(imported(params, x), before, rtol=1e-12)
    np.testing.assert_allclose(imported(imported.state(), x), module(x).detach(), rtol=1e-12)


def test_noise_that_a_layer_keeps_in_its_buffers_comes_back(x64):
    layer, key = made(lambda: NoisyLinear(4, 3)), random.key(1)

    def noisy(layer, x):
        layer.reset_noise()
        return layer(x)

    x = n(2, 4)
    imported = bridge.import_torch(noisy, layer, x)
    found, buffers = imported.with_buffers(imported.params(), x, key=key)
    with bridge.random_stream(key):
        expected = noisy(layer, x)
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(buffers["weight_epsilon"], layer.weight_epsilon, rtol=1e-12)


def test_a_module_in_another_mode_is_recorded_anew(x64):
    module = made(lambda: nn.BatchNorm1d(4))
    imported, x = bridge.import_torch(module, n(6, 4)), n(6, 4)
    imported(imported.state(), x)
    module.eval()
    np.testing.assert_allclose(imported(imported.state(), x), module(x).detach(), rtol=1e-12)
    assert imported.traces == 2


def test_importing_leaves_no_trace_behind():
    module = made(lambda: nn.LSTM(3, 4))
    module.seen = None

    def remembering(module, x):
        module.seen = x * 2
        return torch.distributions.Normal(module(x)[0], 1.0).sample()

    before, state, attributes = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled(), dict(vars(module))
    tensors = {name: (tensor, tensor.clone()) for name, tensor in module.named_parameters()}
    bridge.import_torch(remembering, module, n(5, 2, 3))
    assert torch.equal(torch.get_rng_state(), before) and state == torch.are_deterministic_algorithms_enabled()
    assert module.seen is None and vars(module).keys() == attributes.keys()
    assert all(t is tensors[name][0] and torch.equal(t, tensors[name][1]) for name, t in module.named_parameters())
    assert torch.distributions.Distribution._validate_args and torch._C._get_mkldnn_enabled()
    assert torch.backends.mha.get_fastpath_enabled()
    assert type(torch.autograd.Function.__dict__["apply"]) is classmethod and Doubled.apply(torch.ones(1)) == 2
    assert type(module(torch.zeros(5, 2, 3, dtype=torch.float64))[0]) is torch.Tensor


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


# Randomness


def test_a_random_function_needs_a_key():
    imported = bridge.import_torch(lambda x: F.dropout(x, 0.5), n(3))
    assert imported.is_random
    with pytest.raises(UsageError, match=r"expected key=.*test_import_torch_use.py:\d+ in <lambda>"):
        imported(jnp.ones(3))


def test_dropout_masks_are_those_of_the_key(x64):
    imported = bridge.import_torch(lambda x: (F.dropout(x, 0.3), F.dropout(x, 0.3)), n(1000))
    ones = jnp.ones(1000)
    first, second = imported(ones, key=jax.random.key(0))
    for i, found in enumerate((first, second)):  # the i-th random operation draws from fold_in(key, i)
        mask = random.bernoulli(random.fold_in(random.key(0), i), 0.7, (1000,))
        assert np.array_equal(np.asarray(found) > 0, mask.numpy())
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, imported(ones, key=jax.random.key(1))[0])
    assert np.array_equal(first, imported(ones, key=random.key(0))[0])
    assert np.array_equal(first, jax.jit(lambda key: imported(ones, key=key)[0])(jax.random.key(0)))


def test_samples_have_their_law():
    imported = bridge.import_torch(lambda p: torch.multinomial(p, 2), torch.rand(4))
    weights = jnp.asarray([0.1, 0.2, 0.3, 0.4])
    drawn = jax.vmap(lambda key: imported(weights, key=key))(jax.random.split(jax.random.key(0), 4000))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    np.testing.assert_allclose(np.bincount(drawn[:, 0]) / 4000, weights, atol=0.03)


# What the function reads without taking it as an argument


def test_modules_and_parameters_that_are_closed_over(x64):
    net, scale = made(lambda: mlp(4, 2)), nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    offset = torch.tensor([1.0, 2.0], dtype=torch.float64)
    loss = lambda x: ((net(x) * scale + offset) ** 2).mean()
    imported = bridge.import_torch(loss, n(3, 4), closed_over={"net": net, "scale": scale})
    x = n(3, 4)
    given = {"net": imported.params(net), "scale": jnp.asarray(2.0)}
    value, grads = jax.value_and_grad(imported)(given, x)
    expected = loss(x)
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-12)
    np.testing.assert_allclose(grads["scale"], scale.grad, rtol=1e-12)
    np.testing.assert_allclose(grads["net"]["4.weight"], net[4].weight.grad, rtol=1e-12)


def test_tensors_from_outside_are_constants_and_named(x64):
    offset = torch.tensor([1.0, 2.0], dtype=torch.float64)
    imported = bridge.import_torch(lambda x: x + offset + torch.tensor([3.0, 4.0]), n(2))
    assert len(imported.outside) == 1 and imported.outside[0] is offset
    offset.zero_()
    assert imported(jnp.zeros(2)).tolist() == [4.0, 6.0]


def test_a_module_that_two_arguments_share_is_read_from_the_first(x64):
    encoder = made(lambda: nn.Linear(3, 3))
    actor, critic = nn.Sequential(encoder, made(lambda: nn.Linear(3, 2))), nn.Sequential(encoder, nn.Tanh())
    loss = lambda actor, critic, x: actor(x).sum() + critic(x).sum()
    x = n(2, 3)
    imported = bridge.import_torch(loss, actor, critic, x)
    grads = jax.grad(imported)(imported.params(actor), {}, x)
    loss(actor, critic, x).backward()
    np.testing.assert_allclose(grads["0.weight"], encoder.weight.grad, rtol=1e-12)


def test_a_parameter_that_is_closed_over_is_refused():
    net = made(lambda: mlp(4, 2))
    with pytest.raises(
        UsageError, match=r"test_import_torch_use.py:\d+ in <lambda>: expected parameters as arguments.*closed_over="
    ):
        bridge.import_torch(lambda x: net(x), n(3, 4))


def test_a_write_to_a_tensor_from_outside_is_refused():
    seen = torch.zeros(3)
    with pytest.raises(UsageError, match="expected no write to a tensor from outside"):
        bridge.import_torch(lambda x: seen.add_(x), torch.ones(3))
