"""Checkpoints of social-ai-uoft/sorrel, one file per agent: into our names and back, bit for bit.

A file is {local, target, optim}: two state dicts of a dueling, noisy network of 64 cosines, and that of one Adam over
the local network. Layers have our names. Noisy ones also store the noise of their last forward pass, `epsilon_weight`
and `epsilon_bias`: nothing reads it again, but the original does not load a file without it, so it is `kept`.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .... import checkpoint
from ....algos.iqn.architecture import NOISY, Architecture
from ....algos.iqn.optimizer import model_names
from ....bridge.optimizers.state_torch import write_torch
from ....checkpoint.formats import load_torch
from ....checkpoint.optimizer_check import check_groups, check_moments
from ....checkpoint.sides import to_numpy
from ....errors import CheckpointError, NoCounterpart, UsageError
from ....optim.state import HYPERPARAMETERS, OptimizerState

Arrays = dict[str, np.ndarray]
NETWORKS = ("local", "target")
COSINES = 64
SUFFIXES = (".pkl", ".pt", ".pth")
SLOTS = ("exp_avg", "exp_avg_sq")
LR = 2.5e-4
"""The published learning rate, for models that come without an optimiser."""


@dataclass(frozen=True)
class Facts:
    """What the files turned out to be."""

    files: list[str]
    """In the order of the agents."""
    inputs: int
    """Frames times the numbers of an observation; the files do not say how many of each."""
    actions: int
    hidden: int
    updates: list[int]
    """Gradient steps of each agent, by its optimiser."""
    lr: list[float]
    """Learning rate of each agent; none without an optimiser."""
    left_out: list[str]
    """Further entries of the files, which have no place here."""

    @property
    def words(self) -> list[str]:
        """The settings of a crossfade config that these files fit."""
        rates = [f"{rate!r}" for rate in (self.lr if len(set(self.lr)) > 1 else self.lr[:1])]
        agents = [f"env.agents={len(self.files)}", f"hidden={self.hidden}"]
        return agents + ([f"lr={','.join(rates)}"] if rates else [])


@dataclass(frozen=True)
class Published:
    """The models of all agents in our names."""

    parameters: Arrays
    kept: Arrays  # the noise of the last forward pass
    optimizers: dict[str, OptimizerState]
    facts: Facts


def read_agents(files: Sequence[str | Path]) -> Published:
    """The agents of these files, in this order; all must have networks of the same sizes."""
    if not files:
        raise UsageError("expected the files of one agent or more, got none.")
    found = {str(file): load_torch(file) for file in files}
    if len(found) < len(files):
        raise UsageError(f"expected every file once, got {len(files)} names of {len(found)} files.")
    first = next(iter(found))
    sizes = _sizes(_state_dict(found[first], "local", first), f"{first}: local")
    names, parameters, kept, optimizers = model_names(len(found)), {}, {}, {}
    for number, (label, entries) in enumerate(found.items()):
        for network in NETWORKS:
            held = _arrays(_state_dict(entries, network, label), sizes, f"{label}: {network}", first)
            for name, array in held.items():
                (kept if ".epsilon_" in name else parameters)[f"models.{number}.{network}.{name}"] = array
        if entries.get("optim") is not None:
            optimizers[names[number]] = _read_adam(entries["optim"], sizes, number, parameters, f"{label}: optim")
    if optimizers and len(optimizers) < len(found):
        bare = [label for label, name in zip(found, names, strict=True) if name not in optimizers]
        raise CheckpointError(f"{bare[0]}: expected an entry optim as the other files have one, got none.")
    facts = Facts(
        files=[Path(label).name for label in found],
        inputs=sizes.inputs,
        actions=sizes.actions,
        hidden=sizes.hidden,
        updates=[state.step for state in optimizers.values()],
        lr=[float(state.groups[0]["lr"]) for state in optimizers.values()],
        left_out=sorted({str(key) for entries in found.values() for key in entries} - {*NETWORKS, "optim"}),
    )
    return Published(parameters, kept, optimizers, facts)


def write_agents(
    parameters: Mapping[str, np.ndarray],
    kept: Mapping[str, np.ndarray] | None = None,
    optimizers: Mapping[str, OptimizerState] | None = None,
) -> list[dict[str, Any]]:
    """What the original would save, for each model.

    `kept` is the noise that was read, zeros without it; without `optimizers` those of the original start anew.
    """
    count = len({name.split(".")[1] for name in parameters if name.startswith("models.")})
    if not count or "models.0.local.head1.weight" not in parameters:
        raise UsageError(f"expected the models of IQN, models.0.local.head1.weight etc., got {[*parameters][:4]}.")
    dueling = "models.0.local.value.weight" in parameters
    noisy = all(f"models.0.local.{layer}.sigma_weight" in parameters for layer in NOISY[: 2 + dueling])
    cosines = parameters["models.0.local.cos_embedding.weight"].shape[1]
    if (dueling, noisy, cosines) != (True, True, COSINES):
        raise NoCounterpart(
            f"expected the published network, dueling=true noisy=true cosines={COSINES}, got dueling={dueling} "
            f"noisy={noisy} cosines={cosines}. Train with those settings to write files that the original loads."
        )
    held, written = {**parameters, **(kept or {})}, []
    sizes = _sizes({name: held[f"models.0.local.{name}"] for name in ("head1.weight", "advantage.weight")}, "models.0")
    for number, optimizer in enumerate(model_names(count)):
        entries: dict[str, Any] = {}
        for network in NETWORKS:
            prefix = f"models.{number}.{network}."
            for name, shape in _shapes(sizes).items():
                array = held.get(prefix + name)
                if array is None and ".epsilon_" in name:
                    array = np.zeros(shape, held[prefix + name.replace("epsilon_", "")].dtype)
                _check(prefix + name, array, shape, "models.0")
                entries.setdefault(network, {})[name] = torch.from_numpy(np.array(array))
        state = (optimizers or {}).get(optimizer)
        written.append(entries | {"optim": _write_adam(entries["local"], sizes, number, state)})
    return written


# Files


def find_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder in natural order, agent2 before agent10: .pkl, .pt and .pth."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    natural = lambda file: [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _parts(file)]
    return sorted((file for file in path.iterdir() if file.is_file() and file.suffix in SUFFIXES), key=natural)


def open_agents(path: Path) -> Published | None:
    """The agents of a file or of all files of a folder; None if none of them is of this kind."""
    files = find_files(path)
    return read_agents(files) if any(map(_is_published, files)) else None


def to_bundle(found: Published, folder: Path) -> Path:
    """Writes a bundle of our parameters, which `from_bundle` can turn back into the same files."""
    several = len(found.optimizers) > 1
    return checkpoint.save(
        folder,
        params=found.parameters,
        buffers=found.kept,
        optimizer=found.optimizers if several else next(iter(found.optimizers.values()), None),
        step=max(found.facts.updates, default=0),
        meta={"sorrel": asdict(found.facts)},
    )


def from_bundle(source: Path, out: Path) -> Path:
    """Writes the latest bundle of `source` as a folder of files, `agent0.pkl` etc., one for each model."""
    bundle = checkpoint.load(source, side="numpy")
    if out.exists():
        raise CheckpointError(f"{out}: expected a new name, got one that exists; remove it or choose another.")
    adams = bundle.optimizer
    adams = dict(zip(model_names(1), [adams], strict=True)) if isinstance(adams, OptimizerState) else adams
    written = write_agents(bundle.params, bundle.buffers, adams)
    scratch = out.with_name(f".{out.name}.tmp")
    scratch.mkdir(parents=True)
    try:
        for number, entries in enumerate(written):
            torch.save(entries, scratch / f"agent{number}.pkl")
        return scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _parts(file: Path) -> list[str]:
    return [part for part in re.split(r"(\d+)", file.name) if part]


def _is_published(file: Path) -> bool:
    try:
        found = load_torch(file)
    except CheckpointError:
        return False
    local = found.get("local") if isinstance(found, Mapping) else None
    return isinstance(local, Mapping) and {"head1.weight", "cos_embedding.weight"} <= local.keys()


# Networks


def _trained(sizes: Architecture) -> list[str]:
    """A network's parameters as the original registers them, which is how its optimiser numbers them."""
    return [name for name in _shapes(sizes) if ".epsilon_" not in name]


def _shapes(sizes: Architecture) -> dict[str, tuple[int, ...]]:
    """All that a state dict holds, in its order: parameters of a layer, then the noise."""
    found = {}
    for layer, (inputs, outputs) in sizes.layers.items():
        for prefix in ("", "sigma_", "epsilon_") if layer in NOISY else ("",):
            found |= {f"{layer}.{prefix}weight": (outputs, inputs), f"{layer}.{prefix}bias": (outputs,)}
    return found


def _sizes(local: Mapping[str, Any], label: str) -> Architecture:
    """The sizes of a network, by its first and its last layer."""
    found = {}
    for name in ("head1.weight", "advantage.weight"):
        value = local.get(name)
        if value is None or len(shape := tuple(getattr(value, "shape", ()))) != 2 or not all(shape):
            got = "nothing" if value is None else f"{type(value).__name__} {tuple(getattr(value, 'shape', ()))}"
            raise CheckpointError(f"{label}: {name}: expected a matrix, got {got}. {ADVICE}")
        found[name] = shape
    (hidden, inputs), (actions, _) = found.values()
    return Architecture(inputs, actions, hidden, COSINES, dueling=True, noisy=True)


def _state_dict(entries: Any, network: str, label: str) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping) or not isinstance(entries.get(network), Mapping):
        got = ", ".join(map(str, entries)) if isinstance(entries, Mapping) else type(entries).__name__
        raise CheckpointError(f"{label}: expected the entries local, target and optim, got {got}. {ADVICE}")
    return entries[network]


def _arrays(state_dict: Mapping[str, Any], sizes: Architecture, label: str, first: str) -> Arrays:
    """The tensors of a network, each of the shape that the first file has."""
    shapes, found = _shapes(sizes), {}
    if more := [str(name) for name in state_dict if name not in shapes]:
        raise NoCounterpart(f"{label}: {more[0]}: expected the published network's tensors only, which has none such.")
    for name, shape in shapes.items():
        array = to_numpy(state_dict[name], f"{label}: {name}") if name in state_dict else None
        found[name] = _check(f"{label}: {name}", array, shape, first)
    if len(dtypes := {str(array.dtype) for array in found.values()}) > 1 or dtypes - {"float32", "float64"}:
        raise CheckpointError(
            f"{label}: expected all tensors in float32, or all in float64, got {', '.join(sorted(dtypes))}. Save the "
            f"network after `.float()`."
        )
    return found


def _check(name: str, array: np.ndarray | None, shape: tuple[int, ...], first: str) -> np.ndarray:
    if array is None or array.shape != shape:
        got = "nothing" if array is None else array.shape
        raise CheckpointError(f"{name}: expected {shape}, by the sizes of {first}, got {got}. {ADVICE}")
    return array


ADVICE = "Save the model again with its own `save`; agents of other sizes are converted apart from these."


# Optimisers


def _read_adam(found: Any, sizes: Architecture, number: int, parameters: Arrays, label: str) -> OptimizerState:
    names = [f"models.{number}.local.{name}" for name in _trained(sizes)]
    if not _is_adam(found, len(names)):
        raise CheckpointError(
            f"{label}: expected one Adam over the {len(names)} tensors of the local network, got something else. "
            f"{ADVICE}"
        )
    (group,) = found["param_groups"]
    settings = {key: group[key] for key in HYPERPARAMETERS["Adam"] if key in group}
    settings["betas"] = list(group["betas"])
    held = zip(names, group["params"], strict=True)
    moments = {name: _slots(found["state"].get(i), parameters[name], f"{label}: {name}") for name, i in held}
    groups = [{"names": names, "frozen": [], **settings}]
    check_groups("Adam", groups, label)
    check_moments("Adam", groups, moments, parameters, label)
    return OptimizerState("Adam", tuple(groups), moments)


def _is_adam(found: Any, count: int) -> bool:
    match found:
        case {"state": Mapping(), "param_groups": [{"params": [*indices], "betas": [_, _]}]}:
            return len(set(map(str, indices))) == count and all(isinstance(index, int) for index in indices)
    return False


def _slots(kept: Any, parameter: np.ndarray, label: str) -> Arrays:
    """The moments of a parameter; zeros before its first step."""
    if kept is None:
        return {"step": np.zeros((), np.float32)} | {slot: np.zeros_like(parameter) for slot in SLOTS}
    if not isinstance(kept, Mapping) or {*kept} != {"step", *SLOTS} or isinstance(kept["step"], str | Mapping | list):
        raise CheckpointError(f"{label}: expected the moments step, {', '.join(SLOTS)}, got others. {ADVICE}")
    found = {slot: to_numpy(kept[slot], f"{label}.{slot}") for slot in SLOTS}
    if odd := [slot for slot in SLOTS if found[slot].dtype != parameter.dtype]:
        raise CheckpointError(f"{label}.{odd[0]}: expected {parameter.dtype}, got {found[odd[0]].dtype}. {ADVICE}")
    return {"step": to_numpy(torch.as_tensor(kept["step"], dtype=torch.float32), f"{label}.step"), **found}


def _write_adam(
    local: Mapping[str, torch.Tensor], sizes: Architecture, number: int, state: OptimizerState | None
) -> dict[str, Any]:
    """The state dict of the Adam that the original would have built over its local network."""
    live = {f"models.{number}.local.{name}": torch.nn.Parameter(local[name]) for name in _trained(sizes)}
    adam = torch.optim.Adam(live.values(), lr=LR)
    if state is not None:
        write_torch(state, adam, live)
    return adam.state_dict()
