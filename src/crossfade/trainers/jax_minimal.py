"""Mode `jax_minimal`: torch samples, JAX learns; parameters are synced back by `bridge.Step`."""

from typing import Any

from ..bridge import Mapping, Step
from ..bridge.schedules import advance
from .torch_loop import TorchTrainer
from .trainer import Snapshot


class JaxMinimalTrainer(TorchTrainer):
    """Vectorised NumPy environment, torch policy; gradient and optimiser in one compiled JAX program."""

    def __init__(self, system: Any, jax_system: Any, snapshot: Snapshot, step: int):
        super().__init__(system, snapshot, step)
        mapping = Mapping.by_name(self.policy, jax_system.make_policy(snapshot.parameters))
        self.step = Step(
            self.policy,
            self.optimizer[0],
            jax_system.loss,
            mapping,
            torch_loss=system.loss,
            clip_norm=system.config.clip_norm,
        )

    def iterate(self, step: int) -> dict[str, Any]:
        with self.clock("sync"):
            self.step.sync()
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("gradient"):
            info = self.system.learn(self.optimizer, batch, lambda minibatch: self.step(minibatch)[1])
        if self.optimizer[1] is not None:
            advance(self.optimizer[1], 1)
        return info

    def snapshot(self) -> Snapshot:
        self.step.sync()
        self.optimizer[0].state_dict()  # asking for it makes the step write the moments it holds into the optimiser
        return super().snapshot()
