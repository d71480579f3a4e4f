"""Trees of arguments and results: mappings, lists, tuples, NamedTuples, dataclasses and namespaces, to their leaves.

Unlike those of `torch.utils._pytree` and `jax.tree_util`, a dataclass needs no registration, and a dict is read by its
keys, whatever their order.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from types import SimpleNamespace
from typing import Any

from torch import nn

from ...errors import UsageError, nearest
from .graph import Ref


def children(tree: Any) -> dict[Any, Any] | None:
    """The parts of a container by key, field or position; None for a leaf."""
    if isinstance(tree, nn.Module | Ref | type):
        return None
    if is_mapping(tree):
        return {key: tree[key] for key in tree.keys()}
    if isinstance(tree, SimpleNamespace):
        return dict(vars(tree))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return dict(zip(getattr(tree, "_fields"), tree, strict=True))  # noqa: B009 (a NamedTuple, says the line above)
    if type(tree) in (list, tuple):
        return dict(enumerate(tree))
    if dataclasses.is_dataclass(tree):
        return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    return None


def is_mapping(tree: Any) -> bool:
    """Whether it has keys and takes new values by them, as batches of some libraries do that are no Mapping."""
    return isinstance(tree, MutableMapping) or all(
        hasattr(type(tree), name) for name in ("keys", "__getitem__", "__setitem__")
    )


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, `batch.obs` or `0.weight`."""
    parts = children(tree)
    if parts is None:
        yield path, tree
    else:
        for key, part in parts.items():
            yield from leaves(part, f"{path}.{key}" if path else str(key))


def mapped(function: Callable[[str, Any], Any], tree: Any, path: str = "") -> Any:
    """The same tree with each leaf replaced by `function(path, leaf)`."""
    parts = children(tree)
    if parts is None:
        return function(path, tree)
    new = {key: mapped(function, part, f"{path}.{key}" if path else str(key)) for key, part in parts.items()}
    if type(tree) is dict:
        return new
    if is_mapping(tree):
        result = copy.copy(tree)
        for key, value in new.items():
            result[key] = value
        return result
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*new.values())
    if isinstance(tree, list | tuple):
        return type(tree)(new.values())
    result = copy.copy(tree)
    for name, value in new.items():
        object.__setattr__(result, name, value)  # a frozen dataclass too
    return result


def beside(example: Any, given: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The leaves of the example, each with what was given in its place: (path, leaf, given)."""
    parts = children(example)
    if parts is None:
        yield path, example, given
        return
    others = children(given)
    by_key = is_mapping(example), is_mapping(given)
    if others is None or len(set(by_key)) == 2 or set(parts) != set(others):
        raise UsageError(_differ(path, parts, given, others))
    for key, part in parts.items():
        yield from beside(part, others[key], f"{path}.{key}" if path else str(key))


def _differ(path: str, parts: dict[Any, Any], given: Any, others: dict[Any, Any] | None) -> str:
    name = f"argument {path}" if path else "the arguments"
    got = type(given).__name__ if others is None else f"{type(given).__name__} of {', '.join(map(str, others))}"
    unknown = [str(key) for key in others or {} if key not in parts]
    hint = nearest(unknown[0], map(str, parts)) if unknown else ""
    return (
        f"{name}: expected {', '.join(map(str, parts)) or 'nothing'} as in the example, got {got}.{hint} "
        f"Give the same structure, or import again with an example of the new one."
    )
