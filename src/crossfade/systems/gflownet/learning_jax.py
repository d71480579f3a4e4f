"""What discrete and continuous GFlowNets share in JAX: one loss, one optimiser. Twin: learning_torch.py."""

from typing import Any

import optax
from jaxtyping import Array, PyTree

from ...algos.gflownet import learner_jax
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.optimizer import optimizer_record
from ...optim.state import OptimizerState
from ...trainers.system import Objective

SOLE = "policy"


class Learning:
    """The learning half of a system; `objective` is its loss."""

    config: GFlowNetConfig
    objective: learner_jax.Objective

    def make_optimizers(self, policy: PyTree) -> dict[str, optax.GradientTransformation]:
        return {SOLE: learner_jax.make_optimizer(self.config, policy)}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}  # pyright: ignore

    def loss(self, policy: PyTree, batch: Any) -> tuple[Array, dict[str, Array]]:
        """The value to make small on a batch, and what is logged with it."""
        return self.objective(policy, batch, self.config)

    def objectives(self) -> dict[str, Objective]:
        return {SOLE: Objective(self.loss)}

    def update(
        self, policy: PyTree, optimizers: dict[str, optax.GradientTransformation], opt_states: PyTree, batch: Any
    ) -> tuple[PyTree, PyTree, dict[str, Array]]:
        policy, opt_state, info = learner_jax.update(
            policy, optimizers[SOLE], opt_states[SOLE], batch, self.config, self.objective
        )
        return policy, {SOLE: opt_state}, info
