"""What an imported JAX function takes and gives: trees, numbers, keys, dtypes, shapes, modules; and what it refuses."""

import copy
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from jax import lax
from jax.extend.core import jaxpr_as_fun

from crossfade import random as cf_random
from crossfade.bridge import import_jax, to_jax, to_torch
from crossfade.bridge.from_jax import programs
from crossfade.bridge.jaxprs import closed_jaxpr, inlined, source_line
from crossfade.errors import NoCounterpart, TransferError, UsageError

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


class Batch(NamedTuple):
    x: object
    y: object


def mlp():
    return eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))


def squared(model, batch, scale=1.0):
    error = jax.vmap(model)(batch.x) - batch.y
    return scale * jnp.mean(error**2), {"error": error, "sizes": [jnp.abs(error).max(), 3]}


def test_trees_come_and_go():
    model, batch = mlp(), Batch(X, X[:, :2])
    loss, info = import_jax(squared, model, batch)(model, Batch(*map(torch.tensor, batch)))
    expected, told = squared(model, Batch(*map(jnp.asarray, batch)))
    assert isinstance(info["error"], torch.Tensor) and isinstance(info["sizes"], list)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(info["error"], told["error"], rtol=1e-4, atol=1e-6)
    assert int(info["sizes"][1]) == 3


def test_what_is_no_array_comes_back_as_it_was():
    model, word = import_jax(lambda model: (model, "word"), mlp())(mlp())
    assert model.activation is mlp().activation and word == "word"
    assert all(isinstance(leaf, torch.Tensor) for leaf in (model.layers[0].weight, model.layers[2].bias))


def test_keyword_arguments():
    fn = import_jax(lambda x, *, power: x**power, X, power=2)
    np.testing.assert_array_equal(fn(torch.tensor(X), power=2), torch.tensor(X) ** 2)
    np.testing.assert_allclose(fn(torch.tensor(X), power=3), X**3, rtol=1e-6)


def test_a_module_trains_as_jax_does_and_goes_back(x64):
    model = jax.tree.map(lambda x: x.astype(float) if eqx.is_inexact_array(x) else x, mlp())
    batch = Batch(*(jnp.asarray(a, float) for a in (X, X[:, :2])))
    loss = import_jax(squared, model, batch)
    module = loss.module(0)
    assert [name for name, _ in module.named_parameters()] == [
        f"layers.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")
    ]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        module(to_torch(batch))[0].backward()
        optimizer.step()
        grads = eqx.filter_grad(lambda m: squared(m, batch)[0])(model)
        model = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads))
    trained = module.to_jax()
    assert isinstance(trained, eqx.nn.MLP) and loss.traces == 1
    for got, expected in zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (trained, model)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_a_module_has_copies_and_a_state():
    loss = import_jax(squared, mlp(), Batch(X, X[:, :2]))
    module = loss.module()
    target = copy.deepcopy(module)
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2)
    batch = Batch(X, X[:, :2])
    expected = float(squared(mlp(), jax.tree.map(jnp.asarray, batch))[0])
    assert target(batch)[0].item() == pytest.approx(expected, rel=1e-5) != module(batch)[0].item()
    target.load_state_dict(module.state_dict())
    assert torch.equal(module(batch)[0], target(batch)[0])


def test_a_state_of_nnx_is_an_argument():
    graph, state = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    fn = import_jax(lambda state, x: nnx.merge(graph, state)(x), state, X)
    module = fn.module(0)
    assert {name for name, _ in module.named_parameters()} == {"kernel", "bias"}
    np.testing.assert_allclose(module(X).detach(), nnx.merge(graph, state)(jnp.asarray(X)), rtol=1e-5, atol=1e-6)


def test_names_that_torch_uses_itself_and_single_arrays():
    fn = import_jax(lambda tree: tree["train"] * tree["forward"], {"train": X, "forward": X})
    assert [name for name, _ in fn.module(0).named_parameters()] == ["forward_", "train_"]
    assert [name for name, _ in import_jax(jnp.sin, X).module(0).named_parameters()] == ["value"]


def test_an_argument_that_is_not_there_is_refused():
    fn = import_jax(jnp.sin, X)
    for wrong in (1, "model"):
        with pytest.raises(UsageError, match="module: expected the number of one of 1 arguments"):
            fn.module(wrong)


def test_another_shape_dtype_or_constant_traces_anew():
    fn = import_jax(lambda x, n, scale: scale * x**n, X, 2, 0.5)
    for _ in range(2):
        fn(torch.tensor(X), 2, 0.25)
    assert fn.traces == 1
    assert fn(torch.tensor(X)[:2], 2, 0.5).shape == (2, 3)
    fn(torch.tensor(X), 3, 0.5)
    result = fn(torch.tensor(X).double(), 2, 0.5)
    assert fn.traces == 4 and result.dtype == torch.float64
    np.testing.assert_array_equal(result, 0.5 * X.astype(float) ** 2)


def test_integers_of_torch_are_those_of_jax():
    fn = import_jax(lambda table, index: table[index], X, np.array([0, 2]))
    assert torch.equal(fn(torch.tensor(X), torch.tensor([4, 0])), torch.tensor(X)[[4, 0]])
    counts = import_jax(lambda n: n + 1, np.array([3]))
    assert counts(torch.tensor([3])).dtype == torch.int32
    with pytest.raises(TransferError, match="integers that fit int32"):
        counts(torch.tensor([2**40]))
    with jax.enable_x64(True):
        assert int(import_jax(lambda n: n + 1, np.array([3]))(torch.tensor([2**40]))) == 2**40 + 1


INTEGER = {
    "division": lambda x, y: x // y + x % y + lax.div(x, y) + lax.rem(x, y),
    "by zero": lambda x, y: (lax.div(x, jnp.zeros_like(y)), lax.rem(x, jnp.zeros_like(y))),
    "bits": lambda x, y: (x & y, x | y, x ^ y, ~x, lax.population_count(x)),
    "shifts": lambda x, y: (
        lax.shift_left(x, jnp.abs(y)),
        lax.shift_right_logical(x, jnp.abs(y)),
        lax.shift_right_arithmetic(x, jnp.abs(y)),
    ),
    "order": lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), x < y, x >= y, jnp.clip(x, y, y + 3)),
    "arithmetic": lambda x, y: (x * y * x, x - y, -x, jnp.abs(x), jnp.sign(x), x**3, x.sum(), x.prod(), jnp.cumsum(x)),
    "to floats": lambda x, y: (x.astype(jnp.float32), (x * y).astype(jnp.float32)),
    "to each other": lambda x, y: (x.astype(jnp.int8), x.astype(jnp.uint8), x.astype(jnp.uint32), x.astype(bool)),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", INTEGER)
def test_integers_bit_for_bit(name, dtype, x64):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(info.min + 1, info.max, 20, dtype=dtype, endpoint=True)
    y = rng.integers(1, 70, 20).astype(dtype)
    got = jax.tree.leaves(import_jax(INTEGER[name], x, y)(torch.tensor(x), torch.tensor(y)))
    expected = jax.tree.leaves(INTEGER[name](jnp.asarray(x), jnp.asarray(y)))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
        assert a.numpy().dtype == b.dtype


def draws(key):
    a, b = jax.random.split(key)
    keys = jax.random.split(jax.random.fold_in(b, 7), 3)
    each = jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys)
    logits = jnp.arange(4.0)
    return (
        jax.random.bits(a, (5,)),
        jax.random.uniform(a, (4,)),
        each,
        jax.random.randint(b, (6,), 0, 10),
        jax.random.bernoulli(a, 0.3, (7,)),
        jax.random.categorical(b, logits, shape=(6,)),
        jax.random.permutation(a, 9),
        jax.random.choice(keys[1], 5, (3,), replace=False),
    )


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_random_numbers_are_jaxs(make, wide):
    with jax.enable_x64(wide):
        fn, key = import_jax(draws, make(0)), make(5)
        got, expected = fn(to_torch(key)), draws(key)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        normal = lambda key: jax.random.normal(key, (1000,))  # XLA fuses its products and sums
        rounding = 64 * np.finfo(np.float64 if wide else np.float32).eps
        np.testing.assert_allclose(
            import_jax(normal, make(0))(to_torch(key)), normal(key), rtol=rounding, atol=rounding
        )


def test_gamma_numbers_are_jaxs_with_its_derivative(x64):
    draw = lambda a, key: jax.random.gamma(key, a) + jnp.exp(jax.random.loggamma(key, a))
    a, key = np.array([0.05, 0.7, 1.0, 3.0, 50.0]), jax.random.key(4)
    shape = torch.tensor(a, requires_grad=True)
    found = import_jax(draw, a, key)(shape, to_torch(key))
    np.testing.assert_allclose(found.detach(), draw(a, key), rtol=1e-12)
    found.sum().backward()
    np.testing.assert_allclose(shape.grad, jax.grad(lambda a: draw(a, key).sum())(a), rtol=1e-9)


def test_keys_come_back_as_crossfades():
    fn = import_jax(jax.random.split, jax.random.key(0))
    assert torch.equal(fn(cf_random.key(3)), cf_random.split(cf_random.key(3)))


def test_noise_inside_a_loss_has_a_gradient(x64):
    noisy = lambda mean, std, key: jnp.sum((mean + std * jax.random.normal(key, mean.shape)) ** 2)
    mean, std = np.ones(3), np.full(3, 0.5)
    inputs = [torch.tensor(a, requires_grad=True) for a in (mean, std)]
    import_jax(noisy, mean, std, jax.random.key(0))(*inputs, cf_random.key(9)).backward()
    expected = jax.grad(noisy, (0, 1))(jnp.asarray(mean), jnp.asarray(std), jax.random.key(9))
    for got, want in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(got.grad, want, rtol=1e-12)


def test_half_precision():
    fn = import_jax(lambda x: (x * 3).astype(jnp.float32).sum(), jnp.asarray(X, jnp.bfloat16))
    got = fn(torch.tensor(X).bfloat16())
    np.testing.assert_allclose(got, (jnp.asarray(X, jnp.bfloat16) * 3).astype(jnp.float32).sum(), rtol=1e-6)


def test_an_operation_torch_has_not_is_named_with_its_line():
    def fn(x):
        return jax.lax.reduce_precision(x, 7, 11)  # here

    with pytest.raises(NoCounterpart, match=r"reduce_precision: torch has no type of 7 exponent") as raised:
        import_jax(fn, X)
    line = fn.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}" in str(raised.value)


def test_a_primitive_without_a_rule_is_named(monkeypatch):
    monkeypatch.delitem(programs.RULES, "sin")
    with pytest.raises(NoCounterpart, match=r"(?s)sin: expected primitives .*used at .*test_import_jax_faces.py:\d+"):
        import_jax(lambda x: jnp.sin(x), X)


def test_a_loop_of_unknown_length_has_values_but_no_gradient():
    fn = import_jax(lambda x: lax.while_loop(lambda y: y.sum() < 10, lambda y: y * 2, x), np.ones(3, np.float32))
    assert fn(torch.ones(3)).tolist() == [4, 4, 4]
    with pytest.raises(UsageError, match=r"cannot differentiate .*torch.no_grad"):
        fn(torch.ones(3, requires_grad=True)).sum().backward()
    with torch.no_grad():
        assert fn(torch.ones(3, requires_grad=True)).tolist() == [4, 4, 4]


def test_complex_outputs_have_no_gradient():
    fn = import_jax(lambda x: x + 1j, X)
    assert fn(torch.tensor(X)).dtype == torch.complex64
    with pytest.raises(NoCounterpart, match="complex numbers"):
        fn(torch.tensor(X, requires_grad=True))


def test_a_wrong_key_is_refused():
    fn = import_jax(lambda key: jax.random.bits(key), jax.random.key(0))
    with pytest.raises(UsageError, match="last axis 2"):
        fn(torch.tensor([1, 2, 3]))


def test_inlined_functions_are_the_same():
    fn = jax.jit(lambda x: jax.nn.relu(jax.jit(jnp.sin)(x)) + jax.nn.logsumexp(x))
    flat = inlined(closed_jaxpr(fn, X))
    names = [eqn.primitive.name for eqn in flat.jaxpr.eqns]
    assert "jit" not in names and "custom_jvp_call" not in names and "sin" in names
    np.testing.assert_allclose(jaxpr_as_fun(flat)(X)[0], fn(X), rtol=1e-6)


def test_lines_of_equations_are_the_users():
    def fn(x):
        return jnp.exp(x)

    (eqn,) = closed_jaxpr(fn, X).jaxpr.eqns
    assert source_line(eqn) == f"{__file__}:{fn.__code__.co_firstlineno + 1}"


def test_a_tree_of_tensors_goes_through_to_jax_and_back():
    tree = {"w": torch.tensor(X), "b": [torch.zeros(3)]}
    fn = import_jax(lambda tree: tree["w"] + tree["b"][0][None], to_jax(tree))
    assert torch.equal(fn(tree), tree["w"])
