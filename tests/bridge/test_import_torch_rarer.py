"""`bridge.import_torch` of functions with a derivative of their own, `item()`, bags of embeddings and spectra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from bridge.import_torch_cases import n
from bridge.import_torch_proof import difference
from bridge.import_torch_rarer import GAMMAS, RARER, Sign
from crossfade import bridge
from crossfade.errors import NoCounterpart, UsageError
from default_run import few_of

QUICK = ("straight through", "quantised", "written after", "item as a factor", "bag, max with ties", "irfft", "bicubic")


@pytest.mark.parametrize("case", few_of(RARER, *QUICK, "second derivative through a saved result"))
def test_rarer_code(case, x64):
    function, *args = case
    value, gradient = difference(function, *args)
    assert value <= 1e-12 and gradient <= 1e-12


@pytest.mark.parametrize("case", few_of(GAMMAS, "gamma"))
def test_gamma_numbers_are_those_of_the_key_with_torchs_derivative(case, x64):
    function, *args = case
    value, gradient = difference(function, *args, key=jax.random.key(3))
    assert value <= 1e-12 and gradient <= 1e-11  # torch's digamma and JAX's differ by 1e-15 of a sum that cancels


def test_the_derivative_of_gamma_numbers_is_torchs_everywhere(x64):
    a, x = torch.meshgrid(torch.logspace(-2, 3, 60).double(), torch.logspace(-6, 3.2, 80).double(), indexing="ij")
    found = bridge.import_torch(torch._standard_gamma_grad, a, x)(a.numpy(), x.numpy())
    expected = torch._standard_gamma_grad(a, x).numpy()
    normal = (x**a > 1e-300).numpy()  # XLA takes denormal numbers for zero
    np.testing.assert_allclose(found[normal], expected[normal], rtol=1e-9, atol=1e-12)


def test_a_function_of_ones_own_can_be_mapped_over(x64):
    imported = bridge.import_torch(Sign.apply, n(3))
    grads = jax.vmap(jax.grad(lambda x: (imported(x) * jnp.arange(1.0, 4.0)).sum()))(jnp.ones((2, 3)))
    assert grads.tolist() == [[1, 2, 3]] * 2


class Doubling(Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Noisy(Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.randn_like(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def _hooked(x):
    layer = torch.nn.Tanh()
    layer.register_full_backward_hook(lambda module, before, after: (2 * before[0],))
    return layer(x)


REFUSED = {
    "mark_dirty": (lambda x: Doubling.apply(x * 1), NoCounterpart, "Doubling: it writes to its arguments"),
    "random numbers": (Noisy.apply, NoCounterpart, "Noisy draws random numbers"),
    "checkpoint": (lambda x: checkpoint(torch.sin, x, use_reentrant=True), NoCounterpart, "use_reentrant=False"),
    "a hook of a module": (lambda x: _hooked(x), NoCounterpart, "a module has a backward hook"),
    "a hook": (lambda x: (x * 2).register_hook(lambda grad: grad), NoCounterpart, "register_hook"),
    "backward": (lambda x: x.sum().backward(), NoCounterpart, "backward"),
    "item in a branch": (lambda x: x if x.sum().item() > 0 else -x, UsageError, "torch.where"),
    "item as a size": (lambda x: torch.zeros(int(x.sum().item())), UsageError, "item"),
    "item for Python": (lambda x: x * max(x.sum().item(), 0.0), UsageError, "does not depend on values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_with_its_line(name, x64):
    function, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as error:
        bridge.import_torch(function, n(3).requires_grad_())
    assert "test_import_torch_rarer.py" in str(error.value)


def test_apply_is_torchs_own_again(x64):
    """Also after a function that is refused."""
    with pytest.raises(NoCounterpart):
        bridge.import_torch(Noisy.apply, n(3))
    assert not any("apply" in vars(base) for base in Function.__mro__[1:2])
    assert Sign.apply(torch.ones(1, requires_grad=True)).grad_fn is not None


def test_item_of_a_constant_is_a_number(x64):
    size = torch.tensor(3)
    assert bridge.import_torch(lambda x: x * torch.ones(size.item()).sum(), n(2))(jnp.ones(2)).tolist() == [3, 3]
