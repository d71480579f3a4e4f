"""The ways to rearrange one torch array into one JAX leaf.

When both sides use the array in the same way, the roles of its axes give the rule: `(O, I)` to `(I, O)`, or to
`(I, heads, O / heads)`. Otherwise every order of axes that fits the shapes is a way. On top of that the entries along
one axis may have another order, where a model makes several axes of it or makes it of several: an image flattened
channels last, heads before or after q, k, v.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import permutations, product

import numpy as np

from ..rules import Op, flip, permute, reshape, take
from .axes import Axes, Shape
from .dataflow_torch import Use

Ops = tuple[Op, ...]
Arrangement = tuple[Ops, int]  # operations and cost


def arrange(
    torch_shape: Shape,
    jax_shape: Shape,
    torch_use: Use | None,
    jax_use: Use | None,
    factors: tuple[set[Shape], set[Shape]],
    joined: set[Shape],
) -> list[Arrangement]:
    """All ways, the likeliest first; the last arguments as in `candidates.Facts`."""
    if math.prod(torch_shape) != math.prod(jax_shape):
        return []
    alike = torch_use is not None and jax_use is not None and torch_use.kind == jax_use.kind
    turns = _by_role(torch_shape, jax_shape, torch_use, jax_use) if alike and torch_use and jax_use else None
    if turns is not None and torch_use is not None:
        axes = {role: own[0] for role in ("in", "out") if len(own := torch_use.axes.get(role, ())) == 1}
        orders = [ops for axis in axes.values() for ops in orders_along(torch_shape, axis, *factors)]
        orders += orders_of_parts(torch_shape, axes["in"], joined, factors[0]) if "in" in axes else ()
        return [*((ops, 0) for ops in turns), *((order + ops, 1) for order in orders for ops in turns)]
    turns = _by_shape(torch_shape, jax_shape)
    if not turns and alike:
        turns = list(_by_parts(torch_shape, jax_shape))
    cost = 1 if alike else 2
    orders = orders_along(torch_shape, 0, *factors) if len(torch_shape) == 1 and alike else ()
    return [*((ops, cost) for ops in turns), *((order + ops, cost + 1) for order in orders for ops in turns)]


def _by_role(torch_shape: Shape, jax_shape: Shape, torch_use: Use, jax_use: Use) -> list[Ops] | None:
    """The ways that give each JAX axis the role it has in torch; None when the roles of some axes are unknown."""
    ours, theirs = torch_use.axes, jax_use.axes
    for axes, shape in ((ours, torch_shape), (theirs, jax_shape)):
        known = {a for own in axes.values() for a in own}
        if "in" not in axes or any(n != 1 for a, n in enumerate(shape) if a not in known):
            return None
    if set(ours) != set(theirs):
        return None
    flips: list[Ops] = [(flip(*range(2, len(torch_shape))),), ()] if torch_use.transposed else [()]
    if torch_use.transposed and torch_use.groups > 1:
        turn = _grouped(torch_shape, jax_shape, theirs, torch_use.groups)
        return [] if turn is None else [turned + turn for turned in flips]
    size = lambda shape, own: math.prod(shape[a] for a in own)
    if any(size(torch_shape, ours[role]) != size(jax_shape, theirs[role]) for role in ours):
        return []
    roles = sorted(ours, key=lambda role: ours[role])
    rest = tuple(a for a in range(len(torch_shape)) if a not in {a for own in ours.values() for a in own})
    turns = [
        turned + chain(torch_shape, first + rest, jax_shape, list(held))
        for first in _inside(ours[role] for role in roles)
        for held in _inside(theirs[role] for role in roles)
        for turned in flips
    ]
    return list(dict.fromkeys(turns))


def _inside(groups: Iterable[Axes]) -> Iterator[Axes]:
    """Every order of axes within groups that keep their places; the order in memory comes first."""
    for orders in product(*(permutations(sorted(group)) for group in groups)):
        yield tuple(axis for order in orders for axis in order)


def _grouped(torch_shape: Shape, jax_shape: Shape, theirs: dict[str, Axes], groups: int) -> Ops | None:
    """A grouped transposed convolution: torch has all inputs and a group's outputs, JAX the other way round."""
    inner, outer, *space = torch_shape
    opened = (groups, inner // groups, outer, *space)
    moved = (0, 2, 1, *range(3, len(opened)))  # groups, outputs, inputs, space
    roles = ("out", "in", *(f"space{i}" for i in range(len(space))))
    merged = (groups * outer, inner // groups, *space)
    order = [roles.index(next(role for role in roles if a in theirs[role])) for a in range(len(jax_shape))]
    if tuple(merged[i] for i in order) != jax_shape:
        return None
    steps = reshape(torch_shape, opened), permute(*moved), reshape(tuple(opened[i] for i in moved), merged)
    return (*steps, permute(*order))


def chain(shape: Shape, first: Axes, jax_shape: Shape, held: list[int]) -> Ops:
    """Axes in the order `first`, read as the JAX axes `held`, put in JAX's order; without idle steps."""
    moved, middle = tuple(shape[a] for a in first), tuple(jax_shape[a] for a in held)
    back = tuple(held.index(a) for a in sorted(held))
    if moved == middle:
        return _turn(shape, tuple(first[i] for i in back), jax_shape)
    steps: Ops = () if first == tuple(range(len(first))) else (permute(*first),)
    if back == tuple(range(len(back))):
        return (*steps, reshape(moved, jax_shape))
    return (*steps, reshape(moved, middle), *_turn(middle, back, jax_shape))


def _turn(shape: Shape, order: Axes, jax_shape: Shape) -> Ops:
    """The axes in this order, then read as the JAX shape."""
    moved = tuple(shape[a] for a in order)
    still = [a for a in order if shape[a] != 1] == [a for a in range(len(shape)) if shape[a] != 1]
    start = shape if still else moved
    return (() if still else (permute(*order),)) + (() if start == jax_shape else (reshape(start, jax_shape),))


def _by_shape(torch_shape: Shape, jax_shape: Shape) -> list[Ops]:
    """Every order of the axes that gives the JAX shape, up to axes of size one; the order as it is comes first."""
    long = lambda shape: [n for n in shape if n != 1]
    found: list[Ops] = []
    if sorted(long(torch_shape)) != sorted(long(jax_shape)):
        return found
    for order in permutations(range(len(torch_shape))):
        if long(torch_shape[i] for i in order) == long(jax_shape):
            if (ops := _turn(torch_shape, order, jax_shape)) not in found:
                found.append(ops)
    return found


def _by_parts(torch_shape: Shape, jax_shape: Shape) -> Iterator[Ops]:
    """Orders in which each axis of one side is one or several whole axes of the other."""
    ours, theirs = ([a for a, n in enumerate(shape) if n != 1] for shape in (torch_shape, jax_shape))
    splits = len(theirs) > len(ours)
    coarse, fine = (ours, theirs) if splits else (theirs, ours)
    sizes, parts = (torch_shape, jax_shape) if splits else (jax_shape, torch_shape)
    if len(fine) > 5:
        return
    for home in product(coarse, repeat=len(fine)):
        held = {axis: [f for f, at in zip(fine, home, strict=True) if at == axis] for axis in coarse}
        if any(math.prod(parts[f] for f in held[axis]) != sizes[axis] for axis in coarse):
            continue
        for inside in _inside(tuple(held[axis]) for axis in coarse):
            if splits:
                yield chain(torch_shape, tuple(range(len(torch_shape))), jax_shape, list(inside))
            else:
                rest = tuple(a for a in range(len(torch_shape)) if a not in inside)
                yield chain(torch_shape, inside + rest, jax_shape, list(range(len(jax_shape))))


def orders_along(shape: Shape, axis: int, torch_factors: set[Shape], jax_factors: set[Shape]) -> Iterator[Ops]:
    """Other orders of the entries along one axis, which torch reads as several axes, or JAX does."""
    seen = {np.arange(shape[axis]).tobytes()}
    for read, order in _readings(shape[axis], torch_factors, jax_factors):
        entries = np.arange(shape[axis]).reshape(read).transpose(order).tobytes()
        if entries not in seen:
            seen.add(entries)
            yield reorder(shape, axis, read, order)


def _readings(size: int, torch_factors: set[Shape], jax_factors: set[Shape]) -> Iterator[tuple[Shape, Axes]]:
    """What one axis is read as, and in which order; two axes may also hide q, k and v in the second."""
    for known, factors in ((True, torch_factors), (False, jax_factors)):
        factors = factors | {(f[0], 3, f[1] // 3) for f in factors if len(f) == 2 and f[1] % 3 == 0 and f[1] > 3}
        for sizes in sorted(f for f in factors if math.prod(f) == size and len(f) <= 4):
            for order in permutations(range(len(sizes))):
                if len(sizes) < 4 or order in ((1, 2, 3, 0), (3, 0, 1, 2)):  # of an image in space, the channels move
                    read = sizes if known else tuple(sizes[order.index(a)] for a in range(len(sizes)))
                    yield read, order


def reorder(shape: Shape, axis: int, read: Shape, order: Axes) -> Ops:
    """The entries along one axis, read as several axes, with these in another order."""
    opened = shape[:axis] + read + shape[axis + 1 :]
    turn = (*range(axis), *(axis + a for a in order), *range(axis + len(read), len(opened)))
    return reshape(shape, opened), permute(*turn), reshape(tuple(opened[i] for i in turn), shape)


def orders_of_parts(shape: Shape, axis: int, joined: set[Shape], factors: set[Shape]) -> Iterator[Ops]:
    """Other orders of a part of one axis: an image that stands beside other features."""
    for widths in sorted(w for w in joined if sum(w) == shape[axis] and len(w) > 1):
        for at, image in product(range(len(widths)), sorted(factors)):
            if math.prod(image) != widths[at] or len(image) > 3:
                continue
            for moved in permutations(range(len(image))):
                if [a for a in moved if image[a] > 1] != [a for a in range(len(image)) if image[a] > 1]:
                    order = np.arange(sum(widths))
                    part = slice(sum(widths[:at]), sum(widths[: at + 1]))
                    order[part] = order[part].reshape(image).transpose(moved).ravel()
                    yield (take(axis, *order.tolist()),)
