"""Rules of gather, scatter and slices whose place is computed.

Both general primitives are brought to one form: the axes of the operand that an index moves along, or that are read in
part, come first and are laid out as one axis of rows; the other axes are taken whole. A gather then reads rows and a
scatter writes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from jax.extend.core import JaxprEqn
from jax.lax import GatherScatterMode
from torch import Tensor

from ...errors import NoCounterpart
from .dtypes import MASKS, carrier, name_of, shape_of
from .elementwise import Rule, Run


@dataclass(frozen=True)
class Windows:
    """Where the windows of a gather or scatter lie in its operand."""

    shape: tuple[int, ...]  # of the operand
    sizes: tuple[int, ...]  # of a window, along each axis of the operand
    dropped: tuple[int, ...]  # axes of size 1 that a window has not: collapsed or inserted
    indexed: tuple[int, ...]  # axis of the operand that each component of an index moves along
    batch: tuple[int, ...]  # axes of the operand that go with ...
    batch_of: tuple[int, ...]  # ... these axes of the indices

    @property
    def rows(self) -> list[int]:
        """Axes laid out as rows; the others are taken whole."""
        partial = {i for i, (n, size) in enumerate(zip(self.shape, self.sizes, strict=True)) if n != size}
        return sorted({*self.indexed, *self.batch, *self.dropped} | partial)

    @property
    def whole(self) -> list[int]:
        return [i for i in range(len(self.shape)) if i not in self.rows]

    def places(self, indices: Tensor, clip: bool) -> tuple[Tensor, Tensor | None]:
        """The row of each element, (*batch of the indices, *window along the rows), and which windows lie inside.

        With `clip` indices are moved until their windows lie inside.
        """
        many, rows = indices.shape[:-1], self.rows
        inner = [axis for axis in rows if axis not in self.dropped and axis not in self.batch]
        row = torch.zeros((*many, *(self.sizes[axis] for axis in inner)), dtype=torch.int64, device=indices.device)
        inside = None if clip else torch.ones(many, dtype=torch.bool, device=indices.device)
        for axis in rows:
            if axis in self.batch:
                along = self.batch_of[self.batch.index(axis)]
                start = torch.arange(many[along], device=indices.device)
                start = start.reshape([-1 if i == along else 1 for i in range(len(many))]).expand(many)
            elif axis in self.indexed:
                start = indices[..., self.indexed.index(axis)].to(torch.int64)
                last = self.shape[axis] - self.sizes[axis]
                if inside is not None:
                    inside = inside & (start >= 0) & (start <= last)
                start = start.clamp(0, max(last, 0))
            else:
                start = torch.zeros(many, dtype=torch.int64, device=indices.device)
            start = start.reshape((*many, *[1] * len(inner)))
            if axis in inner:
                offset = torch.arange(self.sizes[axis], device=indices.device)
                start = start + offset.reshape([-1 if a == axis else 1 for a in inner])
            row = row * self.shape[axis] + start
        return row, inside

    def window_axes(self) -> list[int]:
        """Axes of the operand that a window has, in order."""
        return [i for i in range(len(self.shape)) if i not in self.dropped and i not in self.batch]


def _ints(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple(map(int, numbers))


def _gather(eqn: JaxprEqn) -> Run:
    numbers, mode = eqn.params["dimension_numbers"], GatherScatterMode.from_any(eqn.params["mode"])
    windows = Windows(
        shape_of(eqn.invars[0]),
        _ints(eqn.params["slice_sizes"]),
        _ints(numbers.collapsed_slice_dims),
        _ints(numbers.start_index_map),
        _ints(numbers.operand_batching_dims),
        _ints(numbers.start_indices_batching_dims),
    )
    rows, whole, window = windows.rows, windows.whole, windows.window_axes()
    fill = _fill_value(eqn) if mode == GatherScatterMode.FILL_OR_DROP else None
    rank = len(shape_of(eqn.outvars[0]))
    many = [i for i in range(rank) if i not in numbers.offset_dims]
    # the axes of the result as computed: batch, then window axes among the rows, then whole axes
    computed = many + [numbers.offset_dims[window.index(a)] for a in [*(a for a in window if a in rows), *whole]]
    order = [computed.index(i) for i in range(rank)]

    def run(x: Tensor, indices: Tensor) -> Tensor:
        row, inside = windows.places(indices, clip=fill is None)
        table = x.permute(*rows, *whole).reshape(-1, *(windows.shape[a] for a in whole))
        if not len(table):  # every index lies outside
            table = table.new_zeros((1, *table.shape[1:]))
        out = table[row.reshape(-1)].reshape((*row.shape, *table.shape[1:]))
        if inside is not None and not bool(inside.all()):
            inside = inside.reshape((*inside.shape, *[1] * (out.ndim - inside.ndim)))
            out = torch.where(inside, out, torch.as_tensor(fill, dtype=out.dtype, device=out.device))
        return out.permute(order)

    return run


def _fill_value(eqn: JaxprEqn) -> Any:
    """What is read outside the operand, unless said: NaN, the least signed or the largest unsigned integer."""
    given, name = eqn.params["fill_value"], name_of(eqn.outvars[0].aval)
    if given is not None:
        return given
    if name == "bool":
        return True
    if name in ("uint64", "key"):
        return -1  # all bits set
    if name in MASKS or name == "uint8":
        return MASKS.get(name, 255)
    dtype = carrier(eqn.outvars[0].aval)
    return torch.iinfo(dtype).min if not (dtype.is_floating_point or dtype.is_complex) else np.nan


def _scatter(write: Callable[[Tensor, Tensor, Tensor], None]) -> Rule:
    """`write(table, row, updates)` puts the updates into rows of the table."""

    def rule(eqn: JaxprEqn) -> Run:
        numbers, mode = eqn.params["dimension_numbers"], GatherScatterMode.from_any(eqn.params["mode"])
        shape, updates_shape = shape_of(eqn.invars[0]), shape_of(eqn.invars[2])
        dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        sizes, offsets = [1] * len(shape), numbers.update_window_dims
        window = [i for i in range(len(shape)) if i not in dropped]
        for axis, at in zip(window, offsets, strict=True):
            sizes[axis] = updates_shape[at]
        windows = Windows(
            shape,
            tuple(sizes),
            _ints(numbers.inserted_window_dims),
            _ints(numbers.scatter_dims_to_operand_dims),
            _ints(numbers.operand_batching_dims),
            _ints(numbers.scatter_indices_batching_dims),
        )
        rows, whole = windows.rows, windows.whole
        many = [i for i in range(len(updates_shape)) if i not in offsets]
        order = many + [offsets[window.index(a)] for a in [*(a for a in window if a in rows), *whole]]
        back = [[*rows, *whole].index(i) for i in range(len(shape))]
        clip = mode == GatherScatterMode.CLIP

        def run(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
            row, inside = windows.places(indices, clip)
            moved = x.permute(*rows, *whole)
            table = moved.reshape(-1, prod(shape[a] for a in whole)).clone()
            row, updates = row.reshape(-1), updates.permute(order).reshape(row.numel(), table.shape[1])
            if inside is not None and not bool(inside.all()):
                each = row.numel() // max(inside.numel(), 1)
                kept = inside.reshape(-1, 1).expand(-1, each).reshape(-1)
                row, updates = row[kept], updates[kept]
            write(table, row, updates)
            return table.reshape(moved.shape).permute(back)

        return run

    return rule


def _set(table: Tensor, row: Tensor, updates: Tensor) -> None:
    table[row] = updates


def _add(table: Tensor, row: Tensor, updates: Tensor) -> None:
    table.index_add_(0, row, updates)


def _subtract(table: Tensor, row: Tensor, updates: Tensor) -> None:
    table.index_add_(0, row, updates, alpha=-1)


def _reduced(how: str) -> Callable[[Tensor, Tensor, Tensor], None]:
    def write(table: Tensor, row: Tensor, updates: Tensor) -> None:
        table.scatter_reduce_(0, row[:, None].expand_as(updates), updates, how, include_self=True)

    return write


def _signed_only(rule: Rule) -> Rule:
    def checked(eqn: JaxprEqn) -> Run:
        if (name := name_of(eqn.invars[0].aval)) in ("uint16", "uint32", "uint64", "bool"):
            raise NoCounterpart(f"{eqn.primitive.name}: expected floats or signed integers, got {name}. Cast first.")
        return rule(eqn)

    return checked


def _plain_scatter(eqn: JaxprEqn) -> Run:
    if eqn.params.get("update_jaxpr") is not None:
        raise NoCounterpart("scatter: torch has no scatter_apply. Write it with .at[...].add, .set, .min or .max.")
    return _scatter(_set)(eqn)


def _starts(starts: Sequence[Tensor], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices of these sizes, moved until they lie inside."""
    first = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))


def _dynamic_slice(eqn: JaxprEqn) -> Run:
    sizes = eqn.params["slice_sizes"]
    return lambda x, *starts: x[_starts(starts, x.shape, sizes)]


def _dynamic_update_slice(x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    out[_starts(starts, x.shape, update.shape)] = update
    return out


RULES: dict[str, Rule] = {
    "gather": _gather,
    "scatter": _plain_scatter,
    "scatter-add": _signed_only(_scatter(_add)),
    "scatter-sub": _signed_only(_scatter(_subtract)),
    "scatter-mul": _signed_only(_scatter(_reduced("prod"))),
    "scatter-min": _signed_only(_scatter(_reduced("amin"))),
    "scatter-max": _signed_only(_scatter(_reduced("amax"))),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": lambda eqn: _dynamic_update_slice,
}
