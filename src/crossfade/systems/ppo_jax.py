"""PPO on a world as the trainers see it, JAX half. Twin: ppo_torch.py. A system adds its world and its evaluation."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..algos.ppo import learner_jax, losses_jax, rollout_numpy, train_jax
from ..algos.ppo.acting_jax import Actor
from ..algos.ppo.batch import Carry, Decision, Minibatch, Rollout, Segment, named, taken
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.hook import KEY, Aux, CompiledHook
from ..algos.ppo.network_jax import ActorCritic
from ..algos.ppo.optimizer import optimizer_record
from ..algos.ppo.start import draw_parameters, keys, start
from ..envs.vector_numpy import Vectorized
from ..envs.world import BoundWorld, WorldParams, action_names, make_world
from ..nn import normalizer_jax
from ..optim import masking_jax, sharing_jax as sharing
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
    hooked: Any = None  # what a hook learns from, step after step
    noise: Float[Array, "epochs n noise"] | None = None


class PPOSystem(Generic[Config]):
    """All that is PPO in a system: parameters, network, optimiser, rollouts, updates, and what goes on between them.

    `params` state the world, `data` is what it reads; a `hook` stands between rollouts and advantages.
    """

    def __init__(self, config: Config, params: WorldParams, data: Any = None, hook: CompiledHook | None = None):
        if config.devices > 1:
            sharing.mesh(config.devices)  # before anything else is asked of JAX: a CPU is then as many devices
        self.config, self.world, self.compiled = config, make_world(params, "numpy"), make_world(params, "jax")
        self.actions = learner_jax.make_actions(config, self.world.action_space)
        self.names = action_names(params)
        self.key, self.init_key, _ = keys(config)
        self.hook, self.hook_data = hook, None
        if hook is not None and config.mode == "jax_full":
            self.hook_data = sharing.place(hook.data, config.devices)
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
        hooked = {} if self.hook is None else self.hook.parameters(random.fold_in(self.init_key, KEY))
        return {**self._acting(), **hooked}

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        make = ActorCritic if self.hook is None else self.hook.make_network
        dim = self.world.observation_dim
        return self._arranged(learner_jax.make_policy(self.config, dim, self.actions, parameters, make))

    def make_optimizers(self, policy: ActorCritic) -> dict[str, optax.GradientTransformation]:
        """Adam without a schedule: every update sets its rate. A hook has an optimiser of its own."""
        if self.hook is None:
            return {SOLE: learner_jax.make_optimizer(self.config, policy)}
        own = learner_jax.make_optimizer(self.config, policy, self._acting().keys())
        return {SOLE: own, self.hook.name: self.hook.make_optimizer(policy)}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        hooked = {} if self.hook is None else {self.hook.name: self.hook.optimizer_record()}
        return {SOLE: optimizer_record(self.config, self._acting(), step), **hooked}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Environments, statistics of observations and episodes under way."""
        memory = None if self.hook is None else self.hook.start_memory()
        carry = start(self.config, BoundWorld(self.world, self.data, self.settings(0)), saved, memory)
        if self.config.mode != "jax_full":
            return carry
        carry = carry._replace(statistics=normalizer_jax.Statistics(*carry.statistics))
        return jax.tree.map(jnp.array, carry)  # copies: training gives them away

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Array, dict[str, Array]]:
        return losses_jax.loss(policy, batch, self.actions, self.config)

    def objectives(self) -> dict[str, Objective]:
        hooked = {} if self.hook is None else {self.hook.name: Objective(self.hook.loss)}
        return {SOLE: Objective(self.loss, self.config.clip_norm), **hooked}

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Batch, Carry]:
        config, hook, floats = self.config, self.hook, lambda x: jnp.array(x, self.config.dtype)
        world, key = BoundWorld(self.world, self.data, self.settings(step)), random.fold_in(self.key, step)
        noise = rollout_numpy.draw(key, config, self.actions, self.world.start_numbers)
        actor, envs = _HostActor(Actor(policy, self.actions)), Vectorized(world, buffer.state)
        watch = None if hook is None else partial(hook.watch, world)
        rollout, carry, info = rollout_numpy.collect(actor, envs, buffer, noise, config, watch)
        hooked = None
        if hook is not None:
            reward, told = hook.reward(policy, rollout.watched, rollout.reward)
            hooked, memory = hook.gather(carry.aux, rollout.watched, random.fold_in(key, KEY))
            rollout, carry = rollout._replace(reward=reward, watched=None), carry._replace(aux=memory)
            info = {**info, **told}
        numbers = {name: floats(number) for name, number in named(info, self.names).items()}
        rate = floats(config.learning_rate(step))
        entropy = None if noise.entropy is None else jnp.asarray(noise.entropy)
        return Batch(rollout, jnp.asarray(noise.order), rate, numbers, hooked, entropy), carry

    def update(
        self,
        policy: ActorCritic,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        batch: Batch,
    ) -> tuple[ActorCritic, dict[str, PyTree], dict[str, Array]]:
        hooked: dict[str, Array] = {}
        if (hook := self.hook) is not None:
            given = policy, optimizers[hook.name], opt_states[hook.name]
            policy, hook_state, hooked = _over_batches(*given, hook.loss, batch.hooked)
            opt_states = {**opt_states, hook.name: hook_state}
        done, (advantage, returns) = batch.rollout, learner_jax.advantages(batch.rollout, self.config)
        segment = (done.reward, done.terminated, done.truncated) if self.config.segments else None
        columns = (*done.state, done.action, done.log_prob, done.value, returns, advantage, segment)
        flat = lambda column: jnp.asarray(column).reshape(-1, *column.shape[2:])
        *columns, segment = jax.tree.map(flat, columns)
        steps = Minibatch(*columns, segment=None if segment is None else Segment(*segment, last=jnp.asarray(done.last)))
        policy, opt_state, info = learner_jax.update_epochs(
            policy,
            optimizers[SOLE],
            opt_states[SOLE],
            lambda index: taken(steps, index),
            batch.order,
            batch.learning_rate,
            self.actions,
            self.config,
            batch.noise,
        )
        critic = {"explained_variance": losses_jax.explained_variance(steps.value, steps.returns)}
        return policy, {**opt_states, SOLE: opt_state}, {**info, **hooked, **batch.info, **critic}

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
        hook, learned = self.hook, None
        if hook is not None:
            policy, learned = eqx.partition(policy, masking_jax.named(policy, self._acting().keys()))
            buffer = buffer._replace(aux=Aux(learned, opt_states[hook.name], buffer.aux))
        tx, inputs = optimizers[SOLE], (policy, opt_states[SOLE], buffer)
        policy, opt_state, buffer = sharing.place(inputs, config.devices, train_jax.PLACES)
        key = jax.random.wrap_key_data(jnp.asarray(self.key))
        world, data = self.compiled, self.on_device
        policy, opt_state, buffer, metrics = train_jax.train(
            policy, tx, opt_state, buffer, world, data, settings, rates, key, step, config, hook, self.hook_data
        )
        states = {SOLE: opt_state}
        if hook is not None:
            policy, states[hook.name] = eqx.combine(policy, buffer.aux.learned), buffer.aux.opt_state
            buffer = buffer._replace(aux=buffer.aux.memory)
        return policy, states, buffer, named(metrics, self.names)

    def greedy(self, policy: ActorCritic) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """(observation as the network sees it, mask) -> the most probable action, as the world is given it."""
        return _HostActor(Actor(policy, self.actions)).greedy

    def _acting(self) -> dict[str, np.ndarray]:
        """The parameters of PPO's network at the start of a run, without those of a hook."""
        return draw_parameters(self.config, self.world.observation_dim, self.actions, self.init_key)

    def _arranged(self, policy: ActorCritic) -> ActorCritic:
        """The network as a system wants it computed."""
        return policy


def _over_batches(
    policy: ActorCritic, tx: optax.GradientTransformation, opt_state: PyTree, loss: Callable[..., Any], batches: Any
) -> tuple[ActorCritic, PyTree, dict[str, Array]]:
    """A gradient step on every batch of a hook, and the means of what they tell."""

    def one(now: tuple[ActorCritic, PyTree], batch: Any) -> tuple[tuple[ActorCritic, PyTree], dict[str, Array]]:
        policy, opt_state, info = masking_jax.update(now[0], tx, now[1], loss, batch)
        return (policy, opt_state), info

    (policy, opt_state), infos = jax.lax.scan(one, (policy, opt_state), batches)
    return policy, opt_state, {name: column.mean() for name, column in infos.items()}


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
