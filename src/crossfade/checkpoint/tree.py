"""Nested dicts, lists and tuples of arrays and scalars as JSON plus a flat set of named arrays, and back.

Plain JSON values stand for themselves. Three one-key objects stand for what JSON lacks:

    {"$array": "obs/mean"}    an array, stored under that name
    {"$tuple": [...]}         a tuple
    {"$float": "inf"}         inf, -inf or nan
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import CheckpointError
from .sides import is_array, to_numpy

DEPTH = 100
INTEGER_BITS = 10_000  # Python reads no more than 4300 digits
NONFINITE = ("inf", "-inf", "nan")


def encode(tree: Any, label: str, arrays: dict[str, np.ndarray] | None = None) -> Any:
    """The JSON form of `tree`; its arrays are added to `arrays`, or refused when there is no such place for them.

    NumPy scalars are arrays where arrays are allowed, and plain numbers where they are not.
    """
    return _encode(tree, (), label, arrays)


def _encode(node: Any, path: tuple[str, ...], label: str, arrays: dict[str, np.ndarray] | None) -> Any:
    where = label + "".join(f"[{word!r}]" for word in path)
    if len(path) > DEPTH:
        raise CheckpointError(f"{where[:80]}...: expected at most {DEPTH} levels of nesting, got more; flatten it.")
    if arrays is not None and is_array(node):
        # Escaped as in JSON pointers, so that "a/b" and "a", "b" stay apart.
        name = "/".join(word.replace("~", "~0").replace("/", "~1") for word in path) if path else label
        arrays[name] = to_numpy(node, where)
        return {"$array": name}
    if isinstance(node, np.generic):
        node = node.item()
    if isinstance(node, float):
        return node if math.isfinite(node) else {"$float": str(node)}
    if type(node) is int and node.bit_length() > INTEGER_BITS:
        raise CheckpointError(f"{where}: expected an integer of at most {INTEGER_BITS} bits, got {node.bit_length()}.")
    if node is None or type(node) in (bool, int, str):
        return node
    if isinstance(node, list | tuple) and type(node) in (list, tuple):
        items = [_encode(item, (*path, str(i)), label, arrays) for i, item in enumerate(node)]
        return items if type(node) is list else {"$tuple": items}
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str) or key.startswith("$"):
                raise CheckpointError(f"{where}: expected names that are text not starting with '$', got {key!r}.")
        return {key: _encode(item, (*path, key), label, arrays) for key, item in node.items()}
    raise CheckpointError(
        f"{where}: expected dicts, lists, tuples, numbers, text, None{'' if arrays is None else ' and arrays'}, "
        f"got {type(node).__module__}.{type(node).__qualname__}; turn it into these before saving."
    )


def decode(data: Any, label: str, leaf: Callable[[str], Any]) -> Any:
    """The tree whose JSON form is `data`; `leaf(name)` gives each stored array."""
    try:
        return _decode(data, leaf)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{label}: expected a tree written by crossfade, got damage: {error!r}.") from error


def _decode(node: Any, leaf: Callable[[str], Any]) -> Any:
    match node:
        case {"$array": str(name)} if len(node) == 1:
            return leaf(name)
        case {"$tuple": [*items]} if len(node) == 1:
            return tuple(_decode(item, leaf) for item in items)
        case {"$float": str(text)} if len(node) == 1 and text in NONFINITE:
            return float(text)
        case dict():
            if odd := [key for key in node if key.startswith("$")]:
                raise ValueError(f"{odd[0]}: {str(node[odd[0]])[:40]}")
            return {key: _decode(item, leaf) for key, item in node.items()}
        case list():
            return [_decode(item, leaf) for item in node]
    return node
