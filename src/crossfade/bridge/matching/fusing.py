"""One array on one side that is several on the other: fused q, k, v, gates and heads.

Layers can be fused when they read the same input, and may be when they stand beside each other under one name. Which
of them comes first only the values of later layers can tell, so every order is a candidate.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from ..mapping import Entry
from ..rules import Rule, concat, each, reshape, split
from .arrangements import Arrangement, Ops, reorder
from .axes import Shape
from .candidates import Candidate, Facts, Item
from .dataflow_torch import Use

Group = tuple[str, ...]

MOST = 6  # arrays that are one on the other side
ORDERED = 4  # of so many at most, every order is tried


def split_candidates(name: str, facts: Facts, groups: list[Group]) -> list[Candidate]:
    """The ways to cut one torch array into several leaves; `groups` are those of the JAX side."""
    shape, use = facts.shapes[name], facts.torch_uses.get(name)
    if not shape:
        return []
    axis = _out_axis(use)
    found = []
    for leaves in _choices(groups, facts.leaves, math.prod(shape)):
        row = math.prod(shape) // shape[axis]
        sizes = [math.prod(facts.leaves[path]) // row for path in leaves]
        if any(size * row != math.prod(facts.leaves[p]) for size, p in zip(sizes, leaves, strict=True)):
            continue
        parts = [shape[:axis] + (size,) + shape[axis + 1 :] for size in sizes]
        ways = [
            facts.arrangements(part, facts.leaves[p], use, facts.jax_uses.get(p))
            for part, p in zip(parts, leaves, strict=True)
        ]
        if (ops := _common(ways, parts, [facts.leaves[p] for p in leaves])) is not None:
            inner = (each(*ops),) if ops else ()
            for order in ((), *_gathered(shape, axis, len(leaves), sizes, facts.factors[0])):
                rule = Rule(*order, split(axis, *sizes), *inner)
                found.append(Candidate((Entry((name,), leaves, rule, "dataflow"),), 1 + bool(order)))
    return found


def _common(ways: list[list[Arrangement]], given: list[Shape], wanted: list[Shape]) -> Ops | None:
    """The likeliest arrangement that fits every part; a turn that only a part with axes of size one can do without is
    done there too."""
    likely = [[ops for ops, cost in way if cost < 2][:1] for way in ways]
    if not all(likely):
        return None
    for (ops,) in likely:
        turned = [Rule(*ops).forward((np.empty(shape),))[0].shape for shape in given if _fits(ops, shape)]
        if turned == wanted:
            return ops
    return None


def _fits(ops: Ops, shape: Shape) -> bool:
    return all(op.name != "reshape" or math.prod(op.args[0]) == math.prod(shape) for op in ops)


def joined_items(names: set[str], facts: Facts) -> list[Item]:
    """Torch arrays that go to one leaf together. Only where the shapes cannot go one to one on either side."""
    kind = lambda shape: tuple(sorted(n for n in shape if n != 1))
    ours = Counter(kind(facts.shapes[name]) for name in names)
    theirs = Counter(map(kind, facts.leaves.values()))
    lonely = {path: shape for path, shape in facts.leaves.items() if theirs[kind(shape)] > ours[kind(shape)]}
    spare = {name for name in names if ours[kind(facts.shapes[name])] > theirs[kind(facts.shapes[name])]}
    items: list[Item] = []
    used: set[str] = set()
    shapes = {name: facts.shapes[name] for name in names if name in spare}
    for group in fusable(facts.torch_uses, facts.attached[0], shapes):
        for size in range(min(len(group), MOST), 1, -1):
            for chosen in combinations(group, size):
                if used.isdisjoint(chosen) and (found := list(_joined(chosen, lonely, facts))):
                    items.append(Item(chosen, found, "arrays joined to one leaf"))
                    used |= set(chosen)
    return items


def _joined(group: Group, lonely: dict[str, Shape], facts: Facts) -> Iterator[Candidate]:
    total = sum(math.prod(facts.shapes[name]) for name in group)
    for path, shape in lonely.items():
        if math.prod(shape) != total:
            continue
        use = facts.jax_uses.get(path)
        for names in permutations(group) if len(group) <= ORDERED else [group]:
            for middle, axis, inner in _flat(shape, use):
                yield from _concatenated(names, path, middle, axis, inner, facts)


def _flat(shape: Shape, use: Use | None) -> Iterator[tuple[Shape, int, Use | None]]:
    """The leaf with its output axes made one, which axis that is, and the use of that."""
    if use is None or len(shape) == 1 or use.kind in ("add", "mul"):
        yield (math.prod(shape),), 0, use
        return
    out = sorted(use.axes.get("out", ()))
    if out and out == list(range(out[0], out[-1] + 1)):
        first, last = out[0], out[-1]
        middle = shape[:first] + (math.prod(shape[first : last + 1]),) + shape[last + 1 :]
        lower = lambda a: a if a <= first else a - (last - first)
        axes = {role: tuple(map(lower, own)) for role, own in use.axes.items()} | {"out": (first,)}
        yield middle, first, replace(use, axes=axes)


def _concatenated(
    names: Group, path: str, middle: Shape, axis: int, use: Use | None, facts: Facts
) -> Iterator[Candidate]:
    row = math.prod(middle) // middle[axis]
    sizes = [math.prod(facts.shapes[name]) // row for name in names]
    parts = [middle[:axis] + (size,) + middle[axis + 1 :] for size in sizes]
    given = [facts.shapes[name] for name in names]
    ways = [
        facts.arrangements(shape, part, facts.torch_uses.get(name), use)
        for name, shape, part in zip(names, given, parts, strict=True)
    ]
    if (ops := _common(ways, given, parts)) is not None:
        inner = (each(*ops),) if ops else ()
        last = () if middle == facts.leaves[path] else (reshape(middle, facts.leaves[path]),)
        for order in ((), *_scattered(middle, axis, len(names), sizes, facts.factors[1])):
            rule = Rule(*inner, concat(axis, *sizes), *order, *last)
            yield Candidate((Entry(names, (path,), rule, "dataflow"),), 1 + bool(order))


def _gathered(shape: Shape, axis: int, n: int, sizes: list[int], factors: set[Shape]) -> Iterator[Ops]:
    """Orders that bring together n equal parts which torch has interleaved: heads first, then q, k, v of each."""
    for read, at in _interleaved(shape[axis], n, sizes, factors):
        yield reorder(shape, axis, read, (at, *(a for a in range(len(read)) if a != at)))


def _scattered(shape: Shape, axis: int, n: int, sizes: list[int], factors: set[Shape]) -> Iterator[Ops]:
    """The reverse: orders that interleave n equal parts as JAX has them."""
    for read, at in _interleaved(shape[axis], n, sizes, factors):
        together = (n, *(size for a, size in enumerate(read) if a != at))
        rest = iter(range(1, len(read)))
        yield reorder(shape, axis, together, tuple(0 if a == at else next(rest) for a in range(len(read))))


def _interleaved(size: int, n: int, sizes: list[int], factors: set[Shape]) -> list[tuple[Shape, int]]:
    """The axes that a side reads an axis as, and which of them counts n equal parts that are not in one piece."""
    if len(set(sizes)) > 1:
        return []
    found = []
    for read in sorted(f for f in factors if math.prod(f) == size):
        found += [(read, at) for at in range(1, len(read)) if read[at] == n]
        if len(read) == 2 and read[1] % n == 0 and read[1] > n:
            found += [((read[0], n, read[1] // n), 1), ((read[0], read[1] // n, n), 2)]
    return list(dict.fromkeys(found))


def _out_axis(use: Use | None) -> int:
    out = use.axes.get("out", ()) if use else ()
    return out[0] if len(out) == 1 else 0


def _choices(groups: list[Group], shapes: dict[str, Shape], total: int) -> Iterator[Group]:
    """The ordered choices from the groups whose arrays have so many numbers together."""
    seen: set[frozenset[str]] = set()
    for group in groups:
        for size in range(2, min(len(group), MOST) + 1):
            for chosen in combinations(group, size):
                if frozenset(chosen) in seen or sum(math.prod(shapes[path]) for path in chosen) != total:
                    continue
                seen.add(frozenset(chosen))
                yield from permutations(chosen) if size <= ORDERED else [chosen]


def fusable(uses: dict[str, Use], attached: dict[str, str], shapes: dict[str, Shape]) -> list[Group]:
    """Arrays of one side that could be one on the other, in the order of their use: first those that read the same
    input, with their biases, then those under one name."""
    inputs: dict[Hashable, list[str]] = defaultdict(list)
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in [*uses, *(name for name in shapes if name not in uses)]:
        if name not in shapes:
            continue
        if name in uses and uses[name].kind in ("dot", "conv"):
            inputs[uses[name].beside].append(name)
        above, _, last = name.rpartition(".")
        names[above.rpartition(".")[0], last].append(name)
    biases = {weight: bias for bias, weight in attached.items() if bias in shapes}
    found: list[Group] = []
    for groups in (inputs.values(), names.values()):
        kept = [tuple(group) for group in groups if 1 < len(group) <= 2 * MOST]
        found += kept
        found += [tuple(biases[name] for name in group) for group in kept if all(name in biases for name in group)]
    return list(dict.fromkeys(found))
