"""PPO on a world as the trainers see it, torch half. Twin: ppo_jax.py. A system adds its world and its evaluation."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..algos.ppo import learner_torch, losses_torch, rollout_numpy
from ..algos.ppo.acting_torch import Actor
from ..algos.ppo.batch import Carry, Collected, Minibatch, Rollout, Segment, named, taken
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.epochs_torch import over_epochs
from ..algos.ppo.hook import KEY, Hook
from ..algos.ppo.network_torch import ActorCritic
from ..algos.ppo.optimizer import optimizer_record
from ..algos.ppo.start import draw_parameters, keys, start
from ..envs.vector_numpy import OneByOne, Vectorized
from ..envs.world import BoundWorld, Envs, WorldParams, action_names, make_world
from ..optim import eager_torch
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
    hooked: Any = None  # what a hook learns from, step after step
    noise: Float[Tensor, "epochs n noise"] | None = None


class PPOSystem(Generic[Config]):
    """All that is PPO in a system: parameters, network, optimiser, rollouts, updates, and what goes on between them.

    `params` state the world, `data` is what it reads; a `hook` stands between rollouts and advantages.
    """

    def __init__(self, config: Config, params: WorldParams, data: Any = None, hook: Hook | None = None):
        self.config, self.world = config, make_world(params, "numpy")
        self.actions = learner_torch.make_actions(config, self.world.action_space)
        self.names = action_names(params)
        self.key, self.init_key, _ = keys(config)
        self.hook = hook
        self.use(data)

    def use(self, data: Any) -> None:
        """Goes on in other data. Of the same shapes, it compiles nothing anew."""
        self.data = data

    def settings(self, step: int) -> Any:
        """What the world is told in update `step`. Of the same shapes, other values compile nothing anew."""
        return None

    def parameters(self) -> dict[str, np.ndarray]:
        hooked = {} if self.hook is None else self.hook.parameters(random.fold_in(self.init_key, KEY))
        return {**self._acting(), **hooked}

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        make = ActorCritic if self.hook is None else self.hook.make_network
        dim = self.world.observation_dim
        return self._arranged(learner_torch.make_policy(self.config, dim, self.actions, parameters, make))

    def make_optimizers(self, policy: ActorCritic) -> dict[str, Scheduled]:
        """Adam without a schedule: every update sets its rate. A hook has an optimiser of its own."""
        if self.hook is None:
            return {SOLE: Scheduled(learner_torch.make_optimizer(self.config, policy))}
        made = {SOLE: learner_torch.make_optimizer(self.config, policy, self._acting())}
        made[self.hook.name] = self.hook.make_optimizer(policy)
        return {name: Scheduled(optimizer) for name, optimizer in made.items()}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        hooked = {} if self.hook is None else {self.hook.name: self.hook.optimizer_record()}
        return {SOLE: optimizer_record(self.config, self._acting(), step), **hooked}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Environments, statistics of observations and episodes under way."""
        memory = None if self.hook is None else self.hook.start_memory()
        return start(self.config, BoundWorld(self.world, self.data, self.settings(0)), saved, memory)

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(Vectorized(self._at(step), buffer.state), policy, buffer, step)

    def collect_one_by_one(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        return self._collect(self._one_by_one(self._at(step), buffer.state), policy, buffer, step)

    def tensors(self, batch: Collected) -> Batch:
        """With the advantages; one row for each step of each environment."""
        tensor = lambda array: None if array is None else torch.from_numpy(array)
        flat = lambda column: None if column is None else column.flatten(0, 1)
        rollout = Rollout(None, *map(tensor, batch.rollout[1:]))
        advantage, returns = learner_torch.advantages(rollout, self.config)
        observation, mask = map(tensor, batch.rollout.state)
        columns = observation, mask, rollout.action, rollout.log_prob, rollout.value, returns, advantage
        segment = None
        if self.config.segments:
            columns_of_segment = rollout.reward, rollout.terminated, rollout.truncated
            segment = Segment(*map(flat, columns_of_segment), last=rollout.last)
        steps = Minibatch(*map(flat, columns), segment=segment)
        critic = {"explained_variance": float(losses_torch.explained_variance(steps.value, steps.returns))}
        hooked = None if self.hook is None else type(batch.hooked)(*map(tensor, batch.hooked))
        order, noise = torch.from_numpy(batch.order), tensor(batch.noise)
        return Batch(steps, order, batch.learning_rate, {**batch.info, **critic}, hooked, noise)

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        return losses_torch.loss(policy, batch, self.actions, self.config)

    def objectives(self) -> dict[str, Objective]:
        hooked = {} if self.hook is None else {self.hook.name: Objective(self.hook.loss)}
        return {SOLE: Objective(self.loss, self.config.clip_norm), **hooked}

    def learn(
        self,
        policy: ActorCritic,
        optimizers: dict[str, Scheduled],
        batch: Collected,
        steps: dict[str, Callable[[Minibatch], Info]],
    ) -> Info:
        given = self.tensors(batch)
        hooked = {} if self.hook is None else _over_batches(steps[self.hook.name], given.hooked)
        for group in optimizers[SOLE].optimizer.param_groups:
            group["lr"] = given.learning_rate
        step = lambda index, noise: steps[SOLE](self._weighted(given.steps, index, noise))
        info = over_epochs(step, given.order, self.config, given.noise)
        return {**info, **hooked, **given.info}

    def update(self, policy: ActorCritic, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        hooked: Info = {}
        if (hook := self.hook) is not None:
            own = optimizers[hook.name].optimizer
            hooked = _over_batches(lambda one: eager_torch.update(policy, own, hook.loss, one), batch.hooked)
        info = learner_torch.update_epochs(
            policy,
            optimizers[SOLE].optimizer,
            lambda index: taken(batch.steps, index),
            batch.order,
            batch.learning_rate,
            self.actions,
            self.config,
            batch.noise,
        )
        return {**info, **hooked, **batch.info}

    def pure_update(
        self, policy: ActorCritic, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step per minibatch."""
        records, hook = self.optimizer_records(0), self.hook
        step = compile(descent(policy, records[SOLE], self.loss, self.config.clip_norm))
        own = {} if hook is None else {hook.name: compile(descent(policy, records[hook.name], hook.loss))}

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            rates = [torch.tensor(batch.learning_rate, dtype=torch.float64)]
            params, moments, held = state.params, state.moments[SOLE], dict(state.moments)
            hooked: Info = {}

            def own_once(name: str, one: Any) -> dict[str, Tensor]:
                nonlocal params
                params, held[name], info = own[name](params, held[name], one)
                return info

            def once(index: Int[Tensor, " size"], noise: Float[Tensor, "size noise"] | None) -> dict[str, Tensor]:
                nonlocal params, moments
                params, moments, info = step(params, moments, self._weighted(batch.steps, index, noise), rates)
                return info

            for name in own:
                hooked = _over_batches(partial(own_once, name), batch.hooked)
            info = over_epochs(once, batch.order, self.config, batch.noise)
            return PureState(params, {**held, SOLE: moments}), {**info, **hooked, **batch.info}

        return update

    def greedy(self, policy: ActorCritic) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """(observation as the network sees it, mask) -> the most probable action, as the world is given it."""
        return Actor(policy, self.actions).greedy

    def _acting(self) -> dict[str, np.ndarray]:
        """The parameters of PPO's network at the start of a run, without those of a hook."""
        return draw_parameters(self.config, self.world.observation_dim, self.actions, self.init_key)

    def _at(self, step: int) -> BoundWorld:
        """The world as it is in update `step`."""
        return BoundWorld(self.world, self.data, self.settings(step))

    def _one_by_one(self, world: BoundWorld, state: Any) -> Envs:
        """Environments that are stepped one after the other; a system may have such of its own."""
        return OneByOne(world, state)

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """The network as a system wants it computed."""
        return policy

    def _weighted(
        self, steps: Minibatch, index: Int[Tensor, " size"], noise: Float[Tensor, "size noise"] | None
    ) -> Minibatch:
        """The steps with these numbers, their advantages normalised."""
        batch = taken(steps, index)
        return batch._replace(advantage=learner_torch.normalized(batch.advantage, self.config), noise=noise)

    def _collect(self, envs: Envs, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Collected, Carry]:
        key = random.fold_in(self.key, step)
        noise = rollout_numpy.draw(key, self.config, self.actions, self.world.start_numbers)
        actor, hook = Actor(policy, self.actions), self.hook
        watch = None if hook is None else partial(hook.watch, self._at(step))
        rollout, carry, info = rollout_numpy.collect(actor, envs, buffer, noise, self.config, watch)
        hooked = None
        if hook is not None:
            reward, told = hook.reward(policy, rollout.watched, rollout.reward)
            hooked, memory = hook.gather(carry.aux, rollout.watched, random.fold_in(key, KEY))
            rollout, carry = rollout._replace(reward=reward, watched=None), carry._replace(aux=memory)
            info = {**info, **told}
        rate = self.config.learning_rate(step)
        return Collected(rollout, noise.order, rate, named(info, self.names), hooked, noise.entropy), carry


def _over_batches(step: Callable[[Any], Info], batches: Any) -> dict[str, float]:
    """`step(batch)` on every batch of a hook, and the means of what it gives."""
    infos = [step(type(batches)(*parts)) for parts in zip(*batches, strict=True)]
    return {name: float(torch.stack([torch.as_tensor(i[name]) for i in infos]).mean()) for name in infos[0]}
