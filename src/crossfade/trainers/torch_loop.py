"""Mode `torch`: a policy, its optimiser and a Python loop, as PyTorch code is written today."""

from typing import Any

import numpy as np

from ..bridge.optimizers import read_torch, write_torch
from ..bridge.schedules import advance
from ..bridge.transfer import tensor_to_numpy
from .trainer import Clock, Snapshot, as_arrays, columns


class TorchTrainer:
    """Environment objects stepped one by one, eager gradient, torch's optimiser."""

    def __init__(self, system: Any, snapshot: Snapshot, step: int):
        self.system, self.clock = system, Clock()
        self.policy = system.make_policy(snapshot.parameters)
        self.buffer = system.start_buffer(snapshot.buffer)
        self.optimizer = self.make_optimizer(snapshot, step)

    def make_optimizer(self, snapshot: Snapshot, step: int) -> Any:
        """Optimiser and scheduler, if the system has one, as they stood after `step` updates."""
        optimizer, scheduler = self.system.make_optimizer(self.policy)
        if snapshot.optimizer is not None:
            if scheduler is not None:
                advance(scheduler, step)
            write_torch(snapshot.optimizer, optimizer, self.policy)
        return optimizer, scheduler

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        return columns([self.iterate(i) for i in range(step, step + n)])

    def iterate(self, step: int) -> dict[str, Any]:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect_one_by_one(self.policy, self.buffer, step)
        with self.clock("convert"):
            batch = self.system.tensors(batch)
        with self.clock("gradient"):
            return self.system.update(self.policy, self.optimizer, batch)

    def snapshot(self) -> Snapshot:
        parameters = {name: tensor_to_numpy(p) for name, p in self.policy.state_dict().items()}
        return Snapshot(parameters, read_torch(self.optimizer[0], self.policy), as_arrays(self.buffer))

    def evaluate(self, effort: Any = None) -> Any:
        return self.system.evaluate(self.policy, effort, self.buffer)
