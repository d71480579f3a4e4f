"""What may stand between a rollout of PPO and its advantages: rewards of its own, learned on the way. Framework-free.

An update of PPO with a hook goes in this order: the rollout, in which the hook watches every state; rewards, by what it
has learned so far; what it watched joins its memory; it learns from batches of that; then advantages and PPO, from the
new rewards. So the rewards of an update never depend on what the hook learns in it.

What a hook learns is a part of the policy, with an optimiser and a loss of its own, both called by its `name`; what it
remembers is `Carry.aux`. Both are in every checkpoint. Without a hook nothing of PPO changes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...envs.world import BoundWorld
from ...nn.distribution import Distribution
from ...optim.state import OptimizerState
from .architecture import Architecture

KEY = 3
"""The number of a hook's key: the fourth that is made of an update's, behind those of `Noise`."""


class Watched(NamedTuple):
    """What a hook saw of each transition, (steps, envs) in front of it."""

    before: Any  # of the state before the step
    after: Any  # of the state after it, before any reset


class Aux(NamedTuple):
    """All that a hook has between two updates, where a program is compiled of them."""

    learned: Any  # its part of the policy: the tree with None in the place of the rest
    opt_state: Any
    memory: Any


@runtime_checkable
class Hook(Protocol):
    """The part that both halves of a system share: on the host, in NumPy."""

    @property
    def name(self) -> str:
        """Of its optimiser and its loss, and in front of the names of its parameters."""
        ...

    def parameters(self, key: Any, /) -> dict[str, Any]:
        """What it learns at the start of a run: NumPy arrays by name."""
        ...

    def optimizer_record(self) -> OptimizerState:
        """Kind, groups and hyper-parameters of its optimiser."""
        ...

    def start_memory(self) -> Any:
        """What it remembers at the start of a run: a NamedTuple of NumPy arrays."""
        ...

    def watch(self, world: BoundWorld, state: Any, /) -> Any:
        """What it must know of states, (envs, ...)."""
        ...

    def gather(self, memory: Any, watched: Watched, key: Any, /) -> tuple[Any, Any]:
        """The batches of its gradient steps, one after another along the first axis; and the memory after a rollout."""
        ...

    def make_network(self, observation_dim: int, actions: Distribution, architecture: Architecture, /) -> Any:
        """PPO's network with what the hook learns in it."""
        ...

    def make_optimizer(self, policy: Any, /) -> Any:
        """The optimiser of its own part of the policy."""
        ...

    def loss(self, policy: Any, batch: Any, /) -> tuple[Any, Mapping[str, Any]]:
        """The loss of that optimiser on one batch."""
        ...

    def reward(self, policy: Any, watched: Watched, reward: Any, /) -> tuple[Any, dict[str, Any]]:
        """The rewards of a rollout on the host in the place of the world's, and scalars to be logged."""
        ...


@runtime_checkable
class CompiledHook(Hook, Protocol):
    """What a hook has in JAX beyond that: pure functions for compiled loops. Hashable, one program for each."""

    data: Any
    """Arrays that the functions below are given: no value of theirs is compiled in."""

    def watch_compiled(self, world: BoundWorld, state: Any, /) -> Any:
        """`watch`, in JAX."""
        ...

    def __call__(
        self, data: Any, aux: Aux, watched: Watched, reward: Any, key: Any, devices: int, /
    ) -> tuple[Any, Aux, dict[str, Any]]:
        """Rewards in the place of the world's, the hook after it has learned, and scalars to be logged."""
        ...
