"""Loading what the user names as MODULE:ATTR."""

import importlib
import sys
from typing import Any

from .errors import UsageError, nearest


def load_attribute(target: str, kind: type | tuple[type, ...] | None = None) -> Any:
    """The object at `module:attribute`; with a `kind`, an instance of it, made by calling what is there if need be."""
    module_name, _, attribute = target.partition(":")
    if not attribute:
        raise UsageError(f"expected MODULE:ATTR, for example my_models:net; got {target!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules in the current folder, as `python -m` would find them
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the user's module exists, but something it imports does not
        raise UsageError(
            f"no module named {error.name!r} here or installed (from {target!r}). Run this in the folder that holds it."
        ) from error
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise UsageError(f"{module_name!r} has no attribute {name!r}.{nearest(name, dir(value))}")
        value = getattr(value, name)
    if kind is None or isinstance(value, kind):
        return value
    if callable(value):
        value = value()
    if not isinstance(value, kind):
        raise UsageError(f"{target!r}: expected {kind}, or a function that makes one; got {type(value)}.")
    return value
