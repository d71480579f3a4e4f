"""Mapping: the bijection between a torch module's names and a JAX model's leaves, with a rule for each pair."""

import json
from collections.abc import Mapping as Named
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import MappingError, UsageError, nearest
from .libraries import JaxModel, NamedArrays, open_model
from .rules import Rule
from .transfer import numpy_to_jax, numpy_to_tensor, tensor_to_numpy

if TYPE_CHECKING:
    from .matching.proof import Verification

SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """Some torch arrays, the JAX leaves that hold the same numbers, and the rule between them."""

    torch: tuple[str, ...]
    jax: tuple[str, ...]
    rule: Rule
    reason: str = "name"  # how the pair was found: override, layer, dataflow or name

    def __str__(self) -> str:
        return f"{' + '.join(self.torch)} -> {' + '.join(self.jax)}  [{self.rule!r}; {self.reason}]"


def leaves_of(entries: tuple[Entry, ...], weights: Named[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Torch arrays by name, carried by the entries to JAX leaves by path."""
    leaves: dict[str, np.ndarray] = {}
    for entry in entries:
        leaves.update(zip(entry.jax, entry.rule.forward(tuple(weights[n] for n in entry.torch)), strict=True))
    return leaves


@dataclass(frozen=True)
class Mapping:
    """Made by `bridge.match`; carries weights, gradients and optimiser moments between the two sides.

    `tied` gives, for every further name of a shared torch tensor, the name it is stored under. `torch_only` holds
    buffers with no JAX counterpart (BatchNorm's step counter), as they were when the mapping was made, and `jax_only`
    names leaves with no torch one (random keys); neither is a parameter. The outputs depend on those of `constants`,
    which JAX has in its code instead.
    """

    entries: tuple[Entry, ...]
    shapes: dict[str, tuple[int, ...]]  # torch state_dict names, in order
    jax_model: Any = field(repr=False)
    tied: dict[str, str] = field(default_factory=dict)
    torch_only: dict[str, np.ndarray] = field(default_factory=dict)
    jax_only: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()  # torch names on which the example's outputs do not depend
    constants: tuple[str, ...] = ()  # names of `torch_only`
    precision: str | None = None  # in which match compared the outputs: float64, or float32, which proves less
    unjudged: tuple[str, ...] = ()  # weights and inputs on which match could not compare the outputs, and why
    meant: dict[str, np.ndarray] = field(default_factory=dict)  # of `constants`, in float64 as JAX has them
    widened: tuple[str, ...] = ()  # halves whose code says float32, compared in float64 nevertheless
    numbers: tuple | None = field(default=None, repr=False, compare=False)  # how each half's constants were widened
    origin: tuple | None = field(default=None, repr=False, compare=False)  # what `verify` runs: match's own arguments

    @classmethod
    def by_name(cls, torch_module: torch.nn.Module, jax_model: Any) -> "Mapping":
        """The identity mapping of twins that use the same names and shapes on both sides."""
        named = {name: tuple(t.shape) for name, t in torch_module.state_dict().items()}
        leaves = {name: tuple(leaf.shape) for name, leaf in open_model(jax_model).leaves().items()}
        if named != leaves:
            odd = sorted(set(named.items()) ^ set(leaves.items()))
            raise MappingError(
                f"expected equal names and shapes on both sides; these stand alone: {odd}. Use bridge.match."
            )
        return cls(tuple(Entry((n,), (n,), Rule()) for n in named), named, jax_model)

    @classmethod
    def identity(cls, tensors: Named[str, torch.Tensor]) -> "Mapping":
        """Torch's own names and layout on the JAX side too, where the model is a `NamedArrays`."""
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        zero = lambda tensor: tensor_to_numpy(torch.zeros((), dtype=tensor.dtype))
        model = NamedArrays({name: np.broadcast_to(zero(tensor), shapes[name]) for name, tensor in tensors.items()})
        return cls(tuple(Entry((n,), (n,), Rule()) for n in shapes), shapes, model)

    @property
    def opened(self) -> JaxModel:
        """The JAX model the mapping was made for, taken apart."""
        return open_model(self.jax_model)

    # Arrays by name, NumPy or JAX, also under jit: what weights, gradients and moments have in common.

    def leaves_to_jax(self, named: Named[str, Any], *, linear: bool = False) -> dict[str, Any]:
        """Torch arrays by name -> JAX leaves by path. Entries none of whose names are given are left out.

        Pass `linear=True` for gradients and moments: a rule may hold a constant, which they do not have.
        """
        leaves = {}
        for entry in self.entries:
            if arrays := self._gather(entry, entry.torch, named):
                leaves.update(zip(entry.jax, entry.rule.forward(arrays, linear), strict=True))
        return leaves

    def leaves_to_torch(self, leaves: Named[str, Any], *, linear: bool = False) -> dict[str, Any]:
        """JAX leaves by path -> torch arrays by name; the inverse of `leaves_to_jax`."""
        named = {}
        for entry in self.entries:
            if arrays := self._gather(entry, entry.jax, leaves):
                named.update(zip(entry.torch, entry.rule.inverse(arrays, linear), strict=True))
        return named

    @staticmethod
    def _gather(entry: Entry, names: tuple[str, ...], given: Named[str, Any]) -> tuple[Any, ...]:
        arrays = tuple(given[n] for n in names if n in given)
        if arrays and len(arrays) != len(names):
            missing = [n for n in names if n not in given]
            raise MappingError(f"{entry}: expected all of its arrays together, missing {missing}")
        return arrays

    # Whole models

    def to_jax(self, state_dict: Named[str, Any], like: Any = None) -> Any:
        """The JAX model (of the same kind as the one matched) holding the weights of a torch `state_dict`."""
        state_dict = {self.plain_name(name): value for name, value in state_dict.items()}
        self._check(state_dict)
        arrays = {
            n: tensor_to_numpy(t) if isinstance(t, torch.Tensor) else np.asarray(t) for n, t in state_dict.items()
        }
        for alias, name in self.tied.items():
            if alias in arrays and not np.array_equal(arrays[alias], arrays[name], equal_nan=True):
                raise MappingError(
                    f"{alias!r} and {name!r} are one tensor in the matched module, but differ in this state_dict. "
                    f"JAX holds them as one leaf: make them equal, or match the untied module."
                )
        for name in self.constants:
            known = self.torch_only[name]
            if name in arrays and not np.array_equal(arrays[name].astype(known.dtype), known, equal_nan=True):
                raise MappingError(
                    f"{name!r} is a constant in the JAX model, which has the values of the buffer when it was matched; "
                    f"in this state_dict it has others. Hold it in the JAX model as state, and match again."
                )
        leaves = self.leaves_to_jax({n: a for n, a in arrays.items() if n not in self.tied})
        model = self.opened if like is None else open_model(like)
        return model.complete(model.replace({path: numpy_to_jax(array, path) for path, array in leaves.items()}))

    def to_torch(
        self, jax_model: Any, like: torch.nn.Module | Named[str, Any] | None = None
    ) -> dict[str, torch.Tensor]:
        """The torch `state_dict` (private copies) of a JAX model of the matched kind.

        Buffers that JAX does not hold come from `like`, a module or `state_dict`; by default from the module that was
        matched, as it is now, and for a mapping that was loaded from what it recorded.
        """
        opened = open_model(open_model(jax_model).complete(jax_model))
        leaves = {p: np.asarray(a) for p, a in opened.leaves().items() if p not in self.jax_only}
        named = {n: numpy_to_tensor(a) for n, a in self.leaves_to_torch(leaves).items()}
        named |= {n: numpy_to_tensor(a) for n, a in self._torch_only(like).items()}
        named |= {alias: named[name] for alias, name in self.tied.items()}
        return {n: named[n] for n in self.shapes}

    def _torch_only(self, like: torch.nn.Module | Named[str, Any] | None) -> dict[str, np.ndarray]:
        if like is None and self.origin is not None:
            like = self.origin[0]
        state = like.state_dict() if isinstance(like, torch.nn.Module) else like or {}
        known = {self.plain_name(name): value for name, value in state.items()}
        present = {name: known[name] for name in self.torch_only if name in known}
        return self.torch_only | {
            n: tensor_to_numpy(t) if isinstance(t, torch.Tensor) else np.asarray(t) for n, t in present.items()
        }

    def plain_name(self, name: str) -> str:
        """The name as the matched module has it, whatever prefixes DDP and `torch.compile` put to either."""
        if name in self.shapes:
            return name
        plain = name.replace("_orig_mod.", "")
        known = {other.replace("_orig_mod.", ""): other for other in self.shapes}
        return next((known[word] for word in (plain, plain.removeprefix("module.")) if word in known), plain)

    def _check(self, state_dict: Named[str, Any]) -> None:
        optional = set(self.tied) | set(self.torch_only)
        missing = [n for n in self.shapes if n not in state_dict and n not in optional]
        unexpected = [n + nearest(n, missing) for n in state_dict if n not in self.shapes]
        shapes = [
            f"{n}: expected {shape}, got {tuple(state_dict[n].shape)}"
            for n, shape in self.shapes.items()
            if n in state_dict and tuple(state_dict[n].shape) != shape
        ]
        if missing or unexpected or shapes:
            raise MappingError(
                "the state_dict does not fit the mapping.\n"
                + "".join(
                    f"  {what}: {', '.join(names)}\n"
                    for what, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape", shapes))
                    if names
                )
                + "Pass the state_dict of the module that was matched, or match again."
            )

    # Telling and keeping

    def explain(self, notes: bool = True) -> str:
        """A table: both sides with their shapes, the rule and how the pair was found; then the `notes`."""
        leaves = {path: np.shape(leaf) for path, leaf in self.opened.leaves().items()}
        rows = [("torch", "JAX", "rule", "found by")]
        for entry in self.entries:
            ours = " + ".join(f"{n} {_shape(self.shapes[n])}" for n in entry.torch)
            theirs = " + ".join(f"{p} {_shape(leaves[p])}" for p in entry.jax)
            marks = [", lossy"] * entry.rule.lossy + [", not proved by the example"] * self._is_unproved(entry)
            rows.append((ours, theirs, repr(entry.rule), entry.reason + "".join(marks)))
        rows += [
            (f"{alias} {_shape(self.shapes[alias])}", "", f"tied to {name}", "") for alias, name in self.tied.items()
        ]
        kept = {name: "constant in JAX" if name in self.constants else "torch only, kept" for name in self.torch_only}
        rows += [(f"{name} {_shape(self.shapes[name])}", "", words, "") for name, words in kept.items()]
        rows += [("", f"{path} {_shape(leaves[path])}", "JAX only, kept", "") for path in self.jax_only]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        told = self.notes() if notes else []
        return "\n".join([*(line.rstrip() for line in lines), *([""] if told else []), *told])

    def notes(self) -> list[str]:
        """What the proof did not reach, and where it computed in float64 although a half says float32."""
        notes = ["outputs compared in float32, which proves less than float64"] * (self.precision == "float32")
        notes += [f"outputs not compared with {why}" for why in self.unjudged]
        notes += [
            f"the {half} half computes in float32 whatever it is given (a cast, or a layer made with that type); for "
            f"the proof it was computed in float64"
            for half in self.widened
        ]
        for half, other, meant in zip(("torch", "JAX"), ("JAX", "torch"), self.numbers or (), strict=False):
            if meant.changed:
                single, wide = next(iter(meant.changed.items()))
                more = f" and {len(meant.changed) - 1} more" if len(meant.changed) > 1 else ""
                notes.append(
                    f"the {half} half holds {single!r} in float32{more}, compared as {wide!r}, which {other} has "
                    f"or which is meant: in float32 it is the same. If you run in float64, hold it in float64 in both"
                )
        return notes

    def _is_unproved(self, entry: Entry) -> bool:
        return not set(entry.torch).isdisjoint(self.unproved)

    def verify(
        self,
        torch_module: torch.nn.Module | None = None,
        example: Any = None,
        *,
        jax_example: Any = None,
        jax_apply: Any = None,
        torch_apply: Any = None,
        training: bool = False,
    ) -> "Verification":
        """Proves the mapping again: one to one, bit-equal round trip, equal outputs in float64 on every probe.

        What `match` was given is remembered; a mapping that was loaded needs the module and the example.
        """
        from .matching.proof import verify

        if torch_module is not None:
            return verify(self, torch_module, example, jax_example, jax_apply, torch_apply, training)
        if self.origin is None:
            raise UsageError("this mapping was not made by match in this process: call verify(torch_module, example).")
        return verify(self, *self.origin)

    def to_json(self) -> dict[str, Any]:
        """Everything but the JAX model, as plain JSON values."""
        return {
            "schema": SCHEMA,
            "entries": [[list(e.torch), list(e.jax), e.rule.to_json(), e.reason] for e in self.entries],
            "shapes": {n: list(s) for n, s in self.shapes.items()},
            "tied": self.tied,
            "torch_only": {n: [a.dtype.name, a.tolist()] for n, a in self.torch_only.items()},
            "jax_only": list(self.jax_only),
            "unproved": list(self.unproved),
            "constants": list(self.constants),
            "precision": self.precision,
            "unjudged": list(self.unjudged),
            "meant": {n: a.tolist() for n, a in self.meant.items()},
            "widened": list(self.widened),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], jax_model: Any) -> "Mapping":
        """The inverse of `to_json`; `jax_model` is any model of the matched kind."""
        if data.get("schema") != SCHEMA:
            raise MappingError(f"expected a mapping of schema {SCHEMA}, got {data.get('schema')!r}. Match again.")
        return cls(
            entries=tuple(Entry(tuple(t), tuple(j), Rule.from_json(r), why) for t, j, r, why in data["entries"]),
            shapes={n: tuple(s) for n, s in data["shapes"].items()},
            jax_model=jax_model,
            tied=dict(data["tied"]),
            torch_only={n: np.asarray(value, dtype) for n, (dtype, value) in data["torch_only"].items()},
            jax_only=tuple(data["jax_only"]),
            unproved=tuple(data["unproved"]),
            constants=tuple(data.get("constants", ())),
            precision=data.get("precision"),
            unjudged=tuple(data.get("unjudged", ())),
            meant={n: np.asarray(value, np.float64) for n, value in data.get("meant", {}).items()},
            widened=tuple(data.get("widened", ())),
        )

    def save(self, path: str | Path) -> None:
        """Writes the mapping as JSON, to a temporary name first."""
        path = Path(path)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(self.to_json(), indent=1))
        temporary.replace(path)

    @classmethod
    def load(cls, path: str | Path, jax_model: Any) -> "Mapping":
        """Reads a mapping saved by `save`; `jax_model` is any model of the matched kind."""
        return cls.from_json(json.loads(Path(path).read_text()), jax_model)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
