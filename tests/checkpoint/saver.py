"""Run by the kill test: children save in a loop and are killed at random moments; what is left must load.

Prints one JSON line per kill. NumPy only: neither torch nor jax may be imported on this path.
"""

import json
import os
import random
import signal
import sys
import time

import numpy as np

from crossfade import checkpoint
from crossfade.checkpoint import folder as folders


def state(n: int) -> dict:
    """A state all of whose parts tell the same number."""
    fill = lambda *shape: np.full(shape, n, np.float32)
    return {
        "params": {"w": fill(64, 64), "b": fill(64)},
        "normalizer": {"mean": fill(8), "count": n},
        "replay": {"obs": fill(32, 16)},
        "meta": {"n": n},
    }


def save_for_ever(root: str, start: int, same_step: bool, told: int) -> None:
    """Tells the number of the last save that returned, the one it starts from at once."""
    n = start
    while True:
        os.write(told, n.to_bytes(8, "little"))
        n += 1
        checkpoint.save(root, step=0 if same_step else n, keep=2, **state(n))


def number(bundle: checkpoint.Bundle) -> int:
    """The number a bundle tells, after checking that all of it agrees."""
    n = bundle.meta["n"]
    parts = (*bundle.params.values(), bundle.normalizer["mean"], bundle.replay["obs"])
    assert bundle.normalizer["count"] == n and all((part == n).all() for part in parts)
    return n


def main(root: str, kills: int) -> None:
    rng = random.Random(0)
    latest = {False: 0, True: 0}
    for i in range(kills):
        same_step = i % 2 == 1  # by turns: a new bundle each time, and one replaced again and again
        folder = os.path.join(root, "same" if same_step else "new")
        listen, told = os.pipe()
        child = os.fork()
        if not child:
            save_for_ever(folder, latest[same_step], same_step, told)
        os.close(told)
        reports = os.read(listen, 8)  # the child is at work
        while not (os.path.isdir(folder) and folders.list_bundles(folder)):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reports += os.read(listen, 1 << 16)
        os.close(listen)
        acknowledged = int.from_bytes(reports[-8:], "little")
        leftovers = sorted(name for name in os.listdir(folder) if not name.isdigit())
        start = time.process_time()
        found = number(checkpoint.load(folder, side="numpy"))
        print(
            json.dumps(
                {
                    "acknowledged": acknowledged,
                    "found": found,
                    "leftovers": leftovers,
                    "seconds": time.process_time() - start,
                    "frameworks": sorted({"torch", "jax"} & set(sys.modules)),
                }
            )
        )
        latest[same_step] = found
        checkpoint.save(folder, step=0 if same_step else found, keep=2, **state(found))
        assert all(name.isdigit() for name in os.listdir(folder)), "a save leaves nothing of the dead behind"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
