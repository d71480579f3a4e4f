"""Rules: invertible rearrangements that carry torch arrays to JAX leaves and back.

A rule is a chain of small operations on a tuple of arrays. Operations work on NumPy arrays and on JAX arrays (also
under `jit`), and each knows its inverse, its effect on gradients and its JSON form.

    Rule(permute(1, 0))                                  Linear weight (O, I) -> kernel (I, O)
    Rule(each(permute(1, 0)), stack())                   N weights -> one kernel (N, I, O)
    Rule(permute(1, 0), split(1, h, h, h, h))            weight_ih (4h, I) -> four kernels (I, h)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ..errors import UsageError

Arrays = tuple[Any, ...]


def _xp(array: Any):
    if isinstance(array, np.ndarray | np.generic):
        return np
    import jax.numpy as jnp

    return jnp


@dataclass(frozen=True)
class Op:
    """One operation: its name and arguments (JSON), and the two directions."""

    name: str
    args: tuple
    forward: Callable[[Arrays], Arrays] = field(compare=False)
    inverse: Callable[[Arrays], Arrays] = field(compare=False)
    lossy: bool = False  # `inverse(forward(x)) != x` in general: two arrays became one, or rounding
    gradient: tuple[Callable[[Arrays], Arrays], Callable[[Arrays], Arrays]] | None = field(default=None, compare=False)

    def directions(self, linear: bool) -> tuple[Callable[[Arrays], Arrays], Callable[[Arrays], Arrays]]:
        """Forward and inverse; for gradients and moments when `linear`."""
        return self.gradient if linear and self.gradient else (self.forward, self.inverse)

    def __repr__(self) -> str:
        args = [str(a) for a in self.args]
        return f"{self.name}({', '.join(args if len(args) < 9 else [*args[:4], '...', args[-1]])})"


@dataclass(frozen=True, init=False)
class Rule:
    """A chain of operations from torch's arrays to JAX's; `Rule()` is the identity."""

    ops: tuple[Op, ...]

    def __init__(self, *ops: Op):
        object.__setattr__(self, "ops", ops)

    def forward(self, arrays: Arrays, linear: bool = False) -> Arrays:
        """Torch's arrays as JAX's. `linear` is for gradients and optimiser moments: constants fall away, and arrays
        that are only ever summed have one gradient, which each of them gets."""
        for op in self.ops:
            arrays = op.directions(linear)[0](arrays)
        return arrays

    def inverse(self, arrays: Arrays, linear: bool = False) -> Arrays:
        """JAX's arrays as torch's; `linear` as in `forward`."""
        for op in reversed(self.ops):
            arrays = op.directions(linear)[1](arrays)
        return arrays

    @property
    def lossy(self) -> bool:
        """True when torch has more freedom than JAX (two biases that are only ever added)."""
        return any(op.lossy for op in self.ops)

    def __repr__(self) -> str:
        return " . ".join(map(repr, self.ops)) or "same"

    def to_json(self) -> list:
        return [[op.name, *_plain(op.args)] for op in self.ops]

    @classmethod
    def from_json(cls, ops: list) -> "Rule":
        return cls(*(_op_from_json(name, args) for name, *args in ops))


def _plain(args: tuple) -> list:
    return [a.to_json() if isinstance(a, Rule) else list(a) if isinstance(a, tuple) else a for a in args]


def _op_from_json(name: str, args: list) -> Op:
    if name not in OPS:
        raise UsageError(f"unknown rule operation {name!r}; known: {', '.join(OPS)}")
    if name == "each":
        return each(*Rule.from_json(args[0]).ops)
    return OPS[name](*(tuple(a) if isinstance(a, list) else a for a in args))


def permute(*axes: int) -> Op:
    """Reorders the axes of one array: JAX axis i is torch axis `axes[i]`."""
    back = tuple(int(i) for i in np.argsort(axes))
    return Op("permute", axes, lambda x: (x[0].transpose(axes),), lambda y: (y[0].transpose(back),))


def reshape(torch_shape: tuple[int, ...], jax_shape: tuple[int, ...]) -> Op:
    """Reads one array under another shape, elements in the same order."""
    return Op(
        "reshape",
        (tuple(torch_shape), tuple(jax_shape)),
        lambda x: (x[0].reshape(jax_shape),),
        lambda y: (y[0].reshape(torch_shape),),
    )


def flip(*axes: int) -> Op:
    """Reverses the order along the given axes."""
    turn = lambda x: (_xp(x[0]).flip(x[0], axes),)
    return Op("flip", axes, turn, turn)


def take(axis: int, *order: int) -> Op:
    """Reorders entries along one axis: JAX entry i is torch entry `order[i]`."""
    index, back = (np.asarray(i, np.int32) for i in (order, np.argsort(order)))  # 32 bits fit either precision of JAX
    pick = lambda x, i: (_xp(x[0]).take(x[0], i, axis=axis),)
    return Op("take", (axis, *order), lambda x: pick(x, index), lambda y: pick(y, back))


def stack() -> Op:
    """N arrays of one shape become one with a new leading axis (a list of modules -> a vmapped ensemble)."""
    return Op("stack", (), lambda x: (_xp(x[0]).stack(x),), lambda y: tuple(y[0][i] for i in range(y[0].shape[0])))


def unstack() -> Op:
    """The inverse of `stack`: one array with an ensemble axis becomes a list."""
    inner = stack()
    return Op("unstack", (), inner.inverse, inner.forward)


def concat(axis: int, *sizes: int) -> Op:
    """Several arrays joined along one axis."""
    joined = lambda x: (_xp(x[0]).concatenate(x, axis=axis),)
    return Op("concat", (axis, *sizes), joined, lambda y: _cut(y[0], axis, sizes))


def split(axis: int, *sizes: int) -> Op:
    """One array cut into several along one axis."""
    joined = lambda y: (_xp(y[0]).concatenate(y, axis=axis),)
    return Op("split", (axis, *sizes), lambda x: _cut(x[0], axis, sizes), joined)


def _cut(array: Any, axis: int, sizes: tuple[int, ...]) -> Arrays:
    return tuple(_xp(array).split(array, list(accumulate(sizes))[:-1], axis=axis))


def each(*ops: Op) -> Op:
    """Applies a rule to every array on its own."""
    rule = Rule(*ops)

    def directions(linear: bool):
        return (
            lambda x: tuple(rule.forward((a,), linear)[0] for a in x),
            lambda y: tuple(rule.inverse((a,), linear)[0] for a in y),
        )

    return Op("each", (rule,), *directions(False), lossy=rule.lossy, gradient=directions(True))


def add() -> Op:
    """Two arrays that torch only ever adds become their sum; the way back puts all in the first, zero in the second."""
    return Op(
        "add",
        (),
        lambda x: (x[0] + x[1],),
        lambda y: (y[0], _xp(y[0]).zeros_like(y[0])),
        lossy=True,
        gradient=(lambda x: ((x[0] + x[1]) / 2,), lambda y: (y[0], y[0])),
    )


def fold(size: int) -> Op:
    """As `add` for the first `size` entries of two vectors; the rest of the second stays an array of its own.

    The biases of a GRU: those of the reset and update gates are summed, the two of the candidate are not.
    """

    def summed(x: Arrays, share: float) -> Arrays:
        xp = _xp(x[0])
        head = (x[0][:size] + x[1][:size]) * share
        return xp.concatenate([head.astype(x[0].dtype), x[0][size:]]), x[1][size:]

    def parted(y: Arrays, head: Any) -> Arrays:
        return y[0], _xp(y[0]).concatenate([head, y[1]])

    return Op(
        "fold",
        (size,),
        lambda x: summed(x, 1.0),
        lambda y: parted(y, _xp(y[0]).zeros_like(y[0][:size])),
        lossy=True,
        gradient=(lambda x: summed(x, 0.5), lambda y: parted(y, y[0][:size])),
    )


def shift(start: int, stop: int, amount: float) -> Op:
    """Adds a constant to the entries from `start` to `stop` of a vector: what the other library adds in its code."""

    def moved(x: Arrays, by: float) -> Arrays:
        offset = np.zeros(x[0].shape, x[0].dtype)
        offset[start:stop] = by
        return (x[0] + offset,)

    same = lambda x: x
    return Op(
        "shift",
        (start, stop, amount),
        lambda x: moved(x, amount),
        lambda y: moved(y, -amount),
        lossy=True,
        gradient=(same, same),
    )


OPS: dict[str, Callable[..., Op]] = {
    op.__name__: op for op in (permute, reshape, flip, take, stack, unstack, concat, split, each, add, fold, shift)
}
