"""Optimisers as plain data, the form in which their state crosses frameworks and is kept in checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import NoCounterpart

HYPERPARAMETERS: dict[str, tuple[str, ...]] = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "RAdam": ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay"),
    "NAdam": ("lr", "betas", "eps", "weight_decay", "momentum_decay", "maximize", "decoupled_weight_decay"),
    "Adamax": ("lr", "betas", "eps", "weight_decay", "maximize"),
    "Adadelta": ("lr", "rho", "eps", "weight_decay", "maximize"),
    "RMSprop": ("lr", "alpha", "eps", "momentum", "centered", "weight_decay", "maximize"),
    "Adagrad": ("lr", "lr_decay", "eps", "initial_accumulator_value", "weight_decay", "maximize"),
}

SCALARS = ("mu_product",)
"""Moments that torch keeps as one number for each parameter. Here they have the parameter's shape, so that they travel
as the others do; a group says in which precision torch has them (`mu_product_dtype`)."""


def slots(kind: str, group: dict[str, Any]) -> tuple[str, ...]:
    """The moments torch keeps for each parameter of a group, `step` apart."""
    match kind:
        case "SGD":
            return ("momentum_buffer",) if group["momentum"] else ()
        case "Adam" | "AdamW":
            return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        case "RAdam":
            return ("exp_avg", "exp_avg_sq")
        case "NAdam":
            return ("mu_product", "exp_avg", "exp_avg_sq")
        case "Adamax":
            return ("exp_avg", "exp_inf")
        case "Adadelta":
            return ("square_avg", "acc_delta")
        case "RMSprop":
            momentum = ("momentum_buffer",) if group["momentum"] else ()
            return ("square_avg", *momentum) + (("grad_avg",) if group["centered"] else ())
        case "Adagrad":
            return ("sum",)
        case _:
            raise NoCounterpart(f"expected one of {', '.join(HYPERPARAMETERS)}, got {kind!r}.")


@dataclass(frozen=True)
class OptimizerState:
    """A torch optimiser as plain data: hyper-parameters by group and moments by parameter.

    Each group has its hyper-parameters as JSON values, `names` of its parameters, and which of these are `frozen`
    (`requires_grad=False`, skipped by torch). Moments are complete: before the first step they are zero and `step` is
    0. SGD gets a `step` too, which torch does not keep: 1 stands for "momentum has begun" when no one has counted.
    """

    kind: str  # one of HYPERPARAMETERS, torch's name
    groups: tuple[dict[str, Any], ...]
    moments: dict[str, dict[str, np.ndarray]]  # torch name -> slot -> array; `step` is 0-d

    @property
    def trained(self) -> dict[str, int]:
        """Every parameter that moves, with the index of its group."""
        return {n: i for i, group in enumerate(self.groups) for n in group["names"] if n not in group["frozen"]}

    @property
    def steps(self) -> dict[str, int]:
        """The updates each moving parameter has had. torch's SGD counts none and shows only whether momentum began."""
        return {name: int(self.moments[name]["step"]) for name in self.trained}

    @property
    def step(self) -> int:
        """The updates the optimiser has made: the most that any parameter has had."""
        return max(self.steps.values(), default=0)

    @property
    def behind(self) -> set[str]:
        """Moving parameters that torch has skipped at some updates, for want of a gradient: their count tells."""
        counted = [n for n, i in self.trained.items() if self.kind != "SGD" or self.groups[i]["momentum"]]
        steps, most = self.steps, self.step
        return {name for name in counted if steps[name] < most}

    def renamed(self, name: Callable[[str], str]) -> "OptimizerState":
        """The same state with other names for its parameters."""
        words = ("names", "frozen")
        groups = tuple(group | {key: type(group[key])(map(name, group[key])) for key in words} for group in self.groups)
        return replace(self, groups=groups, moments={name(n): moments for n, moments in self.moments.items()})

    def at_step(self, step: int) -> "OptimizerState":
        """The same state with the count of every moving parameter set: SGD keeps none of its own."""
        count = {"step": np.asarray(step, np.float32)}
        return replace(self, moments=self.moments | {name: self.moments[name] | count for name in self.trained})


def adam_group(
    names: list[str],
    lr: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    initial_lr: float | None = None,
) -> dict[str, Any]:
    """A parameter group of Adam as `bridge.optimizers.read_torch` reads it; `initial_lr` is there under a scheduler."""
    group = {
        "names": list(names),
        "frozen": [],
        "lr": lr,
        "betas": list(betas),
        "eps": eps,
        "weight_decay": weight_decay,
        "amsgrad": False,
        "maximize": False,
        "decoupled_weight_decay": decoupled,
    }
    return group if initial_lr is None else group | {"initial_lr": initial_lr}
