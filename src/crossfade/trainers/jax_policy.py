"""Mode `jax_policy`: JAX policy and learner around NumPy environments; no parameter crosses any more."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..bridge.libraries import named_leaves
from ..optim import sharing_jax as sharing
from .moments_jax import counted, read_moments, write_moments
from .system import Effort, Evaluation, Info, JaxSystem, Snapshot, as_saved
from .trainer import Clock, columns


class JaxPolicyTrainer:
    """Vectorised NumPy environments, jitted policy, jitted update."""

    def __init__(self, system: JaxSystem[Any, Any], snapshot: Snapshot, step: int):
        self.system, self.clock, self.step = system, Clock(), step
        self.notes: dict[str, str] = {}
        self.policy = system.make_policy(snapshot.parameters)
        self.buffer = system.start_buffer(snapshot.buffer)
        self.dtypes = {name: array.dtype for name, array in snapshot.parameters.items()}
        self.optimizers = {name: counted(tx, self.policy) for name, tx in system.make_optimizers(self.policy).items()}
        self.opt_states = {name: tx.init(self.policy) for name, tx in self.optimizers.items()}
        for name, state in snapshot.optimizers.items():
            self.opt_states[name] = write_moments(state, self.opt_states[name])
        self.update = eqx.filter_jit(partial(_update, system, self.optimizers), donate="all")

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        return columns([self.iterate(i) for i in range(step, step + n)])

    def iterate(self, step: int) -> Info:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("gradient"):
            (self.policy, self.opt_states), info = self.update((self.policy, self.opt_states), batch)
            info = jax.device_get(info)
        self.step = step + 1
        return info

    def snapshot(self) -> Snapshot:
        parameters = {name: self._saved(name, leaf) for name, leaf in named_leaves(self.policy).items()}
        records = self.system.optimizer_records(self.step)
        states = {name: read_moments(self.opt_states[name], record) for name, record in records.items()}
        return Snapshot(parameters, states, as_saved(sharing.here(self.buffer)))

    def _saved(self, name: str, leaf: Any) -> np.ndarray:
        """The tree as NumPy arrays; integers in the type they had, which JAX narrows to 32 bits."""
        array = np.array(leaf)
        return array.astype(self.dtypes[name]) if array.dtype.kind in "iu" else array

    def evaluate(self, effort: Effort | None = None) -> Evaluation:
        return self.system.evaluate(sharing.here(self.policy), effort, sharing.here(self.buffer))


def _update(system: JaxSystem[Any, Any], optimizers: Any, state: tuple[PyTree, PyTree], batch: Any) -> Any:
    policy, opt_states, info = system.update(state[0], optimizers, state[1], batch)
    return (policy, opt_states), info
