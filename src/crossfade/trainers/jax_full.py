"""Mode `jax_full`: environments, policy, learner and loop in one compiled program per chunk."""

import jax
import numpy as np

from .jax_policy import JaxPolicyTrainer


class JaxFullTrainer(JaxPolicyTrainer):
    """Nothing returns to the host but the metrics."""

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        with self.clock("all"):
            self.policy, self.opt_states, self.buffer, metrics = self.system.train(
                self.policy, self.optimizers, self.opt_states, self.buffer, step, n
            )
            metrics = jax.device_get(metrics)
        self.step = step + n
        return dict(metrics)
