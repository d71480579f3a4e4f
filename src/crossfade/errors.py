"""Every error crossfade raises on purpose. Messages say what was expected, what came, and what to do."""

import difflib
from collections.abc import Iterable
from typing import Any


class CrossfadeError(Exception):
    """Base of all errors raised on purpose; the CLI prints these without a traceback."""


class UsageError(CrossfadeError):
    """The caller asked for something that does not exist or does not fit (CLI exit code 2)."""


class UserCodeError(CrossfadeError):
    """Code that the user named could not be loaded, or failed while it made what was asked for."""


class MappingError(CrossfadeError):
    """Parameters of the two sides could not be put in correspondence.

    `found` is the `bridge.Mapping` that came farthest, not proved: every parameter has its counterpart, but the two
    models compute different functions. None where some have no counterpart. `draw` holds the weights and the factor of
    the inputs with which they differ, None where they do with ordinary ones.
    """

    found: object = None
    draw: Any = None


class AmbiguousMapping(MappingError):
    """Several correspondences fit equally well; the message holds the override lines that decide."""


class NoCounterpart(CrossfadeError):
    """One framework has something (a layer, an optimiser option) that the other cannot hold."""


class TransferError(CrossfadeError):
    """An array cannot cross without losing something."""


class CheckpointError(CrossfadeError):
    """A checkpoint is damaged, hostile, of another schema, or does not fit the model."""


class RunError(CrossfadeError):
    """A run's folder, or a file in it, is damaged or cannot be read or written."""


class RewardError(CrossfadeError):
    """An object has a reward that is not a finite number above 0."""


class NotFiniteError(CrossfadeError):
    """Training left the finite numbers."""


class DataError(CrossfadeError):
    """A file of data cannot be trusted as it is; the message names the file, the row and the reason."""


class DifferentError(CrossfadeError):
    """A proof of parity failed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`" Did you mean 'grid'?"` for a misspelt name, or an empty string when nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
