"""Trading with PPO as the trainers see it, JAX side. The torch side is system_torch.py."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Int32, PyTree

from ...algos.ppo import init, learner_jax, losses_jax, rollout_numpy as host, train_jax as full
from ...algos.ppo.batch import Carry, Minibatch, Rollout
from ...algos.ppo.network_jax import ActorCritic
from ...algos.ppo.optimizer import optimizer_record
from ...envs.trading.trading_jax import Trading
from ...nn import normalizer_jax
from ...nn.categorical_jax import choose, log_prob_of, log_probs
from ...optim import sharing_jax as sharing
from ...optim.state import OptimizerState
from ...random import random_numpy as random
from ...trainers.system import Objective
from . import data, evaluation, world
from .accounts import Together
from .config import TradingConfig
from .judging.stage import StudyEffort

SOLE = "policy"


class Batch(NamedTuple):
    """An update's data as arrays: a number that is none would compile anew whenever it changes."""

    rollout: Rollout  # its `state` is what was seen
    order: Int[Array, "epochs n"]
    learning_rate: Float[Array, ""]
    info: dict[str, Array]


class System:
    """What one run needs of the algorithm: parameters, a policy, rollouts, updates, an evaluation."""

    def __init__(self, config: TradingConfig):
        self.config, self.params = config, config.params
        self.env, self.market = Trading(config.params), data.market(config)
        self.on_device = sharing.place(self.market, config.devices) if config.mode == "jax_full" else None
        self.key, self.init_key, _ = world.keys(config)
        self._act, self._value, self._greedy = map(jax.jit, (self._act_eagerly, _value, _greedy))

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters a run starts from."""
        p = self.params
        return init.parameters(self.config, p.observation_dim, p.n_actions, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> ActorCritic:
        return learner_jax.make_policy(self.config, self.params.observation_dim, self.params.n_actions, parameters)

    def make_optimizers(self, policy: ActorCritic) -> dict[str, optax.GradientTransformation]:
        return {SOLE: learner_jax.make_optimizer(self.config, policy)}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return {SOLE: optimizer_record(self.config, self.parameters(), step)}

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Carry:
        """Accounts, statistics of observations and episodes under way: at the start, or as a checkpoint holds them.

        In jax_full they live in the compiled program, in the other modes on the host.
        """
        carry = world.start(self.config, self.market, saved)
        if self.config.mode != "jax_full":
            return carry
        carry = carry._replace(statistics=normalizer_jax.Statistics(*carry.statistics))
        return jax.tree.map(jnp.array, carry)  # copies: training gives them away

    def loss(self, policy: ActorCritic, batch: Minibatch) -> tuple[Array, dict[str, Array]]:
        return losses_jax.loss(policy, batch, self.config)

    def objectives(self) -> dict[str, Objective]:
        return {SOLE: Objective(self.loss, self.config.clip_norm)}

    def collect(self, policy: ActorCritic, buffer: Carry, step: int) -> tuple[Batch, Carry]:
        """The rollout of update `step` from vectorised accounts in NumPy."""
        config, floats = self.config, lambda x: jnp.array(x, self.config.dtype)
        accounts = Together(self.params, self.market, world.settings(config, step), buffer.state)
        noise = host.draw(random.fold_in(self.key, step), config, self.params.n_actions)
        act = lambda *seen: jax.device_get(self._act(policy, *seen))
        value = lambda observation: jax.device_get(self._value(policy, observation))
        rollout, carry, info = host.collect(act, value, accounts, buffer, noise, config)
        told = {name: floats(number) for name, number in info.items()}
        return Batch(rollout, jnp.asarray(noise.order), floats(config.learning_rate(step)), told), carry

    def update(
        self,
        policy: ActorCritic,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        batch: Batch,
    ) -> tuple[ActorCritic, dict[str, PyTree], dict[str, Array]]:
        """All gradient steps of an update. Pure: jit it."""
        seen, taken = batch.rollout.state, batch.rollout
        advantage = learner_jax.advantages(taken, self.config)
        columns = *seen, taken.action, taken.log_prob, taken.value, taken.value + advantage, advantage
        steps = [jnp.asarray(column).reshape(-1, *column.shape[2:]) for column in columns]
        policy, opt_state, info = learner_jax.update_epochs(
            policy,
            optimizers[SOLE],
            opt_states[SOLE],
            lambda index: Minibatch(*(column[index] for column in steps)),
            batch.order,
            batch.learning_rate,
            self.config,
        )
        return policy, {SOLE: opt_state}, {**info, **batch.info}

    def train(
        self,
        policy: ActorCritic,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: Carry,
        step: int,
        n: int,
    ) -> tuple[ActorCritic, dict[str, PyTree], Carry, dict[str, Array]]:
        """`n` updates from `step` in one compiled program; the memory of what goes in is given away."""
        config, steps = self.config, range(step, step + n)
        settings = jax.tree.map(lambda *values: np.stack(values), *(world.settings(config, i) for i in steps))
        rates = np.array([config.learning_rate(i) for i in steps], config.dtype)
        tx, inputs = optimizers[SOLE], (policy, opt_states[SOLE], buffer)
        policy, opt_state, buffer = sharing.place(inputs, config.devices, full.PLACES)
        key = jax.random.wrap_key_data(jnp.asarray(self.key))
        policy, opt_state, buffer, metrics = full.train(
            policy, tx, opt_state, buffer, self.env, self.on_device, settings, rates, key, step, config
        )
        return policy, {SOLE: opt_state}, buffer, metrics

    def evaluate(
        self, policy: ActorCritic, effort: StudyEffort | None = None, buffer: Carry | None = None
    ) -> evaluation.TradingEvaluation:
        """The greedy policy on the days held out; with an effort, all that evaluation.py can say of it."""
        act = lambda *seen: jax.device_get(self._greedy(policy, *seen))
        return evaluation.evaluate(
            self.config, evaluation.greedy(self.config, act, (buffer or self.start_buffer()).statistics), effort
        )

    def _act_eagerly(
        self,
        policy: ActorCritic,
        observation: Float[Array, "n o"],
        mask: Bool[Array, "n a"],
        gumbel: Float[Array, "n a"],
    ) -> tuple[Int32[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
        logits, value = policy(observation)
        log_p = log_probs(logits, mask, self.config.floor)
        action = choose(log_p, gumbel)
        return action, log_prob_of(log_p, action), value


def logits(config: TradingConfig, parameters: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """What the network with these parameters says of normalised observations."""
    with jax.enable_x64(config.dtype == "float64"):
        policy = learner_jax.make_policy(config, config.params.observation_dim, config.params.n_actions, parameters)
        return np.asarray(policy(jnp.asarray(observation))[0], np.float64)


def _value(policy: ActorCritic, observation: Float[Array, "n o"]) -> Float[Array, " n"]:
    return policy(observation)[1]


def _greedy(policy: ActorCritic, observation: Float[Array, "n o"], mask: Bool[Array, "n a"]) -> Int32[Array, " n"]:
    log_p = log_probs(policy(observation)[0], mask, 0.0)
    return choose(log_p, jnp.zeros_like(log_p))
