"""Offline agents as the trainers see them, JAX half. Twin: system_torch.py."""

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ...algos.offline import learner_jax as learner, train_jax
from ...algos.offline.batch import Batch, Phase
from ...algos.offline.data import ring_numpy
from ...algos.offline.data.draws_numpy import draw, draw_rows
from ...algos.offline.data.sampling_numpy import chosen, observations, sample, transitions
from ...algos.offline.losses_jax import loss
from ...algos.offline.memory import Memory, split_noise
from ...algos.offline.networks_jax import Modules, make_policy
from ...algos.offline.parameters import draw_parameters, online_names, optimizer_records
from ...algos.offline.statistics_jax import gradient_statistics
from ...algos.offline.terms_jax import Info
from ...nn.layers_jax import name
from ...optim.state import OptimizerState
from ...random import random_numpy as random
from ...run.evaluation import Evaluation
from ...run.saved import restored
from ...trainers.system import Objective
from . import evaluation
from .config import OfflineDataConfig
from .data import load
from .evaluation import OfflineEffort
from .memory import INFERENCE, VALIDATION, begin, completed, imagined_of


class System:
    """An offline agent on the data of a config."""

    def __init__(self, config: OfflineDataConfig):
        self.config, self.data = config, load(config)
        self.sizes = config.sizes(self.data.observation, self.data.action)
        self.modules = config.agent.modules(self.sizes)
        self.functions = import_module(config.agent.jax)
        self.key, self.init_key = random.split(random.key(config.seed), 2)
        self.there: dict[Phase, Any] = {}  # the data on the device, by phase, once a program reads them
        self._act = jax.jit(partial(_act, self.functions.act, config))
        self._judged = jax.jit(partial(_judged, config))

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config.agent, self.sizes, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Modules:
        return make_policy(self.modules, parameters, self.config.dtype)

    def make_optimizers(self, policy: Modules) -> dict[str, optax.GradientTransformation]:
        return {"policy": learner.make_optimizer(policy, self.config)}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return optimizer_records(self.modules, self.config.lr)

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Memory:
        """What the run remembers."""
        fresh = begin(self.config, self.sizes)
        advice = "The checkpoint's memory does not fit: keep the agent and its settings as they were."
        found = fresh if saved is None else restored(fresh, saved, advice)
        if self.config.mode != "jax_full":
            return found
        return jax.tree.map(jnp.array, found)  # copies: training gives them away

    def collect(self, policy: Modules, buffer: Memory, step: int) -> tuple[Batch, Memory]:
        phase = self.config.phase(step)
        buffer = self._inferred(policy, buffer, phase)
        source = self.data.learning[phase]
        batch = sample(
            source, draw(random.fold_in(self.key, step), source.data.steps, self.sizes, phase, self.config), self.config
        )
        batch, own = split_noise(batch)
        if own:
            states = observations(source, chosen(source, own["rollout_rows"]), self.config)
            rows = _imagine(self.functions.imagine, self.config, policy, states, own["rollout"])
            ring = ring_numpy.push(buffer.imagined, jax.tree.map(np.asarray, rows))
            buffer = buffer._replace(imagined=ring)
            batch = imagined_of(batch, ring, ring_numpy.sample(ring, own["imagined"]))
        return completed(batch, buffer, step, self.config), buffer

    def update(
        self,
        policy: Modules,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        batch: Batch,
    ) -> tuple[Modules, dict[str, PyTree], dict[str, Array]]:
        policy, opt_state, info = learner.update(policy, optimizers["policy"], opt_states["policy"], batch, self.config)
        if batch.ends is not None:
            reset = learner.reset_targets(policy, self.config)
            policy = jax.tree.map(lambda new, old: jnp.where(batch.ends, new, old), reset, policy)
        return policy, {"policy": opt_state}, info

    def objectives(self) -> dict[str, Objective]:
        """One loss; modules without a gradient move on by the one Adam's moments."""
        return {"policy": Objective(lambda modules, batch: loss(modules, batch, self.config), set_to_none=False)}

    def train(
        self,
        policy: Modules,
        optimizers: dict[str, optax.GradientTransformation],
        opt_states: dict[str, PyTree],
        buffer: Memory,
        step: int,
        n: int,
    ) -> tuple[Modules, dict[str, PyTree], Memory, dict[str, Array]]:
        phase = self.config.phase(step)
        assert self.config.phase(step + n - 1) == phase, "`breaks` of the config keep the phases apart"
        if phase not in self.there:
            self.there[phase] = jax.tree.map(jnp.asarray, self.data.learning[phase])
        policy, opt_state, buffer, told = train_jax.train(
            policy,
            optimizers["policy"],
            opt_states["policy"],
            self._inferred(policy, buffer, phase),
            self.there[phase],
            jax.random.wrap_key_data(jnp.asarray(self.key)),
            step,
            n,
            self.sizes,
            phase,
            self.config,
        )
        if step + n == self.config.pretrain:
            policy = learner.reset_targets(policy, self.config)
        return policy, {"policy": opt_state}, buffer, told

    def infer_latent(self, policy: Modules) -> np.ndarray:
        """The latent of the task, from transitions of fine-tuning's data."""
        rows = self._drawn("finetuning", INFERENCE, self.config.latent_samples)
        read = rows.observations, rows.next_observations, rows.rewards
        return np.asarray(_infer(self.functions.infer_latent, self.config, policy, *read))

    def evaluate(
        self, policy: Modules, effort: OfflineEffort | None = None, buffer: Memory | None = None
    ) -> Evaluation:
        """The policy without noise in its world, and its losses on data that it has not learned from."""
        latent = None
        if self.config.agent.infers_latent:
            known = buffer.latent if buffer is not None and buffer.inferred else self.infer_latent(policy)
            latent = np.asarray(known)
        act = lambda seen: np.asarray(self._act(policy, seen, latent))
        return evaluation.evaluate(self.config, self.data, act, lambda: self._validate(policy, latent), effort)

    def _inferred(self, policy: Modules, memory: Memory, phase: Phase) -> Memory:
        """The memory with the latent of the task, from the first update of fine-tuning on."""
        if phase == "pretraining" or not self.config.agent.infers_latent or memory.inferred:
            return memory
        latent, inferred = self.infer_latent(policy), np.array(True)
        if self.config.mode == "jax_full":
            return memory._replace(latent=jnp.array(latent), inferred=jnp.array(inferred))
        return memory._replace(latent=latent, inferred=inferred)

    def _validate(self, policy: Modules, latent: np.ndarray | None) -> dict[str, float]:
        """Losses of both phases, and what their gradients are like, on trajectories that are held out, if there are."""
        found: dict[str, float] = {}
        for phase, source in self.data.validation.items():
            choice = draw(random.fold_in(self.key, VALIDATION), source.data.steps, self.sizes, phase, self.config)
            batch, _ = split_noise(sample(source, choice, self.config))
            full = None if phase == "pretraining" else np.array(True)
            batch = batch._replace(full=full, latent=latent if full is not None else None)
            found |= {f"{phase}/{key}": float(told) for key, told in self._judged(policy, batch).items()}
        return found

    def _drawn(self, phase: Phase, number: int, n: int) -> Batch:
        """So many transitions of a phase, drawn once."""
        source = self.data.learning[phase]
        rows = draw_rows(random.fold_in(self.init_key, number), source.data.steps, (n,))
        return transitions(source, chosen(source, rows), self.config)


def _act(act: Any, config: OfflineDataConfig, policy: Modules, seen: Array, latent: Array | None) -> Array:
    return act(policy, seen, latent, config)


def _judged(config: OfflineDataConfig, policy: Modules, batch: Batch) -> Info:
    """What the loss tells, and what its gradient is like."""
    owned = set(online_names({key: module.spec for key, module in policy.items()}))
    gradients, told = jax.grad(lambda modules: loss(modules, batch, config), has_aux=True)(policy)
    named = {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(gradients)}
    own = gradient_statistics({n: leaf for n, leaf in named.items() if n in owned}, config.has("summed_norms"))
    return told | {f"gradient/{key}": value for key, value in own.items()}


@partial(jax.jit, static_argnums=(0, 1))
def _imagine(imagine: Any, config: OfflineDataConfig, policy: Modules, states: Array, noise: Array) -> Batch:
    return imagine(policy, states, noise, config)


@partial(jax.jit, static_argnums=(0, 1))
def _infer(infer: Any, config: OfflineDataConfig, policy: Modules, *read: Array) -> Array:
    return infer(policy, *read, config)
