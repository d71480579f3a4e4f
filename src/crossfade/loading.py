"""Loading what the user names as MODULE:ATTR."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
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
        kinds = " or ".join(each.__qualname__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise UsageError(f"{target!r}: expected a {kinds}, or a function that makes one; got {type(value).__name__}.")
    return value


def theirs(module: str, doing: str, call: Callable[[], Any]) -> Any:
    """What a call into a module gives; an error in one of the user's is theirs, and named with its line."""
    if module.partition(".")[0] == __package__:
        return call()
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results, which programs read
            return call()
    except (CrossfadeError, ModuleNotFoundError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise _as_theirs(error, doing, users_line(error) or _last_line(error)) from error


@contextmanager
def running_theirs(doing: str) -> Iterator[None]:
    """Around our own work that calls the user's code: an error that comes through a line of theirs is theirs."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (CrossfadeError, ModuleNotFoundError, MemoryError):
        raise
    except Exception as error:
        if line := users_line(error):
            raise _as_theirs(error, doing, line) from error
        raise


def _as_theirs(error: BaseException, doing: str, line: str) -> UserCodeError:
    said = " ".join(str(error).split())[:300]
    return UserCodeError(f"{doing} failed: {type(error).__name__}: {said}{line}. Mend it there.")


def users_line(error: BaseException) -> str:
    """The last line of the user's that led to an error, or that cannot be read; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _in_library(frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _last_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _in_library(file: str) -> bool:
    """Whether a line belongs to Python, to an installed package or to crossfade, and not to the user."""
    ours, python = os.path.dirname(__file__) + os.sep, os.path.dirname(os.__file__) + os.sep
    return file.startswith(("<", ours, python)) or f"{os.sep}site-packages{os.sep}" in file
