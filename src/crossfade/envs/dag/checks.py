"""Checks that params make when they are built, and on the fields of the files they name."""

import math

from ...errors import UsageError


def at_least(least: int, **values: int) -> None:
    """Every named value is an integer of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be an integer of at least {least}, got {value!r}.")


def positive(**values: float) -> None:
    """Every named value is finite and above zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be a finite number above 0, got {value!r}.")


def not_negative(**values: float) -> None:
    """Every named value is finite and at least zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be a finite number of at least 0, got {value!r}.")


def one_of(known: tuple[str, ...], **values: str) -> None:
    """Every named value is one of the known words."""
    for name, value in values.items():
        if value not in known:
            raise UsageError(f"{name} must be one of {', '.join(known)}, got {value!r}.")


def is_number(text: str) -> bool:
    """Whether a field of a file reads as a number (nan and inf do)."""
    try:
        float(text)
    except ValueError:
        return False
    return True
