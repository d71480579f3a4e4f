"""A GFlowNet over discrete objects as the trainers see it, JAX side. Twin: discrete_torch.py."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PyTree

from ...algos.gflownet import initial_parameters, learner_jax, losses_jax, training_jax
from ...algos.gflownet.batch import Batch, Trajectories
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.evaluation import evaluate
from ...algos.gflownet.evaluation.evaluate import SamplingEffort
from ...algos.gflownet.policy_jax import Policy
from ...algos.gflownet.sampling import (
    acting_jax,
    dataset,
    nodes_jax,
    nodes_numpy,
    noise_jax,
    noise_numpy,
    parents_numpy,
    replay_jax,
    replay_numpy,
    rollout_jax,
    vectorized,
)
from ...algos.gflownet.sampling.execution import resolve
from ...algos.gflownet.sampling.path_counts import log_path_table
from ...envs.dag.registry import make
from ...optim import sharing_jax
from ...random import random_numpy as random, streams_jax
from ...run.evaluation import Evaluation
from .devices import check_devices
from .learning_jax import SOLE, Learning
from .saved_buffer import check_saved


class System(Learning):
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        check_devices(config)
        sharing_jax.mesh(config.devices)  # raises if the process has fewer
        self.env, self.host_env = make(config.env, "jax"), make(config.env, "numpy")
        self.exact = config.objective == "expected"
        self.objective = training_jax.expected(config) if self.exact else losses_jax.loss
        asked = replace(config, execution="table") if self.exact else config
        self.config = replace(config, execution=resolve(asked, self.host_env))
        self.key, self.init_key = random.split(random.key(config.seed))
        self.parents = config.loss == "fm"
        self.data = None if config.data is None else dataset.load(config.data, self.host_env)
        self.path_table = log_path_table(self.host_env) if config.backward == "maxent" else None
        self.log_paths = (
            parents_numpy.log_path_function(self.host_env, self.path_table) if config.backward == "maxent" else None
        )
        self.table: Any = (
            nodes_numpy.table(self.host_env, self.parents, self.log_paths).floats_as(config.dtype)
            if self.config.execution == "table"
            else None
        )
        self._logits = eqx.filter_jit(Policy.forward_logits)
        self._choose = jax.jit(acting_jax.choose)
        self._log_pb = eqx.filter_jit(Policy.log_pb)
        self._choose_back = jax.jit(rollout_jax.choose_back)
        self._log_pf = eqx.filter_jit(lambda policy: learner_jax.log_pf_table(policy, self.env))
        self._sample = eqx.filter_jit(self._sample_eagerly)
        self._sample_back = eqx.filter_jit(self._sample_back_eagerly)
        self._terms = eqx.filter_jit(self._terms_eagerly)

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return initial_parameters.parameters(self.config, self.host_env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_jax.make_policy(self.config, self.env, parameters)

    def start_buffer(
        self, saved: dict[str, np.ndarray] | None = None
    ) -> replay_jax.Replay | replay_numpy.Replay | None:
        """The best objects found so far: none, or those of a checkpoint. None where the config replays nothing."""
        config, compiled = self.config, self.config.mode == "jax_full"  # else it lives on the host
        if config.replay_batch == 0:
            return None
        module: Any = replay_jax if compiled else replay_numpy
        fresh = module.start(self.env if compiled else self.host_env, config.replay_capacity, config.dtype)
        if saved is None:
            return fresh
        check_saved(fresh._asdict(), saved)
        return module.Replay(**{name: (jnp.array if compiled else np.array)(saved[name]) for name in fresh._fields})

    @cached_property
    def constants(self) -> training_jax.Constants:
        """Data and numbers of trajectories, on the device of the compiled program."""
        table = None if self.path_table is None else jnp.asarray(self._floats(self.path_table))
        return training_jax.Constants(None if self.data is None else jnp.asarray(self.data), table)

    def collect(
        self, policy: Policy, buffer: replay_numpy.Replay | None, step: int
    ) -> tuple[Batch, replay_numpy.Replay | None]:
        """The batch of iteration `step` from a vectorised NumPy environment, in NumPy."""
        if self.exact:
            return self.table, buffer
        env, config, key = self.host_env, self.config, random.fold_in(self.key, step)
        noise = noise_numpy.draw(key, env.max_steps, config.batch_size, env.n_actions, config.dtype)
        trajectories = vectorized.sample(self._forward_chooser(policy), env, noise)
        if buffer is not None or self.data is not None:
            undo = self._backward_chooser(policy)
            trajectories, buffer = vectorized.mix(undo, env, trajectories, buffer, self.data, key, config, config.dtype)
        batch = vectorized.to_batch(trajectories, env, config.execution, self.table, self.parents, self.log_paths)
        return batch.floats_as(config.dtype), buffer

    def train(
        self,
        policy: Policy,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: replay_jax.Replay | None,
        step: int,
        n: int,
    ) -> tuple[Policy, dict[str, PyTree], replay_jax.Replay | None, dict[str, Array]]:
        """`n` iterations from `step` in one compiled program; the memory of what goes in is given away."""
        tx, key = optimizers[SOLE], _key(self.key)
        policy, opt_state, buffer = sharing_jax.place((policy, opt_states[SOLE], buffer), self.config.devices)
        policy, opt_state, buffer, metrics = training_jax.train(
            policy, tx, opt_state, buffer, self.env, key, step, n, self.config, self.constants
        )
        return policy, {SOLE: opt_state}, buffer, metrics

    def evaluate(self, policy: Policy, effort: SamplingEffort | None = None, buffer: Any = None) -> Evaluation:
        policy = sharing_jax.on_first_device(policy, self.config.devices)
        log_pf = lambda: np.asarray(self._log_pf(policy))
        log_z = learner_jax.log_z(policy, self.env, self.config)
        return evaluate.evaluate(self, policy, log_pf, log_z, effort)

    def sample(self, policy: Policy, key: Any, n: int | None = None, explore: bool = True) -> Trajectories:
        """`n` trajectories drawn with one key, by default `batch_size`; without `explore`, those of P_F itself."""
        return self._sample(policy, _key(key), self.config.batch_size if n is None else n, explore)

    def sample_back(self, policy: Policy, x: Int[Any, "n d"], key: Any) -> Trajectories:
        """Trajectories that end with the objects x, drawn backwards from P_B with one key."""
        return self._sample_back(policy, jnp.asarray(x), _key(key), self.constants)

    def terms(self, policy: Policy, trajectories: Trajectories) -> losses_jax.Terms:
        """The terms of the losses along trajectories, as NumPy arrays in float64."""
        found = jax.device_get(self._terms(policy, jax.tree.map(jnp.asarray, trajectories), self.constants))
        return jax.tree.map(lambda array: array if array.dtype == bool else array.astype(np.float64), found)

    def _sample_eagerly(self, policy: Policy, key: Array, n: int, explore: bool) -> Trajectories:
        env, config = self.env, self.config
        noise = noise_jax.draw(key, env.max_steps, n, env.n_actions, str(policy.log_z.dtype))
        return rollout_jax.sample(
            policy, env, noise, *((config.epsilon, config.temperature) if explore else (0.0, 1.0))
        )

    def _sample_back_eagerly(
        self, policy: Policy, x: Array, key: Array, constants: training_jax.Constants
    ) -> Trajectories:
        shape = self.env.max_steps, len(x), self.env.n_parents
        gumbel = streams_jax.gumbel(key, shape, str(policy.log_z.dtype))
        return rollout_jax.sample_back(
            policy, self.env, x, gumbel, training_jax.log_paths(self.env, self.config, constants)
        )

    def _terms_eagerly(
        self, policy: Policy, trajectories: Trajectories, constants: training_jax.Constants
    ) -> losses_jax.Terms:
        batch = nodes_jax.dense(
            trajectories, self.env, log_paths=training_jax.log_paths(self.env, self.config, constants)
        )
        output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
        return losses_jax.terms(output, batch)

    def _forward_chooser(self, policy: Policy) -> Any:
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

    def _backward_chooser(self, policy: Policy) -> Any:
        """The same for the way back."""

        def log_pb(state: Any) -> np.ndarray:
            if self.log_paths is not None:
                return self._floats(parents_numpy.max_entropy(self.host_env, state.x, self.log_paths))
            observation, mask = self.host_env.observe(state), self.host_env.backward_mask(state)
            return np.asarray(self._log_pb(policy, self._floats(observation), mask))

        table = None if self.table is None else log_pb(self.host_env.state(np.arange(self.host_env.n_states)))

        def undo(state: Any, gumbel: np.ndarray) -> np.ndarray:
            found = log_pb(state) if table is None else table[self.host_env.index(state)]
            return np.asarray(self._choose_back(found, self.host_env.backward_mask(state), gumbel))

        return undo

    def _floats(self, array: np.ndarray) -> Any:
        return array.astype(self.config.dtype)


def _key(key: Any) -> Array:
    """A key of JAX's, also from the words of one."""
    key = jnp.asarray(key)
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
