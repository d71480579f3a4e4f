"""Upstream's optimiser under our names and back: one Adam over forward, backward and state flow, a group for log Z.

A torch optimiser knows no names, only an order. Upstream lists the forward policy's parameters, then the backward
policy's, so that a shared trunk stands in the list twice, and then those of the state flow. What stands there twice is
stepped twice per update and counts to twice the number; we count updates (see `legacy_double_step`).
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ....bridge.optimizers.state_torch import HYPERPARAMETERS, OptimizerState
from ....checkpoint.sides import to_numpy
from .networks_torch import KINDS, Arrays, stack

SLOTS = ("exp_avg", "exp_avg_sq")
SETTINGS = (*HYPERPARAMETERS["Adam"], "initial_lr")


class Imported(NamedTuple):
    """An optimiser, or why there is none."""

    state: OptimizerState | None
    double_step: bool = False  # whether the trunk stands in the list twice, and so is stepped twice per update
    said: str = "imported"


def read(found: Any, parameters: Arrays, kept: Arrays) -> Imported:
    """The optimiser, if it can be told beyond doubt what belongs to what.

    Moments of what is `kept` are under its names too, in no group.
    """
    if found is None:
        return Imported(None, said="not imported: there is none")
    groups, arrays = found["param_groups"], {**parameters, **kept}
    if not all("betas" in group for group in groups) or len(groups) > 2:
        return Imported(None, said="not imported: not an Adam with one group for the networks and one for log Z")
    for twice in (True, False):
        names = order(parameters, kept, twice)
        owner = dict(zip(groups[0]["params"], names, strict=False))
        if [owner.get(index) for index in groups[0]["params"]] == names and len(owner) == len(set(names)):
            break
    else:
        return Imported(None, said="not imported: its list of parameters is not that of the networks")
    double_step = len(names) > len(owner)
    has_log_z = len(groups) == 2
    owner |= dict.fromkeys(groups[1]["params"] if has_log_z else (), "log_z")
    moments = {}
    for index, name in owner.items():
        kept_slots = found["state"].get(index, {})
        slots = {slot: to_numpy(torch.as_tensor(value), name) for slot, value in kept_slots.items()}
        if not slots:
            slots = {"step": np.zeros((), np.float32)} | {slot: np.zeros_like(arrays[name]) for slot in SLOTS}
        elif set(slots) != {"step", *SLOTS}:
            return Imported(None, said=f"not imported: {name} has {', '.join(slots)}, not the moments of plain Adam")
        elif name.startswith("backward_head."):
            if any(slots[slot][-1].any() for slot in SLOTS):
                return Imported(None, said="not imported: undoing stop has moments, which a masked softmax never gives")
            slots |= {slot: slots[slot][:-1] for slot in SLOTS}
        slots["step"] = np.asarray(slots["step"] / max(1, names.count(name)), slots["step"].dtype)
        if any(slots[slot].shape != arrays[name].shape for slot in SLOTS):
            return Imported(None, said=f"not imported: the moments of {name} have another shape than it has")
        moments[name] = slots
    steps = {float(slots["step"]) for slots in moments.values()}
    if len(steps) > 1:
        return Imported(None, said="not imported: its parameters have had different numbers of updates")
    if not has_log_z:  # a policy of ours has one, whether or not its loss reads it
        zeros = {slot: np.zeros_like(parameters["log_z"]) for slot in SLOTS}
        moments["log_z"] = {"step": moments["forward_head.bias"]["step"], **zeros}
    members = ([name for name in dict.fromkeys(names) if name in parameters], ["log_z"])
    settings = [
        {"names": names_, "frozen": []} | {key: _plain(group[key]) for key in SETTINGS if key in group}
        for names_, group in zip(members, (groups[0], groups[-1]), strict=True)
    ]
    return Imported(OptimizerState("Adam", tuple(settings), moments), double_step)


def order(parameters: Arrays, kept: Arrays, twice: bool = True) -> list[str]:
    """The names of the networks' parameters as upstream lists them, or with a shared trunk in the list once."""
    trunk, own = _names(parameters, "trunk"), _names(parameters, "backward_trunk")
    again = trunk if twice else []
    names = [*trunk, *_head("forward_head")]
    if "backward_head.weight" in parameters:
        names += [*(own or again), *_head("backward_head")]
    if "flow_head.weight" in parameters:
        names += [*again, *_head("flow_head")]
    return names + _names(kept, "state_flow")


def _head(name: str) -> list[str]:
    return [f"{name}.{kind}" for kind in KINDS]


def _names(arrays: Arrays, name: str) -> list[str]:
    return [full for i in range(len(stack(arrays, name))) for full in _head(f"{name}.{i}")]


def write(
    live: Mapping[str, torch.nn.Parameter],
    names: list[str],
    log_z: bool,
    state: OptimizerState | None,
    double_step: bool,
) -> dict[str, Any]:
    """The state dict of the Adam that upstream would have built over `live`, the parameters as upstream shapes them.

    With `double_step` the trunk has had two steps per update, and its count says so.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*duplicate parameters")
        adam = torch.optim.Adam([live[name] for name in names], lr=1e-4)
    if log_z:
        adam.add_param_group({"params": live["log_z"]})
    if state is None:
        return adam.state_dict()
    for target, group in zip(adam.param_groups, state.groups, strict=False):
        target.update({k: tuple(v) if k == "betas" else v for k, v in group.items() if k not in ("names", "frozen")})
    for name, slots in state.moments.items():
        if (name in names or (name == "log_z" and log_z)) and slots["step"]:
            tensors = {slot: torch.from_numpy(array.copy()) for slot, array in slots.items()}
            for slot in SLOTS:  # undoing stop has no moments of ours, and none but zeros of upstream's
                missing = live[name].shape[0] - tensors[slot].shape[0]
                tensors[slot] = torch.cat([tensors[slot], torch.zeros_like(tensors[slot][:missing])])
            if double_step:
                tensors["step"] *= max(1, names.count(name))
            adam.state[live[name]] = tensors
    return adam.state_dict()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
