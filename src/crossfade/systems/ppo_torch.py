"""PPO on a world as the trainers see it, torch half. Twin: ppo_jax.py. A system adds its world and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..algos.ppo import init, learner_torch, losses_torch, pure_torch, rollout_numpy
from ..algos.ppo.batch import Carry, Collected, Minibatch, Rollout
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.network_torch import ActorCritic
from ..algos.ppo.start import keys, start
from ..envs.vector_numpy import OneByOne, Vectorized
from ..envs.world import Envs, World
from ..random import random_numpy as random
from ..trainers.system import Info, Objective, PureState, Scheduled

SOLE = "policy"  # the name of its one optimiser
Config = TypeVar("Config", bound=PPOConfig)


class Batch(NamedTuple):
    """What one update learns from."""

    steps: Minibatch  # all steps of the rollout, in order of time
    order: Tensor  # (epochs, n)
    learning_rate: float
    info: dict[str, float]

    def minibatch(self, index: Tensor) -> Minibatch:
        """The steps with these numbers."""
        return Minibatch(*(None if column is None else column[index] for column in self.steps))


class PPOSystem(Generic[Config]):
    """All that is PPO in a system: parameters, network, optimiser, rollouts, updates, and what goes on between them."""

    def __init__(self, config: Config, world: World, data: Any = None):
        """`world` is the NumPy one, `data` what it reads."""
        self.config, self.world, self.data = config, world, data
        self.actions = learner_torch.make_actions(config, world.action_space)
        self.key, self.init_key, _ = keys(config)

    def settings(self, step: int) -> Any:
        """What the world is told in update `step`; other values of the same form compile nothing anew."""
        return None

    def envs(self, settings: Any, state: Any) -> Envs:
        """Environments in these states, stepped together."""
        return Vectorized(self.world, self.data, settings, state)

    def envs_one_by_one(self, settings: Any, state: Any) -> Envs:
        """The same, stepped one after the other."""
        return OneByOne(self.world, self.data, settings, state)

    def parameters(self) -> dict[str, np.ndarray]:
        actions = self.actions
        return init.parameters(
            self.config, self.world.observation_dim, actions.n_outputs, actions.n_free, self.init_key
        )

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        return learner_torch.make_policy(self.config, self.world.observation_dim, self.actions, parameters)

    def make_optimizers(self, policy: ActorCritic) -> dict[str, Scheduled]:
        """Adam without a schedule: every update sets its rate."""
        return {SOLE: Scheduled(learner_torch.make_optimizer(self.config, policy))}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Environments, statistics of observations and episodes under way."""
        return start(self.config, self.world, self.data, self.settings(0), saved)

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(self.envs(self.settings(step), buffer.state), policy, buffer, step)

    def collect_one_by_one(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(self.envs_one_by_one(self.settings(step), buffer.state), policy, buffer, step)

    def tensors(self, batch: Collected) -> Batch:
        """With the advantages; one row for each step of each environment."""
        tensor = lambda array: None if array is None else torch.from_numpy(array)
        rollout = Rollout(None, *map(tensor, batch.rollout[1:]))
        advantage = learner_torch.advantages(rollout, self.config)
        returns, (observation, mask) = rollout.value + advantage, map(tensor, batch.rollout.state)
        columns = observation, mask, rollout.action, rollout.log_prob, rollout.value, returns, advantage
        steps = Minibatch(*(None if column is None else column.flatten(0, 1) for column in columns))
        return Batch(steps, torch.from_numpy(batch.order), batch.learning_rate, batch.info)

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return losses_torch.loss(policy, batch, self.actions, self.config)

    def objectives(self) -> dict[str, Objective]:
        return {SOLE: Objective(self.loss, self.config.clip_norm)}

    def learn(
        self,
        policy: ActorCritic,
        optimizers: dict[str, Scheduled],
        batch: Collected,
        steps: dict[str, Callable[[Minibatch], Info]],
    ) -> Info:
        return self._learn(optimizers, self.tensors(batch), steps[SOLE])

    def update(self, policy: ActorCritic, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        adam: Any = optimizers[SOLE].optimizer
        step = lambda minibatch: learner_torch.update(policy, adam, minibatch, self.actions, self.config)
        return self._learn(optimizers, batch, step)

    def pure_update(
        self, policy: ActorCritic, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step per minibatch."""
        step = compile(pure_torch.make_update(policy, self.actions, self.config))

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            rate = torch.tensor(batch.learning_rate, dtype=torch.float64)
            params, moments = state.params, state.moments[SOLE]

            def once(minibatch: Minibatch) -> dict[str, Tensor]:
                nonlocal params, moments
                params, moments, info = step(params, moments, minibatch, rate)
                return info

            info = learner_torch.update_epochs(once, batch.minibatch, batch.order, self.config)
            return PureState(params, {SOLE: moments}), {**info, **batch.info}

        return update

    def greedy(self, policy: ActorCritic) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """(normalised observation, mask) -> the most probable action, as the world is given it."""

        @torch.no_grad()
        def act(observation: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
            legal = None if mask is None else torch.from_numpy(mask)
            outputs = self.actions.masked(policy(torch.from_numpy(observation))[0], legal)
            return self.actions.executed(self.actions.mode(outputs)).numpy()

        return act

    def _learn(self, optimizers: dict[str, Scheduled], batch: Batch, step: Callable[[Minibatch], Any]) -> Info:
        """`step` on every minibatch, at the update's learning rate."""
        for group in optimizers[SOLE].optimizer.param_groups:
            group["lr"] = batch.learning_rate
        return {**learner_torch.update_epochs(step, batch.minibatch, batch.order, self.config), **batch.info}

    def _collect(self, envs: Envs, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        key, start_numbers = random.fold_in(self.key, step), self.world.start_numbers
        noise = rollout_numpy.draw(key, self.config, self.actions, start_numbers)
        act, value = self._act(policy), _value(policy)
        rollout, carry, info = rollout_numpy.collect(act, value, envs, buffer, noise, self.config)
        return Collected(rollout, noise.order, self.config.learning_rate(step), info), carry

    def _act(self, policy: ActorCritic) -> rollout_numpy.Act:
        @torch.no_grad()
        def act(observation: np.ndarray, mask: np.ndarray | None, noise: np.ndarray) -> tuple[np.ndarray, ...]:
            outputs, value = policy(torch.from_numpy(observation))
            outputs = self.actions.masked(outputs, None if mask is None else torch.from_numpy(mask))
            action = self.actions.sample(outputs, torch.from_numpy(noise))
            found = action, self.actions.executed(action), self.actions.log_prob(outputs, action), value
            return tuple(tensor.numpy() for tensor in found)

        return act  # pyright: ignore[reportReturnType]


def _value(policy: ActorCritic) -> rollout_numpy.Value:
    @torch.no_grad()
    def value(observation: np.ndarray) -> np.ndarray:
        return policy(torch.from_numpy(observation))[1].numpy()

    return value
