"""Mode `jax_policy`: JAX policy and learner around a NumPy environment; no parameter crosses any more."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..bridge import Mapping, to_torch_optimizer
from ..bridge.libraries import named_leaves
from ..bridge.optimizers import read_torch, write_optax
from .trainer import Clock, Snapshot, as_arrays, columns


class JaxPolicyTrainer:
    """Vectorised NumPy environment, jitted policy, jitted update."""

    def __init__(self, system: Any, torch_system: Any, snapshot: Snapshot, step: int):
        self.system, self.torch_system, self.clock = system, torch_system, Clock()
        self.policy = system.make_policy(snapshot.parameters)
        self.buffer = system.start_buffer(snapshot.buffer)
        self.tx = system.make_optimizer(self.policy)
        self.opt_state = self.tx.init(self.policy)
        self.mapping = Mapping.by_name(torch_system.make_policy(snapshot.parameters), self.policy)
        if snapshot.optimizer is not None:
            self.opt_state = write_optax(snapshot.optimizer, self.opt_state, self.mapping)
        self.update = eqx.filter_jit(partial(_update, system, self.tx), donate="all")

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        return columns([self.iterate(i) for i in range(step, step + n)])

    def iterate(self, step: int) -> dict[str, Any]:
        with self.clock("sample"):
            batch, self.buffer = self.system.collect(self.policy, self.buffer, step)
        with self.clock("gradient"):
            (self.policy, self.opt_state), info = self.update((self.policy, self.opt_state), batch)
            return jax.device_get(info)

    def snapshot(self) -> Snapshot:
        """In neutral form, by way of a torch optimiser made for the purpose."""
        parameters = {name: np.asarray(leaf) for name, leaf in named_leaves(self.policy).items()}
        policy = self.torch_system.make_policy(parameters)
        optimizer, scheduler = self.torch_system.make_optimizer(policy)
        to_torch_optimizer(
            self.opt_state,
            self.mapping,
            optimizer,
            scheduler=scheduler,
            named_parameters=dict(policy.named_parameters()),
        )
        return Snapshot(parameters, read_torch(optimizer, dict(policy.named_parameters())), as_arrays(self.buffer))

    def evaluate(self, effort: Any = None) -> Any:
        return self.system.evaluate(self.policy, effort, self.buffer)


def _update(system: Any, tx: Any, state: tuple[Any, Any], batch: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
    policy, opt_state, info = system.update(state[0], tx, state[1], batch)
    return (policy, opt_state), info
