"""Loading what the user names as MODULE:ATTR."""

import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from .errors import CrossfadeError, UsageError, UserCodeError, nearest
from .failing import EXTRAS


def load_attribute(target: str, kind: type | tuple[type, ...] | None = None) -> Any:
    """The object at `module:attribute`; with a `kind`, an instance of it, made by calling what is there if need be."""
    module_name, _, attribute = target.partition(":")
    if not all(name.isidentifier() for name in (*module_name.split("."), *attribute.split("."))):
        raise UsageError(f"expected MODULE:ATTR, for example my_models:net; got {target!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules in the current folder, as `python -m` would find them
    try:
        value: Any = theirs(module_name, f"importing {module_name}", lambda: importlib.import_module(module_name))
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] in EXTRAS:
            raise
        if f"{module_name}.".startswith(f"{missing}."):
            raise UsageError(
                f"no module named {missing!r} here or installed ({target!r}). Run this in the folder that holds it."
            ) from error
        raise UserCodeError(f"importing {module_name} failed: it needs {missing!r}, which is not installed.") from error
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise UsageError(f"{module_name!r} has no attribute {name!r}.{nearest(name, dir(value))}")
        value = getattr(value, name)
    if kind is None or isinstance(value, kind):
        return value
    if callable(value):
        value = theirs(module_name, f"calling {target}", value)
    if not isinstance(value, kind):
        raise UsageError(f"{target!r}: expected {kind}, or a function that makes one; got {type(value)}.")
    return value


def theirs(module: str, doing: str, call: Callable[[], Any]) -> Any:
    """What a call into a module gives; an error in one of the user's is theirs, and named with its line."""
    if module.partition(".")[0] == __package__:
        return call()
    try:
        return call()
    except (CrossfadeError, ModuleNotFoundError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())[:300]
        raise UserCodeError(f"{doing} failed: {type(error).__name__}: {said}{_place(error)}. Mend it there.") from error


def _place(error: BaseException) -> str:
    """The line of code that raised an error, or that cannot be read."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
