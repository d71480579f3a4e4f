"""The seam between systems and trainers: what a system's two halves must have, and nothing beyond it is called.

A system keeps `TorchSystem` in one module and `JaxSystem` in another; each half imports its own framework alone. All
that learns is one object, here called the policy: an `nn.Module` on the torch side, a pytree (an Equinox module) on
the JAX side, with the same parameter names. It may hold several networks, target networks and averages; what no
optimiser owns is moved by `update` itself, and all of it is stored in a checkpoint.

The buffer is what a system remembers between updates beside the policy: environments under way, statistics of
observations, replay. A system without memory has None. Batches may come from a rollout or from a dataset: `collect`
decides. Randomness comes from the config's seed and the number of the update alone, so that every mode draws the same.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..optim.state import OptimizerState
from ..run.evaluation import Effort as Effort, Evaluation as Evaluation
from ..run.settings import Arrays, RunConfig

if TYPE_CHECKING:
    import optax
    from jaxtyping import Array, PyTree
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from ..optim.functional_torch import Moments

Saved = dict[str, Any]
"""A buffer in neutral form: NumPy arrays by name, nested like the NamedTuples it was made of."""
Buffer = TypeVar("Buffer")
"""A NamedTuple of arrays and of such NamedTuples, or None."""
Batch = TypeVar("Batch")
"""What an update learns from; each half has its own type."""


class Objective(NamedTuple):
    """A loss that one optimiser makes small."""

    loss: Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]
    """`(policy, batch) -> (value, info)`: a scalar, and scalars to be logged."""
    clip_norm: float | None = None
    """Largest norm of the gradient over all parameters of the optimiser; None does not clip."""
    set_to_none: bool = True
    """Whether parameters that the loss does not use have no gradient, as torch's optimisers skip them, or zeros."""


class Scheduled(NamedTuple):
    """A torch optimiser, and the scheduler that is stepped once per update, if there is one."""

    optimizer: "Optimizer"
    scheduler: "LRScheduler | None" = None


class PureState(NamedTuple):
    """Everything that learning changes, as tensors: the state of `torch_pure`."""

    params: "dict[str, Tensor]"
    """The policy's `state_dict`."""
    moments: "dict[str, Moments]"
    """The moments of each optimiser, by its name."""


Info = Mapping[str, Any]
"""Scalars of one update, by the name under which they are logged."""


@runtime_checkable
class TorchSystem(Protocol[Batch, Buffer]):
    """The torch half: modes `torch` and `torch_pure`, and the sampling half of `jax_minimal`."""

    config: RunConfig

    def parameters(self) -> Arrays:
        """The policy's arrays at the start of a run, by torch name; drawn from the seed, equal in both halves."""
        ...

    def make_policy(self, parameters: Arrays) -> "nn.Module":
        """The policy that holds these arrays."""
        ...

    def make_optimizers(self, policy: "nn.Module") -> dict[str, Scheduled]:
        """The optimisers at the start of a run, by name; no two own the same parameter. A sole one is `policy`."""
        ...

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        """Kind, groups and hyper-parameters of each optimiser after `step` updates, without moments, as
        `bridge.optimizers.read_torch` reads them off the optimisers of mode `torch`: what a checkpoint tells torch.
        Equal in both halves."""
        ...

    def start_buffer(self, saved: Saved | None = None) -> Buffer:
        """The buffer at the start of a run, or as a checkpoint holds it; CheckpointError if that does not fit."""
        ...

    def collect(self, policy: "nn.Module", buffer: Buffer, step: int) -> tuple[Any, Buffer]:
        """The batch of update `step` in NumPy, from vectorised environments or a dataset, and the buffer after it."""
        ...

    def collect_one_by_one(self, policy: "nn.Module", buffer: Buffer, step: int) -> tuple[Any, Buffer]:
        """The same batch from environments stepped one by one, as PyTorch code is written today."""
        ...

    def tensors(self, batch: Any) -> Batch:
        """A batch of `collect` as tensors."""
        ...

    def update(self, policy: "nn.Module", optimizers: dict[str, Scheduled], batch: Batch) -> Info:
        """One update in place: gradients, optimisers and their schedulers, target networks."""
        ...

    def pure_update(
        self, policy: "nn.Module", compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Callable[[PureState, Batch], tuple[PureState, Info]]:
        """`update` as a function of tensors. The policy gives structure, not values.

        `compile` is `torch.compile`, or the identity where there is no compiler; the system applies it to the function
        that holds the arithmetic.
        """
        ...

    def objectives(self) -> dict[str, Objective]:
        """The loss of each optimiser, by the optimiser's name; `jax_minimal` holds those of JAX against them."""
        ...

    def learn(
        self, policy: "nn.Module", optimizers: dict[str, Scheduled], batch: Any, steps: dict[str, Callable[[Any], Info]]
    ) -> Info:
        """`update` with each optimiser's gradient step replaced by `steps[name](minibatch) -> info`; the rest, such as
        minibatches, learning rates, schedulers and target networks, is the system's. `batch` is as `collect` gave it.
        """
        ...

    def evaluate(self, policy: "nn.Module", effort: Effort | None = None, buffer: Buffer | None = None) -> Evaluation:
        """What the policy is worth; without an effort what is cheap, as training asks for now and then."""
        ...


@runtime_checkable
class JaxSystem(Protocol[Batch, Buffer]):
    """The JAX half: modes `jax_policy` and `jax_full`, and the learning half of `jax_minimal`."""

    config: RunConfig

    def parameters(self) -> Arrays:
        """The policy's arrays at the start of a run, by torch name; drawn from the seed, equal in both halves."""
        ...

    def make_policy(self, parameters: Arrays) -> "PyTree":
        """The policy that holds these arrays, each at the path that is its torch name."""
        ...

    def make_optimizers(self, policy: "PyTree") -> "dict[str, optax.GradientTransformation]":
        """The optimisers, by name; `init` is given the policy, so each masks what it does not own."""
        ...

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        """Kind, groups and hyper-parameters of each optimiser after `step` updates, without moments, as
        `bridge.optimizers.read_torch` reads them off the optimisers of mode `torch`: what a checkpoint tells torch.
        Equal in both halves."""
        ...

    def start_buffer(self, saved: Saved | None = None) -> Buffer:
        """The buffer at the start of a run, or as a checkpoint holds it; in `jax_full` on its device."""
        ...

    def collect(self, policy: "PyTree", buffer: Buffer, step: int) -> tuple[Batch, Buffer]:
        """The batch of update `step`, from vectorised NumPy environments or a dataset, and the buffer after it."""
        ...

    def update(
        self,
        policy: "PyTree",
        optimizers: "dict[str, optax.GradientTransformation]",
        opt_states: "dict[str, PyTree]",
        batch: Batch,
    ) -> "tuple[PyTree, dict[str, PyTree], Mapping[str, Array]]":
        """One update: policy, optimiser states and info after it. Pure: the trainer compiles it."""
        ...

    def objectives(self) -> dict[str, Objective]:
        """The loss of each optimiser, by the optimiser's name."""
        ...

    def train(
        self,
        policy: "PyTree",
        optimizers: "dict[str, optax.GradientTransformation]",
        opt_states: "dict[str, PyTree]",
        buffer: Buffer,
        step: int,
        n: int,
    ) -> "tuple[PyTree, dict[str, PyTree], Buffer, Mapping[str, Array]]":
        """Updates `step` to `step + n` in one compiled program, collecting included; info holds `n` values of each.

        The memory of what goes in may be given away.
        """
        ...

    def evaluate(self, policy: "PyTree", effort: Effort | None = None, buffer: Buffer | None = None) -> Evaluation:
        """What the policy is worth; without an effort what is cheap, as training asks for now and then."""
        ...


class Snapshot(NamedTuple):
    """The state of a run in neutral form: any mode can go on from it."""

    parameters: Arrays
    """All arrays of the policy, by torch name."""
    optimizers: dict[str, OptimizerState] = {}
    """The state of each optimiser, by its name; empty before the first update."""
    buffer: Saved | None = None


def as_saved(buffer: Any) -> Any:
    """A buffer in neutral form."""
    if buffer is None:
        return None
    if isinstance(buffer, tuple) and hasattr(buffer, "_asdict"):
        return {name: as_saved(part) for name, part in buffer._asdict().items()}  # pyright: ignore
    return np.array(buffer)
