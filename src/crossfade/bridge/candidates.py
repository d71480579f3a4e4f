"""Candidate assignments: which JAX leaves could hold which torch arrays, and by which rule, in order of preference.

A candidate costs nothing when both sides use the array in the same way, so that the rule follows from the roles of the
axes. It costs more when only the shapes fit. The search keeps those candidates that give the right values.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, permutations, product

import numpy as np

from .dataflow_torch import Use
from .mapping import Entry
from .rules import Op, Rule, each, permute, reshape, stack, take, unstack

Shape = tuple[int, ...]

WAYS = 32  # ways to stack modules that are looked at
PARTS = re.compile("[0-9]+|[a-zA-Z]+")


@dataclass(frozen=True)
class Candidate:
    """Entries that would assign one item, and their cost."""

    entries: tuple[Entry, ...]
    cost: int

    @property
    def leaves(self) -> frozenset[str]:
        return frozenset(path for entry in self.entries for path in entry.jax)


@dataclass
class Item:
    """Torch arrays that are matched together: one array, the copies of an ensemble, or a recurrent cell."""

    names: tuple[str, ...]
    candidates: list[Candidate]
    tried: str = "same shape, permuted axes, or a flattened image"  # for messages
    optional: bool = False  # a buffer, which JAX may hold as a constant
    rows: int = 0  # leaves that one torch array goes to, one for each row


@dataclass(frozen=True)
class Facts:
    """What is known about the arrays of both sides before any is assigned."""

    shapes: dict[str, Shape]  # torch
    leaves: dict[str, Shape]  # JAX, those still free
    torch_uses: dict[str, Use]
    jax_uses: dict[str, Use]
    flattened: set[Shape]  # shapes that torch flattened on the way
    joined: set[Shape]  # widths of the features that torch put side by side
    untrained: tuple[set[str], set[str]]  # torch's buffers, JAX's state


def single_item(name: str, facts: Facts) -> Item:
    """One torch array and every leaf whose shape it can take."""
    found = []
    buffers, state = facts.untrained
    for path, shape in facts.leaves.items():
        uses = facts.torch_uses.get(name), facts.jax_uses.get(path)
        unlike = 2 * ((name in buffers) != (path in state))
        for ops, cost in arrangements(facts.shapes[name], shape, *uses, facts):
            found.append(Candidate((Entry((name,), (path,), Rule(*ops), "dataflow"),), cost + unlike))
    return Item((name,), found)


def stacked_items(names: set[str], facts: Facts) -> list[list[Item]]:
    """Equal torch modules whose arrays JAX holds stacked along a leading axis, in every way to group them.

    Two critics beside their two targets can be stacked in two ways, and the shapes fit both.
    """
    lonely = {name for name in names if not single_item(name, facts).candidates}
    groups = []
    for members in _siblings({n: shape for n, shape in facts.shapes.items() if n in names}):
        group = [] if lonely.isdisjoint(members[0]) else [_stack(rows, facts) for rows in zip(*members, strict=True)]
        if group and all(item.candidates for item in group):
            groups.append(group)
    ways = [list(chain(*way)) for way in islice(_without_overlap(groups), WAYS)]
    helped = [len(lonely & arrays(way)) for way in ways]
    return [way for way, count in zip(ways, helped, strict=True) if count == max(helped)]


def _without_overlap(groups: list[list[Item]]) -> Iterator[list[list[Item]]]:
    """The maximal sets of groups with no array in common; earlier groups are preferred."""
    if not groups:
        yield []
        return
    first, *rest = groups
    clash = lambda group: not arrays(group).isdisjoint(arrays(first))
    for way in _without_overlap([group for group in rest if not clash(group)]):
        yield [first, *way]
    if any(map(clash, rest)):
        yield from (way for way in _without_overlap(rest) if any(map(clash, way)))


def arrays(items: list[Item]) -> set[str]:
    """The torch arrays in the items."""
    return {name for item in items for name in item.names}


def _stack(group: tuple[str, ...], facts: Facts) -> Item:
    found = []
    for path, shape in facts.leaves.items():
        if shape and shape[0] == len(group):
            uses = facts.torch_uses.get(group[0]), _without_batch(facts.jax_uses.get(path))
            for ops, cost in arrangements(facts.shapes[group[0]], shape[1:], *uses, facts):
                rule = Rule(each(*ops), stack()) if ops else Rule(stack())
                found.append(Candidate((Entry(group, (path,), rule, "dataflow"),), cost))
    return Item(group, found, f"{len(group)} arrays stacked along a leading axis")


def unstacked_items(names: set[str], facts: Facts) -> list[Item]:
    """Torch arrays with a leading ensemble axis that JAX holds as a list of equal modules."""
    items = []
    groups = [group for members in _siblings(facts.leaves) for group in zip(*members, strict=True)]
    for name, shape in facts.shapes.items():
        if name not in names or not shape or single_item(name, facts).candidates:
            continue
        found = []
        for group in groups:
            if len(group) == shape[0]:
                uses = _without_batch(facts.torch_uses.get(name)), facts.jax_uses.get(group[0])
                for ops, cost in arrangements(shape[1:], facts.leaves[group[0]], *uses, facts):
                    rule = Rule(unstack(), each(*ops)) if ops else Rule(unstack())
                    found.append(Candidate((Entry((name,), group, rule, "dataflow"),), cost))
        items.append(Item((name,), found, f"{shape[0]} leaves, one for each row", rows=shape[0]))
    return [item for item in items if item.candidates]


def _without_batch(use: Use | None) -> Use | None:
    """The use of one member of a stack, whose own axes come after the leading one."""
    return use and Use(use.kind, {role: axis - 1 for role, axis in use.axes.items() if axis > 0})


def _siblings(shapes: dict[str, Shape]) -> list[list[list[str]]]:
    """Groups of equal modules: for each group its members, for each member its names.

    Members differ in the last word of their path or in a part of it: `critics.0` and `critics.1`, `q1_target` and
    `q2_target`. Groups told apart by a number come first, larger ones before smaller.
    """
    modules: dict[str, dict[str, Shape]] = defaultdict(dict)
    for name, shape in shapes.items():
        for cut in re.finditer("[./]", name):
            modules[name[: cut.start()]][name[cut.start() :]] = shape
    groups: dict[tuple, dict[str, str]] = defaultdict(dict)  # what the members share: path -> what tells it apart
    for path, inner in modules.items():
        start = max(path.rfind("."), path.rfind("/")) + 1
        for at, end in {(start, len(path)), *(part.span() for part in PARTS.finditer(path, start))}:
            groups[path[:at], path[end:], frozenset(inner.items())][path] = path[at:end]
    numbered: dict[tuple[str, ...], bool] = defaultdict(bool)
    for told in groups.values():
        numbered[tuple(told)] |= all(map(str.isdigit, told.values()))
    ranked = sorted(numbered, key=lambda paths: (not numbered[paths], -len(paths) * len(modules[paths[0]])))
    return [[[path + rest for rest in modules[paths[0]]] for path in paths] for paths in ranked if len(paths) > 1]


def arrangements(
    torch_shape: Shape, jax_shape: Shape, torch_use: Use | None, jax_use: Use | None, facts: Facts
) -> list[tuple[tuple[Op, ...], int]]:
    """The ways to rearrange one torch array into one JAX leaf: operations and cost."""
    long = lambda shape: [n for n in shape if n != 1]
    if sorted(long(torch_shape)) != sorted(long(jax_shape)):
        return []
    if torch_use is None or jax_use is None or torch_use.kind != jax_use.kind:
        return [(ops, 2) for ops in _by_shape(torch_shape, jax_shape)]
    if len(torch_shape) == len(jax_shape):
        order = _by_role(torch_use.axes, jax_use.axes, len(jax_shape))
        if order is not None:
            if tuple(torch_shape[i] for i in order) != jax_shape:
                return []
            turn: tuple[Op, ...] = (permute(*order),) if order != tuple(range(len(order))) else ()
            return [(turn, 0), *((ops + turn, 1) for ops in _unflatten(torch_shape, torch_use.axes["in"], facts))]
    return [(ops, 1) for ops in _by_shape(torch_shape, jax_shape)]


def _by_role(torch_axes: dict[str, int], jax_axes: dict[str, int], ndim: int) -> tuple[int, ...] | None:
    """For each JAX axis the torch axis with the same role, when every axis has one."""
    role = {axis: name for name, axis in jax_axes.items()}
    if len(role) != ndim or "in" not in torch_axes or set(torch_axes) != set(jax_axes):
        return None
    return tuple(torch_axes[role[axis]] for axis in range(ndim))


def _by_shape(torch_shape: Shape, jax_shape: Shape) -> list[tuple[Op, ...]]:
    """Every order of the axes that gives the JAX shape, up to axes of size one; the order as it is comes first."""
    found = []
    for order in permutations(range(len(torch_shape))):
        moved = tuple(torch_shape[i] for i in order)
        if [n for n in moved if n != 1] == [n for n in jax_shape if n != 1]:
            still = [i for i in order if torch_shape[i] != 1] == sorted(i for i in order if torch_shape[i] != 1)
            ops = () if still else (permute(*order),)
            start = torch_shape if still else moved
            ops += () if start == jax_shape else (reshape(start, jax_shape),)
            if ops not in found:
                found.append(ops)
    return found


def _unflatten(shape: Shape, inner: int, facts: Facts) -> Iterator[tuple[Op, ...]]:
    """Orders of the input axis after an image was flattened channels last instead of first.

    The image may be all of the input, or stand beside other features.
    """
    images = sorted({image[-n:] for image in facts.flattened for n in (2, 3) if len(image) > n})
    for widths in [(shape[inner],), *(w for w in sorted(facts.joined) if sum(w) == shape[inner])]:
        for at, image in product(range(len(widths)), images):
            if math.prod(image) != widths[at]:
                continue
            for moved in permutations(range(len(image))):
                if [a for a in moved if image[a] > 1] == [a for a in range(len(image)) if image[a] > 1]:
                    continue  # axes of size one moved: the same order
                if len(widths) == 1:
                    yield _reorder_whole(shape, inner, image, moved)
                else:
                    yield (_reorder_part(inner, widths, at, image, moved),)


def _reorder_whole(shape: Shape, inner: int, image: Shape, moved: Shape) -> tuple[Op, ...]:
    opened = shape[:inner] + image + shape[inner + 1 :]
    turn = (*range(inner), *(inner + a for a in moved), *range(inner + len(image), len(opened)))
    return reshape(shape, opened), permute(*turn), reshape(tuple(opened[i] for i in turn), shape)


def _reorder_part(inner: int, widths: Shape, at: int, image: Shape, moved: Shape) -> Op:
    order = np.arange(sum(widths))
    part = slice(sum(widths[:at]), sum(widths[: at + 1]))
    order[part] = order[part].reshape(image).transpose(moved).ravel()
    return take(inner, *order.tolist())
