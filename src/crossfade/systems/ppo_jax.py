"""PPO on a world as the trainers see it, JAX half. Twin: ppo_torch.py. A system adds its world and its evaluation."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..algos.ppo import learner_jax, losses_jax, rollout_numpy, train_jax
from ..algos.ppo.acting_jax import Actor
from ..algos.ppo.batch import Carry, Decision, Minibatch, Rollout, named
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.network_jax import ActorCritic
from ..algos.ppo.optimizer import optimizer_record
from ..algos.ppo.start import draw_parameters, keys, start
from ..envs.vector_numpy import Vectorized
from ..envs.world import BoundWorld, WorldParams, action_names, make_world
from ..nn import normalizer_jax
from ..optim import sharing_jax as sharing
from ..optim.state import OptimizerState
from ..random import random_numpy as random
from ..trainers.system import Objective

SOLE = "policy"
"""The name of its one optimiser."""
Config = TypeVar("Config", bound=PPOConfig)


class Batch(NamedTuple):
    """What one update learns from."""

    rollout: Rollout  # its `state` is what was `Seen`
    order: Int[Array, "epochs n"]
    learning_rate: Float[Array, ""]  # an array: a number would compile anew whenever it changes
    info: dict[str, Array]


class PPOSystem(Generic[Config]):
    """All that is PPO in a system: parameters, network, optimiser, rollouts, updates, and what goes on between them.

    `params` state the world, `data` is what it reads.
    """

    def __init__(self, config: Config, params: WorldParams, data: Any = None):
        if config.devices > 1:
            sharing.mesh(config.devices)  # before anything else is asked of JAX: a CPU is then as many devices
        self.config, self.world, self.compiled = config, make_world(params, "numpy"), make_world(params, "jax")
        self.actions = learner_jax.make_actions(config, self.world.action_space)
        self.names = action_names(params)
        self.key, self.init_key, _ = keys(config)
        self.use(data)

    def use(self, data: Any) -> None:
        """Goes on in other data. Of the same shapes, it compiles nothing anew."""
        self.data = data
        there = data is not None and self.config.mode == "jax_full"
        self.on_device = sharing.place(data, self.config.devices) if there else None

    def settings(self, step: int) -> Any:
        """What the world is told in update `step`. Of the same shapes, other values compile nothing anew."""
        return None

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config, self.world.observation_dim, self.actions, self.init_key)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        return self._arranged(
            learner_jax.make_policy(self.config, self.world.observation_dim, self.actions, parameters)
        )

    def make_optimizers(self, policy: ActorCritic) -> dict[str, optax.GradientTransformation]:
        """Adam without a schedule: every update sets its rate."""
        return {SOLE: learner_jax.make_optimizer(self.config, policy)}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Environments, statistics of observations and episodes under way."""
        carry = start(self.config, BoundWorld(self.world, self.data, self.settings(0)), saved)
        if self.config.mode != "jax_full":
            return carry
        carry = carry._replace(statistics=normalizer_jax.Statistics(*carry.statistics))
        return jax.tree.map(jnp.array, carry)  # copies: training gives them away

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Array, dict[str, Array]]:
        return losses_jax.loss(policy, batch, self.actions, self.config)

    def objectives(self) -> dict[str, Objective]:
        return {SOLE: Objective(self.loss, self.config.clip_norm)}

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Batch, Carry]:
        config, floats = self.config, lambda x: jnp.array(x, self.config.dtype)
        envs = Vectorized(BoundWorld(self.world, self.data, self.settings(step)), buffer.state)
        noise = rollout_numpy.draw(random.fold_in(self.key, step), config, self.actions, self.world.start_numbers)
        actor = _HostActor(Actor(policy, self.actions))
        rollout, carry, info = rollout_numpy.collect(actor, envs, buffer, noise, config)
        numbers = {name: floats(number) for name, number in named(info, self.names).items()}
        return Batch(rollout, jnp.asarray(noise.order), floats(config.learning_rate(step)), numbers), carry

    def update(
        self,
        policy: ActorCritic,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        batch: Batch,
    ) -> tuple[ActorCritic, dict[str, PyTree], dict[str, Array]]:
        taken, advantage = batch.rollout, learner_jax.advantages(batch.rollout, self.config)
        returns, (observation, mask) = taken.value + advantage, taken.state
        columns = Minibatch(observation, mask, taken.action, taken.log_prob, taken.value, returns, advantage)
        steps = jax.tree.map(lambda column: jnp.asarray(column).reshape(-1, *column.shape[2:]), columns)
        policy, opt_state, info = learner_jax.update_epochs(
            policy,
            optimizers[SOLE],
            opt_states[SOLE],
            lambda index: jax.tree.map(lambda column: column[index], steps),
            batch.order,
            batch.learning_rate,
            self.actions,
            self.config,
        )
        critic = {"explained_variance": losses_jax.explained_variance(steps.value, steps.returns)}
        return policy, {SOLE: opt_state}, {**info, **batch.info, **critic}

    def train(
        self,
        policy: ActorCritic,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: Carry,
        step: int,
        n: int,
    ) -> tuple[ActorCritic, dict[str, PyTree], Carry, dict[str, Array]]:
        config, steps = self.config, range(step, step + n)
        settings = jax.tree.map(lambda *values: np.stack(values), *map(self.settings, steps))
        rates = np.array([config.learning_rate(i) for i in steps], config.dtype)
        tx, inputs = optimizers[SOLE], (policy, opt_states[SOLE], buffer)
        policy, opt_state, buffer = sharing.place(inputs, config.devices, train_jax.PLACES)
        key = jax.random.wrap_key_data(jnp.asarray(self.key))
        policy, opt_state, buffer, metrics = train_jax.train(
            policy, tx, opt_state, buffer, self.compiled, self.on_device, settings, rates, key, step, config
        )
        return policy, {SOLE: opt_state}, buffer, named(metrics, self.names)

    def greedy(self, policy: ActorCritic) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """(observation as the network sees it, mask) -> the most probable action, as the world is given it."""
        return _HostActor(Actor(policy, self.actions)).greedy

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """The network as a system wants it computed."""
        return policy


class _HostActor:
    """An actor whose results go to the host."""

    def __init__(self, actor: Actor):
        self.actor = actor

    def act(self, observation: np.ndarray, mask: np.ndarray | None, noise: np.ndarray) -> Decision:
        return jax.device_get(_act(self.actor, observation, mask, noise))

    def greedy(self, observation: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        return jax.device_get(_greedy(self.actor, observation, mask))

    def value(self, observation: np.ndarray) -> np.ndarray:
        return jax.device_get(_value(self.actor, observation))


_act = jax.jit(lambda actor, observation, mask, noise: actor.act(observation, mask, noise))
_greedy = jax.jit(lambda actor, observation, mask: actor.greedy(observation, mask))
_value = jax.jit(lambda actor, observation: actor.value(observation))
