"""Optimisers as plain data, the form in which their state crosses frameworks and is kept in checkpoints."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import NoCounterpart

HYPERPARAMETERS: dict[str, tuple[str, ...]] = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "RMSprop": ("lr", "alpha", "eps", "momentum", "centered", "weight_decay", "maximize"),
    "Adagrad": ("lr", "lr_decay", "eps", "initial_accumulator_value", "weight_decay", "maximize"),
}


def slots(kind: str, group: dict[str, Any]) -> tuple[str, ...]:
    """The moments torch keeps for each parameter of a group, `step` apart."""
    match kind:
        case "SGD":
            return ("momentum_buffer",) if group["momentum"] else ()
        case "Adam" | "AdamW":
            return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
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

    kind: str  # "SGD", "Adam", "AdamW", "RMSprop" or "Adagrad"
    groups: tuple[dict[str, Any], ...]
    moments: dict[str, dict[str, np.ndarray]]  # torch name -> slot -> array; `step` is 0-d

    @property
    def trained(self) -> dict[str, int]:
        """Every parameter that moves, with the index of its group."""
        return {n: i for i, group in enumerate(self.groups) for n in group["names"] if n not in group["frozen"]}

    @property
    def step(self) -> int:
        """How many updates the parameters have had; one number, as optax counts."""
        steps: dict[int, list[str]] = {}
        for name in self.trained:
            steps.setdefault(int(self.moments[name]["step"]), []).append(name)
        if len(steps) > 1:
            counts = "; ".join(f"step {step}: {', '.join(names)}" for step, names in sorted(steps.items()))
            raise NoCounterpart(
                f"expected every parameter of {self.kind} at the same step, because optax counts once for all; got "
                f"{counts}. torch skips parameters without a gradient: give these an optimiser of their own, or "
                f"freeze the ones that never get a gradient with requires_grad_(False)."
            )
        return next(iter(steps), 0)

    def at_step(self, step: int) -> "OptimizerState":
        """The same state with every moving parameter's count set."""
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
