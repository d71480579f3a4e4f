"""Counts what XLA compiles."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def compilations() -> Iterator[list[str]]:
    """What XLA compiles meanwhile, whoever asks for it."""
    found: list[str] = []

    def listen(event: str, seconds: float, **told: str) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(told.get("fun_name", "unnamed"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
