"""Mode `torch_pure`: the whole learner as one compiled function: the honest baseline of every speed claim."""

from typing import Any

import torch
import torch._inductor.config

from ..bridge.transfer_torch import tensor_to_numpy
from ..optim import functional_torch
from .compiler import find_compiler
from .system import Info, PureState, Snapshot, TorchSystem, as_saved
from .torch_loop import TorchTrainer


class TorchPureTrainer(TorchTrainer):
    """Vectorised environments, `torch.func` gradients, functional optimisers, `torch.compile`."""

    def __init__(self, system: TorchSystem[Any, Any], snapshot: Snapshot, step: int):
        super().__init__(system, snapshot, step)
        self.state = PureState(
            {name: tensor.detach().clone() for name, tensor in self.policy.state_dict().items()},
            {name: functional_torch.init(state) for name, state in self.states().items()},
        )
        self.step = step
        compiler, reason = find_compiler()
        if compiler:
            torch._inductor.config.cpp.cxx = (None, compiler)
        else:
            self.notes["mode"] = f"one functional torch step, torch.func, not compiled ({reason})"
        self.update = system.pure_update(self.policy, torch.compile if compiler else lambda update: update)

    def iterate(self, step: int) -> Info:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("convert"):
            batch = self.system.tensors(batch)
        with self.clock("gradient"):
            self.state, info = self.update(self.state, batch)
        with self.clock("sync"):
            self.policy.load_state_dict(self.state.params)
        self.step = step + 1
        return info

    def snapshot(self) -> Snapshot:
        records = self.system.optimizer_records(self.step)
        states = {name: functional_torch.read(self.state.moments[name], record) for name, record in records.items()}
        parameters = {name: tensor_to_numpy(p) for name, p in self.state.params.items()}
        return Snapshot(parameters, states, as_saved(self.buffer))
