"""A GFlowNet as the trainers see it, torch side. The JAX side is system_jax.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...envs.base_numpy import State
from ...envs.registry import make
from ...random import random_numpy as random
from . import acting_torch, evaluation, host, init, learner_torch, losses_torch, nodes_numpy, noise_numpy, objects, pure
from .batch import Batch, Trajectories
from .config import GFlowNetConfig
from .execution import resolve
from .policy_torch import Policy
from .tensors import to_tensors


class System:
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        self.config = config
        self.env = make(config.env, "numpy")
        self.key, self.init_key = random.split(random.key(config.seed))
        self.execution = resolve(config, self.env)
        self.parents = config.loss == "fm"
        self.table = None
        if self.execution == "table":
            self.table = nodes_numpy.table(self.env, self.parents).floats_as(config.dtype)

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return init.parameters(self.config, self.env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_torch.make_policy(self.config, self.env, parameters)

    def make_optimizer(self, policy: Policy) -> Any:
        return learner_torch.make_optimizer(self.config, policy)

    def start_buffer(self, saved: dict[str, np.ndarray] | None = None) -> None:
        """Nothing is remembered."""
        return None

    def collect(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """Trajectories of iteration `step` from a vectorised NumPy environment, in NumPy."""
        trajectories = self.sample(policy, random.fold_in(self.key, step))
        batch = host.to_batch(trajectories, self.env, self.execution, self.table, self.parents)
        return batch.floats_as(self.config.dtype), buffer

    def collect_one_by_one(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """The same trajectories from a list of environment objects, as PyTorch code collects them today."""
        noise = self._noise(random.fold_in(self.key, step), policy)
        trajectories = objects.sample(self._act(policy), self.env, noise)
        return nodes_numpy.dense(trajectories, self.env, self.parents).floats_as(self.config.dtype), buffer

    def sample(self, policy: Policy, key: np.ndarray) -> Trajectories:
        """Trajectories drawn with one key. Where there is a table the network is evaluated once, not once per step."""
        choose = self._act(policy) if self.table is None else self._look_up(policy, self.table)
        return host.sample(choose, self.env, self._noise(key, policy))

    def tensors(self, batch: Batch) -> Batch:
        return to_tensors(batch, getattr(torch, self.config.dtype))

    def loss(self, policy: Policy, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return losses_torch.loss(policy, batch, self.config)

    def update(self, policy: Policy, optimizer: Any, batch: Batch) -> dict[str, Tensor]:
        adam, scheduler = optimizer
        return learner_torch.update(policy, adam, scheduler, batch, self.config)

    def pure_init(self, policy: Policy, optimizer: Any) -> pure.State:
        return pure.init(policy, optimizer)

    def pure_update(self, policy: Policy) -> Any:
        return pure.make_update(policy, self.config)

    def evaluate(self, policy: Policy) -> evaluation.Evaluation:
        log_pf = lambda: learner_torch.log_pf_table(policy, self.env)
        log_z = learner_torch.log_z(policy, self.env, self.config)
        return evaluation.evaluate(self.config.env, log_pf, log_z)

    def _noise(self, key: np.ndarray, policy: Policy) -> Any:
        dtype = str(policy.log_z.dtype).removeprefix("torch.")
        return noise_numpy.draw(key, self.env.max_steps, self.config.batch_size, self.env.n_actions, dtype)

    def _look_up(self, policy: Policy, table: Batch) -> Callable[[State, np.ndarray, np.ndarray], np.ndarray]:
        with torch.no_grad():
            logits = policy.forward_logits(torch.from_numpy(table.observation).to(policy.log_z.dtype))

        def choose(state: State, gumbel: np.ndarray, explore: np.ndarray) -> np.ndarray:
            index = torch.from_numpy(np.asarray(self.env.index(state)))
            return self._choose(logits[index], state, gumbel, explore)

        return choose

    def _act(self, policy: Policy) -> Callable[[State, np.ndarray, np.ndarray], np.ndarray]:
        @torch.no_grad()
        def choose(state: State, gumbel: np.ndarray, explore: np.ndarray) -> np.ndarray:
            logits = policy.forward_logits(torch.from_numpy(self.env.observe(state)).to(policy.log_z.dtype))
            return self._choose(logits, state, gumbel, explore)

        return choose

    def _choose(self, logits: Tensor, state: State, gumbel: np.ndarray, explore: np.ndarray) -> np.ndarray:
        mask, noise, coin = (torch.from_numpy(array) for array in (self.env.forward_mask(state), gumbel, explore))
        return acting_torch.choose(logits, mask, noise, coin, self.config.epsilon, self.config.temperature).numpy()
