"""One process of the offline bench: one contender. `bench.py` says what is asked."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...algos.offline.agent import Draw, Goals, Sizes
from ...algos.offline.batch import PHASES, Phase
from ...algos.offline.config import OfflineConfig
from ...algos.offline.data import draws_numpy, sampling_numpy
from ...algos.offline.data.choice import Choice, GoalNumbers
from ...algos.offline.data.dataset import from_transitions
from ...algos.offline.data.source import make_source
from ...algos.offline.data.statistics import both_statistics
from ...bench.contest_worker import Contender, serve
from ...config import apply
from ...random import random_numpy as random
from ...trainers.making import make_trainer
from . import RECORD, system_torch
from .bench import ACTION, OBSERVATION, configured
from .config import OfflineDataConfig
from .data import Data

ROWS, LENGTH = 100_000, 1000
"""Steps in all, and of a trajectory."""


def random_data(config: OfflineDataConfig, rows: int = ROWS) -> Data:
    """Trajectories of random numbers, the same for both phases."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape, np.float32)
    states = normal(rows + 1, OBSERVATION)
    ends = np.arange(1, rows + 1) % min(LENGTH, rows) == 0
    actions = rng.uniform(-0.9, 0.9, (rows, ACTION)).astype(np.float32)
    made = from_transitions(states[:-1], actions, states[1:], ends, rewards=normal(rows), masks=np.ones(rows))
    statistics = both_statistics(made, made, config)
    phases = zip(PHASES, statistics, strict=True)
    learning: dict[Phase, Any] = {phase: make_source(made, own, phase, config) for phase, own in phases}
    return Data(learning, {}, statistics[1], (OBSERVATION,), ACTION)


class Updates:
    """Updates of one phase in one mode; those of fine-tuning are full ones."""

    def __init__(self, agent: str, phase: Phase, mode: str, words: list[str], updates: int = 1, rows: int = ROWS):
        self.config = configured(agent, phase, [f"mode={mode}", *words])
        _prepare(self.config, rows)
        self.trainer: Any = make_trainer(RECORD, self.config)
        self.update, self.steps = 0, updates
        if mode == "torch":
            _use_best_threads(self.once)

    def once(self) -> None:
        self.told = self.trainer.run(self.update, self.steps)
        self.update += self.steps


class Seeds:
    """Updates of several seeds side by side."""

    def __init__(self, agent: str, phase: Phase, seeds: int, words: list[str], updates: int, rows: int = ROWS):
        from .population_jax import Population

        config = configured(agent, phase, words)
        _prepare(config, rows)
        self.population = Population([replace(config, seed=seed) for seed in range(seeds)])
        self.update, self.updates, self.steps = 0, updates, updates * seeds

    def once(self) -> None:
        self.told = self.population.run(self.update, self.updates)
        self.update += self.updates


class Relabelling:
    """Batches with goals as HILP draws them, without what its networks do with them.

    `way`: in NumPy by the streams of both frameworks (`shared`) or by its own generator (`native`), or `compiled`, many
    batches in a program, each written where the one before it was.
    """

    def __init__(self, way: str, rows: int, batches: int = 1, batch_size: int = 256):
        config = apply(OfflineDataConfig(), ["agent=hilp", f"batch_size={batch_size}"])
        source, sizes = random_data(config, rows).learning["finetuning"], config.sizes((OBSERVATION,), ACTION)
        self.steps, self.update = batches, 0
        if way == "compiled":
            self.go = self._compiled(source, sizes, batches, config)
        else:
            draw = draws_numpy.draw if way == "shared" else draw_natively
            key = random.key(0)
            self.go = lambda update: sampling_numpy.sample(
                source, draw(random.fold_in(key, update), source.data.steps, sizes, "finetuning", config), config
            )

    def once(self) -> None:
        self.made = self.go(self.update)
        self.update += self.steps

    def _compiled(self, source: Any, sizes: Sizes, batches: int, config: OfflineDataConfig) -> Callable[[int], Any]:
        import jax
        import jax.numpy as jnp

        from ...algos.offline import train_jax
        from ...algos.offline.data import draws_jax, sampling_jax

        key = jax.random.key(0)

        def one(update: Any, at: Any, there: Any) -> Any:
            choice = draws_jax.draw(jax.random.fold_in(key, update), there.data.steps, sizes, "finetuning", config)
            return sampling_jax.read(there, at, choice, config)

        @jax.jit
        def program(first: Any, there: Any) -> Any:
            updates = first + jnp.arange(batches, dtype=jnp.int32)
            at = train_jax.planned(there, key, updates, sizes, "finetuning", config)
            shapes = jax.eval_shape(one, first, jax.tree.map(lambda rows: rows[0], at), there)
            start = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)
            return jax.lax.scan(lambda _, x: (one(*x, there), None), start, (updates, at))[0]

        there = jax.device_put(source)
        return lambda update: jax.block_until_ready(program(update, there))


def draw_natively(key: np.ndarray, steps: int, sizes: Sizes, phase: Phase, config: OfflineConfig) -> Choice:
    """The random numbers of an update from torch's and NumPy's own generators, whichever is faster: equal streams must
    not slow the modes on the host. For observations that are no images."""
    rng, normal = np.random.default_rng(key), torch.Generator().manual_seed(int(key[0]) << 32 | int(key[1]))
    n = sizes.batch_size

    def goals(asked: Goals | None) -> GoalNumbers | None:
        uniform = (rng.random(n, np.float32) for _ in range(3))
        return None if asked is None else GoalNumbers(rng.integers(0, steps, n, np.int32), *uniform)

    def noise(one: Draw) -> np.ndarray:
        match one.kind:
            case "normal":
                return torch.randn(one.shape, generator=normal).numpy()
            case "uniform":
                return rng.random(one.shape, np.float32)
            case "permutation":
                return rng.permutation(one.shape[0]).astype(np.int32)
            case "rows":
                return rng.integers(0, steps, one.shape, np.int32)
            case "words":
                return rng.integers(0, 2**32, one.shape, np.uint32)

    return Choice(
        rows=rng.integers(0, steps, n, np.int32),
        value_goals=goals(config.agent.value_goals),
        actor_goals=goals(config.agent.actor_goals),
        coin=None,
        crops=None,
        goal_coin=None,
        goal_crops=None,
        noise={name: noise(one) for name, one in config.agent.draws(sizes, phase).items()},
    )


def _prepare(config: OfflineDataConfig, rows: int) -> None:
    """This process has random data and, on the host, native draws."""
    halves: list[Any] = [system_torch]
    if config.mode.startswith("jax"):
        from . import system_jax

        halves.append(system_jax)
    data = random_data(config, rows)
    for half in halves:
        half.load, half.draw = lambda _: data, draw_natively
    torch.set_num_threads(len(os.sched_getaffinity(0)))


def _use_best_threads(once: Callable[[], None]) -> None:
    """Small products are faster in one thread, large ones in as many as there are cores."""
    seconds: dict[int, float] = {}
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        once()
        began = time.perf_counter()
        for _ in range(3):
            once()
        seconds[threads] = time.perf_counter() - began
    torch.set_num_threads(min(seconds, key=lambda threads: seconds[threads]))


KINDS: dict[str, Callable[..., Contender]] = {"updates": Updates, "seeds": Seeds, "relabelling": Relabelling}

if __name__ == "__main__":
    serve(KINDS)
