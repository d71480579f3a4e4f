"""IQN on a game as the trainers see it, torch half. Twin: iqn_jax.py. A system adds its game and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from ..algos.iqn import learner_torch, replay_numpy, rollout_numpy
from ..algos.iqn.acting_torch import greedy
from ..algos.iqn.architecture import architecture, draw_parameters, parameter_names
from ..algos.iqn.averages_torch import averaged, learned
from ..algos.iqn.batch import Batch, Noise, Replay, Transitions
from ..algos.iqn.config import IQNConfig
from ..algos.iqn.losses_torch import loss
from ..algos.iqn.networks_torch import Policy, make_policy
from ..algos.iqn.noise_numpy import draw
from ..algos.iqn.optimizer import names, optimizer_records
from ..algos.iqn.pure_update_torch import pure_update
from ..algos.iqn.replay import check_sizes
from ..algos.iqn.targets_torch import copy_targets, follow
from ..envs.game import Game, make_game
from ..envs.world import WorldParams
from ..optim.state import OptimizerState
from ..random import random_numpy as random
from ..run.saved import restored
from ..trainers.system import Info, Objective, PureState, Scheduled

Config = TypeVar("Config", bound=IQNConfig)


class IQNSystem(Generic[Config]):
    """All that is IQN in a system: parameters, networks, optimisers, episodes, replay and updates.

    `params` state the game.
    """

    def __init__(self, config: Config, params: WorldParams):
        self.config, self.game = config, make_game(params, "numpy")
        check_sizes(config, self.game.turns)
        self.sizes = architecture(config, self.game.observation_dim, self.game.n_actions)
        self.key, self.init_key = random.split(random.key(config.seed), 2)

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config, self.sizes, self.init_key)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return make_policy(self.config, self.sizes, parameters)

    def make_optimizers(self, policy: Policy) -> dict[str, Scheduled]:
        return {name: Scheduled(adam) for name, adam in learner_torch.make_optimizers(self.config, policy).items()}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return optimizer_records(self.config, parameter_names(self.config, self.sizes))

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Replay:
        """The replay of every agent."""
        fresh = replay_numpy.start(self.config, self.game)
        advice = "The checkpoint's replay does not fit: keep worlds, memory and env as they were."
        return fresh if saved is None else restored(fresh, saved, advice)

    def collect(self, policy: Policy, buffer: Replay, step: int) -> tuple[Batch, Replay]:
        return self._collect(self.game, policy, buffer, step)

    def collect_one_by_one(self, policy: Policy, buffer: Replay, step: int) -> tuple[Batch, Replay]:
        return self._collect(self._one_by_one(), policy, buffer, step)

    def tensors(self, batch: Batch) -> Batch:
        transitions = Transitions(*map(torch.from_numpy, batch.transitions))
        return batch._replace(transitions=transitions)

    def update(self, policy: Policy, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        adams: dict[str, Any] = {name: made.optimizer for name, made in optimizers.items()}
        return {**learner_torch.update(policy, adams, batch, self.config), **batch.info}

    def pure_update(
        self, policy: Policy, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step for each model, the same program for all."""
        step = pure_update(policy, self.config, compile)

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            params, moments, info = step(state.params, state.moments, batch)
            return PureState(params, moments), {**info, **batch.info}

        return update

    def objectives(self) -> dict[str, Objective]:
        """Of each model the mean of its agents' losses; a minibatch holds their transitions."""

        def objective(number: int) -> Objective:
            def mean_loss(policy: Policy, batch: Transitions) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
                each = [
                    loss(policy.models[number], Transitions(*(part[i] for part in batch)), self.config)
                    for i in range(len(batch.action))
                ]
                return torch.stack([value for value, _ in each]).mean(), averaged([info for _, info in each])

            return Objective(mean_loss, self.config.clip_norm)

        return {name: objective(number) for number, name in enumerate(names(self.config))}

    def learn(
        self,
        policy: Policy,
        optimizers: dict[str, Scheduled],
        batch: Batch,
        steps: dict[str, Callable[[Transitions], Info]],
    ) -> Info:
        if batch.copy:
            copy_targets(policy)
        infos = []
        for number, name in enumerate(names(self.config) if batch.ready else ()):
            members = list(self.config.members(number))
            infos.append(steps[name](Transitions(*(part[members] for part in batch.transitions))))
        if batch.ready and self.config.follows:
            follow(policy, self.config)
        tensors = [{name: torch.as_tensor(np.asarray(told)) for name, told in info.items()} for info in infos]
        return {**learned(tensors), **batch.info}

    def act(self, policy: Policy) -> rollout_numpy.Act:
        """The greedy action of an agent, as the host asks for it."""
        networks = [policy.models[model].local for model in self.config.model_of]

        def act(agent: int, stack: np.ndarray, fractions: np.ndarray) -> np.ndarray:
            chosen = greedy(networks[agent], torch.from_numpy(stack), torch.from_numpy(fractions))
            return chosen.numpy().astype(np.int32)

        return act

    def _one_by_one(self) -> Game:
        """Games that are stepped one after the other; a system may have such of its own."""
        return self.game

    def _collect(self, game: Game, policy: Policy, buffer: Replay, step: int) -> tuple[Batch, Replay]:
        noise = self._draw(step)
        epsilon = np.array(self.config.epsilons(step))
        buffer, history = replay_numpy.open_episode(buffer, self.config)
        episode, _ = rollout_numpy.play(game, self.act(policy), history, noise, epsilon, self.config)
        buffer = replay_numpy.store(buffer, episode, self.config)
        return batch_of(buffer, noise, rollout_numpy.returns(episode), step, game.turns, self.config), buffer

    def _draw(self, step: int) -> Noise:
        return draw(random.fold_in(self.key, step), self.game, self.sizes.noise_dim, self.config)


def batch_of(buffer: Replay, noise: Noise, info: dict[str, float], step: int, turns: int, config: IQNConfig) -> Batch:
    """The batch of update `step`, drawn from replay."""
    transitions, ready = replay_numpy.sample(buffer, noise.choice, turns, config)
    own = {"fractions": noise.fractions, "noise": noise.noise}
    transitions = transitions._replace(**{name: array.astype(config.dtype, copy=False) for name, array in own.items()})
    return Batch(transitions, ready, np.asarray(config.copies(step)), info)
