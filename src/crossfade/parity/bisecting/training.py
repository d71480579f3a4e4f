"""Causes of updates that differ: the optimiser's settings and kind, clipping, idle parameters, memory that is lost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from ..side_torch import Quantities, make_optimizer
from ..twin import Twin
from .clipping import other_clipping
from .trial import Trial

OTHERS: dict[str, tuple[float, ...]] = {
    "eps": (0.0, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12),
    "weight_decay": (0.0, 1e-4, 1e-3, 1e-2, 0.1),
    "momentum": (0.5, 0.9, 0.95, 0.99, 0.0),
    "dampening": (0.0, 0.1, 0.9),
    "alpha": (0.9, 0.95, 0.99, 0.999),
    "rho": (0.9, 0.95, 0.99),
    "initial_accumulator_value": (0.0, 0.1),
}
BETAS = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)
FLAGS = ("nesterov", "amsgrad", "centered", "maximize")


@dataclass(frozen=True, eq=False)
class TrainingCause:
    """A twin that trains otherwise, and what is exchanged while it does."""

    kind: str
    text: str
    twin: Twin
    while_running: AbstractContextManager[Any]
    line: str = ""  # the user's, where it is not that of the optimiser


def training_causes(trial: Trial) -> Iterator[TrainingCause]:
    """What to try about the optimiser, settings first."""
    if trial.twin.optimizer is None:
        return
    module = trial.levels.torch.fresh_module()
    own = make_optimizer(trial.twin, module)
    for kind, text, change in (*_settings(own), *_classes(own), *_memory(), *_rates(own)):
        yield TrainingCause(kind, text, _with(trial.twin, change), nullcontext())
    for text, doing, line in other_clipping(trial):
        yield TrainingCause("clipping", text, trial.twin, doing, line)


def _with(twin: Twin, change: Callable[[Optimizer], Optimizer]) -> Twin:
    pair = isinstance(twin.optimizer, tuple)
    factory: Any = twin.optimizer[0] if isinstance(twin.optimizer, tuple) else twin.optimizer
    changed = lambda parameters: change(factory(parameters))
    return replace(twin, optimizer=(changed, twin.optimizer[1]) if pair else changed)  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]


Choice = tuple[str, str, Callable[[Optimizer], Optimizer]]


def _settings(own: Optimizer) -> Iterator[Choice]:
    kind = type(own).__name__
    group = own.param_groups[0]
    for name in FLAGS:
        if isinstance(group.get(name), bool):
            words = {True: "with", False: "without"}
            text = f"torch {kind} {words[group[name]]} {name}, JAX {words[not group[name]]}"
            yield "flag", text, _set(name, not group[name])
    for name, values in OTHERS.items():
        if isinstance(group.get(name), int | float):
            for value in values:
                if value != group[name]:
                    yield _names(name), f"{name} of {kind}: torch {group[name]:g}, JAX {value:g}", _set(name, value)
    for at in (0, 1) if "betas" in group else ():
        for value in BETAS:
            if value != group["betas"][at]:
                betas = tuple(value if i == at else beta for i, beta in enumerate(group["betas"]))
                text = f"beta{at + 1} of {kind}: torch {group['betas'][at]:g}, JAX {value:g}"
                yield "momentum", text, _set("betas", betas)
    lr = float(group["lr"])
    for factor in (2.0, 0.5, 10.0, 0.1, -1.0):
        yield "lr", f"the learning rate: torch {lr:g}, JAX {factor * lr:g}", _scale("lr", factor)
    for name in ("weight_decay", "lr"):
        if len({float(g[name]) for g in own.param_groups if name in g}) > 1:
            for i, other in enumerate(own.param_groups):
                text = f"{name}: JAX uses {float(other[name]):g}, that of group {i}, for all groups"
                yield "groups", text, _set(name, other[name])


def _names(name: str) -> str:
    kinds = {"weight_decay": "weight decay", "alpha": "momentum", "rho": "momentum", "dampening": "momentum"}
    return kinds.get(name, "accumulator" if name.startswith("initial") else name)


def _set(name: str, value: Any) -> Callable[[Optimizer], Optimizer]:
    def change(optimizer: Optimizer) -> Optimizer:
        for group in optimizer.param_groups:
            group[name] = value
        if name == "initial_accumulator_value":
            for state in optimizer.state.values():
                state["sum"] += value
        return optimizer

    return change


def _scale(name: str, factor: float) -> Callable[[Optimizer], Optimizer]:
    def change(optimizer: Optimizer) -> Optimizer:
        for group in optimizer.param_groups:
            group[name] = factor * group[name]
        return optimizer

    return change


def _classes(own: Optimizer) -> Iterator[Choice]:
    """Decay inside the gradient or beside it, and the kinds that share their settings."""
    names = {"Adam": ("AdamW", "NAdam", "RAdam"), "AdamW": ("Adam",), "RMSprop": (), "SGD": (), "Adagrad": ()}
    for name in names.get(type(own).__name__, ()):
        other = getattr(torch.optim, name)

        def change(optimizer: Optimizer, other: Any = other, name: str = name) -> Optimizer:
            made = other(optimizer.param_groups[0]["params"], lr=float(optimizer.param_groups[0]["lr"]))
            made.param_groups = [{**made.defaults, **group} for group in optimizer.param_groups]
            for group in made.param_groups:
                group["decoupled_weight_decay"] = name == "AdamW"
            return made

        decay = own.param_groups[0].get("weight_decay", 0)
        form = " (weight decay beside the gradient)" if name == "AdamW" else " (weight decay in the gradient)"
        text = f"the optimiser: torch {type(own).__name__}, JAX {name}{form if decay else ''}"
        yield "weight decay" if decay else "optimiser", text, change
    if type(own).__name__ == "RMSprop":
        yield "eps", "eps of RMSprop: JAX adds it inside the square root", _eps_inside

    if type(own).__name__ == "Adagrad":
        text = "Adagrad with optax's accumulator of 0.1 and eps of 1e-7 in JAX"
        yield (
            "accumulator",
            text,
            lambda own: _eps_inside(_set("eps", 1e-7)(_set("initial_accumulator_value", 0.1)(own))),
        )


def _rates(own: Optimizer) -> Iterator[Choice]:
    if own.param_groups[0].get("momentum") and type(own).__name__ in ("RMSprop", "SGD"):
        text = f"the momentum of {type(own).__name__} has the learning rate inside in JAX"
        yield "momentum", text, _rate_inside


def _rate_inside(optimizer: Optimizer) -> Optimizer:
    """b <- mu b + lr u, p <- p - b, in place of b <- mu b + u, p <- p - lr b."""
    step, groups = optimizer.step, optimizer.param_groups
    kept: dict[int, Tensor] = {}

    def inside(*args: Any) -> Any:
        before = _weights(groups)
        found = step(*args)
        for group in groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                u = p.grad
                if "square_avg" in optimizer.state[p]:
                    u = u / (optimizer.state[p]["square_avg"].sqrt() + group["eps"])
                kept[id(p)] = group["momentum"] * kept.get(id(p), 0.0) + group["lr"] * u
                p.data.copy_(before[id(p)] - kept[id(p)])
        return found

    _replace_step(optimizer, inside)
    return optimizer


def _eps_inside(optimizer: Optimizer) -> Optimizer:
    """v + eps under the root, by a second moment that has eps in it and a rule that adds none."""
    step, groups = optimizer.step, optimizer.param_groups

    def inside(*args: Any) -> Any:
        eps = [float(group["eps"]) for group in groups]
        before = _weights(groups)
        found = step(*args)
        for group, own in zip(groups, eps, strict=True):
            for p in group["params"]:
                if p.grad is not None:
                    state = optimizer.state[p]
                    root = (state.get("square_avg", state.get("sum")) + own).sqrt()
                    p.data.copy_(before[id(p)] - group["lr"] * p.grad / root)
        return found

    _replace_step(optimizer, inside)
    return optimizer


def _replace_step(optimizer: Optimizer, step: Callable[..., Any]) -> None:
    """As a method, which schedulers expect."""
    method = MethodType(lambda self, *args, **kwargs: step(*args, **kwargs), optimizer)
    optimizer.step = method  # pyright: ignore[reportAttributeAccessIssue]


def _weights(groups: list[dict[str, Any]]) -> dict[int, Tensor]:
    return {id(p): p.detach().clone() for group in groups for p in group["params"]}


def _memory() -> Iterator[Choice]:
    def zeros(optimizer: Optimizer) -> Optimizer:
        return _before_step(optimizer, _fill)

    def forgetful(optimizer: Optimizer) -> Optimizer:
        return _before_step(optimizer, lambda own: own.state.clear())

    yield "idle", "parameters without a gradient: torch skips them, JAX goes on with a gradient of zero", zeros
    yield "state", "the optimiser's state: JAX starts it anew at every update", forgetful
    yield "state", "the optimiser's moments are zero after the update in JAX, its count is kept", _zeroed
    yield "state", "the optimiser's state: torch starts it anew at every update, JAX keeps it", _remembering


def _before_step(optimizer: Optimizer, act: Callable[[Optimizer], None]) -> Optimizer:
    step = optimizer.step

    def acted(*args: Any, **kwargs: Any) -> Any:
        act(optimizer)
        return step(*args, **kwargs)

    _replace_step(optimizer, acted)
    return optimizer


def _remembering(optimizer: Optimizer) -> Optimizer:
    """With the state of the last step wherever it has been cleared since."""
    step, kept = optimizer.step, {}

    def remembered(*args: Any, **kwargs: Any) -> Any:
        if kept and not optimizer.state:
            optimizer.state.update(kept)
        found = step(*args, **kwargs)
        kept.update(optimizer.state)
        return found

    _replace_step(optimizer, remembered)
    return optimizer


def _fill(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                p.grad = torch.zeros_like(p)


def _zeroed(optimizer: Optimizer) -> Optimizer:
    step = optimizer.step

    def acted(*args: Any, **kwargs: Any) -> Any:
        found = step(*args, **kwargs)
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor) and name != "step":
                    value.zero_()
        return found

    _replace_step(optimizer, acted)
    return optimizer


def by_leaves(trial: Trial, found: Quantities) -> tuple[str, str] | None:
    """What the differing leaves alone tell: frozen parameters that move."""
    apart = trial.differences(found)
    frozen = {n for n, p in (trial.twin.torch.named_parameters()) if not p.requires_grad}
    changes = [name for quantity, name in apart if quantity.startswith("change")]
    if changes and all(name in frozen for name in changes):
        ours = [np.any(found[q][n]) for q, n in apart if q.startswith("change")]
        if not any(ours):
            return "frozen", f"JAX moves parameters that torch has frozen: {', '.join(changes[:3])}"
    return None


def by_rate(trial: Trial, found: Quantities) -> tuple[str, str] | None:
    """A constant ratio of all changes is one of learning rates."""
    ratios, apart = [], trial.differences(found)
    trained = {name for name, p in trial.twin.torch.named_parameters() if p.requires_grad}
    if not trained >= {name for quantity, name in apart if quantity.startswith("change")}:
        return None
    for quantity, name in apart:
        if not quantity.startswith("change") or quantity not in trial.expected:
            return None
        a, b = found[quantity][name].ravel(), trial.expected[quantity].get(name, np.zeros(0)).ravel()
        if a.size != b.size:
            return None
        moved = np.abs(a) > 1e-9 * np.abs(a).max(initial=0.0)
        ratios.append(b[moved] / a[moved])
    together = np.concatenate(ratios) if ratios else np.zeros(0)
    if together.size > 1 and np.ptp(together) <= 1e-7 * np.abs(together).max() and together.mean() != 0:
        return "lr", f"the learning rate: every change in JAX is {together.mean():.10g} times torch's"
    return None


def optimizer_place(twin: Twin) -> str:
    """The line where the torch optimiser is made: that of the twin's factory."""
    factory: Any = twin.optimizer[0] if isinstance(twin.optimizer, tuple) else twin.optimizer
    while hasattr(factory, "func"):
        factory = factory.func
    code = getattr(factory, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
