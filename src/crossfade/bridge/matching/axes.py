"""How the axes of two shapes correspond when an array is reshaped."""

import math

Shape = tuple[int, ...]
Axes = tuple[int, ...]


def axis_groups(old: Shape, new: Shape) -> list[tuple[Axes, Axes]]:
    """The axes of two shapes of one array that hold the same numbers, in order; axes of size one are in none."""
    if math.prod(old) != math.prod(new) or 0 in old:
        return []
    ours, theirs = ([i for i, n in enumerate(shape) if n != 1] for shape in (old, new))
    groups = []
    while ours and theirs:
        one, other = [ours.pop(0)], [theirs.pop(0)]
        while (a := math.prod(old[i] for i in one)) != (b := math.prod(new[i] for i in other)):
            one, other = ([*one, ours.pop(0)], other) if a < b else (one, [*other, theirs.pop(0)])
        groups.append((tuple(one), tuple(other)))
    return groups


def factors(old: Shape, new: Shape) -> set[Shape]:
    """The sizes of those axes that a reshape makes one axis of, or one axis into."""
    found = set()
    for ours, theirs in axis_groups(old, new):
        if len(ours) == 1 < len(theirs):
            found.add(tuple(new[i] for i in theirs))
        elif len(theirs) == 1 < len(ours):
            found.add(tuple(old[i] for i in ours))
    return found
