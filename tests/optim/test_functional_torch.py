"""torch's optimisers as pure functions: equal to `torch.optim` update by update, and through the neutral state."""

import numpy as np
import pytest
import torch

from crossfade.bridge.optimizers.state_torch import read_torch, write_torch
from crossfade.errors import NoCounterpart
from crossfade.optim import functional_torch
from crossfade.optim.state import OptimizerState

SHAPES = {"a": (3, 2), "b": (4,), "c": (2, 1, 2), "d": (1,)}
UPDATES = 20
CASES = {
    "adam": ("Adam", {"lr": 0.02}),
    "adam betas eps": ("Adam", {"lr": 0.02, "betas": (0.5, 0.8), "eps": 1e-3}),
    "adam decay": ("Adam", {"lr": 0.02, "weight_decay": 0.1}),
    "adam decoupled": ("Adam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adam amsgrad": ("Adam", {"lr": 0.02, "amsgrad": True}),
    "adam maximize decay": ("Adam", {"lr": 0.02, "maximize": True, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 0.02}),
    "adamw amsgrad maximize": ("AdamW", {"lr": 0.02, "amsgrad": True, "maximize": True, "weight_decay": 0.2}),
    "sgd": ("SGD", {"lr": 0.05}),
    "sgd decay maximize": ("SGD", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    "sgd momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "sgd dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.4}),
    "sgd nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {"lr": 0.02}),
    "rmsprop centered": ("RMSprop", {"lr": 0.02, "centered": True, "alpha": 0.8}),
    "rmsprop momentum": ("RMSprop", {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}),
    "rmsprop centered momentum": ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5, "maximize": True}),
    "adagrad": ("Adagrad", {"lr": 0.05}),
    "adagrad lr_decay": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.3}),
    "adagrad decay": ("Adagrad", {"lr": 0.05, "weight_decay": 0.1, "maximize": True, "eps": 1e-4}),
}


class Both:
    """A torch optimiser over two groups, the second with twice the rate and a frozen parameter, and its pure form."""

    def __init__(self, case: str, dtype: torch.dtype = torch.float64):
        kind, options = CASES[case]
        self.rng, self.dtype = np.random.default_rng(0), dtype
        self.named = {name: torch.nn.Parameter(self.draw(name)) for name in SHAPES}
        self.named["d"].requires_grad_(False)
        groups = [{"params": [self.named["a"]]}, {"params": [self.named[n] for n in "bcd"], "lr": 2 * options["lr"]}]
        self.torch = getattr(torch.optim, kind)(groups, **options)
        self.record = read_torch(self.torch, self.named)
        self.params = {name: p.detach().clone() for name, p in self.named.items()}
        self.moments = functional_torch.init(self.record)

    def draw(self, name: str) -> torch.Tensor:
        return torch.tensor(self.rng.normal(size=SHAPES[name]), dtype=self.dtype)

    def step(self, factor: float = 1.0) -> None:
        """One update on each side, at a multiple of the rates."""
        grads = {name: self.draw(name) for name in self.record.trained}
        for name, grad in grads.items():
            self.named[name].grad = grad.clone()
        rates = [torch.tensor(factor * group["lr"], dtype=torch.float64) for group in self.record.groups]
        for group, rate in zip(self.torch.param_groups, rates, strict=True):
            group["lr"] = float(rate)
        self.torch.step()
        self.params, self.moments = functional_torch.update(self.record, self.params, grads, self.moments, rates)

    def assert_close(self, tolerance: float) -> None:
        for name, parameter in self.named.items():
            close(self.params[name], parameter.detach(), tolerance, name)
        for name in self.record.trained:
            for slot, kept in self.torch.state[self.named[name]].items():
                if slot != "step" and kept is not None:
                    close(self.moments.slots[name][slot], kept, tolerance, f"{slot} of {name}")


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float, name: str) -> None:
    assert found.dtype == expected.dtype, name
    assert (found - expected).abs().max() <= tolerance * expected.abs().max(), name


@pytest.mark.parametrize("case", CASES)
def test_updates_are_those_of_torch(case):
    both = Both(case)
    start = {name: p.clone() for name, p in both.params.items()}
    for i in range(UPDATES):
        both.step(factor=0.9**i)  # a schedule, too
        both.assert_close(1e-13)
    assert torch.equal(both.params["d"], start["d"])  # frozen
    assert all(not torch.equal(both.params[n], start[n]) for n in "abc")
    assert both.moments.step == UPDATES


@pytest.mark.parametrize("case", CASES)
def test_updates_in_float32_are_those_of_torch_within_rounding(case):
    both = Both(case, torch.float32)
    for _ in range(UPDATES):
        both.step()
    both.assert_close(2e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_state_goes_to_torch_and_back(case):
    both = Both(case)
    for _ in range(3):
        both.step()
    state = functional_torch.read(both.moments, both.record)
    assert_same(functional_torch.read(functional_torch.init(state), both.record), state)

    write_torch(state, both.torch, both.named)  # torch goes on from the pure form
    for _ in range(3):
        both.step()
        both.assert_close(1e-13)

    taken = read_torch(both.torch, both.named)  # and the pure form from torch
    both.moments = functional_torch.init(taken)
    for _ in range(3):
        both.step()
        both.assert_close(1e-13)


def test_reading_leaves_a_private_copy():
    both = Both("adam")
    both.step()
    state = functional_torch.read(both.moments, both.record)
    before = state.moments["a"]["exp_avg"].copy()
    both.moments.slots["a"]["exp_avg"].add_(1)
    assert np.array_equal(state.moments["a"]["exp_avg"], before)


def test_a_rate_of_each_group_is_its_own():
    both = Both("sgd")
    grads = {name: both.draw(name) for name in both.record.trained}
    rates = [torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)]
    moved, _ = functional_torch.update(both.record, both.params, grads, both.moments, rates)
    assert torch.equal(moved["a"], both.params["a"])
    assert torch.equal(moved["b"], both.params["b"] - grads["b"])


def test_an_optimiser_that_is_not_there_is_refused():
    both = Both("sgd")
    unknown = OptimizerState("Lion", both.record.groups, both.record.moments)
    grads = {name: both.draw(name) for name in both.record.trained}
    rates = [torch.tensor(1.0)] * 2
    with pytest.raises(NoCounterpart, match="Lion"):
        functional_torch.update(unknown, both.params, grads, both.moments, rates)


def assert_same(found: OptimizerState, expected: OptimizerState) -> None:
    assert (found.kind, found.groups, found.moments.keys()) == (expected.kind, expected.groups, expected.moments.keys())
    for name, slots in expected.moments.items():
        assert found.moments[name].keys() == slots.keys()
        assert all(np.array_equal(found.moments[name][slot], slots[slot]) for slot in slots), name
