"""Where each planted bug is: derived from the plant itself, never from what `bisect` says.

One half of a mutant is computed twice, with the bug and without. An operation is a planted one when the other version
does not have it although it has all that the operation reads: the first operations that are new, and the first that are
gone. The other half has no bug: there the right places are the operations that compute what the planted ones compute
in the clean twin. Halves that run on the host, line by line, are compared by their lines (lines.py).
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import torch
from mutants import Mutant
from torch.utils._pytree import tree_map

from crossfade.parity import Twin
from crossfade.parity.arrays import jax_tree, precision
from crossfade.parity.bisecting.equations import Program, record, trace
from crossfade.parity.bisecting.pairing import Index
from crossfade.parity.bisecting.points import Point
from crossfade.parity.bisecting.training import optimizer_place
from crossfade.parity.bisecting.trial import Trial, quiet
from crossfade.parity.levels import Levels

Chain = tuple[str, ...]  # the user's lines that led to an operation, the innermost first
Site = tuple[str, Chain]  # the name of an operation, and its lines


@dataclass
class Operation:
    """One equation or torch call. `key` says what it computes from the inputs, whatever its numbers and lines are."""

    name: str
    key: str
    reads: tuple[str, ...]  # keys
    gives: tuple[str, ...]
    lines: Chain


@dataclass
class Version:
    """A half with the bug or without: its operations, and its values by key."""

    operations: list[Operation] = field(default_factory=list)
    points: dict[str, Point] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)  # keys of inputs and constants

    @property
    def keys(self) -> set[str]:
        return self.given | {key for operation in self.operations for key in operation.gives}


class Bare(Trial):
    """A trial that runs neither half until it is asked to."""

    def __init__(self, twin: Twin, level: str):
        from crossfade.parity.checking import find_mapping

        mapping = find_mapping(twin, [level])
        self.twin, self.mapping, self.level, self.steps, self.runs = twin, mapping, level, (1,), 0
        self.levels, self._batches = Levels(twin, mapping, "float64", (1,)), {}
        self.weights = self.levels.weights


def _digest(*parts: Any) -> str:
    return hashlib.md5(repr(parts).encode()).hexdigest()


def _words(value: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(value))


def _of_array(value: Any) -> str:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return _digest("constant", array.shape, str(array.dtype), array.tobytes())


# The two halves as operations


def jax_version(program: Program, points: dict[int, Point]) -> Version:
    """The equations of a program."""
    version, keys = Version(), {}
    for name, number in program.inputs.items():
        keys[number] = _digest("input", name)
    for number, constant in program.constants.items():
        keys[number] = _of_array(constant)
    version.given = set(keys.values())
    for equation in program.equations:
        reads = tuple(keys[n] for n in equation.inputs)
        key = _digest(equation.name, _words(equation.params), reads)
        gives = tuple(_digest(key, i) for i in range(len(equation.outputs)))
        keys |= dict(zip(equation.outputs, gives, strict=True))
        version.operations.append(Operation(equation.name, key, reads, gives, equation.lines))
    version.points = {keys[n]: point for n, point in points.items()}
    version.outputs = {name: keys[n] for name, n in program.outputs.items()}
    return version


def torch_version(trial: Trial) -> Version:
    """The torch calls of a half, and what they give."""
    _, side = trial.run(write=True)
    watch, version, keys = side.watch, Version(), {}
    for number, point in watch.points.items():
        if point.call < 0:
            keys[number] = _digest("input", point.name) if point.name else _of_array(point.value)
            version.given.add(keys[number])
    for call in watch.calls.values():
        told = tree_map(lambda x: "tensor" if isinstance(x, torch.Tensor) else x, (call.args, call.kwargs))
        reads = tuple(keys[n] for n in call.reads)
        key = _digest(call.name, _words(told), call.differentiable, reads)
        gives = tuple(_digest(key, i) for i in range(len(call.points)))
        keys |= dict(zip(call.points, gives, strict=True))
        version.operations.append(Operation(call.name, key, reads, gives, call.lines))
    version.points = {keys[n]: point for n, point in watch.points.items()}
    numbers = {leaf: watch.number_of(tensor) for leaf, tensor in side.results.items()}
    version.outputs = {".".join(leaf): keys[n] for leaf, n in numbers.items() if n is not None}
    return version


def versions(twin: Twin, level: str) -> tuple[Version | None, list[Version]]:
    """The torch half, and the JAX half: in environments its reset and its step. A half without operations that can be
    traced has no version."""
    if level in ("env", "rollout"):
        return None, _traced(*_world(twin, level))
    trial = Bare(twin, level)
    with precision("float64"):
        return torch_version(trial), _traced(trial._function())


def _traced(*functions: tuple[Any, tuple[Any, ...]]) -> list[Version]:
    with precision("float64"):
        found = []
        for function, args in functions:
            program = trace(function, *args)
            found.append(jax_version(program, record(program, jax.tree.leaves(args))))
        return found


def _world(twin: Twin, level: str) -> list[tuple[Any, tuple[Any, ...]]]:
    with precision("float64"):
        key = jax.random.key(twin.seed)
        if level == "rollout":
            return [Bare(twin, level)._function()]
        env = twin.half("env", "jax")
        return [(env.reset, (key,)), (env.step, (env.reset(key), jax_tree(np.asarray(twin.actions)[0], "float64")))]


# What the plant has changed


def planted(version: Version, other: Version) -> list[Operation]:
    """Operations that the other version has not, although it has all that they read; where there is none, those that
    give results which the other version takes from elsewhere."""
    known = other.keys | version.given
    found = [o for o in version.operations if not set(o.gives) & other.keys and known.issuperset(o.reads)]
    if not found and version.outputs != other.outputs:
        names = version.outputs.keys() | other.outputs.keys()
        moved = {version.outputs.get(n) for n in names if version.outputs.get(n) != other.outputs.get(n)}
        found = [o for o in version.operations if set(o.gives) & moved]
    return found


def _consumers(version: Version, key: str) -> list[Operation]:
    return [o for o in version.operations if key in o.reads]


def counterparts(sites: Iterable[Operation], clean: Version, half: Version) -> list[Operation]:
    """The operations of the half without the bug that compute what some operations of the clean other half compute: the
    values that both have, from there on the first, with what leads to them and only this half has."""
    theirs = {p.number: key for key, p in half.points.items()}
    made = {key: o for o in half.operations for key in o.gives}
    index = Index(half.points[key] for key in made if key in half.points)
    own = Index(p for p in clean.points.values())
    found: dict[str, Operation] = {}
    waiting, seen = [key for o in sites for key in o.gives], set()
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        point = clean.points.get(key)
        partners = [] if point is None else [theirs[n] for n in index.find(point.value)]
        if point is not None and not _is_telling(point):
            partners = [k for k in partners if _named(half, k) == _named(clean, key)]
        if not partners:
            waiting += [k for o in _consumers(clean, key) for k in o.gives]
        for partner in partners:
            _with_stretch(partner, made, half, own, found)
    return list(found.values())


def _is_telling(point: Point) -> bool:
    """Whether equal numbers are hardly by chance."""
    return point.value.dtype.kind == "f" and np.unique(point.value).size > min(1, point.value.size - 1)


def _named(version: Version, key: str) -> set[str]:
    """The names of the inputs that a value was computed from."""
    made = {k: o for o in version.operations for k in o.gives}
    names, waiting, seen = set(), [key], set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if at in version.points and version.points[at].name:
            names.add(version.points[at].name)
        waiting += made[at].reads if at in made else ()
    return names


def _with_stretch(
    key: str, made: dict[str, Operation], half: Version, own: Index, found: dict[str, Operation]
) -> None:
    """An operation, and those before it whose values the other half has not."""
    waiting = [key]
    while waiting:
        operation = made.get(waiting.pop())
        if operation is None or operation.key in found:
            continue
        found[operation.key] = operation
        for read in operation.reads:
            point = half.points.get(read)
            if point is not None and not own.find(point.value):
                waiting.append(read)


# Places


@dataclass
class Places:
    """The right places of a bug, by half: the one that has the bug, and the other."""

    half: str = ""  # "torch" or "jax": where the bug is
    own: set[Site] = field(default_factory=set)
    other: set[Site] = field(default_factory=set)
    optimizer: str = ""  # the line where torch's optimiser is made, where the bug is in optax's


def places(mutant: Mutant) -> Places:
    """Where a bug is, by its plant."""
    with quiet():
        clean, wrong = mutant.clean(), mutant.make()
        torch_clean, jax_clean = versions(clean, mutant.level)
        torch_wrong, jax_wrong = versions(wrong, mutant.level)
    found = Places()
    for half, pairs, rest in (
        ("jax", list(zip(jax_clean, jax_wrong, strict=True)), torch_clean),
        ("torch", [(torch_clean, torch_wrong)] if torch_clean is not None else [], next(iter(jax_clean), None)),
    ):
        for before, after in pairs:
            new, gone = planted(after, before), planted(before, after)
            if not new and not gone:
                continue
            found.half = found.half or half
            found.own |= {(o.name, o.lines) for o in (*new, *gone) if o.lines}
            if any(not o.lines for o in new) and mutant.level.startswith("update"):
                found.optimizer = optimizer_place(wrong)
            if rest is not None:
                sites = counterparts(gone, before, rest)
                found.other |= {(o.name, o.lines) for o in sites if o.lines}
    return found
