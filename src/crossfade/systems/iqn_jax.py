"""IQN on a game as the trainers see it, JAX half. Twin: iqn_torch.py. A system adds its game and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ..algos.iqn import learner_jax, replay_numpy, rollout_numpy, train_jax
from ..algos.iqn.acting_jax import greedy
from ..algos.iqn.architecture import architecture, draw_parameters, parameter_names
from ..algos.iqn.batch import Batch, Noise, Replay, Transitions
from ..algos.iqn.config import IQNConfig
from ..algos.iqn.losses_jax import loss
from ..algos.iqn.networks_jax import Policy, make_policy
from ..algos.iqn.noise_numpy import draw
from ..algos.iqn.optimizer import names, optimizer_records
from ..algos.iqn.replay import check_sizes
from ..envs.game import make_game
from ..envs.world import WorldParams
from ..optim import sharing_jax as sharing
from ..optim.state import OptimizerState
from ..random import random_numpy as random
from ..run.saved import restored
from ..trainers.system import Objective

Config = TypeVar("Config", bound=IQNConfig)


class IQNSystem(Generic[Config]):
    """All that is IQN in a system: parameters, networks, optimisers, episodes, replay and updates.

    `params` state the game.
    """

    def __init__(self, config: Config, params: WorldParams):
        sharing.mesh(config.devices)  # before anything else of JAX: it makes its devices once
        self.config, self.game, self.compiled = config, make_game(params, "numpy"), make_game(params, "jax")
        check_sizes(config, self.game.turns)
        self.sizes = architecture(config, self.game.observation_dim, self.game.n_actions)
        self.key, self.init_key = random.split(random.key(config.seed), 2)

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config, self.sizes, self.init_key)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Policy:
        return make_policy(self.config, self.sizes, parameters)

    def make_optimizers(self, policy: Policy) -> dict[str, optax.GradientTransformation]:
        return learner_jax.make_optimizers(self.config, policy)

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return optimizer_records(self.config, parameter_names(self.config, self.sizes))

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Replay:
        """The replay of every agent."""
        fresh = replay_numpy.start(self.config, self.game)
        advice = "The checkpoint's replay does not fit: keep worlds, memory and env as they were."
        found = fresh if saved is None else restored(fresh, saved, advice)
        if self.config.mode != "jax_full":
            return found
        return jax.tree.map(jnp.array, found)  # copies: training gives them away

    def collect(self, policy: Policy, buffer: Replay, step: int) -> tuple[Batch, Replay]:
        noise = self._draw(step)
        epsilon = np.array(self.config.epsilons(step))
        buffer, history = replay_numpy.open_episode(buffer, self.config)
        episode, _ = rollout_numpy.play(self.game, self.act(policy), history, noise, epsilon, self.config)
        buffer = replay_numpy.store(buffer, episode, self.config)
        return batch_of(buffer, noise, rollout_numpy.returns(episode), step, self.game.turns, self.config), buffer

    def update(
        self,
        policy: Policy,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        batch: Batch,
    ) -> tuple[Policy, dict[str, PyTree], dict[str, Array]]:
        policy, opt_states, info = learner_jax.update(policy, optimizers, opt_states, batch, self.config)
        return policy, opt_states, {**info, **batch.info}

    def objectives(self) -> dict[str, Objective]:
        """Of each model the mean of its agents' losses; a minibatch holds their transitions."""

        def objective(number: int) -> Objective:
            def mean_loss(policy: Policy, batch: Transitions) -> tuple[Array, dict[str, Array]]:
                values, infos = jax.vmap(lambda own: loss(policy.models[number], own, self.config))(batch)
                return values.mean(), jax.tree.map(lambda column: column.mean(), infos)

            return Objective(mean_loss, self.config.clip_norm)

        return {name: objective(number) for number, name in enumerate(names(self.config))}

    def train(
        self,
        policy: Policy,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: Replay,
        step: int,
        n: int,
    ) -> tuple[Policy, dict[str, PyTree], Replay, dict[str, Array]]:
        config, steps = self.config, range(step, step + n)
        policy, opt_states, buffer = sharing.place((policy, opt_states, buffer), config.devices)
        return train_jax.train(
            policy,
            opt_states,
            buffer,
            self.compiled,
            self.sizes,
            np.array([config.epsilons(i) for i in steps], "float32"),
            np.array([config.copies(i) for i in steps]),
            jax.random.wrap_key_data(jnp.asarray(self.key)),
            step,
            config,
        )

    def act(self, policy: Policy) -> rollout_numpy.Act:
        """The greedy action of an agent, as the host asks for it."""
        networks = [policy.models[model].local for model in self.config.model_of]
        return lambda agent, stack, fractions: np.asarray(_greedy(networks[agent], stack, fractions))

    def _draw(self, step: int) -> Noise:
        return draw(random.fold_in(self.key, step), self.game, self.sizes.noise_dim, self.config)


def batch_of(buffer: Replay, noise: Noise, info: dict[str, float], step: int, turns: int, config: IQNConfig) -> Batch:
    """The batch of update `step`, drawn from replay."""
    transitions, ready = replay_numpy.sample(buffer, noise.choice, turns, config)
    floats: Callable[[Any], Array] = lambda x: jnp.asarray(x, config.dtype)
    own = {"fractions": floats(noise.fractions), "noise": floats(noise.noise)}
    told = {name: floats(value) for name, value in info.items()}
    return Batch(transitions._replace(**own), ready, np.asarray(config.copies(step)), told)


_greedy = jax.jit(greedy)
