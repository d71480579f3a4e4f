"""Checkpoints of alexhernandezgarcia/gflownet, the upstream of env=grid: into our names and back, bit for bit.

Upstream saves one file, {step, forward, backward, state_flow, logZ, optimizer, ...}. Its networks read the same
observation and choose among the same actions in the same order as ours on env=grid. Two differences are of substance:
its backward head has one more output, for undoing stop, which is never read, since that is certain where it is possible
at all; and its state flow may be a network of its own, where ours is a head on the trunk. What our policy has no place
for is `kept`, so that it can be written back.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml

from .... import checkpoint
from ....bridge.optimizers.state_torch import OptimizerState
from ....checkpoint.formats import load_torch, recognise
from ....checkpoint.sides import to_numpy
from ....errors import CheckpointError, NoCounterpart, UsageError
from . import networks_torch as networks, optimizer_torch
from .networks_torch import Layout, Network

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Facts:
    """What an upstream checkpoint turned out to be."""

    layout: Layout
    """How the keys of a shared trunk are written; nested where there is none."""
    observation_dim: int
    n_actions: int
    hidden: int
    layers: int
    backward: Literal["shared", "learned", "uniform"]
    """`uniform` stands for every P_B without parameters: upstream does not save which."""
    state_flow: Literal["none", "shared", "own"]
    """The state flow: a head on the forward trunk, as here; or a network of its own, which is kept but not used."""
    z_dim: int | None
    """None without a log Z."""
    double_step: bool
    """Whether the trunk stands twice in the optimiser's list, and so is stepped twice per update."""
    optimizer: str
    """`imported`, or why not."""
    lr: float | None = None
    """The optimiser's learning rate before any schedule."""
    lr_z: float | None = None
    """The learning rate of log Z."""

    @property
    def words(self) -> list[str]:
        """The settings of a crossfade config that this checkpoint fits."""
        words = [f"hidden={self.hidden}", f"layers={self.layers}", f"backward={self.backward}"]
        words += [f"{name}={value}" for name in ("z_dim", "lr", "lr_z") if (value := getattr(self, name)) is not None]
        return words + (["legacy_double_step=true"] if self.double_step else [])


@dataclass(frozen=True)
class Upstream:
    """An upstream checkpoint in our names."""

    parameters: Arrays  # all that a policy of ours holds
    kept: Arrays  # the rest: the output for undoing stop, a state flow of its own
    optimizer: OptimizerState | None
    step: int
    facts: Facts


def import_upstream(source: str | Path | Mapping[str, Any]) -> Upstream:
    """The networks, log Z and, where it is clear what belongs to what, the optimiser of an upstream checkpoint."""
    found: Any = source if isinstance(source, Mapping) else load_torch(source)
    label = "the checkpoint" if isinstance(source, Mapping) else str(source)
    if not _is_upstream(found):
        raise CheckpointError(f"{label}: expected an upstream checkpoint with an entry `forward`, got something else.")
    parts = {part: found[part] for part in ("forward", "backward", "state_flow") if found.get(part) is not None}
    read = {part: networks.read(part_, f"{label}: {part}") for part, part_ in parts.items()}
    shared = {
        part: networks.shares_trunk(network, read["forward"], networks.is_nested(parts[part]), f"{label}: {part}")
        for part, network in read.items()
    }
    forward = read["forward"]
    layers, hidden = len(forward) - 1, forward[0][0].shape[0]
    _check_shapes(read, label)

    trunk = [f"trunk.{i}" for i in range(layers)]
    parameters, kept = networks.named(forward, [*trunk, "forward_head"]), {}
    if "backward" in read:
        *own, (weight, bias) = read["backward"]
        if not shared["backward"]:
            parameters |= networks.named(own, [f"backward_{name}" for name in trunk])
        parameters |= networks.named([(weight[:-1], bias[:-1])], ["backward_head"])
        kept |= networks.named([(weight[-1:], bias[-1:])], ["backward_stop"])
    if "state_flow" in read:
        flow = read["state_flow"]
        if shared["state_flow"]:
            parameters |= networks.named(flow[-1:], ["flow_head"])
        else:
            kept |= networks.named(flow, [f"state_flow.{i}" for i in range(len(flow))])
    log_z = found.get("logZ")
    parameters["log_z"] = np.zeros(1, forward[0][0].dtype) if log_z is None else to_numpy(log_z, "logZ")
    optimizer = optimizer_torch.read(found.get("optimizer"), parameters, kept)
    tied = [part for part in read if part != "forward" and shared[part]]
    facts = Facts(
        layout="flat" if any(not networks.is_nested(parts[part]) for part in tied) else "nested",
        observation_dim=forward[0][0].shape[1],
        n_actions=forward[-1][0].shape[0],
        hidden=hidden,
        layers=layers,
        backward="uniform" if "backward" not in read else "shared" if shared["backward"] else "learned",
        state_flow="none" if "state_flow" not in read else "shared" if shared["state_flow"] else "own",
        z_dim=None if log_z is None else parameters["log_z"].size,
        double_step=optimizer.double_step,
        optimizer=optimizer.said,
        **dict(zip(("lr", "lr_z"), _learning_rates(optimizer.state), strict=False)),
    )
    return Upstream(parameters, kept, optimizer.state, int(found.get("step") or 0), facts)


def export_upstream(
    parameters: Mapping[str, np.ndarray],
    layout: Layout = "nested",
    *,
    kept: Mapping[str, np.ndarray] | None = None,
    optimizer: OptimizerState | None = None,
    step: int = 0,
    log_z: bool = True,
    double_step: bool = False,
) -> dict[str, Any]:
    """The checkpoint upstream would save: tensors under its keys, in either layout.

    `kept` is what an import could not place; without it undoing stop gets an output of zeros, which nothing reads.
    Without an `optimizer` upstream's own starts anew. `double_step` says that the optimiser has stepped the trunk twice
    per update, as upstream's does.
    """
    kept = kept or {}
    trunk, own = networks.stack(parameters, "trunk"), networks.stack(parameters, "backward_trunk")
    found: dict[str, Any] = {"step": step, "backward": None, "state_flow": None, "logZ": None}
    found["forward"] = networks.write([*trunk, networks.linear(parameters, "forward_head")], nested=False)
    nested = layout == "nested"
    if "backward_head.weight" in parameters:
        backward = [*(own or trunk), _with_stop(parameters, kept)]
        found["backward"] = networks.write(backward, nested and not own)
    if "flow_head.weight" in parameters:
        found["state_flow"] = networks.write([*trunk, networks.linear(parameters, "flow_head")], nested)
    elif flow := networks.stack(kept, "state_flow"):
        found["state_flow"] = networks.write(flow, nested=False)
    if log_z:
        found["logZ"] = torch.from_numpy(parameters["log_z"].copy())

    shaped = {**parameters, **kept}
    if "backward_head.weight" in parameters:
        shaped |= networks.named([_with_stop(parameters, kept)], ["backward_head"])
    live = {name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in shaped.items()}
    names = optimizer_torch.order(parameters, kept)
    return found | {"optimizer": optimizer_torch.write(live, names, log_z, optimizer, double_step)}


def _learning_rates(state: OptimizerState | None) -> list[float]:
    return [] if state is None else [group.get("initial_lr", group["lr"]) for group in state.groups]


def _is_upstream(found: Any) -> bool:
    return isinstance(found, Mapping) and isinstance(found.get("forward"), Mapping)


def _check_shapes(read: dict[str, Network], label: str) -> None:
    """Our policy has hidden layers of one width, and as many of them for P_B as for P_F."""
    shapes = {part: [weight.shape for weight, _ in network] for part, network in read.items()}
    widths = {shape[0] for shape in shapes["forward"][:-1]}
    if len(widths) > 1:
        raise NoCounterpart(f"{label}: expected hidden layers of one width, got {sorted(widths)}.")
    if shapes.get("backward", shapes["forward"]) != shapes["forward"]:
        raise NoCounterpart(
            f"{label}: expected a backward policy with the layers of the forward policy, {shapes['forward']}, got "
            f"{shapes['backward']}."
        )
    if "state_flow" in shapes and shapes["state_flow"][-1][0] != 1:
        raise NoCounterpart(f"{label}: expected a state flow of one number, got {shapes['state_flow'][-1][0]}.")


def _with_stop(parameters: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> networks.Layer:
    """The backward head as upstream has it: with an output for undoing stop, if it is not there already (a fault)."""
    weight, bias = networks.linear(parameters, "backward_head")
    if len(bias) == len(parameters["forward_head.bias"]):
        return weight, bias
    row = kept.get("backward_stop.weight", np.zeros_like(weight[:1]))
    return np.concatenate([weight, row]), np.concatenate(
        [bias, kept.get("backward_stop.bias", np.zeros_like(bias[:1]))]
    )


# As `crossfade convert` uses it


def open_upstream(path: Path) -> Upstream | None:
    """The upstream checkpoint at `path`, or None if it is something else."""
    if not path.is_file() or recognise(path) != "torch":
        return None
    found = load_torch(path)
    return import_upstream(found) if _is_upstream(found) else None


def to_bundle(found: Upstream, folder: Path) -> Path:
    """Writes a bundle of our parameters, which `from_bundle` can turn back into the same checkpoint."""
    return checkpoint.save(
        folder,
        params=found.parameters,
        buffers=found.kept,
        optimizer=found.optimizer,
        step=found.step,
        meta={"upstream": asdict(found.facts)},
    )


def from_bundle(source: Path, out: Path, layout: Layout) -> Path:
    """Writes the latest bundle of `source` as an upstream checkpoint."""
    bundle = checkpoint.load(source, side="numpy")
    if not {"forward_head.weight", "log_z"} <= set(bundle.params):
        raise UsageError(f"{source}: expected a bundle of a GFlowNet, got one of {', '.join(bundle.params)[:200]}.")
    if out.exists():
        raise CheckpointError(f"{out}: expected a new name, got one that exists; remove it or choose another.")
    facts = (bundle.meta or {}).get("upstream")
    found = export_upstream(
        bundle.params,
        layout,
        kept=bundle.buffers,
        optimizer=bundle.optimizer,
        step=bundle.step,
        log_z=facts is None or facts["z_dim"] is not None,
        double_step=_run_setting(source, "legacy_double_step") if facts is None else facts["double_step"],
    )
    torch.save(found, out)
    return out


def _run_setting(source: Path, name: str) -> bool:
    """A switch in the config of the run that a bundle, or a folder of them, belongs to; off where there is no run."""
    for folder in source.resolve().parents[:2]:
        if (file := folder / "config.yaml").is_file():
            return bool(yaml.safe_load(file.read_text()).get(name, False))
    return False
