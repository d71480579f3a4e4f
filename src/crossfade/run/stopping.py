"""Ctrl-C and `kill` as a polite request first, an order second."""

import signal
import threading
from types import FrameType
from typing import Any

from .progress import stderr_console

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopOnSignal:
    """`with StopOnSignal() as stop: ...` where `stop()` is True once the process has been asked to end.

    The first SIGINT or SIGTERM only sets the flag, so that the loop can end its chunk and save; the second raises
    KeyboardInterrupt at once. Outside the main thread Python delivers no signals, and `stop()` stays False.
    """

    def __init__(self, *, quiet: bool = False):
        self._quiet, self._asked = quiet, False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> "StopOnSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if not self._quiet:
            stderr_console().print(
                "stopping after this chunk, with a checkpoint; once more stops at once", markup=False
            )
