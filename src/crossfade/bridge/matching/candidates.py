"""Candidate assignments: which JAX leaves could hold which torch arrays, and by which rule, in order of preference.

A candidate costs nothing when both sides use the array in the same way, so that the rule follows from the roles of the
axes (arrangements.py). It costs more when only the shapes fit, or when arrays are put together or taken apart
(fusing.py). The search keeps those candidates that give the right values.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from ..mapping import Entry
from ..rules import Rule, each, stack, unstack
from .arrangements import Arrangement, arrange
from .axes import Shape
from .dataflow_torch import Use

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
    attached: tuple[dict[str, str], dict[str, str]]  # in torch and in JAX, the weight to whose product a bias is added
    factors: tuple[set[Shape], set[Shape]]  # in torch and in JAX, axes that were made one axis or one axis into
    joined: set[Shape]  # widths of the features that torch put side by side
    untrained: tuple[set[str], set[str]]  # torch's buffers, JAX's state
    known: dict[tuple, list[Arrangement]] = field(default_factory=dict)  # arrangements that were worked out

    def arrangements(
        self, torch_shape: Shape, jax_shape: Shape, torch_use: Use | None, jax_use: Use | None
    ) -> list[Arrangement]:
        """The ways to rearrange one torch array into one JAX leaf: operations and cost."""
        key = torch_shape, jax_shape, _told(torch_use), _told(jax_use)
        if key not in self.known:
            self.known[key] = arrange(torch_shape, jax_shape, torch_use, jax_use, self.factors, self.joined)
        return self.known[key]


def _told(use: Use | None) -> tuple | None:
    return use and (use.kind, tuple(sorted(use.axes.items())), use.transposed, use.groups)


def single_item(name: str, facts: Facts) -> Item:
    """One torch array and every leaf whose shape it can take."""
    found = []
    buffers, state = facts.untrained
    for path, shape in facts.leaves.items():
        uses = facts.torch_uses.get(name), facts.jax_uses.get(path)
        unlike = 2 * ((name in buffers) != (path in state))
        for ops, cost in facts.arrangements(facts.shapes[name], shape, *uses):
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
            for ops, cost in facts.arrangements(facts.shapes[group[0]], shape[1:], *uses):
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
                for ops, cost in facts.arrangements(shape[1:], facts.leaves[group[0]], *uses):
                    rule = Rule(unstack(), each(*ops)) if ops else Rule(unstack())
                    found.append(Candidate((Entry((name,), group, rule, "dataflow"),), cost))
        items.append(Item((name,), found, f"{shape[0]} leaves, one for each row", rows=shape[0]))
    return [item for item in items if item.candidates]


def _without_batch(use: Use | None) -> Use | None:
    """The use of one member of a stack, whose own axes come after the leading one."""
    if use is None:
        return None
    axes = {role: tuple(axis - 1 for axis in own if axis) for role, own in use.axes.items()}
    return replace(use, axes={role: own for role, own in axes.items() if own})


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
