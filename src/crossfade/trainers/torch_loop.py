"""Mode `torch`: a policy, its optimisers and a Python loop, as PyTorch code is written today."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..bridge.optimizers.state_torch import advance, read_torch, write_torch
from ..bridge.transfer_torch import tensor_to_numpy
from ..optim.state import OptimizerState
from .system import Effort, Evaluation, Info, Scheduled, Snapshot, TorchSystem, as_saved
from .trainer import Clock, columns


class Counter:
    """Updates that an optimiser has made: SGD does not count its own, but a schedule in another mode may have to."""

    def __init__(self, made: Scheduled, so_far: OptimizerState | None):
        self.count = 0 if so_far is None else so_far.step
        self._hook = made.optimizer.register_step_post_hook(self)

    def by_hand(self) -> None:
        """From now on whoever makes the updates counts them: `bridge.Step` takes no optimiser with hooks."""
        self._hook.remove()

    def __call__(self, *_: object) -> None:
        self.count += 1


class TorchTrainer:
    """Environments stepped one by one, eager gradients, torch's optimisers."""

    def __init__(self, system: TorchSystem[Any, Any], snapshot: Snapshot, step: int):
        self.system, self.clock = system, Clock()
        self.notes: dict[str, str] = {}
        self.policy = system.make_policy(snapshot.parameters)
        self.buffer = system.start_buffer(snapshot.buffer)
        self.optimizers = self._optimizers_at(step, snapshot)
        self.counters = {name: Counter(made, snapshot.optimizers.get(name)) for name, made in self.optimizers.items()}

    def _optimizers_at(self, step: int, snapshot: Snapshot) -> dict[str, Scheduled]:
        """The optimisers after `step` updates: rates and the like by the config, moments by the snapshot."""
        made = self.system.make_optimizers(self.policy)
        for name, (optimizer, scheduler) in made.items():
            if scheduler is not None:
                advance(scheduler, step)
            if name in snapshot.optimizers:
                hyper = read_torch(optimizer, self.policy).groups
                write_torch(replace(snapshot.optimizers[name], groups=hyper), optimizer, self.policy)
        return made

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        return columns([self.iterate(i) for i in range(step, step + n)])

    def iterate(self, step: int) -> Info:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect_one_by_one(self.policy, self.buffer, step)
        with self.clock("convert"):
            batch = self.system.tensors(batch)
        with self.clock("gradient"):
            return self.system.update(self.policy, self.optimizers, batch)

    def snapshot(self) -> Snapshot:
        parameters = {name: tensor_to_numpy(p) for name, p in self.policy.state_dict().items()}
        return Snapshot(parameters, self.states(), as_saved(self.buffer))

    def states(self) -> dict[str, OptimizerState]:
        """The optimisers in neutral form."""
        found = {name: read_torch(made.optimizer, self.policy) for name, made in self.optimizers.items()}
        return {n: s.at_step(self.counters[n].count) if s.kind == "SGD" else s for n, s in found.items()}

    def evaluate(self, effort: Effort | None = None) -> Evaluation:
        return self.system.evaluate(self.policy, effort, self.buffer)
