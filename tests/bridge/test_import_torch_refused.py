"""What `bridge.import_torch` refuses, by name and line."""

import jax.numpy as jnp
import pytest
import torch
from torch import nn

from bridge.import_torch_cases import made, n
from bridge.import_torch_modules import mlp
from crossfade import bridge
from crossfade.errors import NoCounterpart, UsageError, UserCodeError


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def swallowing(x):
    try:
        return branch(x)
    except Exception:  # noqa: B902 as user code may
        return x


REFUSED = {
    "a branch on values": (branch, UsageError, r"test_import_torch_refused.py:\d+ in branch: .*torch.where"),
    "a branch whose error is swallowed": (swallowing, UsageError, "in branch: .*torch.where"),
    "a number of Python's": (lambda x: x * float(x.max()), UsageError, r"float\(\)"),
    "a mask as an index": (lambda x: x[x > 0].mean(), UsageError, "shape does not depend on values.*torch.where"),
    "nonzero": (lambda x: x.nonzero(), UsageError, "nonzero"),
    "numpy": (lambda x: torch.from_numpy(x.numpy() * 2), UserCodeError, "numpy"),
    "one value for each place of a mask": (lambda x: _place(x), NoCounterpart, "one value for all places"),
    "an unknown operation": (
        lambda x: torch.poisson(x.abs()),
        NoCounterpart,
        r"test_import_torch_refused.py:\d+ .*aten.poisson",
    ),
    "a law with numbers of torch's own": (
        lambda x: torch.distributions.Beta(x.abs() + 1, x.abs() + 2).rsample(),
        NoCounterpart,
        r"test_import_torch_refused.py:\d+ .*Gamma\(a, torch.ones_like\(a\)\).rsample",
    ),
    "a gradient through a recurrent layer": (lambda x: _through_a_layer(x), NoCounterpart, "no known origin"),
    "new data": (lambda x: setattr(x * 1, "data", x * 2), NoCounterpart, "x.data.copy_"),
    "a hook": (lambda x: _hooked(x), NoCounterpart, "Tensor.register_hook"),
    "equal": (lambda x: x if torch.equal(x, x) else -x, UsageError, "torch.equal"),
    "code that fails": (
        lambda x: x @ torch.ones(7),
        UserCodeError,
        r"test_import_torch_refused.py:\d+ in <lambda>: RuntimeError",
    ),
}


LAYER = nn.RNN(3, 2).requires_grad_(False)


def _through_a_layer(x):
    x = x[None].detach().requires_grad_(True)
    return torch.autograd.grad(LAYER(x)[0].sum(), x)[0]


def _hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y


def _place(x):
    y = x.clone()
    y[torch.tensor([True, False, True])] = torch.ones(2, dtype=x.dtype)
    return y


@pytest.mark.parametrize("function, kind, words", REFUSED.values(), ids=REFUSED)
def test_what_jax_cannot_do_is_refused_by_name_and_line(function, kind, words):
    with pytest.raises(kind, match=words):
        imported = bridge.import_torch(function, n(3).float())
        imported(jnp.ones(3))


def test_a_parameter_whose_gradient_a_hook_changes_is_refused():
    module = made(lambda: mlp(4, 2))
    module[0].weight.register_hook(lambda grad: grad * 2)
    with pytest.raises(NoCounterpart, match="'0.weight' with one that changes its gradient"):
        bridge.import_torch(module, n(3, 4))


def test_arguments_of_another_structure_are_refused():
    module = made(lambda: mlp(4, 2)).float()
    imported = bridge.import_torch(lambda m, b: m(b["obs"]), module, {"obs": torch.zeros(3, 4)})
    params, obs = imported.params(), jnp.zeros((3, 4))
    for given, words in (
        ((params, {"obd": obs}), "expected obs as in the example, got dict of obd. Did you mean 'obs'"),
        ((params, obs), "expected obs as in the example"),
        ((params,), "expected 2 arguments as in the example, got 1"),
        (({}, {"obs": obs}), "expected the parameter '0.weight'"),
        (({**params, "0.weigth": obs}, {"obs": obs}), "'0.weigth' is no parameter. Did you mean '0.weight'"),
        (({**params, "0.weight": obs}, {"obs": obs}), r"expected '0.weight' of shape \(8, 4\), got \(3, 4\)"),
        ((module, {"obs": obs}), "expected a dict of parameters"),
    ):
        with pytest.raises(UsageError, match=words):
            imported(*given)
    with pytest.raises(UsageError, match="expected a function"):
        bridge.import_torch(3)
