"""Batches in containers that JAX does not know: dataclasses, namespaces, mappings of a class of their own; and words
beside the tensors, such as a device, which belong to their structure."""

from typing import Any

import jax
import torch

from ...errors import UsageError
from ..from_torch.tree import children, leaves, mapped

WORDS = (str, torch.device, torch.dtype)


class Boxes:
    """Takes batches like the first out of their containers, and puts arrays back into such containers."""

    def __init__(self, first: Any):
        self._first, self._form = first, _form(first)
        self._paths = [path for path, leaf in leaves(first) if not isinstance(leaf, WORDS)]

    @classmethod
    def of(cls, first: Any) -> "Boxes | None":
        """None where JAX knows every container and every leaf."""
        own = lambda leaf: isinstance(leaf, WORDS) or children(leaf) is not None
        return cls(first) if any(map(own, jax.tree.leaves(first))) else None

    def open(self, batch: Any) -> tuple[Any, ...]:
        """What a batch holds, in the order of the first."""
        if (form := _form(batch)) != self._form:
            differing = [f"{path or 'batch'} ({kind})" for path, kind in sorted(form.items() ^ self._form.items())]
            raise UsageError(f"expected a batch of the structure of the first; other are {', '.join(differing)}.")
        held = dict(leaves(batch))
        return tuple(held[path] for path in self._paths)

    def close(self, held: tuple[Any, ...]) -> Any:
        """A batch in the containers of the first."""
        each = iter(held)
        return mapped(lambda path, leaf: leaf if isinstance(leaf, WORDS) else next(each), self._first)


def _form(tree: Any, path: str = "") -> dict[str, str]:
    """The containers of a batch by path; in place of leaves, whether there is something."""
    parts = children(tree)
    if parts is None:
        return {path: repr(tree) if tree is None or isinstance(tree, WORDS) else "an array"}
    form = {path: type(tree).__name__}
    for key, part in parts.items():
        form |= _form(part, f"{path}.{key}" if path else str(key))
    return form
