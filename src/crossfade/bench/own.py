"""`crossfade bench MODULE:ATTR`: one training step of the user's own code, in torch, by the bridge and in JAX.

It is a `parity.Twin` with loss and optimiser, or, where there is no JAX yet, what `crossfade.accelerate` takes: a
function that gives (loss, module, optimizer, batch). Processes are those of `crossfade bench bridge`; nothing is
promised of code we do not know.
"""

from typing import Any

from .bridge import run, show
from .harness import end


def main(target: str, *, quick: bool = False, as_json: bool = False, quiet: bool = False) -> int:
    """Runs the bench of `module:attribute` and prints it."""
    return end(measured(target, quick=quick, progress=not (quiet or as_json)), show, quick=True, as_json=as_json)


def measured(target: str, *, quick: bool, progress: bool) -> dict[str, Any]:
    """The whole record."""
    worker = "crossfade.bench.own_worker"
    return run(processes=1 if quick else 3, quick=quick, progress=progress, worker=worker, what={"target": target})
