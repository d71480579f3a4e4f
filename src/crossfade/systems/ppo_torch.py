"""PPO on a world as the trainers see it, torch half. Twin: ppo_jax.py. A system adds its world and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..algos.ppo import learner_torch, losses_torch, rollout_numpy
from ..algos.ppo.acting_torch import Actor
from ..algos.ppo.batch import Carry, Collected, Minibatch, Rollout, named
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.epochs_torch import over_epochs
from ..algos.ppo.network_torch import ActorCritic
from ..algos.ppo.optimizer import optimizer_record
from ..algos.ppo.start import draw_parameters, keys, start
from ..envs.vector_numpy import OneByOne, Vectorized
from ..envs.world import BoundWorld, Envs, WorldParams, action_names, make_world
from ..optim.functional_torch import descent
from ..optim.state import OptimizerState
from ..random import random_numpy as random
from ..trainers.system import Info, Objective, PureState, Scheduled

SOLE = "policy"
"""The name of its one optimiser."""
Config = TypeVar("Config", bound=PPOConfig)


class Batch(NamedTuple):
    """What one update learns from."""

    steps: Minibatch  # all steps of the rollout, in order of time
    order: Int[Tensor, "epochs n"]
    learning_rate: float
    info: dict[str, float]


class PPOSystem(Generic[Config]):
    """All that is PPO in a system: parameters, network, optimiser, rollouts, updates, and what goes on between them.

    `params` state the world, `data` is what it reads.
    """

    def __init__(self, config: Config, params: WorldParams, data: Any = None):
        self.config, self.world = config, make_world(params, "numpy")
        self.actions = learner_torch.make_actions(config, self.world.action_space)
        self.names = action_names(params)
        self.key, self.init_key, _ = keys(config)
        self.use(data)

    def use(self, data: Any) -> None:
        """Goes on in other data. Of the same shapes, it compiles nothing anew."""
        self.data = data

    def settings(self, step: int) -> Any:
        """What the world is told in update `step`. Of the same shapes, other values compile nothing anew."""
        return None

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config, self.world.observation_dim, self.actions, self.init_key)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        return self._arranged(
            learner_torch.make_policy(self.config, self.world.observation_dim, self.actions, parameters)
        )

    def make_optimizers(self, policy: ActorCritic) -> dict[str, Scheduled]:
        """Adam without a schedule: every update sets its rate."""
        return {SOLE: Scheduled(learner_torch.make_optimizer(self.config, policy))}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Environments, statistics of observations and episodes under way."""
        return start(self.config, BoundWorld(self.world, self.data, self.settings(0)), saved)

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(Vectorized(self._at(step), buffer.state), policy, buffer, step)

    def collect_one_by_one(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(self._one_by_one(self._at(step), buffer.state), policy, buffer, step)

    def tensors(self, batch: Collected) -> Batch:
        """With the advantages; one row for each step of each environment."""
        tensor = lambda array: None if array is None else torch.from_numpy(array)
        rollout = Rollout(None, *map(tensor, batch.rollout[1:]))
        advantage = learner_torch.advantages(rollout, self.config)
        returns, (observation, mask) = rollout.value + advantage, map(tensor, batch.rollout.state)
        columns = observation, mask, rollout.action, rollout.log_prob, rollout.value, returns, advantage
        steps = Minibatch(*(None if column is None else column.flatten(0, 1) for column in columns))
        critic = {"explained_variance": float(losses_torch.explained_variance(steps.value, steps.returns))}
        return Batch(steps, torch.from_numpy(batch.order), batch.learning_rate, {**batch.info, **critic})

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
        given = self.tensors(batch)
        for group in optimizers[SOLE].optimizer.param_groups:
            group["lr"] = given.learning_rate
        info = over_epochs(lambda index: steps[SOLE](self._weighted(given.steps, index)), given.order, self.config)
        return {**info, **given.info}

    def update(self, policy: ActorCritic, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        info = learner_torch.update_epochs(
            policy,
            optimizers[SOLE].optimizer,
            lambda index: _taken(batch.steps, index),
            batch.order,
            batch.learning_rate,
            self.actions,
            self.config,
        )
        return {**info, **batch.info}

    def pure_update(
        self, policy: ActorCritic, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step per minibatch."""
        step = compile(descent(policy, self.optimizer_records(0)[SOLE], self.loss, self.config.clip_norm))

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            rates = [torch.tensor(batch.learning_rate, dtype=torch.float64)]
            params, moments = state.params, state.moments[SOLE]

            def once(index: Int[Tensor, " size"]) -> dict[str, Tensor]:
                nonlocal params, moments
                params, moments, info = step(params, moments, self._weighted(batch.steps, index), rates)
                return info

            info = over_epochs(once, batch.order, self.config)
            return PureState(params, {SOLE: moments}), {**info, **batch.info}

        return update

    def greedy(self, policy: ActorCritic) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """(observation as the network sees it, mask) -> the most probable action, as the world is given it."""
        return Actor(policy, self.actions).greedy

    def _at(self, step: int) -> BoundWorld:
        """The world as it is in update `step`."""
        return BoundWorld(self.world, self.data, self.settings(step))

    def _one_by_one(self, world: BoundWorld, state: Any) -> Envs:
        """Environments that are stepped one after the other; a system may have such of its own."""
        return OneByOne(world, state)

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """The network as a system wants it computed."""
        return policy

    def _weighted(self, steps: Minibatch, index: Int[Tensor, " size"]) -> Minibatch:
        """The steps with these numbers, their advantages normalised."""
        batch = _taken(steps, index)
        return batch._replace(advantage=learner_torch.normalized(batch.advantage, self.config))

    def _collect(self, envs: Envs, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        key = random.fold_in(self.key, step)
        noise = rollout_numpy.draw(key, self.config, self.actions, self.world.start_numbers)
        actor = Actor(policy, self.actions)
        rollout, carry, info = rollout_numpy.collect(actor, envs, buffer, noise, self.config)
        return Collected(rollout, noise.order, self.config.learning_rate(step), named(info, self.names)), carry


def _taken(steps: Minibatch, index: Int[Tensor, " size"]) -> Minibatch:
    """The steps with these numbers."""
    return Minibatch(*(None if column is None else column[index] for column in steps))
