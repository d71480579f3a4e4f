"""A continuous GFlowNet as the trainers see it, JAX side. Twin: continuous_torch.py."""

from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.continuous import (
    acting_jax,
    evaluation,
    initial_parameters,
    learner_jax,
    noise_jax,
    noise_numpy,
    rollout_jax,
    training_jax,
    vectorized,
)
from ...algos.gflownet.continuous.batch import Batch, Noise, Trajectories
from ...algos.gflownet.continuous.policy_jax import Policy
from ...algos.gflownet.evaluation.evaluate import SamplingEffort
from ...algos.gflownet.losses_jax import Terms
from ...envs.dag.continuous_numpy import Moves, State
from ...envs.dag.registry import make
from ...optim import sharing_jax
from ...random import random_numpy as random
from ...run.evaluation import Evaluation
from .devices import check_devices
from .learning_jax import SOLE, Learning


class System(Learning):
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        initial_parameters.check(config)
        check_devices(config)
        sharing_jax.mesh(config.devices)  # raises if the process has fewer
        self.config, self.objective = config, learner_jax.loss
        self.env, self.host_env = make(config.env, "jax"), make(config.env, "numpy")
        self.key, self.init_key = random.split(random.key(config.seed))
        self._choose = jax.jit(self._choose_eagerly)
        self._sample = jax.jit(self._sample_eagerly, static_argnames="n")
        self._sample_back = jax.jit(self._sample_back_eagerly)
        self._terms = jax.jit(lambda policy, found: learner_jax.terms(policy, rollout_jax.to_batch(found, self.env)))

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return initial_parameters.parameters(self.config, self.host_env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_jax.make_policy(self.config, self.env, parameters)

    def start_buffer(self, saved: dict[str, np.ndarray] | None = None) -> None:
        """Nothing is remembered."""
        return None

    def collect(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """The batch of iteration `step` from a vectorised NumPy environment, in NumPy."""
        config, key = self.config, random.fold_in(self.key, step)

        def act(state: State, moves: Moves, noise: Noise) -> tuple[np.ndarray, np.ndarray]:
            ratio, jump = self._choose(policy, self.host_env.observe(state), moves.can_move, moves.can_jump, noise)
            return np.asarray(ratio), np.asarray(jump)

        noise = noise_numpy.draw(key, *self._sizes(policy, config.batch_size), policy.kind, config.dtype)
        return vectorized.to_batch(vectorized.sample(act, self.host_env, noise), self.host_env), buffer

    def sample(self, policy: Policy, key: np.ndarray, n: int | None = None, explore: bool = True) -> Trajectories:
        """`n` trajectories drawn with one key, by default `batch_size`; without `explore`, P_F itself."""
        epsilon = self.config.epsilon if explore else 0.0
        return self._sample(policy, key, self.config.batch_size if n is None else n, epsilon)

    def sample_back(self, policy: Policy, x: np.ndarray, key: np.ndarray) -> Trajectories:
        """Trajectories that end with the points x, drawn backwards from P_B with one key."""
        return self._sample_back(policy, x.astype(self.config.dtype), key)

    def terms(self, policy: Policy, trajectories: Trajectories) -> Terms:
        """The terms of the losses along trajectories, as NumPy arrays in float64."""
        found = jax.device_get(self._terms(policy, trajectories))
        return jax.tree.map(lambda array: array if array.dtype == bool else array.astype(np.float64), found)

    def train(
        self,
        policy: Policy,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: None,
        step: int,
        n: int,
    ) -> tuple[Policy, dict[str, PyTree], None, dict[str, Array]]:
        """`n` iterations from `step` in one compiled program; the memory of policy and state is given away."""
        key = jax.random.wrap_key_data(jax.numpy.asarray(self.key))
        tx = optimizers[SOLE]
        policy, opt_state = sharing_jax.place((policy, opt_states[SOLE]), self.config.devices)
        policy, opt_state, metrics = training_jax.train(policy, tx, opt_state, self.env, key, step, n, self.config)
        return policy, {SOLE: opt_state}, buffer, metrics

    def evaluate(self, policy: Policy, effort: SamplingEffort | None = None, buffer: Any = None) -> Evaluation:
        policy = sharing_jax.on_first_device(policy, self.config.devices)
        return evaluation.evaluate(self, policy, learner_jax.log_z(policy, self.env, self.config), effort)

    def _sizes(self, policy: Policy, n: int) -> tuple[int, int, int, int]:
        return self.config.env.max_steps, n, policy.n_dim, policy.components

    def _draw(self, policy: Policy, key: Array, n: int) -> Noise:
        return noise_jax.draw(jax.random.wrap_key_data(key), *self._sizes(policy, n), policy.kind, self.config.dtype)

    def _choose_eagerly(
        self, policy: Policy, observation: Array, can_move: Array, can_jump: Array, noise: Noise
    ) -> Any:
        choice = policy.forward_choice(observation)
        return acting_jax.choose(policy.kind, choice, can_move, can_jump, noise, self.config.epsilon)

    def _sample_eagerly(self, policy: Policy, key: Array, n: int, epsilon: Array) -> Trajectories:
        return rollout_jax.sample(policy, self.env, self._draw(policy, key, n), epsilon)

    def _sample_back_eagerly(self, policy: Policy, x: Array, key: Array) -> Trajectories:
        return rollout_jax.sample_back(policy, self.env, x, self._draw(policy, key, len(x)))
