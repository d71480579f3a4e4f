"""What discrete and continuous GFlowNets share in torch: one loss, one optimiser. Twin: learning_jax.py."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...algos.gflownet import learner_torch, pure_update_torch
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.optimizer import optimizer_record
from ...bridge.optimizers.state_torch import advance
from ...errors import NoCounterpart
from ...optim.state import OptimizerState
from ...trainers.system import Info, Objective, PureState, Scheduled

SOLE = "policy"


class Learning:
    """The learning half of a system; `objective` is its loss."""

    config: GFlowNetConfig
    objective: learner_torch.Objective

    def make_optimizers(self, policy: nn.Module) -> dict[str, Scheduled]:
        return {SOLE: Scheduled(*learner_torch.make_optimizer(self.config, policy))}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}  # pyright: ignore

    def loss(self, policy: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The value to make small on a batch, and what is logged with it."""
        return self.objective(policy, batch, self.config)

    def objectives(self) -> dict[str, Objective]:
        for setting in ("clip_norm", "legacy_double_step"):
            if getattr(self.config, setting):
                raise NoCounterpart(
                    f"{setting}: bridge.Step clips and steps all parameters together, this system only some of them. "
                    f"Leave {setting} off in mode=jax_minimal, or use another mode."
                )
        return {SOLE: Objective(self.loss)}

    def update(self, policy: nn.Module, optimizers: dict[str, Scheduled], batch: Any) -> Info:
        adam, scheduler = optimizers[SOLE]
        return learner_torch.update(policy, adam, scheduler, batch, self.config, self.objective)  # pyright: ignore

    def learn(
        self,
        policy: nn.Module,
        optimizers: dict[str, Scheduled],
        batch: Any,
        steps: dict[str, Callable[[Any], Info]],
    ) -> Info:
        """A batch is learned from once and whole."""
        info = steps[SOLE](batch)
        if (scheduler := optimizers[SOLE].scheduler) is not None:
            advance(scheduler, 1)
        return info

    def pure_update(
        self, policy: nn.Module, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Any], tuple[PureState, Info]]:
        step = compile(pure_update_torch.make_update(policy, self.config, self.objective))

        def update(state: PureState, batch: Any) -> tuple[PureState, Info]:
            params, moments, info = step(state.params, state.moments[SOLE], batch)
            return PureState(params, {SOLE: moments}), info

        return update
