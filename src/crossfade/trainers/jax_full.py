"""Mode `jax_full`: environment, policy, learner and loop in one compiled program per chunk."""

import jax
import numpy as np

from .jax_policy import JaxPolicyTrainer


class JaxFullTrainer(JaxPolicyTrainer):
    """Nothing returns to the host but the metrics."""

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        with self.clock("all"):
            self.policy, self.opt_state, self.buffer, metrics = self.system.train(
                self.policy, self.tx, self.opt_state, self.buffer, step, n
            )
            return jax.device_get(metrics)
