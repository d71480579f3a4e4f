"""Twin: one system written twice, with what is needed to run both halves on the same numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError

LEVELS = ("map", "forward", "loss", "grad", "update", "updates", "env", "rollout")

DATA = ("batch", "example")
Pair = tuple[Any, ...]  # (torch half, JAX half)


@dataclass(frozen=True, eq=False)
class Twin:
    """The two halves of one system under one name. A level can be proved when the fields it needs are given.

    `torch` is a module and `jax` a model of any supported library (see `bridge.libraries.open_model`); the weights of
    the module are copied into the model through `mapping`, or through `bridge.match` when that is None. A pair holds
    the torch callable and the JAX callable, which take the same arguments but for the framework:

        forward    (module, batch) -> outputs                     default: the module called on `example`
        loss       (module, batch) -> loss or (loss, info)        info is compared too, key by key
        optimizer  torch: parameters -> torch.optim.Optimizer     given alone, `bridge.to_optax` makes the JAX half
                   JAX:   an optax transformation
        update     torch: (module, optimizer, batch) -> metrics or None, in place
                   JAX:   (model, tx, opt_state, batch) -> (model, opt_state, metrics or None)
                   default: gradient of `loss`, clipped to `clip_norm` or `clip_value`, one step of `optimizer`
        env        objects with reset(key) -> state and step(state, action) -> (state, outputs), pytrees of arrays
                   with the same names; the torch half may be NumPy and is given `crossfade.random.numpy` keys
        rollout    (module, key) -> trajectory; keys of `crossfade.random` and `jax.random` from the same `seed`

    Randomness is data: noise belongs in the batch, or is drawn from a shared key.
    """

    name: str
    torch: Any = field(default=None, repr=False)
    jax: Any = field(default=None, repr=False)
    batch: Any = field(default=None, repr=False)
    """A pytree of NumPy arrays (or tensors); each half gets it in its own kind of array and in the precision of the
    run."""
    mapping: Any = field(default=None, repr=False)
    """A `bridge.Mapping`."""
    example: Any = field(default=None, repr=False)
    """What the module is called on: an array, or a tuple of arguments. Default: `batch`, when that is one."""
    forward: Pair | None = field(default=None, repr=False)
    loss: Pair | None = field(default=None, repr=False)
    optimizer: Callable[..., Any] | Pair | None = field(default=None, repr=False)
    clip_norm: float | None = None
    """The norm for `torch.nn.utils.clip_grad_norm_` in the default update."""
    clip_value: float | None = None
    """The same for `torch.nn.utils.clip_grad_value_`."""
    scheduler: Callable[[Any], Any] | None = field(default=None, repr=False)
    """torch optimizer -> learning-rate scheduler, stepped after every update."""
    update: Pair | None = field(default=None, repr=False)
    batches: Callable[[int], Any] | Sequence[Any] | None = field(default=None, repr=False)
    """The batch of update i, or a list to go round; default: the same `batch` at every update."""
    env: Pair | None = field(default=None, repr=False)
    actions: Any = field(default=None, repr=False)
    """Array (T, ...): what `env` is driven by."""
    rollout: Pair | None = field(default=None, repr=False)
    seed: int = 0
    scales: bool = True
    """Whether forward and loss are also proved with weights and inputs of other sizes and signs (elsewhere.py)."""
    scaled: tuple[str, ...] | None = None
    """Names of those leaves of the batch that may then take any value. Default: those that equal `example`."""

    def __post_init__(self):
        for name in ("forward", "loss", "update", "env", "rollout"):
            pair = getattr(self, name)
            if pair is not None and (not isinstance(pair, tuple) or len(pair) != 2):
                raise UsageError(f"{name}: expected a pair (torch half, JAX half), got {pair!r}.")
        if (self.torch is None) != (self.jax is None):
            missing = "jax" if self.jax is None else "torch"
            raise UsageError(f"expected both models or neither; {missing}= is missing.")

    def missing(self, level: str) -> str | None:
        """What this twin would need for a level, or None when the level can be proved."""
        models, loss = self.torch is not None, self.loss is not None
        needs = {
            "map": (models, "torch= and jax="),
            "forward": (models and (self.forward is not None or self.inputs is not None), "forward= or example="),
            "loss": (models and loss, "loss="),
            "grad": (models and loss, "loss="),
            "update": (models and self._can_update, "update=, or loss= and optimizer="),
            "updates": (models and self._can_update, "update=, or loss= and optimizer="),
            "env": (self.env is not None and self.actions is not None, "env= and actions="),
            "rollout": (self.rollout is not None, "rollout="),
        }
        given, what = needs[level]
        return None if given else what

    @property
    def _can_update(self) -> bool:
        return self.update is not None or (self.loss is not None and self.optimizer is not None)

    @property
    def inputs(self) -> Any:
        """What the modules are called on by default, or None."""
        if self.example is not None:
            return self.example
        return self.batch if isinstance(self.batch, tuple) or hasattr(self.batch, "shape") else None

    def half(self, field: str, side: str) -> Any:
        """The torch or JAX half of a pair, or None when the pair was not given."""
        pair = getattr(self, field)
        return None if pair is None else pair[0 if side == "torch" else 1]

    def with_data(self, move: Callable[[Any], Any]) -> "Twin":
        """The twin with every batch changed by `move`."""
        given = {name: None if getattr(self, name) is None else move(getattr(self, name)) for name in DATA}
        batches = None if self.batches is None else lambda i: move(self.batch_at(i))
        return replace(self, **given, batches=batches)

    @property
    def first_batch(self) -> Any:
        """What forward, loss and gradient are computed on."""
        return self.batch_at(0) if self.batch is None and self.batches is not None else self.batch

    def batch_at(self, i: int) -> Any:
        """The batch of update number i, from zero."""
        if self.batches is None:
            return self.batch
        return self.batches(i) if callable(self.batches) else self.batches[i % len(self.batches)]
