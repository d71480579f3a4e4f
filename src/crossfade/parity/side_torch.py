"""The torch half of a twin, run level by level. The twin of this file is side_jax.py.

Every method takes weights as a NumPy state_dict, works on a fresh copy of the module, and returns quantities by name,
each a dict of NumPy arrays by leaf.
"""

import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from ..bridge.mapping import Mapping
from ..bridge.optimizers.exchange import OptimizerState, read_torch
from ..bridge.transfer import numpy_to_tensor
from ..bridge.widening import widen_hidden_buffers
from ..errors import NoCounterpart, UsageError
from .arrays import DTYPES, leaves, torch_tree
from .twin import Twin
from .weights import Weights, from_torch

Quantities = dict[str, dict[str, np.ndarray]]


class TorchSide:
    """Runs `twin`'s torch callables in one precision."""

    def __init__(self, twin: Twin, mapping: Mapping, dtype: str):
        self.twin, self.mapping, self.dtype = twin, mapping, dtype
        self.data = twin  # where batches come from
        self.frozen: set[str] = set()  # parameters with requires_grad=False
        self.idle: set[str] = set()  # parameters the loss gives no gradient
        self._evaluated: tuple[Weights, Quantities] | None = None

    @cached_property
    def batch(self) -> Any:
        return torch_tree(self.data.first_batch, self.dtype)

    def forward(self, weights: Weights) -> Quantities:
        module = self._module(weights)
        with torch.no_grad():
            if (forward := self.twin.half("forward", "torch")) is not None:
                outputs = forward(module, self.batch)
            else:
                inputs = torch_tree(self.data.inputs, self.dtype)
                outputs = module(*inputs) if isinstance(inputs, tuple) else module(inputs)
        return {"output": leaves(outputs, "output")}

    def loss(self, weights: Weights) -> Quantities:
        return {name: part for name, part in self._evaluate(weights).items() if name != "grad"}

    def grad(self, weights: Weights) -> Quantities:
        return {"grad": self._evaluate(weights)["grad"]}

    def _evaluate(self, weights: Weights) -> Quantities:
        if self._evaluated is not None and self._evaluated[0] is weights:
            return self._evaluated[1]
        module = self._module(weights)
        loss, info = split_info(self.twin.half("loss", "torch")(module, self.batch))
        if loss.requires_grad:
            loss.backward()
        grad = {}
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                self.frozen.add(name)
                continue
            if parameter.grad is None:
                self.idle.add(name)
            grad |= leaves(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad, name)
        result = {"loss": leaves(loss, "loss"), "grad": grad}
        if info is not None:
            result["info"] = leaves(info, "")
        self._evaluated = weights, result
        return result

    def update(self, weights: Weights) -> Quantities:
        return self._train(weights, (1,))[1]

    def updates(self, weights: Weights, steps: tuple[int, ...]) -> Quantities:
        return {f"change after {k}": done["change"] for k, done in self._train(weights, steps).items()}

    def _train(self, weights: Weights, steps: tuple[int, ...]) -> dict[int, Quantities]:
        module = self._module(weights)
        optimizer = None if self.twin.optimizer is None else make_optimizer(self.twin, module)
        scheduler = self.twin.scheduler(optimizer) if self.twin.scheduler is not None else None
        start = self._state(module)
        update = self.twin.half("update", "torch") or self._default_update
        done = {}
        for i in range(max(steps)):
            metrics = update(module, optimizer, self._batch_at(i))
            if scheduler is not None:
                scheduler.step()
            if i + 1 in steps:
                now = self._state(module)
                change = {name: np.asarray(now[name] - start[name]) for name in start}
                done[i + 1] = {"change": change, **self._moments(optimizer, module)}
                if metrics is not None:
                    done[i + 1]["metrics"] = self._metrics(metrics)
        return done

    def _state(self, module: nn.Module) -> Weights:
        return from_torch(self.mapping, module.state_dict())

    def _metrics(self, metrics: Any) -> Weights:
        return leaves(metrics, "")

    def _default_update(self, module: nn.Module, optimizer: Any, batch: Any) -> dict[str, Any]:
        loss, info = split_info(self.twin.half("loss", "torch")(module, batch))
        optimizer.zero_grad()
        loss.backward()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self.twin.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.twin.clip_norm)
        if self.twin.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.twin.clip_value)
        optimizer.step()
        return {"loss": loss, **(info or {})}

    def _moments(self, optimizer: torch.optim.Optimizer | None, module: nn.Module) -> Quantities:
        if optimizer is None:
            return {}
        try:
            quantities = moments(read_torch(optimizer, module))
        except NoCounterpart:
            return {}  # not one of the known kinds; side_jax says so in its note
        if isinstance(self.twin.optimizer, tuple):
            quantities.pop("momentum_buffer", None)  # see side_jax
        return quantities

    def rollout(self, weights: Weights) -> Quantities:
        from .. import random

        module = self._module(weights) if self.twin.torch is not None else None
        return {"trajectory": leaves(self.twin.half("rollout", "torch")(module, random.key(self.twin.seed)), "")}

    def fresh_module(self) -> nn.Module:
        """A private copy of the module in the precision of the run."""
        module = copy.deepcopy(self.twin.torch).to(DTYPES[self.dtype])
        if self.dtype == "float64" and self.mapping.numbers is not None:
            widen_hidden_buffers(module, self.mapping.numbers[0])
        return module

    def _module(self, weights: Weights) -> nn.Module:
        module = self.fresh_module()
        module.load_state_dict({name: numpy_to_tensor(array) for name, array in weights.items()})
        return module

    def _batch_at(self, i: int) -> Any:
        return self.batch if self.twin.batches is None else torch_tree(self.data.batch_at(i), self.dtype)


def make_optimizer(twin: Twin, module: nn.Module) -> torch.optim.Optimizer:
    """The torch optimiser of a twin over the parameters of `module` that can move."""
    factory: Any = twin.optimizer[0] if isinstance(twin.optimizer, tuple) else twin.optimizer
    return factory([parameter for parameter in module.parameters() if parameter.requires_grad])


def moments(state: OptimizerState) -> Quantities:
    """The optimiser's memory by slot. torch counts per parameter and skips those without a gradient, optax counts once
    for all: the count compared is the largest. torch's SGD does not count."""
    quantities: Quantities = {}
    for name in state.trained:
        for slot, array in state.moments[name].items():
            if slot != "step":
                quantities.setdefault(slot, {})[name] = array
    if state.kind != "SGD":
        count = max(int(state.moments[name]["step"]) for name in state.trained)
        quantities["step"] = {"step": np.asarray(count)}
    return quantities


def split_info(value: Any) -> tuple[Any, dict[str, Any] | None]:
    """(loss, info) of what a loss returned; info is None when it returned the loss alone."""
    if not isinstance(value, tuple):
        return value, None
    if len(value) != 2 or not isinstance(value[1], dict):
        raise UsageError("expected a loss to return a scalar, or (scalar, info) with info a dict of named arrays.")
    return value
