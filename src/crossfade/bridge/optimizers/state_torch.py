"""torch optimisers as plain data: `OptimizerState`, read from a torch optimiser and written into one."""

from collections.abc import Iterable, Mapping as Named
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ...errors import NoCounterpart, TransferError, UsageError
from ...optim.state import HYPERPARAMETERS, SCALARS, OptimizerState, slots
from ..transfer_torch import numpy_to_tensor, tensor_to_numpy

OWN = ("names", "frozen", "mu_product_dtype")  # what a group of OptimizerState has and torch's has not
Parameters = nn.Module | Named[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]


def read_torch(optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> OptimizerState:
    """The state of a torch optimiser under the names of `named_parameters` (a module, pairs or a dict)."""
    kind = _kind(optimizer)
    names = _names(optimizer, named_parameters)
    groups, moments = [], {}
    for group in optimizer.param_groups:
        hyper = {key: _plain(key, group[key]) for key in (*HYPERPARAMETERS[kind], "initial_lr") if key in group}
        if kind == "NAdam":
            hyper["mu_product_dtype"] = _product_dtype(optimizer, group["params"])
        named = {names[id(p)]: p for p in group["params"]}
        frozen = [name for name, p in named.items() if not p.requires_grad]
        groups.append({"names": list(named), "frozen": frozen, **hyper})
        for name, parameter in named.items():
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise NoCounterpart(f"{name}: optax has no sparse gradients; make the layer with sparse=False.")
            kept = optimizer.state.get(parameter, {})
            if kept or name not in frozen:
                moments[name] = _moments(kind, hyper, name, parameter, kept)
    return OptimizerState(kind, tuple(groups), moments)


def write_torch(state: OptimizerState, optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> None:
    """Puts moments and hyper-parameters into a torch optimiser of the same kind and groups, in place."""
    if (kind := _kind(optimizer)) != state.kind:
        raise UsageError(f"expected a torch optimiser of kind {state.kind}, got {kind}.")
    names = _names(optimizer, named_parameters)
    grouped = [{names[id(p)]: p for p in group["params"]} for group in optimizer.param_groups]
    if (got := [sorted(named) for named in grouped]) != (expected := [sorted(g["names"]) for g in state.groups]):
        raise UsageError(f"expected parameter groups {expected}, got {got}. Build the optimiser with the same groups.")
    record = optimizer.state_dict()
    record["state"] = {}
    for target, group, named in zip(record["param_groups"], state.groups, grouped, strict=True):
        target.update({k: tuple(v) if k == "betas" else v for k, v in group.items() if k not in OWN})
        for index, (name, parameter) in zip(target["params"], named.items(), strict=True):
            if kept := _torch_slots(state, group, name, parameter):
                record["state"][index] = kept
    optimizer.load_state_dict(record)
    for group, named in zip(state.groups, grouped, strict=True):  # torch casts what it loads to the parameter's dtype
        for kept in (optimizer.state.get(parameter, {}) for parameter in named.values()):
            kept.update({slot: kept[slot].to(_product(group)) for slot in SCALARS if slot in kept})


def advance(scheduler: LRScheduler, epochs: int) -> None:
    """Steps a torch scheduler over `epochs` scheduler steps whose updates were made elsewhere."""
    if epochs:
        vars(scheduler.optimizer)["_opt_called"] = True  # else torch warns that the scheduler runs ahead
    for _ in range(epochs):
        scheduler.step()


def _kind(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer).__name__
    if type(optimizer) is not getattr(torch.optim, kind, None) or kind not in HYPERPARAMETERS:
        raise NoCounterpart(
            f"expected one of torch.optim's {', '.join(HYPERPARAMETERS)}, got {type(optimizer).__module__}.{kind}, "
            f"which has no exact optax counterpart here. Keep that optimiser in torch, or change to one of these."
        )
    return kind


def by_name(parameters: Parameters) -> dict[str, torch.Tensor]:
    """Parameters by name, from a module, a dict or pairs."""
    return dict(parameters.named_parameters() if isinstance(parameters, nn.Module) else parameters)


def _names(optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> dict[int, str]:
    names = {id(parameter): name for name, parameter in by_name(named_parameters).items()}
    nameless = [tuple(p.shape) for g in optimizer.param_groups for p in g["params"] if id(p) not in names]
    if nameless:
        raise UsageError(
            f"expected the named parameters this optimiser updates, got none for those of shape {nameless}. Pass the "
            f"module the optimiser was built for, not a copy of it or its state_dict."
        )
    return names


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor) or (isinstance(value, tuple) and any(map(torch.is_tensor, value))):
        raise NoCounterpart(f"{key} is a tensor, which optax would take as a constant; give torch a Python float.")
    if isinstance(value, tuple):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


def _moments(kind: str, hyper: dict, name: str, parameter: torch.Tensor, kept: dict) -> dict[str, np.ndarray]:
    expected = slots(kind, hyper)
    kept = {slot: value for slot, value in kept.items() if value is not None}
    if not kept:
        start = {slot: torch.full_like(parameter, float(slot in SCALARS)) for slot in expected}
        return {"step": np.asarray(0, np.float32)} | {slot: tensor_to_numpy(value) for slot, value in start.items()}
    if missing := [slot for slot in expected if slot not in kept]:
        raise NoCounterpart(
            f"{name}: expected the moments {', '.join(expected)} of {kind}, missing {', '.join(missing)}. A flag of "
            f"the group was changed after the first step: set it back, or start the optimiser anew."
        )
    step = tensor_to_numpy(kept["step"]) if "step" in kept else np.asarray(1, np.float32)
    whole = lambda slot: torch.full_like(parameter, float(kept[slot])) if slot in SCALARS else kept[slot]
    return {"step": step} | {slot: tensor_to_numpy(whole(slot)) for slot in expected}


def as_torch_keeps(slot: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A moment of the parameter's shape as torch keeps it; `dtype` is that of numbers for a whole parameter."""
    return value.reshape(-1)[0].to(dtype) if slot in SCALARS and value.numel() else value


def _product(group: dict) -> torch.dtype:
    return torch.float64 if group.get("mu_product_dtype") == "float64" else torch.float32


def _product_dtype(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> str:
    """The precision of NAdam's products: as they are, or as torch will make them."""
    kept = [optimizer.state[p]["mu_product"] for p in parameters if "mu_product" in optimizer.state.get(p, {})]
    return str(kept[0].dtype if kept else count_dtype()).removeprefix("torch.")


def count_dtype() -> torch.dtype:
    """What torch makes the numbers of a whole parameter in, such as its count of updates."""
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def _torch_slots(state: OptimizerState, group: dict, name: str, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """What torch itself would hold for one parameter: nothing before the first step, save for Adagrad's sum."""
    moments = state.moments.get(name)
    if moments is None or (not moments["step"] and state.kind != "Adagrad"):
        return {}
    kept = {slot: numpy_to_tensor(moments[slot]) for slot in slots(state.kind, group)}
    for slot, value in kept.items():
        if (value.dtype, value.shape) != (parameter.dtype, parameter.shape):
            raise TransferError(
                f"{name}.{slot}: expected {parameter.dtype} of shape {tuple(parameter.shape)} like the parameter, got "
                f"{value.dtype} of shape {tuple(value.shape)}. Use an optimiser of the module the state belongs to."
            )
    kept = {slot: as_torch_keeps(slot, value, _product(group)) for slot, value in kept.items()}
    if state.kind == "SGD":
        return kept
    return {"step": torch.tensor(float(moments["step"]), dtype=count_dtype()), **kept}
