"""The record of a torch function: values by number, and the operations that make them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .places import Place


@dataclass(frozen=True)
class Ref:
    """A value of the graph, by its number."""

    index: int


@dataclass(frozen=True)
class Spec:
    """What torch says of a value without knowing it."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Node:
    """One operation. Its outputs stand in the order of torch's; None for one that is no tensor.

    stopped: it ran under `torch.no_grad()`, so its outputs carry no gradient.
    random: its number among the random operations, in the order of the program; None for all others.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Ref | None, ...]
    place: Place
    stopped: bool = False
    random: int | None = None


@dataclass
class Graph:
    """Inputs, constants and operations in the order of the program."""

    inputs: list[Ref] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    specs: list[Spec] = field(default_factory=list)

    def value(self, shape: tuple[int, ...], dtype: torch.dtype) -> Ref:
        self.specs.append(Spec(tuple(shape), dtype))
        return Ref(len(self.specs) - 1)

    def needed(self, results: list[Ref]) -> "Graph":
        """The same graph with only what the results depend on."""
        live = {ref.index for ref in results}
        nodes = []
        for node in reversed(self.nodes):
            if any(out is not None and out.index in live for out in node.outputs):
                nodes.append(node)
                live |= {ref.index for ref in refs((node.args, node.kwargs))}
        constants = {index: value for index, value in self.constants.items() if index in live}
        return Graph(self.inputs, constants, nodes[::-1], self.specs)


def refs(tree: Any) -> Iterator[Ref]:
    """All values that arguments mention."""
    if isinstance(tree, Ref):
        yield tree
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from refs(part)
    elif isinstance(tree, dict):
        yield from refs(tuple(tree.values()))
