"""Where each planted bug is: derived from the plant itself, never from what `bisect` says.

One half of a mutant is computed twice, with the bug and without. An operation is a planted one when the other version
does not have it although it has all that the operation reads: the first operations that are new, and the first that are
gone. The other half has no bug: there the right places are the operations that compute what the planted ones compute
in the clean twin. Halves that run on the host, line by line, are compared by their lines (lines.py).
"""

import ast
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from lines import __file__ as lines_file, first_lines
from mutants import Mutant
from mutants_updates import STEPS
from torch.utils._pytree import tree_map

from crossfade.bridge.jaxprs import unrolled_length
from crossfade.bridge.source_lines import line_text
from crossfade.parity import Twin
from crossfade.parity.arrays import jax_tree, leaves, precision
from crossfade.parity.bisecting.divergence import Place
from crossfade.parity.bisecting.equations import Program, record, trace
from crossfade.parity.bisecting.pairing import Index
from crossfade.parity.bisecting.points import Point
from crossfade.parity.bisecting.training import optimizer_place
from crossfade.parity.bisecting.trial import Trial, quiet
from crossfade.parity.checking import find_mapping
from crossfade.parity.env import copy_state
from crossfade.parity.levels import Levels
from crossfade.random import random_numpy

MANY = 4000  # equations: worlds with more are compared by their lines alone
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
    by_optimizer: bool = False  # inside of torch's optimiser, whose settings are given where it is made


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

    def __init__(self, twin: Twin, level: str, updates: int = 1):
        mapping = find_mapping(twin, [level])
        self.twin, self.mapping, self.level, self.steps, self.runs = twin, mapping, level, (updates,), 0
        self.levels, self._batches = Levels(twin, mapping, "float64", self.steps), {}
        self.weights = self.levels.weights


def _digest(*parts: Any) -> str:
    return hashlib.md5(repr(parts).encode()).hexdigest()


def _words(value: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(value))


def _of_array(value: Any) -> str:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
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
        inside = f"{os.sep}torch{os.sep}optim{os.sep}" in call.line
        version.operations.append(Operation(call.name, key, reads, gives, call.lines, inside))
    version.points = {keys[n]: point for n, point in watch.points.items()}
    numbers = {leaf: watch.number_of(tensor) for leaf, tensor in side.results.items()}
    version.outputs = {".".join(leaf): keys[n] for leaf, n in numbers.items() if n is not None}
    return version


def versions(twin: Twin, level: str, updates: int = 1) -> tuple[Version, Version]:
    """The torch half and the JAX half."""
    trial = Bare(twin, level, updates)
    with precision("float64"):
        function, args = trial._function()
        program = trace(function, *args)
        return torch_version(trial), jax_version(program, record(program, jax.tree.leaves(args)))


# What the plant has changed


def planted(version: Version, other: Version) -> list[Operation]:
    """Operations that the other version has not, although it has all that they read, or whose line it does not run, or
    that read another input there; where there is none, those whose results the other version takes from elsewhere."""
    known = other.keys | version.given
    theirs, followed = other.keys, [o for o in version.operations if o.gives]
    found = [o for o in followed if not theirs.intersection(o.gives) and known.issuperset(o.reads)]
    run = {(o.name, o.lines[:1]) for o in other.operations}
    found += [o for o in followed if not theirs.intersection(o.gives) and (o.name, o.lines[:1]) not in run]
    found += list(_rewired(followed, version, other))
    if not found and version.outputs != other.outputs:
        names = version.outputs.keys() | other.outputs.keys()
        moved = {version.outputs.get(n) for n in names if version.outputs.get(n) != other.outputs.get(n)}
        found = [o for o in version.operations if set(o.gives) & moved]
    return found


def _rewired(operations: list[Operation], version: Version, other: Version) -> Iterator[Operation]:
    """Operations of the same line that read another input in the other version."""
    places: dict[Site, list[Operation]] = {}
    for operation in other.operations:
        places.setdefault((operation.name, operation.lines[:2]), []).append(operation)
    for operation in operations:
        same = places.get((operation.name, operation.lines[:2]))
        if same and operation.lines:
            one = same.pop(0)
            if version.given.intersection(operation.reads) != other.given.intersection(one.reads):
                yield operation


def _consumers(version: Version, key: str) -> list[Operation]:
    return [o for o in version.operations if key in o.reads]


def counterparts(sites: Iterable[Operation], clean: Version, half: Version) -> list[Operation]:
    """The operations of the half without the bug that compute what some operations of the clean other half compute: the
    values that both have, from there on the first, with what leads to them and only this half has."""
    theirs = {p.number: key for key, p in half.points.items()}
    made: dict[str, list[Operation]] = {}  # the same may be computed in several places
    for operation in half.operations:
        for key in operation.gives:
            made.setdefault(key, []).append(operation)
    index = Index(half.points[key] for key in made if key in half.points)
    own = Index(p for p in clean.points.values())
    found: dict[Site, Operation] = {}
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
    key: str, made: dict[str, list[Operation]], half: Version, own: Index, found: dict[Site, Operation]
) -> None:
    """An operation, and those before it whose values the other half has not."""
    waiting, seen = [key], set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        for operation in made.get(at, ()):
            found[operation.key, operation.lines] = operation
            for read in operation.reads:
                point = half.points.get(read)
                if point is not None and not own.find(point.value):
                    waiting.append(read)


# Places


@dataclass
class Places:
    """The right places of a bug in either half. A bug in an optimiser of optax is where torch's is made."""

    half: str = ""  # where the bug is
    sites: dict[str, set[Site]] = field(default_factory=lambda: {"torch": set(), "jax": set()})


def places(mutant: Mutant) -> Places:
    """Where a bug is, by its plant. A bug of later updates may compute nothing else in the first."""
    found = Places()
    with quiet():
        clean, wrong = mutant.clean(), mutant.make()
        if mutant.level in ("env", "rollout"):
            return _places_in_worlds(clean, wrong, mutant.level)
        for updates in range(1, 1 + (max(STEPS) if mutant.level == "updates" else 1)):
            pairs = (versions(twin, mutant.level, updates) for twin in (clean, wrong))
            if (found := _places_of(mutant, wrong, *pairs)).half:
                break
    return found


def _places_of(mutant: Mutant, wrong: Twin, before: tuple[Version, Version], after: tuple[Version, Version]) -> Places:
    """By both versions of both halves."""
    found = Places()
    for half, old, now, rest in (
        ("jax", before[1], after[1], before[0]),
        ("torch", before[0], after[0], before[1]),
    ):
        new, gone = planted(now, old), planted(old, now)
        if not new and not gone:
            continue
        found.half = f"{found.half} {half}".strip()
        found.sites[half] |= _distinct({(o.name, o.lines) for o in (*new, *gone) if o.lines}, now, old)
        other = "torch" if half == "jax" else "jax"
        there = counterparts(gone, old, rest)
        found.sites[other] |= {(o.name, o.lines) for o in there if o.lines}
        inside = any(o.by_optimizer for o in (*there, *new)) or any(not o.lines for o in new)
        if inside and mutant.level.startswith("update"):
            found.sites["torch"].add(("optimizer", (optimizer_place(wrong),)))
    return found


def _distinct(sites: set[Site], version: Version, other: Version) -> set[Site]:
    """Without those that operations have too which are the same in both versions, unless all are such."""
    theirs = other.keys
    same = {(o.name, o.lines) for o in version.operations if theirs.intersection(o.gives)}
    return sites - same or sites


def _places_in_worlds(clean: Twin, wrong: Twin, level: str) -> Places:
    """The first lines that are others, in either half, of the reset and of the steps; and the first equations where JAX
    can trace them."""
    found = Places()
    with precision("float64"):
        for half in ("torch", "jax"):
            if clean.half(level, half) is wrong.half(level, half):
                continue
            pairs = [*zip(_runs(clean, level, half), _runs(wrong, level, half), strict=True)]
            for part in (pairs[:1], pairs[1:]):
                for call in part[0] if part else ():  # what is kept from the first run on
                    with jax.disable_jit():
                        call()
                found.sites[half] |= next((own for pair in part if (own := first_lines(*pair))), set())
        for old, now in zip(_programs(clean, level), _programs(wrong, level), strict=False):
            found.sites["jax"] |= {(o.name, o.lines) for o in (*planted(now, old), *planted(old, now)) if o.lines}
    found.half = " ".join(half for half, own in found.sites.items() if own)
    return found


def _runs(twin: Twin, level: str, half: str) -> Iterator[Callable[[], Any]]:
    """What a half does: the rollout, or the reset and each step, from the states of the first half."""
    key = jax.random.key(twin.seed) if half == "jax" else None
    if level == "rollout":
        levels = Levels(twin, find_mapping(twin, [level]), "float64", (1,))
        side = getattr(levels, half)
        yield lambda: side.rollout(levels.weights)
        return
    first, env = twin.half("env", "torch"), twin.half("env", half)
    state = first.reset(random_numpy.key(twin.seed))
    yield lambda: env.reset(random_numpy.key(twin.seed) if key is None else key)
    like = None if key is None else env.reset(key)
    for action in np.asarray(twin.actions):
        given = (state, action) if key is None else (copy_state(leaves(state, ""), like), jax_tree(action, "float64"))
        yield lambda given=given: env.step(*given)
        state, _ = first.step(state, action)


def _programs(twin: Twin, level: str) -> list[Version]:
    """Reset and step, or the rollout, as equations; nothing where they cannot be traced, or are very many."""
    key = jax.random.key(twin.seed)
    if level == "rollout":
        functions = [Bare(twin, level)._function()]
    else:
        env = twin.half("env", "jax")
        given = env.reset(key), jax_tree(np.asarray(twin.actions)[0], "float64")
        functions = [(env.reset, (key,)), (env.step, given)]
    try:
        rolled = [jax.make_jaxpr(function)(*args).jaxpr for function, args in functions]
        if sum(map(unrolled_length, rolled)) > MANY:
            return []
        return [jax_version(trace(function, *args), {}) for function, args in functions]
    except jax.errors.TracerArrayConversionError:  # it runs on the host in parts
        return []


# Whether a place that was named is one of them

PLUMBING = (
    "with ExitStack() as stack",
    "return function(*given)",
    "lambda *given, **named: change(right",
)
"""Pieces of lines by which bugs are planted: they lead to operations and are none."""


def is_right(place: Place | None, sites: Iterable[Site]) -> bool:
    """The same line, called from the same line; or the line from which all of the planted operations are called."""
    if place is None or not place.where:
        return False
    chains = [_plain(lines) for _, lines in sites]
    named = _plain(place.lines[place.lines.index(place.where) :] if place.where in place.lines else (place.where,))
    if any(_same(named[:2], chain[: len(named[:2])]) for chain in chains):
        return True
    common = tuple(line for line in chains[0] if all(line in chain for chain in chains)) if len(chains) > 1 else ()
    return _same(named[:1], common[:1])


def _plain(lines: Iterable[str]) -> Chain:
    own = (line for line in lines if line.rpartition(":")[0] not in (__file__, lines_file))
    return tuple(line for line in own if not any(piece in line_text(line) for piece in PLUMBING))


def _same(one: Chain, other: Chain) -> bool:
    return len(one) == len(other) > 0 and all(_statement(a) == _statement(b) for a, b in zip(one, other, strict=True))


LONG = 6  # lines: longer statements are tables


@cache
def _statements(file_name: str) -> dict[int, int]:
    """The first line of the statement that each line belongs to."""
    first: dict[int, int] = {}
    for node in ast.walk(ast.parse(Path(file_name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.end_lineno is not None:
            if node.end_lineno - node.lineno < LONG:
                first |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.lineno)
    return first


def _statement(line: str) -> tuple[str, int]:
    file_name, _, number = line.rpartition(":")
    return file_name, _statements(file_name).get(int(number), int(number))
