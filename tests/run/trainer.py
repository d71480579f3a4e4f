"""A trainer as small as can be, to be killed: `python trainer.py RUN DELAY CHUNK`; RUN is resumed if it is there.

Its state is one float; its checkpoint a JSON file. A line on standard output for each checkpoint.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from run_settings import Settings

from crossfade.run import Log, Progress, RunDir, StopOnSignal, run_chunks
from crossfade.run.files import write_json


def train(path: Path, *, delay: float = 0.0, chunk: int = 5, total: int = 40) -> None:
    bundles = sorted(path.glob("checkpoints/*"))
    if bundles:
        run = RunDir.open(path, write=True)
        saved = json.loads(bundles[-1].read_text())
        start, state, window = saved["step"], saved["state"], saved["window"]
        run.resume(start)
    elif path.exists():
        run, start, state, window = RunDir.open(path, write=True), 0, 1.0, {}
        run.resume(0)
    else:
        run = RunDir.create(path.parent, "toy", ["walk", "line", "torch"], 0, Settings())
        run.path.rename(path)  # a known place for the test
        run.close()
        run, start, state, window = RunDir.open(path, write=True), 0, 1.0, {}

    def body(step: int, n: int) -> dict:
        nonlocal state
        losses = []
        for at in range(step, step + n):
            time.sleep(delay)
            state = state * 0.9 + np.sin(at)
            losses.append(state)
        return {"loss": losses, "env_steps": 16 * np.arange(step + 1, step + n + 1)}

    def save(step: int, window: dict) -> None:
        parts = {key: value.tolist() for key, value in window.items()}
        write_json(run.checkpoints / f"{step:010d}", {"step": step, "state": state, "window": parts})
        print(step, flush=True)

    with run, Log(run, quiet=True) as log, Progress(total, start=start, quiet=True) as bar, StopOnSignal() as stop:
        reached = run_chunks(
            total,
            chunk,
            body,
            start=start,
            window=window,
            on_log=log,
            log_every=4,
            on_eval=lambda step: {"eval/state": state},
            eval_every=10,
            on_checkpoint=save,
            checkpoint_every=15,
            on_progress=bar.update,
            stop=stop,
        )
        if reached == total:
            run.finish(total, {"loss": state})


if __name__ == "__main__":
    train(Path(sys.argv[1]), delay=float(sys.argv[2]), chunk=int(sys.argv[3]))
