"""Offline agents as the trainers see them, torch half. Twin: system_jax.py."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ...algos.offline import learner_torch as learner
from ...algos.offline.batch import Batch, Phase
from ...algos.offline.data import ring_numpy
from ...algos.offline.data.draws_numpy import draw, draw_rows
from ...algos.offline.data.sampling_numpy import chosen, observations, sample, transitions
from ...algos.offline.losses_torch import loss
from ...algos.offline.memory import Memory, split_noise
from ...algos.offline.networks_torch import Modules, make_policy
from ...algos.offline.parameters import draw_parameters, online_names, optimizer_records
from ...algos.offline.pure_update_torch import pure_update
from ...algos.offline.statistics_torch import gradient_statistics
from ...optim.state import OptimizerState
from ...random import random_numpy as random
from ...run.evaluation import Evaluation
from ...run.saved import restored
from ...trainers.system import Info, Objective, PureState, Scheduled
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
        self.functions = import_module(config.agent.torch)
        self.key, self.init_key = random.split(random.key(config.seed), 2)

    def parameters(self) -> dict[str, np.ndarray]:
        return draw_parameters(self.config.agent, self.sizes, self.init_key, self.config.dtype)

    def make_policy(self, parameters: dict[str, np.ndarray]) -> Modules:
        return make_policy(self.modules, parameters, self.config.dtype)

    def make_optimizers(self, policy: Modules) -> dict[str, Scheduled]:
        return {"policy": Scheduled(learner.make_optimizer(policy, self.config))}

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        return optimizer_records(self.modules, self.config.lr)

    def start_buffer(self, saved: dict[str, Any] | None = None) -> Memory:
        """What the run remembers."""
        fresh = begin(self.config, self.sizes)
        advice = "The checkpoint's memory does not fit: keep the agent and its settings as they were."
        return fresh if saved is None else restored(fresh, saved, advice)

    def collect(self, policy: Modules, buffer: Memory, step: int) -> tuple[Batch, Memory]:
        phase = self.config.phase(step)
        if phase == "finetuning" and self.config.agent.infers_latent and not buffer.inferred:
            buffer = buffer._replace(latent=self.infer_latent(policy), inferred=np.array(True))
        source = self.data.learning[phase]
        batch = sample(
            source, draw(random.fold_in(self.key, step), source.data.steps, self.sizes, phase, self.config), self.config
        )
        batch, own = split_noise(batch)
        if own:
            states = observations(source, chosen(source, own["rollout_rows"]), self.config)
            ring = ring_numpy.push(buffer.imagined, self._imagine(policy, states, own["rollout"]))
            buffer = buffer._replace(imagined=ring)
            batch = imagined_of(batch, ring, ring_numpy.sample(ring, own["imagined"]))
        return completed(batch, buffer, step, self.config), buffer

    def collect_one_by_one(self, policy: Modules, buffer: Memory, step: int) -> tuple[Batch, Memory]:
        return self.collect(policy, buffer, step)

    def tensors(self, batch: Batch) -> Batch:
        return Batch(*map(_tensor, batch))

    def update(self, policy: Modules, optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        adam: Any = optimizers["policy"].optimizer
        info = learner.update(policy, adam, batch, self.config)
        if batch.ends:
            learner.reset_targets(policy, self.config)
        return info

    def pure_update(
        self, policy: Modules, compile: Callable[[Any], Any]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """One compiled step for pre-training, one for full updates, one for the others."""
        step = pure_update(policy, self.config, compile)
        reset = [f"{name}." for name in self.config.agent.reset(self.config.encoding is not None)]

        def update(state: PureState, batch: Batch) -> tuple[PureState, Info]:
            params, moments, info = step(state.params, state.moments["policy"], batch._replace(ends=None))
            if batch.ends:  # clones: a program that is given one tensor twice would be compiled anew
                owned = {name: p for name, p in params.items() if name.startswith(tuple(reset))}
                params = params | {f"target_{name}": p.clone() for name, p in owned.items()}
            return PureState(params, {"policy": moments}), info

        return update

    def objectives(self) -> dict[str, Objective]:
        """One loss; modules without a gradient move on by the one Adam's moments."""
        return {"policy": Objective(lambda modules, batch: loss(modules, batch, self.config), set_to_none=False)}

    def learn(
        self,
        policy: Modules,
        optimizers: dict[str, Scheduled],
        batch: Batch,
        steps: dict[str, Callable[[Batch], Info]],
    ) -> Info:
        tensors = self.tensors(batch)
        before = learner.remember(policy, tensors, self.config)
        info = steps["policy"](batch._replace(ends=None))
        learner.follow(policy, before, tensors, self.config)
        if batch.ends:
            learner.reset_targets(policy, self.config)
        return info

    def infer_latent(self, policy: Modules) -> np.ndarray:
        """The latent of the task, from transitions of fine-tuning's data."""
        with torch.no_grad():
            rows = self.tensors(self._drawn("finetuning", INFERENCE, self.config.latent_samples))
            read = rows.observations, rows.next_observations, rows.rewards
            return self.functions.infer_latent(policy, *read, self.config).numpy()

    def evaluate(
        self, policy: Modules, effort: OfflineEffort | None = None, buffer: Memory | None = None
    ) -> Evaluation:
        """The policy without noise in its world, and its losses on data that it has not learned from."""
        latent = None
        if self.config.agent.infers_latent:
            latent = buffer.latent if buffer is not None and buffer.inferred else self.infer_latent(policy)
        known = None if latent is None else torch.from_numpy(np.array(latent))

        @torch.no_grad()
        def act(seen: np.ndarray) -> np.ndarray:
            return self.functions.act(policy, torch.from_numpy(seen), known, self.config).numpy()

        return evaluation.evaluate(self.config, self.data, act, lambda: self._validate(policy, latent), effort)

    def _validate(self, policy: Modules, latent: np.ndarray | None) -> dict[str, float]:
        """Losses of both phases, and what their gradients are like, on trajectories that are held out, if there are."""
        found: dict[str, float] = {}
        for phase, source in self.data.validation.items():
            choice = draw(random.fold_in(self.key, VALIDATION), source.data.steps, self.sizes, phase, self.config)
            batch, _ = split_noise(sample(source, choice, self.config))
            full = None if phase == "pretraining" else np.array(True)
            batch = self.tensors(batch._replace(full=full, latent=latent if full is not None else None))
            found |= {f"{phase}/{name}": float(told) for name, told in self._judged(policy, batch).items()}
        return found

    def _judged(self, policy: Modules, batch: Batch) -> Info:
        """What the loss tells, and what its gradient is like."""
        named, names = dict(policy.named_parameters()), online_names(self.modules)
        value, told = loss(policy, batch, self.config)
        gradients = torch.autograd.grad(value, [named[name] for name in names], materialize_grads=True)
        own = gradient_statistics(dict(zip(names, gradients, strict=True)), self.config.has("summed_norms"))
        return {**told, **{f"gradient/{key}": value for key, value in own.items()}}

    def _drawn(self, phase: Phase, number: int, n: int) -> Batch:
        """So many transitions of a phase, drawn once."""
        source = self.data.learning[phase]
        rows = draw_rows(random.fold_in(self.init_key, number), source.data.steps, (n,))
        return transitions(source, chosen(source, rows), self.config)

    @torch.no_grad()
    def _imagine(self, policy: Modules, states: np.ndarray, noise: np.ndarray) -> Batch:
        rows = self.functions.imagine(policy, torch.from_numpy(states), torch.from_numpy(noise), self.config)
        return Batch(*(None if x is None else x.numpy() for x in rows))


def _tensor(part: Any) -> Any:
    """Arrays as tensors; what is None, a flag or a name stays so."""
    match part:
        case dict():
            return {name: _tensor(array) for name, array in part.items()}
        case Batch():
            return Batch(*map(_tensor, part))
        case np.ndarray() if part.dtype != bool:
            return torch.from_numpy(part).long() if part.dtype == np.int32 else torch.from_numpy(part)
        case _:
            return part
