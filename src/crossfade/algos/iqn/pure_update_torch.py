"""The learner as a function of tensors, for mode `torch_pure`: gradient, Adam and targets in one compiled step."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...optim.ema_torch import ema
from ...optim.functional_torch import Moments, Tensors, descent
from ...optim.state import OptimizerState, adam_group
from .averages_torch import averaged, learned
from .batch import Batch, Transitions
from .config import IQNConfig
from .losses_torch import loss
from .networks_torch import Model, Policy
from .optimizer import EPS, names, rates

Value = TypeVar("Value")
Learned = tuple[Tensors, dict[str, Moments], Tensors]


def pure_update(
    policy: Policy, config: IQNConfig, compile: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Tensors, dict[str, Moments], Batch], Learned]:
    """`learner_torch.update` as a function `(params, moments, batch) -> (params, moments, info)`.

    `params` is a `state_dict` of the policy, which gives structure, not values; `moments` are those of each optimiser.
    What is compiled is the step of one model, and all models share it.
    """
    step = compile(_step(policy.models[0], config))
    constant = [torch.tensor(rate, dtype=torch.float64) for rate in rates(config)]

    def update(params: Tensors, moments: dict[str, Moments], batch: Batch) -> Learned:
        params, moments, infos = dict(params), dict(moments), []
        if batch.copy:  # clones: a program that is given one tensor twice would be compiled anew
            local = {name: p for name, p in params.items() if ".local." in name}
            params |= {name.replace(".local.", ".target."): p.clone() for name, p in local.items()}
        for number, name in enumerate(names(config) if batch.ready else ()):
            prefix = f"models.{number}."
            members = [Transitions(*(part[agent] for part in batch.transitions)) for agent in config.members(number)]
            held = Moments(moments[name].step, _inside(prefix, moments[name].slots))
            own, held, info = step(_inside(prefix, params), held, members, constant[number])
            params |= {prefix + key: p for key, p in own.items()}
            moments[name] = Moments(held.step, {prefix + key: slots for key, slots in held.slots.items()})
            infos.append(info)
        return params, moments, learned(infos)

    return update


def _step(model: Model, config: IQNConfig) -> Callable[..., tuple[Tensors, Moments, Tensors]]:
    """One model's parameters, moments and told, from those before, its agents' transitions and its learning rate."""
    local = [f"local.{name}" for name, _ in model.local.named_parameters()]
    record = OptimizerState("Adam", (adam_group(local, config.lr[0], eps=EPS),), {})  # each step is told its rate

    def objective(model: Model, members: Sequence[Transitions]) -> tuple[Tensor, Tensors]:
        each = [loss(model, batch, config) for batch in members]
        return torch.stack([value for value, _ in each]).mean(), averaged([info for _, info in each])

    descend = descent(model, record, objective, config.clip_norm)

    def step(
        params: Tensors, moments: Moments, members: Sequence[Transitions], rate: Tensor
    ) -> tuple[Tensors, Moments, Tensors]:
        params, moments, info = descend(params, moments, members, [rate])
        if config.follows:
            target = ema(_inside("target.", params), _inside("local.", params), config.tau)
            params = params | {f"target.{name}": p for name, p in target.items()}
        return params, moments, info

    return step


def _inside(prefix: str, named: dict[str, Value]) -> dict[str, Value]:
    """What has names that begin so, by the rest of its name."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
