"""Recurrent cells: how each library lays out the parameters of torch's LSTM and GRU.

A layout is a list of (torch arrays, JAX leaves, rule), with names relative to the cell. A group of leaves has a layout
when it has exactly these names and the rules give exactly its shapes, so no class has to be recognised.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from ...errors import NoCounterpart
from ..mapping import Entry
from ..rules import Rule, add, concat, each, fold, permute, reshape, shift, split, take
from .axes import Shape
from .candidates import Candidate, Item

Layout = list[tuple[tuple[str, ...], tuple[str, ...], Rule]]

WEIGHTS, BIASES = ("weight_ih", "weight_hh"), ("bias_ih", "bias_hh")


def _same(inputs: int, hidden: int) -> Layout:
    """crossfade.nn.LSTMCell and GRUCell: torch's own arrays."""
    return [((name,), (name,), Rule()) for name in WEIGHTS + BIASES]


def _lstm_equinox(inputs: int, hidden: int) -> Layout:
    """equinox.nn.LSTMCell: one bias."""
    return [*_same(inputs, hidden)[:2], (BIASES, ("bias",), Rule(add()))]


def _lstm_dense(hidden: int, forget: str) -> Layout:
    """A dense layer for each gate and source, biases on the hidden ones."""
    gates, sizes = "ifgo", (hidden,) * 4
    kernel = Rule(permute(1, 0), split(1, *sizes))
    return [
        (WEIGHTS[:1], ("ii.kernel", f"{forget}.kernel", "ig.kernel", "io.kernel"), kernel),
        (WEIGHTS[1:], tuple(f"h{gate}.kernel" for gate in gates), kernel),
        (BIASES, tuple(f"h{gate}.bias" for gate in gates), Rule(add(), split(0, *sizes))),
    ]


def _lstm_linen(inputs: int, hidden: int) -> Layout:
    """flax.linen.LSTMCell and OptimizedLSTMCell."""
    return _lstm_dense(hidden, "if")


def _lstm_nnx(inputs: int, hidden: int) -> Layout:
    """flax.nnx.LSTMCell, which avoids the keyword `if` as a name."""
    return _lstm_dense(hidden, "if_")


def _lstm_nnx_optimized(inputs: int, hidden: int) -> Layout:
    """flax.nnx.OptimizedLSTMCell: all gates in one kernel, one bias."""
    return [
        (WEIGHTS[:1], ("dense_i.kernel",), Rule(permute(1, 0))),
        (WEIGHTS[1:], ("dense_h.kernel",), Rule(permute(1, 0))),
        (BIASES, ("dense_h.bias",), Rule(add())),
    ]


def _lstm_haiku(inputs: int, hidden: int) -> Layout:
    """haiku.LSTM: one linear layer on [x, h], gates in the order i, g, f, o, one added to the forget gate in code."""
    rows, columns = inputs + hidden, 4 * hidden
    return [
        (
            WEIGHTS,
            ("linear.w",),
            Rule(
                each(permute(1, 0)),
                concat(0, inputs, hidden),
                reshape((rows, columns), (rows, 4, hidden)),
                take(1, 0, 2, 1, 3),
                reshape((rows, 4, hidden), (rows, columns)),
            ),
        ),
        (
            BIASES,
            ("linear.b",),
            Rule(
                add(),
                shift(hidden, 2 * hidden, -1.0),
                reshape((columns,), (4, hidden)),
                take(0, 0, 2, 1, 3),
                reshape((4, hidden), (columns,)),
            ),
        ),
    ]


def _gru_equinox(inputs: int, hidden: int) -> Layout:
    """equinox.nn.GRUCell: the biases of two gates summed, those of the candidate apart."""
    return [*_same(inputs, hidden)[:2], (BIASES, ("bias", "bias_n"), Rule(fold(2 * hidden)))]


def _gru_linen(inputs: int, hidden: int) -> Layout:
    """flax.linen.GRUCell: a dense layer for each gate and source."""
    gates, sizes = ("r", "z", "n"), (hidden,) * 3
    kernel = Rule(permute(1, 0), split(1, *sizes))
    biases = Rule(fold(2 * hidden), concat(0, 3 * hidden, hidden), split(0, *sizes, hidden))
    return [
        (WEIGHTS[:1], tuple(f"i{gate}.kernel" for gate in gates), kernel),
        (WEIGHTS[1:], tuple(f"h{gate}.kernel" for gate in gates), kernel),
        (BIASES, ("ir.bias", "iz.bias", "in.bias", "hn.bias"), biases),
    ]


LAYOUTS: dict[str, list[Callable[[int, int], Layout]]] = {
    "LSTM": [_same, _lstm_equinox, _lstm_linen, _lstm_nnx, _lstm_nnx_optimized, _lstm_haiku],
    "GRU": [_same, _gru_equinox, _gru_linen],
}

# Groups of leaves that look like a GRU and cannot hold torch's: their names, and why.
REFUSED = {
    frozenset({"dense_i.kernel", "dense_i.bias", "dense_h.kernel"}): (
        "flax.nnx.GRUCell has no bias inside the reset gate's product, where torch has the last third of bias_hh"
    ),
    frozenset({"w_i", "w_h", "b"}): (
        "haiku.GRU applies the reset gate before the matrix product, with one bias; torch after it, with two"
    ),
}


@dataclass(frozen=True)
class Cell:
    """One layer and direction of a torch recurrent module: its arrays by their short names."""

    kind: str
    names: dict[str, str]  # weight_ih -> rnn.weight_ih_l0
    inputs: int
    hidden: int


def cell_items(module: nn.Module, shapes: dict[str, Shape], leaves: dict[str, Shape]) -> list[Item]:
    """An item for each torch cell that has a group of leaves in a known layout."""
    items = []
    groups = _groups(leaves)
    for cell in _cells(module, shapes):
        candidates = [
            Candidate(entries, 0)
            for prefix, group in groups.items()
            for layout in LAYOUTS[cell.kind]
            if (entries := _fit(cell, layout(cell.inputs, cell.hidden), prefix, group, shapes))
        ]
        if candidates:
            items.append(Item(tuple(cell.names.values()), candidates, "the layouts of recurrent cells"))
            continue
        for prefix, group in groups.items():
            if cell.kind == "GRU" and (why := REFUSED.get(frozenset(group))):
                ours, theirs = ", ".join(cell.names.values()), ", ".join(prefix + rest for rest in group)
                raise NoCounterpart(
                    f"{ours} cannot go to {theirs}: {why}. Use a cell that holds torch's parameters: "
                    f"crossfade.nn.GRUCell, equinox.nn.GRUCell or flax.linen.GRUCell."
                )
    return items


def _cells(module: nn.Module, shapes: dict[str, Shape]) -> list[Cell]:
    cells = []
    for path, child in module.named_modules():
        if not isinstance(child, nn.RNNBase | nn.RNNCellBase) or isinstance(child, nn.RNN | nn.RNNCell):
            continue
        kind = "LSTM" if isinstance(child, nn.LSTM | nn.LSTMCell) else "GRU"
        own = {name for name, _ in child.named_parameters(recurse=False)}
        if odd := [name for name in own if name.startswith("weight_hr")]:
            raise NoCounterpart(f"{path}.{odd[0]}: projections (proj_size) have no counterpart in the JAX libraries.")
        for suffix in sorted({re.sub("^(weight|bias)_[ih]h", "", name) for name in own}):
            names = {part: f"{path}.{part}{suffix}".lstrip(".") for part in WEIGHTS + BIASES if part + suffix in own}
            rows, inputs = shapes[names["weight_ih"]]
            cells.append(Cell(kind, names, inputs, rows // (4 if kind == "LSTM" else 3)))
    return cells


def _groups(leaves: dict[str, Shape]) -> dict[str, dict[str, Any]]:
    """Leaves by every prefix of their paths: prefix -> rest of the path -> shape."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, shape in leaves.items():
        for cut in (0, *(m.end() for m in re.finditer(r"[./]", path))):
            groups[path[:cut]][path[cut:]] = shape
    return groups


def _fit(cell: Cell, layout: Layout, prefix: str, group: dict[str, Shape], shapes: dict[str, Shape]) -> tuple:
    """The entries of a layout when the group has exactly its leaves, else nothing."""
    parts = [part for part in layout if set(part[0]) <= cell.names.keys()]
    if {rest for _, rests, _ in parts for rest in rests} != group.keys():
        return ()
    entries = []
    for names, rests, rule in parts:
        given = tuple(np.zeros(shapes[cell.names[n]]) for n in names)
        if [a.shape for a in rule.forward(given)] != [tuple(group[rest]) for rest in rests]:
            return ()
        full = tuple(cell.names[n] for n in names)
        entries.append(Entry(full, tuple(prefix + rest for rest in rests), rule, "layer"))
    return tuple(entries)
