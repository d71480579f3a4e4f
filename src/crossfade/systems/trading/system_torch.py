"""Trading with PPO as the trainers see it, torch side. The JAX side is system_jax.py."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...algos.ppo import init, learner_torch, losses_torch, pure_torch as pure, rollout_numpy as host
from ...algos.ppo.batch import Carry, Minibatch, Rollout
from ...algos.ppo.network_torch import ActorCritic
from ...algos.ppo.optimizer import optimizer_record
from ...nn.categorical_torch import ILLEGAL, choose, log_prob_of, log_probs
from ...optim.state import OptimizerState
from ...random import random_numpy as random
from ...trainers.system import Info, Objective, PureState, Scheduled
from . import data, evaluation, world
from .accounts import OneByOne, Together
from .config import TradingConfig
from .judging.stage import StudyEffort

SOLE = "policy"


class Batch(NamedTuple):
    """An update's data as tensors."""

    steps: Minibatch  # all of them, in order of time
    order: Tensor
    learning_rate: float
    info: dict[str, float]

    def rows(self, index: Tensor) -> Minibatch:
        return Minibatch(*(field[index] for field in self.steps))


class System:
    """What one run needs of the algorithm: parameters, a policy, rollouts, updates, an evaluation."""

    def __init__(self, config: TradingConfig):
        self.config, self.params = config, config.params
        self.market = data.market(config)
        self.key, self.init_key, _ = world.keys(config)

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        p = self.params
        return init.parameters(self.config, p.observation_dim, p.n_actions, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        return learner_torch.make_policy(self.config, self.params.observation_dim, self.params.n_actions, parameters)

    def make_optimizers(self, policy: ActorCritic) -> dict[str, Scheduled]:
        """Adam without a scheduler: `learn` sets its rate for every update."""
        return {SOLE: Scheduled(learner_torch.make_optimizer(self.config, policy))}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Accounts, statistics of observations and episodes under way: at the start, or as a checkpoint holds them."""
        return world.start(self.config, self.market, saved)

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[host.Collected, Carry]:
        """The rollout of update `step` from vectorised accounts, in NumPy."""
        return self._collect(Together, policy, buffer, step)

    def collect_one_by_one(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[host.Collected, Carry]:
        """The same from a list of accounts that are stepped one after the other."""
        return self._collect(OneByOne, policy, buffer, step)

    def tensors(self, batch: host.Collected) -> Batch:
        """With the advantages; one row for each step of each account."""
        dtype = getattr(torch, self.config.dtype)
        rollout = Rollout(None, *map(torch.from_numpy, batch.rollout[1:]))
        advantage = learner_torch.advantages(rollout, self.config)
        observation, mask = (torch.from_numpy(array).flatten(0, 1) for array in batch.rollout.state)
        returns = rollout.value + advantage
        flat = (x.flatten() for x in (rollout.action, rollout.log_prob, rollout.value, returns, advantage))
        steps = Minibatch(observation.to(dtype), mask, *flat)
        return Batch(steps, torch.from_numpy(batch.order), batch.learning_rate, batch.info)

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return losses_torch.loss(policy, batch, self.config)

    def objectives(self) -> dict[str, Objective]:
        return {SOLE: Objective(self.loss, self.config.clip_norm)}

    def learn(
        self,
        policy: ActorCritic,
        optimizers: dict[str, Scheduled],
        batch: host.Collected,
        steps: dict[str, Callable[[Minibatch], Info]],
    ) -> Info:
        """One update by steps that learn from one minibatch each."""
        return self._learn(optimizers, self.tensors(batch), steps[SOLE])

    def update(self, policy: ActorCritic, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        adam: Any = optimizers[SOLE].optimizer
        return self._learn(optimizers, batch, lambda rows: learner_torch.update(policy, adam, rows, self.config))

    def pure_update(
        self, policy: ActorCritic, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step per minibatch."""
        step = compile(pure.make_update(policy, self.config))

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            rate = torch.tensor(batch.learning_rate, dtype=torch.float64)
            params, moments = state.params, state.moments[SOLE]

            def once(rows: Minibatch) -> dict[str, Tensor]:
                nonlocal params, moments
                params, moments, info = step(params, moments, rows, rate)
                return info

            info = learner_torch.update_epochs(once, batch.rows, batch.order, self.config)
            return PureState(params, {SOLE: moments}), {**info, **batch.info}

        return update

    def evaluate(
        self, policy: ActorCritic, effort: StudyEffort | None = None, buffer: Carry | None = None
    ) -> evaluation.TradingEvaluation:
        """The greedy policy on the days held out; with an effort, all that evaluation.py can say of it."""
        return evaluation.evaluate(self.config, self.trader(policy, (buffer or self.start_buffer()).statistics), effort)

    def trader(self, policy: ActorCritic, statistics: Any) -> evaluation.Trader:
        """The greedy policy at work."""

        @torch.no_grad()
        def act(observation: np.ndarray, mask: np.ndarray) -> np.ndarray:
            logits, _ = policy(torch.from_numpy(observation))
            return logits.masked_fill(~torch.from_numpy(mask), ILLEGAL).argmax(-1).numpy()

        return evaluation.greedy(self.config, act, statistics)

    def _learn(self, optimizers: dict[str, Scheduled], batch: Batch, step: Callable[[Minibatch], Any]) -> Info:
        """`step` on every minibatch, at the update's learning rate."""
        for group in optimizers[SOLE].optimizer.param_groups:
            group["lr"] = batch.learning_rate
        return {**learner_torch.update_epochs(step, batch.rows, batch.order, self.config), **batch.info}

    def _collect(self, kind: Any, policy: ActorCritic, buffer: Carry, step: int) -> tuple[host.Collected, Carry]:
        accounts = kind(self.params, self.market, world.settings(self.config, step), buffer.state)
        noise = host.draw(random.fold_in(self.key, step), self.config, self.params.n_actions)
        act, value = _act(policy, self.config), _value(policy)
        rollout, carry, info = host.collect(act, value, accounts, buffer, noise, self.config)
        return host.Collected(rollout, noise.order, self.config.learning_rate(step), info), carry


def logits(config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """What the network with these parameters says of normalised observations."""
    policy = learner_torch.make_policy(config, config.params.observation_dim, config.params.n_actions, parameters)
    with torch.no_grad():
        return policy(torch.from_numpy(observation))[0].double().numpy()


def _act(policy: ActorCritic, config: TradingConfig) -> host.Act:
    @torch.no_grad()
    def act(observation: np.ndarray, mask: np.ndarray, gumbel: np.ndarray) -> tuple[np.ndarray, ...]:
        logits, value = policy(torch.from_numpy(observation))
        log_p = log_probs(logits, torch.from_numpy(mask), config.floor)
        action = choose(log_p, torch.from_numpy(gumbel))
        return action.numpy(), log_prob_of(log_p, action).numpy(), value.numpy()

    return act  # pyright: ignore[reportReturnType]


def _value(policy: ActorCritic) -> host.Value:
    @torch.no_grad()
    def value(observation: np.ndarray) -> np.ndarray:
        return policy(torch.from_numpy(observation))[1].numpy()

    return value
