"""Parameter trees of chongyi-zheng/infom: into our names and back, bit for bit. Framework-free.

The original pickles {agent: {rng, network: {step, params, opt_state}}}, which is never unpickled here. Its owner writes
it flat, arrays by path joined with "/", as .npz or safetensors; docs/offline.md has the lines. Adam's mu and nu are
over the whole tree: those of targets, and of biases that cancel in every loss, have no place in our optimiser and are
`kept`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .... import checkpoint
from ....algos.offline.parameters import EPS, online_names
from ....checkpoint.formats import recognise
from ....errors import CheckpointError
from ....optim.state import OptimizerState, adam_group
from .flax_names import PREFIX, axes, ours, theirs, to_ours, to_theirs
from .structure import Structure, structure

Arrays = dict[str, np.ndarray]
ROOT = "agent/network/"
MOMENTS = {"exp_avg": "mu", "exp_avg_sq": "nu"}
CENTRE = "target_repr_center.array"
LR = 3e-4
"""The published learning rate; files have none."""
MOST_UPDATES = 2**24
"""Counts are float32 here."""


@dataclass(frozen=True)
class Facts:
    """What the file turned out to be."""

    agent: str
    settings: str
    """Of a config that it fits."""
    updates: int
    step: int
    """The original's own counter, which begins at 1."""
    optimizer: bool
    left_out: list[str]
    """Further entries, which have no place here."""


@dataclass(frozen=True)
class Published:
    """An agent in our names."""

    parameters: Arrays
    optimizer: OptimizerState | None
    key: np.ndarray | None
    kept: dict[str, Arrays]
    """What the original needs back and nobody here reads: `mu` and `nu` by path, and `params` that it has spoiled."""
    facts: Facts


def read_tree(tree: Mapping[str, np.ndarray], label: str = "tree") -> Published:
    """The agent of a flat tree."""
    root = _root(tree, label)
    inside = {path.removeprefix(root): array for path, array in tree.items() if path.startswith(root)}
    params = _part(inside, "params/") or _part(inside, "")
    found, kept = _translated(params, f"{label}: params"), {}
    if (
        CENTRE in found and found[CENTRE].ndim == 2
    ):  # the published code gives it an axis of the batch (constant_center)
        kept["params"] = {theirs_of(CENTRE): found[CENTRE]}
        found[CENTRE] = np.zeros(found[CENTRE].shape[1:], found[CENTRE].dtype)
    what = structure({name: array.shape for name, array in found.items()}, label)
    _one_precision(found, label)
    place = _moments_place(inside, label)
    optimizer, updates, used = None, 0, set()
    if place is not None:
        optimizer, idle = _read_adam(inside, place, found, what, label)
        kept |= idle
        updates = optimizer.step
        used = {path for path in inside if path.startswith(place)}
    step = inside.get("step")
    key = tree.get(f"{root.removesuffix('network/')}rng")
    said = {f"{root}{path}" for path in (*used, "step")} | {f"{root.removesuffix('network/')}rng"}
    weights = {path for path in tree if PREFIX in path and path not in said}
    left = sorted(set(tree) - said - weights)
    facts = Facts(
        what.name,
        " ".join([*what.words, f"lr={LR}", "tau=0.005"]),
        updates,
        int(step) if step is not None and np.ndim(step) == 0 else updates + 1,
        optimizer is not None,
        left,
    )
    if key is not None and (key.shape != (2,) or key.dtype != np.uint32):
        raise CheckpointError(f"{label}: rng: expected two words of 32 bits, got {key.dtype} of shape {key.shape}.")
    return Published(found, optimizer, key, kept, facts)


def write_tree(
    parameters: Mapping[str, np.ndarray],
    optimizer: OptimizerState | None = None,
    key: np.ndarray | None = None,
    kept: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    step: int | None = None,
    label: str = "parameters",
) -> Arrays:
    """The flat tree that the original would have. Without an optimiser its moments are 0, without a key that of seed
    0."""
    what = structure({name: np.shape(array) for name, array in parameters.items()}, label)
    modules, kept = what.modules, kept or {}
    paths = {name: theirs(name, modules[name.split(".")[0]]) for name in parameters}
    params = {paths[name]: to_theirs(paths[name], np.asarray(array)) for name, array in parameters.items()}
    tree = {f"{ROOT}params/{path}": array for path, array in (params | dict(kept.get("params", {}))).items()}
    held = {} if optimizer is None else optimizer.moments
    for slot, moment in MOMENTS.items():
        for name, path in paths.items():
            own = held.get(name)
            array = np.zeros_like(params[path]) if own is None else to_theirs(path, own[slot])
            tree[f"{ROOT}opt_state/0/{moment}/{path}"] = kept.get(moment, {}).get(path, array)
    updates = 0 if optimizer is None else optimizer.step
    tree[f"{ROOT}opt_state/0/count"] = np.array(updates, np.int32)
    tree[f"{ROOT}step"] = np.array(updates + 1 if step is None else step, np.int32)
    tree["agent/rng"] = np.zeros(2, np.uint32) if key is None else np.asarray(key)
    return tree


def theirs_of(name: str) -> str:
    """The flax path of DINO's centre."""
    return f"{PREFIX}{name.removesuffix('.array')}/value"


# Files


def open_tree(path: Path) -> Published | None:
    """The agent of a file; None for any other file."""
    if not path.is_file() or (kind := recognise(path)) not in ("npz", "safetensors"):
        return None
    tree = checkpoint.import_npz(path) if kind == "npz" else checkpoint.import_safetensors(path)
    return read_tree(tree, str(path)) if any(f"/{PREFIX}" in f"/{name}" for name in tree) else None


def to_bundle(found: Published, folder: Path) -> Path:
    """Writes a bundle of our parameters, which `from_bundle` can turn back into the same tree."""
    return checkpoint.save(
        folder,
        params=found.parameters,
        optimizer=found.optimizer,
        key=found.key,
        replay={"published": found.kept},
        step=found.facts.updates,
        meta={"infom": asdict(found.facts)},
    )


def from_bundle(source: Path, out: Path) -> Path:
    """Writes the latest bundle of `source` as a flat tree: safetensors if the name ends so, else .npz."""
    bundle = checkpoint.load(source, side="numpy")
    replay = bundle.replay if isinstance(bundle.replay, dict) else {}
    facts = bundle.meta.get("infom") or {}
    if isinstance(bundle.optimizer, dict):
        raise CheckpointError(
            f"{source}: expected one Adam, as offline agents have, got {', '.join(bundle.optimizer)}."
        )
    tree = write_tree(
        bundle.params, bundle.optimizer, bundle.key, replay.get("published"), facts.get("step"), str(source)
    )
    return (checkpoint.export_safetensors if out.suffix == ".safetensors" else checkpoint.export_npz)(tree, out)


# Parts of a tree


def _root(tree: Mapping[str, np.ndarray], label: str) -> str:
    """What stands before the network's own entries: agent/network/, network/ or nothing."""
    for root in (ROOT, "network/", ""):
        if any(path.startswith((f"{root}params/{PREFIX}", f"{root}{PREFIX}")) for path in tree):
            return root
    raise CheckpointError(f"{label}: expected {ROOT}params/{PREFIX}... of a flat tree, got {[*tree][:3]}.")


def _part(inside: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    start = f"{prefix}{PREFIX}"
    return {path.removeprefix(prefix): array for path, array in inside.items() if path.startswith(start)}


def _translated(params: Mapping[str, np.ndarray], label: str) -> Arrays:
    """Arrays in our names and layouts."""
    found: Arrays = {}
    for path, array in params.items():
        name = ours(path)
        if name in found:
            raise CheckpointError(f"{label}: {path}: expected a parameter of its own, got one that is {name} too.")
        if array.ndim not in axes(path):
            raise CheckpointError(f"{label}: {path}: expected {axes(path)} axes, got shape {array.shape}.")
        found[name] = to_ours(path, array)
    return found


def _one_precision(found: Arrays, label: str) -> None:
    kinds = sorted({str(array.dtype) for array in found.values()})
    if len(kinds) > 1 or kinds[0] not in ("float32", "float64"):
        raise CheckpointError(
            f"{label}: expected all parameters in float32, or all in float64, got {', '.join(kinds)}."
        )


def _moments_place(inside: Mapping[str, np.ndarray], label: str) -> str | None:
    """Where Adam's mu, nu and count are, `opt_state/0/`; None without an optimiser."""
    places = {path.partition(f"mu/{PREFIX}")[0] for path in inside if f"/mu/{PREFIX}" in path}
    if len(places) > 1:
        raise CheckpointError(f"{label}: opt_state: expected one Adam, got {len(places)}: {', '.join(sorted(places))}.")
    return next(iter(places), None)


def _read_adam(
    inside: Mapping[str, np.ndarray], place: str, parameters: Arrays, what: Structure, label: str
) -> tuple[OptimizerState, dict[str, Arrays]]:
    """Adam in neutral form, and the moments that have no place in it, unless they are 0."""
    count = inside.get(f"{place}count")
    if count is None or count.shape != () or count.dtype.kind not in "iu" or not 0 <= int(count) <= MOST_UPDATES:
        got = "nothing" if count is None else f"{count.dtype} of shape {count.shape}"
        raise CheckpointError(
            f"{label}: {place}count: expected a whole number from 0 to {MOST_UPDATES:,}, got {got}. Flatten the whole "
            "state of the optimiser, or none of it."
        )
    learning = online_names(what.modules)
    moments: dict[str, Arrays] = {name: {"step": np.array(count, np.float32)} for name in learning}
    kept: dict[str, Arrays] = {}
    for slot, moment in MOMENTS.items():
        held = _part(inside, f"{place}{moment}/")
        found = {name: (path, array) for path, array in held.items() for name in [ours(path)]}
        if odd := set(found) ^ set(parameters):
            raise CheckpointError(f"{label}: {place}{moment}: expected the tree of params, got another: {min(odd)}.")
        for name, (path, array) in found.items():
            shape, like = to_theirs(path, parameters[name]).shape, parameters[name].dtype
            if array.shape != shape or array.dtype != like:
                raise CheckpointError(
                    f"{label}: {place}{moment}/{path}: expected {like} {shape}, got {array.dtype} {array.shape}."
                )
            if name in moments:
                moments[name][slot] = to_ours(path, array)
            elif array.tobytes().strip(b"\0"):
                kept.setdefault(moment, {})[path] = array
    groups = (adam_group(learning, LR, eps=EPS),)
    return OptimizerState("Adam", groups, moments), kept
