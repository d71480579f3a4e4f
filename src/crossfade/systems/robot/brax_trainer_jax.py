"""`trainer=brax`: a run whose updates are made by Brax's PPO; log, evaluation and checkpoints are those of every run.

Brax's loop is one call: it runs in a thread that waits for its turn after every pass. What it remembers beside
parameters and statistics stays within, so that a run cannot be resumed; a checkpoint is for judging.
"""

from importlib import import_module
from threading import Semaphore, Thread
from typing import Any

import jax
import numpy as np

from ...envs.brax.env_jax import WorldEnv, train
from ...optim import sharing_jax as sharing
from ...run.evaluation import Evaluation
from ...run.settings import Arrays
from ...trainers.making import check_fits
from ...trainers.system import Snapshot
from ...trainers.trainer import Clock
from .brax_jax import judge, network_factory, options
from .config import RobotConfig
from .evaluation import RobotEffort

PARTS = ("normalizer", "policy", "value")
"""Of Brax's parameters."""
NAMES = {"total_loss": "loss", "v_loss": "value_loss"}
"""Of what Brax tells, where ours has another name."""
TIMES = ("sps", "walltime")


class BraxTrainer:
    """Brax's PPO on the robot of a config; `every` updates in a compiled call."""

    def __init__(self, config: RobotConfig, snapshot: Snapshot | None = None, step: int = 0, every: int = 1):
        if config.devices > 1:
            sharing.mesh(config.devices)  # before anything else is asked of JAX: a CPU is then as many devices
        self.config, self.every, self.clock = config, every, Clock()
        self.notes = {"trainer": "Brax's PPO, which cannot be resumed"}
        self.make_policy, self.parameters = _template(config)
        if snapshot is not None:
            expected = _named(self.parameters)
            check_fits(snapshot.parameters, expected)
            leaves, tree = [snapshot.parameters[name] for name in expected], jax.tree.structure(self.parameters)
            self.parameters = jax.tree.unflatten(tree, leaves)
        self._turn, self._passed, self._begun = Semaphore(0), Semaphore(0), False
        self._told: dict[str, float] = {}
        self._failed: BaseException | None = None

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        with self.clock("all"):
            rows = [self._pass() for _ in range(n // self.every)]
        return {name: np.repeat([row[name] for row in rows], self.every) for name in rows[0]}

    def snapshot(self) -> Snapshot:
        return Snapshot(_named(self.parameters), {})

    def evaluate(self, effort: RobotEffort | None = None) -> Evaluation:
        with jax.numpy_rank_promotion("allow"):
            return judge(self.config, self.make_policy, self.parameters, effort)

    def _pass(self) -> dict[str, float]:
        """`every` updates, and what Brax tells of them."""
        if not self._begun:
            Thread(target=self._train, daemon=True).start()
            self._begun = True
        else:
            self._turn.release()
        self._passed.acquire()
        if self._failed is not None:
            raise self._failed
        return self._told

    def _train(self) -> None:
        passes = self.config.steps // self.every

        def keep(step: int, make_policy: Any, parameters: Any) -> None:
            self.parameters = parameters

        def wait(step: int, metrics: dict[str, Any]) -> None:
            told = {name.removeprefix("training/"): float(value) for name, value in metrics.items()}
            self._told = {NAMES.get(name, name): value for name, value in told.items() if name not in TIMES}
            self._passed.release()
            if step < self.config.steps * self.config.env_steps:
                self._turn.acquire()

        more = {"num_evals": passes + 1, "run_evals": False, "policy_params_fn": keep, "progress_fn": wait}
        try:
            train(WorldEnv(self.config.env, None, self.config.settings(0)), **options(self.config), **more)
        except BaseException as error:
            self._failed = error
            self._passed.release()


def _template(config: RobotConfig) -> tuple[Any, Any]:
    """How parameters become a policy; and those that Brax begins with."""
    networks: Any = import_module("brax.training.agents.ppo.networks")
    statistics: Any = import_module("brax.training.acme.running_statistics")
    specs: Any = import_module("brax.training.acme.specs")
    env = WorldEnv(config.env, None, config.settings(0))
    seen = statistics.normalize if config.normalize_observations else lambda observation, _: observation
    made = network_factory(config)((env.observation_size,), env.action_size, preprocess_observations_fn=seen)
    start = statistics.init_state(specs.Array((env.observation_size,), np.dtype("float32")))
    policy_key, value_key = jax.random.split(jax.random.split(jax.random.PRNGKey(config.seed))[0])
    parameters = start, made.policy_network.init(policy_key), made.value_network.init(value_key)
    return networks.make_inference_fn(made), parameters


def _named(parameters: Any) -> Arrays:
    """Brax's parameters as arrays by name: `policy.params.hidden_0.kernel`."""
    found = {}
    for (first, *rest), leaf in jax.tree_util.tree_flatten_with_path(parameters)[0]:
        path = [str(getattr(part, "name", getattr(part, "key", part))) for part in rest]
        array = np.asarray(leaf)
        found[".".join([PARTS[first.idx], *path])] = array if array.dtype.kind == "f" else array.astype(np.uint32)
    return {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in found.items()}
