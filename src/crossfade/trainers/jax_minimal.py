"""Mode `jax_minimal`: torch samples, JAX learns; `bridge.Step` writes every update into torch's memory."""

from functools import partial
from typing import Any

import jax

from ..bridge import Mapping, Step
from ..errors import UsageError
from .system import Info, JaxSystem, Snapshot, TorchSystem
from .torch_loop import TorchTrainer


class JaxMinimalTrainer(TorchTrainer):
    """Vectorised NumPy environments, torch policy; each optimiser's gradient step is one compiled JAX program."""

    def __init__(self, system: TorchSystem[Any, Any], jax_system: JaxSystem[Any, Any], snapshot: Snapshot, step: int):
        super().__init__(system, snapshot, step)
        mapping = Mapping.by_name(self.policy, jax_system.make_policy(snapshot.parameters))
        ours, theirs = system.objectives(), jax_system.objectives()
        if not set(self.optimizers) == set(ours) == set(theirs):
            raise UsageError(
                f"expected one loss for each optimiser ({', '.join(self.optimizers)}) in both halves, got "
                f"{', '.join(ours)} in torch and {', '.join(theirs)} in JAX."
            )
        self.mapping, self.objectives, self.jax_objectives = mapping, ours, theirs
        self.steps: dict[tuple[str, Any], Step] = {}
        for counter in self.counters.values():
            counter.by_hand()

    def iterate(self, step: int) -> Info:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("gradient"):
            learn = {name: partial(self._learn, name) for name in self.optimizers}
            return self.system.learn(self.policy, self.optimizers, batch, learn)

    def _learn(self, name: str, minibatch: Any) -> Info:
        kind = name, jax.tree.structure(minibatch)
        if kind not in self.steps:  # a phase of training with batches of its own has a program of its own
            self.steps[kind] = self._make_step(name)
        _, info = self.steps[kind](minibatch)
        self.counters[name].count += 1
        return info

    def _make_step(self, name: str) -> Step:
        own = self.objectives[name]
        return Step(
            self.policy,
            self.optimizers[name].optimizer,
            self.jax_objectives[name].loss,
            self.mapping,
            torch_loss=own.loss,
            clip_norm=own.clip_norm,
            set_to_none=own.set_to_none,
        )
