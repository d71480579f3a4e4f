"""Rules: invertible rearrangements that carry torch arrays to JAX leaves and back.

A rule is a chain of small operations on a tuple of arrays. Operations work on NumPy arrays and on JAX arrays (also
under `jit`), and each knows its inverse, its effect on optimiser moments and its JSON form.

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
    lossy: bool = False  # `inverse(forward(x)) != x` in general: two arrays became one

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, init=False)
class Rule:
    """A chain of operations from torch's arrays to JAX's; `Rule()` is the identity."""

    ops: tuple[Op, ...]

    def __init__(self, *ops: Op):
        object.__setattr__(self, "ops", ops)

    def forward(self, arrays: Arrays) -> Arrays:
        for op in self.ops:
            arrays = op.forward(arrays)
        return arrays

    def inverse(self, arrays: Arrays) -> Arrays:
        for op in reversed(self.ops):
            arrays = op.inverse(arrays)
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
    index, back = np.asarray(order), np.argsort(order)
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
    return Op(
        "each",
        (rule,),
        lambda x: tuple(rule.forward((a,))[0] for a in x),
        lambda y: tuple(rule.inverse((a,))[0] for a in y),
        lossy=rule.lossy,
    )


def add() -> Op:
    """Two arrays that torch only ever adds become their sum; the way back puts all in the first, zero in the second."""
    back = lambda y: (y[0], _xp(y[0]).zeros_like(y[0]))
    return Op("add", (), lambda x: (x[0] + x[1],), back, lossy=True)


OPS: dict[str, Callable[..., Op]] = {
    op.__name__: op for op in (permute, reshape, flip, take, stack, unstack, concat, split, each, add)
}
