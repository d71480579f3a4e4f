"""JAX functions in torch: values and gradients equal JAX's in float64, also the gradients of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from import_jax_cases import CASES, KINKS, doubled_slope, normal

from crossfade.bridge import import_jax
from crossfade.bridge.from_jax import programs
from default_run import few_of

VALUE, GRADIENT = 1e-12, 1e-10

OFTEN = ("advantages", "recurrent net", "twin critics", "while", "cond", "custom jvp", "custom vjp", "stop gradient")
QUICK = [n for i, n in enumerate(CASES) if i % 6 == 0 or n.startswith("kinks") or n.removeprefix("control: ") in OFTEN]


def tensors(tree):
    return jax.tree.map(lambda x: torch.tensor(np.asarray(x)).requires_grad_(), tree)


def gap(got, expected, least=1e-300):
    """The largest difference relative to the largest element; infinite where one is NaN and the other is not.

    `least` is the least that counts as large.
    """
    got, expected = (jax.tree.leaves(jax.tree.map(np.asarray, tree)) for tree in (got, expected))
    assert [x.shape for x in got] == [x.shape for x in expected]
    assert [x.dtype for x in got] == [x.dtype for x in expected]
    found = [0.0]
    for a, b in zip(got, expected, strict=True):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = max(np.abs(b[np.isfinite(b)]).max(initial=0.0), least)
        found.append(np.nan_to_num(np.abs(a[~same] - b[~same]) / scale, nan=np.inf).max(initial=0.0))
    return max(found)


def values(tree):
    return jax.tree.map(lambda x: x.detach().numpy(), tree)


def differentiated(fn, args):
    """Outputs in torch and JAX, and the gradients of both at one random cotangent."""
    given = tensors(args)
    outputs = import_jax(fn, *args)(*given)
    expected, pullback = jax.vjp(fn, *jax.tree.map(jnp.asarray, args))
    rng = np.random.default_rng(1)
    cotangents = jax.tree.map(lambda x: rng.normal(size=x.shape), expected)
    leaves = jax.tree.leaves(outputs)
    inputs = jax.tree.leaves(given)
    got = torch.autograd.grad(leaves, inputs, [torch.tensor(c) for c in jax.tree.leaves(cotangents)])
    return (values(outputs), expected), (values(got), jax.tree.leaves(pullback(cotangents)))


@pytest.mark.parametrize("case", few_of(CASES, *QUICK))
def test_values_and_gradients_are_jaxs(case, x64):
    with np.errstate(all="ignore"):
        outputs, gradients = differentiated(*case)
    assert gap(*outputs) <= VALUE
    assert gap(*gradients) <= GRADIENT


def test_there_are_at_least_forty_cases():
    assert len(CASES) >= 40


def test_a_rule_that_is_a_little_wrong_is_seen(x64, monkeypatch):
    monkeypatch.setitem(programs.RULES, "sin", lambda eqn: lambda x: torch.sin(x) + 1e-10 * x)
    outputs, _ = differentiated(*CASES["elementwise: trigonometry"])
    assert gap(*outputs) > VALUE


def test_conventions_at_kinks_are_not_torchs(x64):
    """What makes the cases of kinks cases: torch's own gradients differ there."""
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (own,) = torch.autograd.grad(torch.clamp(x, -1, 1).sum(), x)
    (jaxs,) = torch.autograd.grad(import_jax(*_kink("clip"))(x).sum(), x)
    assert own.tolist() == [0, 1, 1, 1, 0] and jaxs.tolist() != own.tolist()


def _kink(name):
    fn, args = KINKS[name]
    return fn, *args


def test_custom_gradients_are_used(x64):
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    import_jax(doubled_slope, np.zeros(3))(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["elementwise: gelu", "control: recurrent net", "products: max pool", "indexing: add"])
def test_gradients_of_gradients(name, x64):
    fn, args = CASES[name]
    given = tensors(args)
    inputs = jax.tree.leaves(given)
    total = lambda *args: sum((leaf**2).sum() for leaf in jax.tree.leaves(fn(*args)))
    first = torch.autograd.grad(import_jax(total, *args)(*given), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), inputs)
    arrays = jax.tree.map(jnp.asarray, args)
    penalty = lambda args: sum((g**2).sum() for g in jax.tree.leaves(jax.grad(lambda a: total(*a))(args)))
    assert gap(values(second), jax.tree.leaves(jax.grad(penalty)(arrays))) <= GRADIENT


def test_the_third_derivative(x64):
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = import_jax(jnp.sin, np.float64(0.0))(x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
    assert y.item() == pytest.approx(-np.cos(0.7), rel=1e-12)


def test_only_what_requires_a_gradient_gets_one(x64):
    fn = lambda x, y: jnp.sin(x) @ y
    x, y = torch.tensor(normal(3), requires_grad=True), torch.tensor(normal(3))
    import_jax(fn, normal(3), normal(3))(x, y).backward()
    assert y.grad is None
    torch.testing.assert_close(x.grad, torch.cos(x.detach()) * y, rtol=1e-12, atol=0)


def test_nothing_is_tracked_without_need(x64):
    fn = import_jax(jnp.sin, normal(3))
    assert not fn(torch.tensor(normal(3))).requires_grad
    with torch.no_grad():
        assert not fn(torch.tensor(normal(3), requires_grad=True)).requires_grad


def test_what_does_not_depend_on_a_parameter_has_no_gradient(x64):
    fn = lambda x, y: (x.sum(), y * 2, jax.jit(jax.lax.stop_gradient)(x), jnp.argmax(x))
    x = torch.tensor(normal(3), requires_grad=True)
    outputs = import_jax(fn, normal(3), normal(3))(x, torch.tensor(normal(3)))
    assert [y.requires_grad for y in outputs] == [True, False, False, False]


def test_functional_gradients_of_torch(x64):
    fn = import_jax(lambda x: jnp.sin(x).sum(), normal(3))
    x = torch.tensor(normal(3))
    torch.testing.assert_close(torch.func.grad(fn)(x), torch.cos(x), rtol=1e-12, atol=0)


def test_writing_to_a_result_changes_nothing_else(x64):
    fn = import_jax(lambda x: (x, x.T, jnp.zeros((2, 2)), jnp.broadcast_to(x[0], (2, 2))), normal(2, 2))
    x = torch.tensor(normal(2, 2))
    before = x.clone()
    expected = [y.clone() for y in fn(x)]
    for y in fn(x):
        y += 1
    assert torch.equal(x, before)
    assert all(torch.equal(a, b) for a, b in zip(fn(x), expected, strict=True))
