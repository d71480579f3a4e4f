"""Ways to make one training step of the user's own code.

As in bridge_contenders.py, a contender learns from the next batch and ends with the loss on the host; torch's get
tensors, JAX's NumPy arrays.
"""

import copy
import inspect
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
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
from ..bridge.stepping.live_loss import takes_module
from ..bridge.stepping.step import Step
from ..bridge.transfer import to_torch
from ..errors import CrossfadeError, UsageError
from ..loading import theirs, users_line
from .bridge_contenders import Unavailable
from .bridge_worker import Makers

POOL = 16  # different batches

Loss = Callable[..., Any]
Made = tuple[Loss, Any, torch.optim.Optimizer]  # (loss, module, optimizer)


def contenders(own: Any, target: str) -> "OwnContenders":
    """Those of a `parity.Twin`, or of what `accelerate` takes; `own` may be a function that makes either."""
    make = None
    if not hasattr(own, "batch_at") and callable(own):
        make, own = own, _called(own, target)
    if hasattr(own, "batch_at"):
        return _of_twin(own, target)
    if not (isinstance(own, tuple) and len(own) in (4, 5) and callable(own[0]) and _is_optimizer(own[2])):
        raise UsageError(
            f"{target!r}: expected a parity.Twin, or (loss, module, optimizer, batch), or with a dict of options for "
            f"accelerate at its end, or a function that makes one of these; got {_kind(own)}."
        )
    loss, module, optimizer, batch, *options = own
    if make is not None:
        again: Callable[[], Made] = lambda: _called(make, target)[:3]
    elif takes_module(loss):
        again = lambda: (loss, *copy.deepcopy((module, optimizer)))
    else:
        raise UsageError(
            f"{target!r}: expected a function that makes (loss, module, optimizer, batch), because loss(batch) reads "
            f"its module from around it, and each contender trains one of its own. Write "
            f"def {target.rpartition(':')[2]}(): ... return loss, module, optimizer, batch."
        )
    return OwnContenders(target, again, [batch], _options(options, target))


def _called(make: Callable[[], Any], target: str) -> Any:
    """What the user's function makes, from the same seed each time."""
    torch.manual_seed(0)
    return theirs(target.partition(":")[0], f"calling {target}", make)


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, torch.optim.Optimizer)


def _kind(own: Any) -> str:
    return f"({', '.join(type(part).__name__ for part in own)})" if isinstance(own, tuple) else type(own).__name__


def _options(given: list[Any], target: str) -> dict[str, Any]:
    known = [name for name, p in inspect.signature(accelerate).parameters.items() if p.kind is p.KEYWORD_ONLY]
    options = given[0] if given else {}
    if not isinstance(options, dict) or not options.keys() <= set(known):
        raise UsageError(f"{target!r}: expected options of accelerate ({', '.join(known)}) as a dict; got {options!r}.")
    return options


def _of_twin(twin: Any, target: str) -> "OwnContenders":
    if missing := twin.missing("update") if twin.loss is not None else "loss= and optimizer=":
        raise UsageError(f"{target!r}: expected a twin that can be trained; it lacks {missing}.")
    if twin.optimizer is None:
        raise UsageError(f"{target!r}: expected a twin with optimizer=: an update= of its own cannot be accelerated.")
    torch_loss, jax_loss = (twin.half("loss", side) for side in ("torch", "jax"))
    factory = twin.optimizer[0] if isinstance(twin.optimizer, tuple) else twin.optimizer

    def make() -> Made:
        module = copy.deepcopy(twin.torch)
        return torch_loss, module, factory([p for p in module.parameters() if p.requires_grad])

    mapping = twin.mapping or match(twin.torch, twin.jax, to_torch(twin.inputs))
    batches = [twin.batch_at(i) for i in range(POOL if twin.batches is not None else 1)]
    tx = twin.optimizer[1] if isinstance(twin.optimizer, tuple) else None
    options = {"clip_norm": twin.clip_norm, "clip_value": twin.clip_value}
    return OwnContenders(twin.name, make, batches, options, jax_loss, mapping, tx)


@dataclass(frozen=True)
class OwnContenders:
    """Makes each contender anew, from the same weights and batches."""

    name: str
    make: Callable[[], Made]
    batches: list[Any]
    options: dict[str, Any]  # of `accelerate`
    jax_loss: Loss | None = None
    mapping: Mapping | None = field(default=None, repr=False)
    tx: optax.GradientTransformation | None = None

    def makers(self) -> Makers:
        """Functions by name, each of which makes a contender and tries one update, or raises `Unavailable`."""
        by_hand = {"bridge.Step": self.step, "JAX by hand": self.by_hand} if self.jax_loss is not None else {}
        all_of_them: Makers = {
            "torch eager": self.eager,
            "torch.compile": self.compiled,
            "accelerate": self.accelerated,
            **by_hand,
        }
        return {name: partial(_tried, name, make) for name, make in all_of_them.items()}

    def eager(self) -> Callable[[], float]:
        return self._torch(lambda loss: loss)

    def compiled(self) -> Callable[[], float]:
        """The loss, forward and backward, compiled by torch; the optimiser is torch's."""
        if shutil.which("g++") is None and shutil.which("clang++") is None:
            raise Unavailable("torch.compile needs a C++ compiler, and there is none here")
        return self._torch(torch.compile)

    def accelerated(self) -> Callable[[], float]:
        step, batches = accelerate(*self.make(), **self.options), cycle(self.batches)
        return lambda: _number(step(next(batches)))

    def step(self) -> Callable[[], float]:
        assert self.jax_loss is not None and self.mapping is not None
        loss, module, optimizer = self.make()
        step = Step(module, optimizer, self.jax_loss, self.mapping, torch_loss=loss, **self.options)
        batches = self._arrays()
        return lambda: _number(step(next(batches)))

    def by_hand(self) -> Callable[[], float]:
        """What a JAX user writes: one donated, jitted update with their own optax, or the optimiser's twin."""
        assert self.jax_loss is not None and self.mapping is not None
        _, module, optimizer = self.make()
        tx, opt_state, _ = to_optax(optimizer, self.mapping, **self.options, named_parameters=module)
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

    def _torch(self, wrap: Callable[[Loss], Loss]) -> Callable[[], float]:
        loss, module, optimizer = self.make()
        call = wrap(loss)
        given = (module,) if takes_module(loss) else ()
        batches = cycle([jax.tree.map(_tensor, batch) for batch in self.batches])
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        norm, limit = self.options.get("clip_norm"), self.options.get("clip_value")
        set_to_none = self.options.get("set_to_none", True)

        def run() -> float:
            optimizer.zero_grad(set_to_none=set_to_none)
            returned = call(*given, next(batches))
            value = returned[0] if isinstance(returned, tuple) else returned
            value.backward()
            if norm is not None:
                nn.utils.clip_grad_norm_(owned, norm)
            if limit is not None:
                nn.utils.clip_grad_value_(owned, limit)
            optimizer.step()
            return value.item()

        return run

    def _arrays(self) -> Iterator[Any]:
        return cycle([jax.tree.map(np.asarray, batch) for batch in self.batches])


def _tried(name: str, make: Callable[[], Callable[[], float]]) -> Callable[[], float]:
    """A contender that has made its first update; torch alone must be able to."""
    if name == "torch eager":
        run = make()
        theirs("the update", "one update in plain torch", run)
        return run
    try:
        run = make()
        run()
    except CrossfadeError as error:
        raise Unavailable(str(error)) from error
    except Exception as error:  # torch's compiler, or the user's JAX, may raise anything; the others are still timed
        words = str(error).strip().partition("\n")[0]
        raise Unavailable(f"{type(error).__name__}: {words}{users_line(error)}") from error
    return run


def _number(returned: Any) -> float:
    return (returned[0] if isinstance(returned, tuple) else returned).item()


def _tensor(leaf: Any) -> Any:
    """Arrays as tensors; containers that JAX does not know, and what they hold, as they are."""
    return to_torch(leaf) if isinstance(leaf, np.ndarray | jax.Array) else leaf
