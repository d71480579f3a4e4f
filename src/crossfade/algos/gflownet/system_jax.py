"""A GFlowNet as the trainers see it, JAX side. The torch side is system_torch.py."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ...envs.registry import make
from ...random import random_numpy as random
from . import (
    acting_jax,
    evaluation,
    full,
    host,
    init,
    learner_jax,
    losses_jax,
    nodes_numpy,
    noise_jax,
    noise_numpy,
    rollout,
)
from .batch import Batch, Trajectories
from .config import GFlowNetConfig
from .execution import resolve
from .policy_jax import Policy


class System:
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        self.env, self.host_env = make(config.env, "jax"), make(config.env, "numpy")
        self.config = replace(config, execution=resolve(config, self.host_env))
        self.key, self.init_key = random.split(random.key(config.seed))
        self.parents = config.loss == "fm"
        self.table = (
            nodes_numpy.table(self.host_env, self.parents).floats_as(config.dtype)
            if self.config.execution == "table"
            else None
        )
        self._logits = eqx.filter_jit(Policy.forward_logits)
        self._choose = jax.jit(acting_jax.choose)
        self._log_pf = eqx.filter_jit(lambda policy: learner_jax.log_pf_table(policy, self.env))

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return init.parameters(self.config, self.host_env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_jax.make_policy(self.config, self.env, parameters)

    def make_optimizer(self, policy: Policy) -> optax.GradientTransformation:
        return learner_jax.make_optimizer(self.config, policy)

    def loss(self, policy: Policy, batch: Batch) -> tuple[Array, dict[str, Array]]:
        return losses_jax.loss(policy, batch, self.config)

    def start_buffer(self, saved: dict[str, np.ndarray] | None = None) -> None:
        """Nothing is remembered."""
        return None

    def collect(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """Trajectories of iteration `step` from a vectorised NumPy environment, in NumPy."""
        trajectories = host.sample(self._chooser(policy), self.host_env, self._noise(step))
        batch = host.to_batch(trajectories, self.host_env, self.config.execution, self.table, self.parents)
        return batch.floats_as(self.config.dtype), buffer

    def sample(self, policy: Policy, key: Array) -> Trajectories:
        """Trajectories drawn with one key, environment and all in JAX."""
        env, config = self.env, self.config
        noise = noise_jax.draw(key, env.max_steps, config.batch_size, env.n_actions, str(policy.log_z.dtype))
        return rollout.sample(policy, env, noise, config.epsilon, config.temperature)

    def update(
        self, policy: Policy, tx: optax.GradientTransformation, opt_state: PyTree, batch: Batch
    ) -> tuple[Policy, PyTree, dict[str, Array]]:
        return learner_jax.update(policy, tx, opt_state, batch, self.config)

    def train(
        self, policy: Policy, tx: optax.GradientTransformation, opt_state: PyTree, buffer: None, step: int, n: int
    ) -> tuple[Policy, PyTree, None, dict[str, Array]]:
        """`n` iterations from `step` in one compiled program; the memory of policy and state is given away."""
        key = jax.random.wrap_key_data(jax.numpy.asarray(self.key))
        policy, opt_state, metrics = full.train(policy, tx, opt_state, self.env, key, step, n, self.config)
        return policy, opt_state, buffer, metrics

    def evaluate(self, policy: Policy, effort: evaluation.Effort | None = None) -> evaluation.Evaluation:
        log_pf = lambda: np.asarray(self._log_pf(policy))
        log_z = learner_jax.log_z(policy, self.env, self.config)
        return evaluation.evaluate(self, policy, log_pf, log_z, effort)

    def _noise(self, step: int) -> Any:
        env, key = self.host_env, random.fold_in(self.key, step)
        return noise_numpy.draw(key, env.max_steps, self.config.batch_size, env.n_actions, self.config.dtype)

    def _chooser(self, policy: Policy) -> Any:
        """Acts by the table where there is one: then the network has been evaluated once, not once per step."""
        table = None if self.table is None else np.asarray(self._logits(policy, self._floats(self.table.observation)))

        def choose(state: Any, gumbel: np.ndarray, explore: np.ndarray) -> np.ndarray:
            if table is not None:
                logits = table[self.host_env.index(state)]
            else:
                logits = self._logits(policy, self._floats(self.host_env.observe(state)))
            mask = self.host_env.forward_mask(state)
            acting = self.config.epsilon, self.config.temperature
            return np.asarray(self._choose(logits, mask, gumbel, explore, *acting))

        return choose

    def _floats(self, array: np.ndarray) -> Any:
        return array.astype(self.config.dtype)
