"""A continuous GFlowNet as the trainers see it, torch side. Twin: continuous_jax.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.continuous import (
    acting_torch,
    evaluation,
    initial_parameters,
    learner_torch,
    noise_numpy,
    vectorized,
)
from ...algos.gflownet.continuous.batch import Batch, Noise, Trajectories
from ...algos.gflownet.continuous.policy_torch import Choice, Policy
from ...algos.gflownet.evaluation.evaluate import SamplingEffort
from ...algos.gflownet.losses_torch import Terms
from ...envs.dag.continuous_numpy import Moves, State
from ...envs.dag.registry import make
from ...random import random_numpy as random
from ...run.evaluation import Evaluation
from .learning_torch import Learning


class System(Learning):
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        initial_parameters.check(config)
        self.config, self.objective = config, learner_torch.loss
        self.env = make(config.env, "numpy")
        self.key, self.init_key = random.split(random.key(config.seed))

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return initial_parameters.parameters(self.config, self.env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_torch.make_policy(self.config, self.env, parameters)

    def start_buffer(self, saved: dict[str, np.ndarray] | None = None) -> None:
        """Nothing is remembered."""
        return None

    def collect(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """The batch of iteration `step` from a vectorised NumPy environment, in NumPy."""
        return vectorized.to_batch(self.sample(policy, random.fold_in(self.key, step)), self.env), buffer

    def collect_one_by_one(self, policy: Policy, buffer: None, step: int) -> tuple[Batch, None]:
        """The same trajectories from a list of environments, as PyTorch code collects them today."""
        noise = self._noise(random.fold_in(self.key, step), self.config.batch_size)
        trajectories = vectorized.sample_one_by_one(
            self._act(policy.forward_choice, self.config.epsilon), self.env, noise
        )
        return vectorized.to_batch(trajectories, self.env), buffer

    def sample(self, policy: Policy, key: np.ndarray, n: int | None = None, explore: bool = True) -> Trajectories:
        """`n` trajectories drawn with one key, by default `batch_size`; without `explore`, P_F itself."""
        act = self._act(policy.forward_choice, self.config.epsilon if explore else 0.0)
        return vectorized.sample(act, self.env, self._noise(key, self.config.batch_size if n is None else n))

    def sample_back(self, policy: Policy, x: np.ndarray, key: np.ndarray) -> Trajectories:
        """Trajectories that end with the points x, drawn backwards from P_B with one key."""
        return vectorized.sample_back(self._act(policy.backward_choice), self.env, x, self._noise(key, len(x)))

    @torch.no_grad()
    def terms(self, policy: Policy, trajectories: Trajectories) -> Terms:
        """The terms of the losses along trajectories, as NumPy arrays in float64."""
        found = learner_torch.terms(policy, self.tensors(vectorized.to_batch(trajectories, self.env)))
        arrays: Any = ((part.double() if part.is_floating_point() else part).numpy() for part in found)
        return Terms(*arrays)

    def tensors(self, batch: Batch) -> Batch:
        return _tensors(batch)

    def evaluate(self, policy: Policy, effort: SamplingEffort | None = None, buffer: Any = None) -> Evaluation:
        return evaluation.evaluate(self, policy, learner_torch.log_z(policy, self.env, self.config), effort)

    def _noise(self, key: np.ndarray, n: int) -> Noise:
        params, config = self.env.params, self.config
        return noise_numpy.draw(
            key, params.max_steps, n, params.n_dim, config.components, initial_parameters.density(params), config.dtype
        )

    def _act(self, look: Callable[[Tensor], Choice | None], epsilon: float = 0.0) -> vectorized.Act:
        """Acts as one half of a policy says, forward_choice or backward_choice."""
        kind = initial_parameters.density(self.env.params)

        @torch.no_grad()
        def act(state: State, moves: Moves, noise: Noise) -> tuple[np.ndarray, np.ndarray]:
            observation, can_move, can_jump, noise = _tensors(
                (self.env.observe(state), moves.can_move, moves.can_jump, noise)
            )
            ratio, jump = acting_torch.choose(kind, look(observation), can_move, can_jump, noise, epsilon)
            return ratio.numpy(), jump.numpy()

        return act


def _tensors(tree: Any) -> Any:
    """Tuples of NumPy arrays, however deep, as tensors that share their memory."""
    if isinstance(tree, tuple):
        parts = map(_tensors, tree)
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return None if tree is None else torch.from_numpy(tree)
