"""Calling what a user has written, which may raise anything: all of it is told, and the examination goes on."""

import inspect
import traceback
from collections.abc import Callable
from typing import Any


def attempt(function: Callable, *arguments: Any) -> tuple[Any, Exception | None]:
    """What a function answers, or the error it raises."""
    try:
        return function(*arguments), None
    except Exception as error:  # the user's code may raise anything; the caller reports it
        return None, error


def raised(owner: Any, error: Exception) -> str:
    """An error out of the class of a user's object, with the line it came from."""
    file = inspect.getsourcefile(type(owner))
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    at = f" ({lines[-1].name}, line {lines[-1].lineno})" if lines else ""
    return f"it raised {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}{at}"
