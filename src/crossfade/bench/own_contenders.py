"""Ways to make one training step of the user's own code.

As in bridge_contenders.py, a contender learns from the next batch and ends with the loss on the host; torch's get
tensors, JAX's NumPy arrays.
"""

import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import jax
import numpy as np
import optax
import torch
from torch import nn

from ..bridge.libraries import open_model
from ..bridge.mapping import Mapping
from ..bridge.matching.match import match
from ..bridge.optimizers.exchange import to_optax
from ..bridge.stepping.accelerating import accelerate
from ..bridge.stepping.step import Step
from ..bridge.transfer import to_torch
from ..errors import UsageError
from .bridge_contenders import Unavailable
from .bridge_worker import Makers

POOL = 16  # different batches

Loss = Callable[[Any, Any], Any]


def contenders(own: Any, target: str) -> "OwnContenders":
    """Those of a `parity.Twin`, or of what `accelerate` takes; `own` may be a function that makes either."""
    if not hasattr(own, "batch_at") and callable(own):
        own = own()
    if hasattr(own, "batch_at"):
        return _of_twin(own, target)
    if isinstance(own, tuple) and len(own) == 4 and isinstance(own[1], nn.Module):
        loss, module, optimizer, batch = own
        return OwnContenders(target, loss, lambda: copy.deepcopy((module, optimizer)), [batch])
    raise UsageError(
        f"{target!r}: expected a parity.Twin, or (loss, module, optimizer, batch) with a module, or a function that "
        f"makes one of these; got {type(own).__name__}."
    )


def _of_twin(twin: Any, target: str) -> "OwnContenders":
    if missing := twin.missing("update") if twin.loss is not None else "loss= and optimizer=":
        raise UsageError(f"{target!r}: expected a twin that can be trained; it lacks {missing}.")
    torch_loss, jax_loss = (twin.half("loss", side) for side in ("torch", "jax"))
    factory = twin.optimizer[0] if isinstance(twin.optimizer, tuple) else twin.optimizer

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        module = copy.deepcopy(twin.torch)
        return module, factory([p for p in module.parameters() if p.requires_grad])

    mapping = twin.mapping or match(twin.torch, twin.jax, to_torch(twin.inputs))
    batches = [twin.batch_at(i) for i in range(POOL if twin.batches is not None else 1)]
    tx = twin.optimizer[1] if isinstance(twin.optimizer, tuple) else None
    return OwnContenders(twin.name, torch_loss, make, batches, twin.clip_norm, jax_loss, mapping, tx)


@dataclass(frozen=True)
class OwnContenders:
    """Makes each contender anew, from the same weights and batches."""

    name: str
    loss: Loss
    make: Callable[[], tuple[nn.Module, torch.optim.Optimizer]]
    batches: list[Any]
    clip_norm: float | None = None
    jax_loss: Loss | None = None
    mapping: Mapping | None = field(default=None, repr=False)
    tx: optax.GradientTransformation | None = None

    def makers(self) -> Makers:
        """Functions by name, each of which makes a contender or raises `Unavailable`."""
        by_hand = {"bridge.Step": self.step, "JAX by hand": self.by_hand} if self.jax_loss is not None else {}
        return {"torch eager": self.eager, "torch.compile": self.compiled, "accelerate": self.accelerated, **by_hand}

    def eager(self) -> Callable[[], float]:
        return self._torch(self.loss)

    def compiled(self) -> Callable[[], float]:
        """The loss, forward and backward, compiled by torch; the optimiser is torch's."""
        if shutil.which("g++") is None and shutil.which("clang++") is None:
            raise Unavailable("torch.compile needs a C++ compiler, and there is none here")
        return self._torch(torch.compile(self.loss))

    def accelerated(self) -> Callable[[], float]:
        module, optimizer = self.make()
        step, batches = accelerate(self.loss, module, optimizer, clip_norm=self.clip_norm), self._arrays()
        return lambda: _number(step(next(batches)))

    def step(self) -> Callable[[], float]:
        assert self.jax_loss is not None and self.mapping is not None
        module, optimizer = self.make()
        given: Any = {"torch_loss": self.loss, "clip_norm": self.clip_norm}
        step, batches = Step(module, optimizer, self.jax_loss, self.mapping, **given), self._arrays()
        return lambda: _number(step(next(batches)))

    def by_hand(self) -> Callable[[], float]:
        """What a JAX user writes: one donated, jitted update with their own optax, or the optimiser's twin."""
        assert self.jax_loss is not None and self.mapping is not None
        module, optimizer = self.make()
        tx, opt_state, _ = to_optax(optimizer, self.mapping, clip_norm=self.clip_norm, named_parameters=module)
        jax_loss, opened = self.jax_loss, open_model(self.mapping.to_jax(module.state_dict()))
        if self.tx is not None:
            tx, opt_state = self.tx, self.tx.init(opened.params)
        batches, carry = self._arrays(), (opened.params, opt_state)

        def loss(params: Any, batch: Any) -> Any:
            returned = jax_loss(opened.build(params, opened.state), batch)
            return returned[0] if isinstance(returned, tuple) else returned

        def update(carry: Any, batch: Any) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params, batch)
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), value

        compiled = jax.jit(update, donate_argnums=0)

        def run() -> float:
            nonlocal carry
            carry, value = compiled(carry, next(batches))
            return np.asarray(value.block_until_ready()).item()

        return run

    def _torch(self, loss: Loss) -> Callable[[], float]:
        module, optimizer = self.make()
        batches = cycle([to_torch(batch) for batch in self.batches])

        def run() -> float:
            optimizer.zero_grad()
            returned = loss(module, next(batches))
            value = returned[0] if isinstance(returned, tuple) else returned
            value.backward()
            if self.clip_norm is not None:
                owned = [p for group in optimizer.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(owned, self.clip_norm)
            optimizer.step()
            return value.item()

        return run

    def _arrays(self) -> Iterator[Any]:
        return cycle([jax.tree.map(np.asarray, batch) for batch in self.batches])


def _number(returned: Any) -> float:
    return (returned[0] if isinstance(returned, tuple) else returned).item()
