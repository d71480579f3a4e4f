"""A line on standard error while something takes long."""

import sys
import time

PATIENCE = 2.0  # seconds before the first line


class Waiting:
    """`waiting(done, total)` says how far it is, at most ten times a second; nothing where there is no terminal."""

    def __init__(self, what: str):
        self.what = what
        self._next = time.monotonic() + PATIENCE
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next, self._shown = time.monotonic() + 0.1, True
            print(f"\r{self.what}: {done} of {total} ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Takes the line away."""
        if self._shown:
            print("\r" + " " * 79 + "\r", end="", file=sys.stderr, flush=True)
