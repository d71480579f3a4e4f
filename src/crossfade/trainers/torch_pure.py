"""Mode `torch_pure`: the whole learner as one compiled function: the honest baseline of every speed claim."""

import shutil
from dataclasses import replace
from typing import Any

import torch

from ..bridge.optimizers import read_torch
from ..bridge.schedules import advance
from ..bridge.transfer import tensor_to_numpy
from .torch_loop import TorchTrainer
from .trainer import Snapshot, as_arrays


class TorchPureTrainer(TorchTrainer):
    """Vectorised environment, `torch.func` gradient, functional optimiser, `torch.compile`."""

    def __init__(self, system: Any, snapshot: Snapshot, step: int):
        super().__init__(system, snapshot, step)
        self.state = system.pure_init(self.policy, self.optimizer[0])
        self.compiled = any(map(shutil.which, ("c++", "g++", "clang++")))
        self.update = system.pure_update(self.policy, torch.compile if self.compiled else lambda update: update)

    def iterate(self, step: int) -> dict[str, Any]:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("convert"):
            batch = self.system.tensors(batch)
        with self.clock("gradient"):
            self.state, info = self.update(self.state, batch)
        with self.clock("sync"):
            self.policy.load_state_dict(self.state.params)
        return info

    def snapshot(self) -> Snapshot:
        optimizer, scheduler = self.system.make_optimizer(self.policy)
        if scheduler is not None:
            advance(scheduler, int(self.state.step))
        moments = {
            name: {"step": self.state.step.float(), "exp_avg": m, "exp_avg_sq": self.state.exp_avg_sq[name]}
            for name, m in self.state.exp_avg.items()
        }
        arrays = {name: {slot: tensor_to_numpy(t) for slot, t in slots.items()} for name, slots in moments.items()}
        parameters = {name: tensor_to_numpy(p) for name, p in self.state.params.items()}
        state = replace(read_torch(optimizer, self.policy), moments=arrays)
        return Snapshot(parameters, state, as_arrays(self.buffer))
