"""One process of the GFlowNet bench: all contenders in one setting. Prints JSON; bench.py says what is asked.

Contenders take turns in rounds, so that a disturbance of the machine meets all of them. All hold the same policy, and
the learning rates are next to nothing: it stays the same however many iterations a contender makes, and with it the
length of trajectories. A chunk ends when its metrics are on the host.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from ...algos.gflownet import initial_parameters
from ...algos.gflownet.batch import Batch, Trajectories
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.policy_torch import Policy
from ...algos.gflownet.sampling import nodes_numpy
from ...bench.flops import matrix_peak, per_node
from ...bench.harness import peak_memory_mb
from ...config import apply
from ...envs.dag.base_numpy import State
from ...envs.dag.registry import make
from ...random import random_numpy as random
from ...trainers.making import make_trainer
from ...trainers.system import Info, Snapshot, TorchSystem
from ...trainers.torch_pure import TorchPureTrainer
from . import RECORD
from .discrete_torch import System

STILL = ("lr=1e-12", "lr_z=1e-12")
CAPACITIES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 1)  # of the compiled updates in training_jax.py, as shares of all visits
BATCHES = 16  # over which lengths and numbers of states are averaged


class Contender(NamedTuple):
    """A way to run the algorithm, and on how many states its learner evaluates the networks for given trajectories."""

    words: tuple[str, ...]
    nodes: Callable[[Trajectories, Any], int]
    make: Callable[[GFlowNetConfig, Snapshot], Any] = lambda config, snapshot: make_trainer(RECORD, config, snapshot)


class EarlyStop(TorchPureTrainer):
    """`torch_pure` without waste: sampling stops with the longest trajectory, and the networks are evaluated on the
    visited states, each once, by a step that is compiled for any number of them."""

    def __init__(self, system: System, snapshot: Snapshot, step: int):
        super().__init__(cast(TorchSystem, system), snapshot, step)
        self.gflownet = system
        if not self.notes:
            self.update = system.pure_update(self.policy, partial(torch.compile, dynamic=True))

    def iterate(self, step: int) -> Info:
        system = self.gflownet
        trajectories = system.sample(cast(Policy, self.policy), random.fold_in(system.key, step))
        batch = visited(trajectories, system.env).floats_as(system.config.dtype)
        self.state, info = self.update(self.state, system.tensors(batch))
        self.policy.load_state_dict(self.state.params)
        return info


def visited(trajectories: Trajectories, env: Any) -> Batch:
    """The batch up to its longest trajectory over its distinct states, told apart by their numbers."""
    x, *columns = trajectories
    steps = longest(trajectories)
    x, columns = x[: steps + 1], [column[:steps] for column in columns]
    index = env.index(State(x, np.zeros(x.shape[:-1], bool)))
    _, first, node = np.unique(index, return_index=True, return_inverse=True)
    objects = x.reshape(-1, x.shape[-1])[first]
    return nodes_numpy.dense(Trajectories(objects, *columns), env)._replace(node=node.reshape(index.shape))


def longest(trajectories: Trajectories) -> int:
    return int(trajectories.valid.any(1).sum())


def distinct(trajectories: Trajectories) -> int:
    """How many states were visited: the least that the networks have to be evaluated on."""
    return len(np.unique(trajectories.x[:-1][trajectories.valid], axis=0))


def distinct_states(trajectories: Trajectories, env: Any) -> int:
    return distinct(trajectories)


def padded_states(trajectories: Trajectories, env: Any) -> int:
    return trajectories.x[..., 0].size


def states_to_longest(trajectories: Trajectories, env: Any) -> int:
    return (longest(trajectories) + 1) * trajectories.valid.shape[1]


def all_states(trajectories: Trajectories, env: Any) -> int:
    return env.n_states


def jax_full_nodes(trajectories: Trajectories, env: Any) -> int:
    visits = padded_states(trajectories, env)
    if env.n_states is not None and env.n_states <= visits:
        return env.n_states
    return min(n for share in CAPACITIES if (n := int(np.ceil(visits * share))) >= distinct(trajectories))


CONTENDERS: dict[str, Contender] = {
    "torch": Contender(("mode=torch",), states_to_longest),
    "torch_pure": Contender(("mode=torch_pure", "execution=dense"), padded_states),
    "torch_pure, early stop": Contender(
        ("mode=torch_pure", "execution=dense"),
        distinct_states,
        lambda config, snapshot: EarlyStop(System(config), snapshot, 0),
    ),
    "torch_pure, table": Contender(("mode=torch_pure", "execution=table"), all_states),
    "jax_minimal": Contender(("mode=jax_minimal", "execution=dense"), padded_states),
    "jax_policy": Contender(("mode=jax_policy", "execution=dense"), padded_states),
    "jax_full, plain scan": Contender(("mode=jax_full", "execution=dense"), padded_states),
    "jax_full": Contender(("mode=jax_full",), jax_full_nodes),
}


def main() -> None:
    request = json.loads(sys.argv[1])
    json.dump(measure(**request), sys.stdout)


def measure(words: list[str], contenders: list[str], train: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Every contender's figures after `train` iterations of the algorithm."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    peak = matrix_peak(min(1.0, seconds))
    config = apply(GFlowNetConfig(), words)
    snapshot = Snapshot(trained(config, train))
    running, results = {}, {}
    for name in contenders:
        contender, before = CONTENDERS[name], peak_memory_mb()
        trainer = contender.make(apply(config, (*contender.words, *STILL)), snapshot)
        compiling, chunk = _warm_up(trainer, seconds)
        running[name] = (trainer, chunk)
        results[name] = {"compile_s": compiling, "rss_mb": peak_memory_mb() - before, "rounds": []}
    for number in range(rounds):
        for name, (trainer, chunk) in running.items():
            results[name]["rounds"].append(_turn(trainer, number * chunk, chunk))
    work = _work(config, snapshot, contenders)
    for name, result in results.items():
        result |= _figures(result["rounds"]) | {"padding": 1 - work["distinct"] / work["nodes"][name]}
        result["peak_share"] = result["its"] * work["flops"] / max(peak.values())
    return {
        "threads": torch.get_num_threads(),
        "peak_flops": peak,
        "work": work,
        "contenders": results,
        "peak_rss_mb": peak_memory_mb(),
        "load": os.getloadavg()[0],
    }


def trained(config: GFlowNetConfig, iterations: int) -> dict[str, np.ndarray]:
    """The parameters of the algorithm after some iterations in jax_full."""
    trainer = make_trainer(RECORD, replace(config, mode="jax_full"))
    if iterations:
        trainer.run(0, iterations)
    return trainer.snapshot().parameters


def _work(config: GFlowNetConfig, snapshot: Snapshot, contenders: list[str]) -> dict[str, Any]:
    """What an iteration needs and what each contender's learner evaluates, means over batches of the policy."""
    env = make(config.env, "numpy")
    system = System(replace(config, mode="torch_pure", execution="dense"))
    policy = system.make_policy(snapshot.parameters)
    batches = [system.sample(policy, random.fold_in(system.key, i)) for i in range(BATCHES)]
    states = statistics.fmean(map(distinct, batches))
    return {
        "mean_length": statistics.fmean(float(batch.valid.sum(0).mean()) for batch in batches),
        "longest": statistics.fmean(map(longest, batches)),
        "distinct": states,
        "nodes": {n: statistics.fmean(CONTENDERS[n].nodes(batch, env) for batch in batches) for n in contenders},
        "flops": states * per_node(initial_parameters.shapes(config, env), env.observation_dim),
    }


def _warm_up(trainer: Any, seconds: float) -> tuple[float, int]:
    """Compiles, and finds how many iterations fill a turn; the compiled loop is compiled for that number.

    The time of compiling is what the first ten iterations took beyond the next ten.
    """
    first, second = (10 * _turn(trainer, 0, 10)["wall"] for _ in range(2))
    chunk = max(5, round(10 * seconds / second))
    trainer.run(0, chunk)
    return max(0.0, first - second), chunk


def _turn(trainer: Any, step: int, n: int) -> dict[str, float]:
    """Seconds per iteration."""
    wall, cpu = time.perf_counter(), time.process_time()
    trainer.run(step, n)
    return {"wall": (time.perf_counter() - wall) / n, "cpu": (time.process_time() - cpu) / n}


def _figures(turns: list[dict[str, float]]) -> dict[str, float]:
    wall, cpu = ([turn[clock] for turn in turns] for clock in ("wall", "cpu"))
    middle = statistics.median(wall)
    return {
        "its": 1 / middle,
        "its_low": 1 / max(wall),
        "its_high": 1 / min(wall),
        "wall_ms": 1e3 * middle,
        "cpu_ms": 1e3 * statistics.median(cpu),
    }


if __name__ == "__main__":
    main()
