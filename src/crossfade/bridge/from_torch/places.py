"""Where in the user's code an operation was called."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import jaxtyping
import torch

_OWN = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_BRIDGE = tuple(
    str(Path(__file__).parent.parent / "stepping" / f"{name}.py") for name in ("live_loss", "random_draws", "stand_ins")
)
_SKIPPED = (_OWN, *_BRIDGE, _TORCH, str(Path(jaxtyping.__file__).parent), contextlib.__file__, "<")


PASSING = {"gaussian_nll_loss": False, "_validate_sample": True, "__init__": True}
"""torch's own functions that look at values to refuse bad ones, and what lets a good one pass."""
_CHECKING = (f"{_TORCH}/nn/functional.py", f"{_TORCH}/distributions/distribution.py")


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def user_place() -> Place:
    """The innermost line that is neither torch's nor ours; for an nn.Module of torch's own, a line of its."""
    frame: FrameType | None = sys._getframe(1)
    last = frame
    while frame is not None and not (frame.f_code.co_name == "record" and frame.f_code.co_filename.startswith(_OWN)):
        file = frame.f_code.co_filename
        if not file.startswith(_SKIPPED):
            return _place(frame)
        last = frame if file.startswith(_TORCH) else last
        frame = frame.f_back
    return _place(last) if last is not None else Place("unknown", 0, "unknown")


def answer_that_passes() -> bool | None:
    """What torch's own check of a value, if it is one that asks, takes for good."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        if frame.f_code.co_filename in _CHECKING and frame.f_code.co_name in PASSING:
            return PASSING[frame.f_code.co_name]
        frame = frame.f_back
    return None


def error_place(error: BaseException) -> Place:
    """The innermost line of the user's code that an exception passed through."""
    found, trace = Place("unknown", 0, "unknown"), error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_SKIPPED):
            found = Place(file, trace.tb_lineno, trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return found


def _place(frame: FrameType) -> Place:
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
