"""Mode `jax_minimal`: torch samples, JAX learns; parameters are synced back by `bridge.Step`."""

from typing import Any

from ..bridge import Mapping, Step
from ..bridge.schedules import advance
from ..errors import NoCounterpart
from .torch_loop import TorchTrainer
from .trainer import Snapshot


class JaxMinimalTrainer(TorchTrainer):
    """Vectorised NumPy environment, torch policy; gradient and optimiser in one compiled JAX program."""

    def __init__(self, system: Any, jax_system: Any, snapshot: Snapshot, step: int):
        super().__init__(system, snapshot, step)
        if system.config.clip_norm is not None:
            raise NoCounterpart(
                "clip_norm: bridge.Step clips all parameters together, this system only some of them. Leave clip_norm "
                "at none in mode=jax_minimal, or use another mode."
            )
        mapping = Mapping.by_name(self.policy, jax_system.make_policy(snapshot.parameters))
        self.step = Step(self.policy, self.optimizer[0], jax_system.loss, mapping, torch_loss=system.loss)

    def iterate(self, step: int) -> dict[str, Any]:
        with self.clock("sync"):
            self.step.sync()
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("gradient"):
            _, info = self.step(batch)
        advance(self.optimizer[1], 1)
        return info

    def snapshot(self) -> Snapshot:
        self.step.sync()
        self.optimizer[0].state_dict()  # asking for it makes the step write the moments it holds into the optimiser
        return super().snapshot()
