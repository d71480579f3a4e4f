"""A GFlowNet over discrete objects as the trainers see it, torch side. Twin: discrete_jax.py."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...algos.gflownet import (
    expected_loss_torch,
    initial_parameters,
    learner_torch,
    losses_torch,
)
from ...algos.gflownet.batch import MASKED, Batch, Trajectories
from ...algos.gflownet.batch_torch import to_tensors
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.evaluation import evaluate
from ...algos.gflownet.evaluation.evaluate import SamplingEffort
from ...algos.gflownet.policy_torch import Policy
from ...algos.gflownet.sampling import (
    acting_torch,
    dataset,
    nodes_numpy,
    noise_numpy,
    one_by_one,
    parents_numpy,
    replay_numpy,
    vectorized,
)
from ...algos.gflownet.sampling.execution import resolve
from ...algos.gflownet.sampling.path_counts import log_path_table
from ...algos.gflownet.sampling.replay_numpy import Replay
from ...envs.dag.base_numpy import State
from ...envs.dag.ground_truth import graph_of
from ...envs.dag.registry import make
from ...errors import UsageError
from ...random import random_numpy as random
from ...run.evaluation import Evaluation
from .learning_torch import Learning
from .saved_buffer import check_saved


class System(Learning):
    """What one run needs of the algorithm: parameters, a policy, batches, updates, an evaluation."""

    def __init__(self, config: GFlowNetConfig):
        self.config = config
        self.env = make(config.env, "numpy")
        self.key, self.init_key = random.split(random.key(config.seed))
        self.exact = config.objective == "expected"
        self.objective = _expected(config) if self.exact else losses_torch.loss
        self.execution = resolve(replace(config, execution="table") if self.exact else config, self.env)
        self.parents = config.loss == "fm"
        self.log_paths = (
            parents_numpy.log_path_function(self.env, log_path_table(self.env)) if config.backward == "maxent" else None
        )
        self.objects = None if config.data is None else dataset.load(config.data, self.env)
        self.table: Any = None
        if self.execution == "table":
            self.table = nodes_numpy.table(self.env, self.parents, self.log_paths).floats_as(config.dtype)

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        return initial_parameters.parameters(self.config, self.env, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return learner_torch.make_policy(self.config, self.env, parameters)

    def start_buffer(self, saved: dict[str, np.ndarray] | None = None) -> Replay | None:
        """The best objects found so far: none, or those of a checkpoint. None where the config replays nothing."""
        if self.config.replay_batch == 0:
            return None
        empty = replay_numpy.start(self.env, self.config.replay_capacity, self.config.dtype)
        if saved is None:
            return empty
        check_saved(empty._asdict(), saved)
        return Replay(**saved)

    def collect(self, policy: Policy, buffer: Replay | None, step: int) -> tuple[Batch, Replay | None]:
        """The batch of iteration `step` from a vectorised NumPy environment, in NumPy."""
        if self.exact:
            return self.table, buffer
        key = random.fold_in(self.key, step)
        trajectories, buffer = self._mix(
            self.sample(policy, key), buffer, key, self._backward_chooser(policy, self.table), policy
        )
        return self._to_batch(trajectories).floats_as(self.config.dtype), buffer

    def collect_one_by_one(self, policy: Policy, buffer: Replay | None, step: int) -> tuple[Batch, Replay | None]:
        """The same trajectories from a list of environment objects, as PyTorch code collects them today."""
        if self.exact:
            return self.table, buffer
        key = random.fold_in(self.key, step)
        forward = one_by_one.sample(self._act(policy), self.env, self._noise(key, policy))
        trajectories, buffer = self._mix(forward, buffer, key, self._backward_chooser(policy, None), policy)
        trajectories = vectorized.without_padding(trajectories)
        batch = nodes_numpy.dense(trajectories, self.env, self.parents, self.log_paths)
        return batch.floats_as(self.config.dtype), buffer

    def sample(self, policy: Policy, key: np.ndarray, n: int | None = None, explore: bool = True) -> Trajectories:
        """`n` trajectories drawn with one key, by default `batch_size`; without `explore`, those of P_F itself."""
        choose = self._act(policy, explore) if self.table is None else self._look_up(policy, self.table, explore)
        return vectorized.sample(choose, self.env, self._noise(key, policy, n))

    def sample_back(self, policy: Policy, x: np.ndarray, key: np.ndarray) -> Trajectories:
        """Trajectories that end with the objects x, drawn backwards from P_B with one key."""
        gumbel = random.gumbel(key, (self.env.max_steps, len(x), self.env.n_parents), _dtype(policy))
        return vectorized.sample_back(self._backward_chooser(policy, self.table), self.env, x, gumbel)

    @torch.no_grad()
    def terms(self, policy: Policy, trajectories: Trajectories) -> losses_torch.Terms:
        """The terms of the losses along trajectories, as NumPy arrays in float64."""
        batch = to_tensors(self._to_batch(trajectories), policy.log_z.dtype)
        output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
        found = losses_torch.terms(output, batch)
        arrays: Any = (t.double().numpy() if t.is_floating_point() else t.numpy() for t in found)
        return losses_torch.Terms(*arrays)

    def tensors(self, batch: Batch) -> Batch:
        return to_tensors(batch, getattr(torch, self.config.dtype))

    def evaluate(self, policy: Policy, effort: SamplingEffort | None = None, buffer: Any = None) -> Evaluation:
        log_pf = lambda: learner_torch.log_pf_table(policy, self.env)
        log_z = learner_torch.log_z(policy, self.env, self.config)
        return evaluate.evaluate(self, policy, log_pf, log_z, effort)

    def _noise(self, key: np.ndarray, policy: Policy, n: int | None = None) -> Any:
        rows = self.config.batch_size if n is None else n
        return noise_numpy.draw(key, self.env.max_steps, rows, self.env.n_actions, _dtype(policy))

    def _mix(
        self, forward: Trajectories, buffer: Replay | None, key: np.ndarray, undo: vectorized.Undo, policy: Policy
    ) -> tuple[Trajectories, Replay | None]:
        return vectorized.mix(undo, self.env, forward, buffer, self.objects, key, self.config, _dtype(policy))

    def _to_batch(self, trajectories: Trajectories) -> Batch:
        return vectorized.to_batch(trajectories, self.env, self.execution, self.table, self.parents, self.log_paths)

    def _look_up(self, policy: Policy, table: Batch, explore: bool) -> vectorized.Act:
        with torch.no_grad():
            logits = policy.forward_logits(torch.from_numpy(table.observation).to(policy.log_z.dtype))

        def choose(state: State, gumbel: np.ndarray, coin: np.ndarray) -> np.ndarray:
            index = torch.from_numpy(np.asarray(self.env.index(state)))
            return self._choose(logits[index], state, gumbel, coin, explore)

        return choose

    def _act(self, policy: Policy, explore: bool = True) -> vectorized.Act:
        @torch.no_grad()
        def choose(state: State, gumbel: np.ndarray, coin: np.ndarray) -> np.ndarray:
            logits = policy.forward_logits(torch.from_numpy(self.env.observe(state)).to(policy.log_z.dtype))
            return self._choose(logits, state, gumbel, coin, explore)

        return choose

    def _choose(self, logits: Tensor, state: State, gumbel: np.ndarray, coin: np.ndarray, explore: bool) -> np.ndarray:
        mask, noise, uniform = (torch.from_numpy(array) for array in (self.env.forward_mask(state), gumbel, coin))
        epsilon, temperature = (self.config.epsilon, self.config.temperature) if explore else (0.0, 1.0)
        return acting_torch.choose(logits, mask, noise, uniform, epsilon, temperature).numpy()

    def _backward_chooser(self, policy: Policy, table: Batch | None) -> vectorized.Undo:
        """Draws backward actions from P_B; with a `table` of all states, from one evaluation of the network."""

        def log_pb(observation: np.ndarray, mask: np.ndarray, given: np.ndarray | None) -> Tensor:
            if given is not None:
                return torch.from_numpy(given).to(policy.log_z.dtype)
            return policy.log_pb(torch.from_numpy(observation).to(policy.log_z.dtype), torch.from_numpy(mask))

        rows: Tensor | None = None  # not before it is asked for: most runs build nothing backwards

        @torch.no_grad()
        def undo(state: State, gumbel: np.ndarray) -> np.ndarray:
            nonlocal rows
            mask = self.env.backward_mask(state)
            if table is None:
                given = self.log_paths and parents_numpy.max_entropy(self.env, state.x, self.log_paths)
                here = log_pb(self.env.observe(state), mask, given)
            else:
                if rows is None:
                    rows = log_pb(table.observation, table.backward_mask, table.log_pb)
                here = rows[torch.from_numpy(np.asarray(self.env.index(state)))]
            masked = here.masked_fill(~torch.from_numpy(mask), MASKED)
            return (masked + torch.from_numpy(gumbel)).argmax(-1).numpy()

        return undo


def _expected(config: GFlowNetConfig) -> learner_torch.Objective:
    """The expectation of the config's loss over all trajectories, as an objective on the table of all states."""
    graph = graph_of(config.env)
    if graph is None:
        raise UsageError(
            f"objective=expected: expected an environment with few enough states to visit them all, got {config.env}. "
            f"Use a smaller one, or objective=sampled."
        )
    return lambda policy, nodes, config: expected_loss_torch.loss(policy, nodes, graph, config)


def _dtype(policy: Policy) -> str:
    return str(policy.log_z.dtype).removeprefix("torch.")
