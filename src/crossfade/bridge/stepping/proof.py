"""The first call of `bridge.Step` proves itself: one step by torch on a copy against one step by the compiled program.

Both run in float64, where two correct ports agree to rounding, and then in the module's own float32, held to its own
measured noise. The rule and its words are those of `crossfade.parity`.

Both optimisers are given the same gradients, JAX's, which were compared with torch's before. An optimiser of its own
gradients would be judged by their rounding: the gradient of a bias in front of a batch normalisation is zero but for
rounding, and Adam divides it by its epsilon.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from torch import nn

from ...errors import DifferentError
from ...optim.state import SCALARS
from ...verdict import EPS64, Comparison, Verdict, allow_float32, allow_float64, compare, largest
from ..transfer import tensor_to_numpy, to_torch
from .batch import x64
from .layout import everything
from .moments import read_optimizer
from .program import Program

QUICKLY_COMPILED = {"xla_backend_optimization_level": 0}
"""For a program that runs twice: compiled in half the time, it differs in rounding at most (no fused multiply-add)."""
RELATIVE = {"loss": 1e-12, "gradient": 1e-10, "parameters": 1e-9, "moments": 1e-9, "buffers": 1e-9}

Quantities = dict[str, dict[str, np.ndarray]]


class Row(NamedTuple):
    """One line of the proof: a quantity in one precision, and its worst place."""

    dtype: str
    quantity: str
    verdict: Verdict
    worst: str  # leaf
    size: float  # relative to the leaf's scale
    allowed: float


def prove(
    program: Program,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    torch_loss: Callable[[nn.Module, Any], Any],
    batch: PyTree,
    by_name: bool = False,
) -> tuple[Row, ...]:
    """The rows of the proof; raises DifferentError at the first quantity that is DIFFERENT.

    `batch` holds NumPy or JAX arrays. Neither the module, nor the optimiser, nor torch's generator is touched.
    by_name: torch_loss reads the tensors of its module by their names alone, so that no copy of its code is needed.
    """
    copied = _named_copy if by_name else _whole_copy
    wide = _Run(program, *copied(module, optimizer, torch.float64), torch_loss, batch, np.float64)
    rows = [_judge("float64", q, wide.torch, wide.jax, _allowed64(q, wide.torch, wide.jax)) for q in wide.torch]
    wide.guard()
    if next(iter(module.parameters())).dtype == torch.float32:
        own = _Run(program, *copied(module, optimizer, torch.float32), torch_loss, batch, np.float32)
        for quantity in own.torch:
            noise = allow_float32(own.torch[quantity], own.jax[quantity], wide.torch[quantity], wide.jax[quantity])
            rows.append(_judge("float32", quantity, own.torch, own.jax, noise))
    return tuple(rows)


class _Run:
    """One step on each side in one precision, as quantities of named NumPy arrays."""

    def __init__(self, program, module, optimizer, torch_loss, batch, dtype):
        self.program = program
        self.batch = jax.tree.map(lambda leaf: _cast(leaf, dtype), batch)
        self.weights = _arrays(module)
        self.optimizer = read_optimizer(optimizer, module)
        with torch.random.fork_rng(devices=[]):
            self.torch = self._torch_gradient(module, optimizer, torch_loss)
        with jax.enable_x64(dtype is np.float64 or x64()):
            self._update = jax.jit(program.update, compiler_options=QUICKLY_COMPILED)
            self.jax = self._jax_step(self.weights)
        self.torch |= self._torch_update(module, optimizer, self.jax["gradient"])

    def guard(self) -> None:
        """A proof that cannot fail proves nothing: with one weight moved, the same comparison must see it."""
        leaf = max(self.jax["gradient"], key=lambda n: np.abs(self.jax["gradient"][n]).max(initial=0.0))
        place = np.unravel_index(np.abs(self.jax["gradient"][leaf]).argmax(), self.weights[leaf].shape)
        moved = self.weights[leaf].copy()
        moved[place] += 1e-3 * (np.abs(moved).max() or 1.0)
        with jax.enable_x64(True):
            disturbed = self._jax_step(self.weights | {leaf: moved})
        for quantity in ("loss", "gradient"):
            allowed = _allowed64(quantity, self.torch, disturbed)
            if compare(self.torch[quantity], disturbed[quantity], allowed).verdict is Verdict.DIFFERENT:
                return
        raise DifferentError(
            f"the proof is hollow: moving {leaf}{list(map(int, place))} by a thousandth of the leaf's scale changes "
            f"neither the loss nor a gradient on this batch. Give a first batch the loss depends on, or verify=False."
        )

    def _torch_gradient(self, module, optimizer, torch_loss) -> Quantities:
        names = {parameter: name for name, parameter in module.named_parameters()}
        owned = _owned(optimizer)
        returned = torch_loss(module, jax.tree.map(_tensor, self.batch))
        loss = returned[0] if isinstance(returned, tuple) else returned
        # What the optimiser does not own gets no update, whatever its gradient: the critic in the loss of an actor.
        zeros = not self.program.set_to_none
        grads = torch.autograd.grad(loss, owned, allow_unused=True, materialize_grads=zeros)
        for parameter, grad in zip(owned, grads, strict=True):
            parameter.grad = grad
        grads = {names[p]: tensor_to_numpy(p.grad) for p in owned if p.grad is not None}
        self.buffers = self._moved(_arrays(module))
        trained = self.program.trained
        return {
            "loss": {"loss": tensor_to_numpy(loss)},
            "gradient": {n: g for n, g in grads.items() if n in trained or np.any(g)},
        }

    def _torch_update(self, module, optimizer, gradient: dict[str, np.ndarray]) -> Quantities:
        """torch's clipping and optimiser on the gradients of JAX."""
        parameters = dict(module.named_parameters())
        for name in gradient.keys() & self.torch["gradient"].keys():
            parameters[name].grad = to_torch(gradient[name]).to(parameters[name].dtype)
        if self.program.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(_owned(optimizer), self.program.clip_norm)
        if self.program.clip_value is not None:
            torch.nn.utils.clip_grad_value_(_owned(optimizer), self.program.clip_value)
        optimizer.step()
        return self._after(_arrays(module), read_optimizer(optimizer, module).moments)

    def _moved(self, weights: dict[str, np.ndarray]) -> list[str]:
        """The mapped arrays that torch's loss moves on, such as running statistics: JAX's must do so too."""
        mapped = {n for entry in self.program.mapping.entries for n in entry.torch} - set(self.program.trained)
        same = lambda n: np.array_equal(weights[n], self.weights[n], equal_nan=weights[n].dtype.kind == "f")
        return sorted(self.program.buffers | {n for n in mapped if not same(n)})

    def _jax_step(self, weights: dict[str, np.ndarray]) -> Quantities:
        program = self.program
        dtype = weights[next(iter(program.groups[0].shapes))].dtype
        state = program.state(weights, self.optimizer)
        trained = set(program.trained)
        fixed = {n: weights[n] for e in program.mapping.entries for n in e.torch if n not in trained}
        counts = program.steps(self.optimizer)
        numbers = np.array([[g.hyper["lr"], n] for g, n in zip(program.groups, counts, strict=True)], dtype).ravel()
        state, after, loss, _, grads = self._update(state, fixed, numbers, self.batch)
        # Cut in NumPy: in JAX each slice would be a program of its own.
        state, after, loss, grads = jax.tree.map(np.asarray, (state, after, loss, grads))
        return {
            "loss": {"loss": loss},
            "gradient": grads,
            **self._after(
                program.cut(state) | after, program.moments_to_torch([m for _, m in state], [n + 1 for n in counts])
            ),
        }

    def _after(self, weights: dict[str, np.ndarray], moments: dict[str, dict[str, np.ndarray]]) -> Quantities:
        named = self.program.trained
        uncounted = ("step",) if self.program.kind == "SGD" else ()
        return {
            "parameters": {n: weights[n] for n in named},
            "moments": {
                f"{n}.{s}": a.astype(np.float64) if s == "step" else a  # torch counts in its default dtype
                for n in named
                for s, a in moments[n].items()
                if s not in uncounted
            },
            "buffers": {n: weights[n] for n in self.buffers},
        }


def _allowed64(quantity: str, torch: Quantities, jax: Quantities) -> dict[str, float]:
    a, b = torch[quantity], jax[quantity]
    cancelling = (1e-11 if quantity == "parameters" else 32 * EPS64) * largest(a, b)
    return allow_float64(a, b, RELATIVE[quantity], cancelling)


def _judge(dtype: str, quantity: str, torch: Quantities, jax: Quantities, allowed: dict[str, float]) -> Row:
    result: Comparison = compare(torch[quantity], jax[quantity], allowed, dtypes=dtype == "float64")
    worst = result.worst
    if result.verdict is Verdict.DIFFERENT:
        place = f"{worst.leaf}{list(worst.index) if worst.index else ''}"
        raise DifferentError(
            f"the first step is DIFFERENT at {quantity} in {dtype} ({worst.kind}): {place}: torch {worst.torch}, "
            f"JAX {worst.jax}, {worst.size:.1e} of the leaf's scale where {worst.allowed:.1e} is rounding. Nothing was "
            f"changed. Compare torch_loss and jax_loss with crossfade.parity.check."
        )
    return Row(dtype, quantity, result.verdict, worst.leaf, worst.size, worst.allowed)


def _owned(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


class Named(nn.Module):
    """Parameters and buffers under the names that they have in a module, without its code."""

    def __init__(self, parameters: dict[str, nn.Parameter], buffers: dict[str, torch.Tensor]):
        super().__init__()
        self._named = parameters, buffers

    def named_parameters(self, *_: Any, remove_duplicate: bool = True, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        first: dict[int, str] = {}
        for name, parameter in self._named[0].items():
            if first.setdefault(id(parameter), name) == name or not remove_duplicate:
                yield name, parameter

    def named_buffers(self, *_: Any, **__: Any) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(self._named[1].items())

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {**self._named[0], **self._named[1]}


def _named_copy(module: nn.Module, optimizer: torch.optim.Optimizer, dtype: torch.dtype):
    """The tensors of a module by name, and its optimiser with these; tied ones stay tied."""
    copies: dict[int, Any] = {}

    def copied(tensor: torch.Tensor) -> Any:
        if id(tensor) not in copies:
            values = tensor.detach().clone()
            values = values.to(dtype) if values.is_floating_point() else values
            own = isinstance(tensor, nn.Parameter) or tensor.requires_grad
            copies[id(tensor)] = nn.Parameter(values, tensor.requires_grad) if own else values
        return copies[id(tensor)]

    buffers = dict(module.named_buffers(remove_duplicate=False))
    held = dict(module.named_parameters()) | everything(module)  # of tied ones, first the name that a module gives
    named = Named(
        {name: copied(tensor) for name, tensor in held.items() if name not in buffers},
        {name: copied(tensor) for name, tensor in buffers.items()},
    )
    return named, _in_precision(copy.deepcopy(optimizer, copies), dtype)


def _whole_copy(module: nn.Module, optimizer: torch.optim.Optimizer, dtype: torch.dtype):
    """Private copies of both, still tied to each other, in one precision."""
    with _copied_without_history():
        module, optimizer = copy.deepcopy((module, optimizer))
    module.to(dtype)
    return module, _in_precision(optimizer, dtype)


def _in_precision(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = float(group["lr"])
    for kept in optimizer.state.values():
        whole = ("step", *SCALARS)  # numbers for a whole parameter, which torch keeps in a precision of their own
        kept.update({s: v.to(dtype) for s, v in kept.items() if s not in whole and isinstance(v, torch.Tensor)})
    return optimizer


@contextmanager
def _copied_without_history() -> Iterator[None]:
    """Lets a tensor with a history be copied: a module may keep one that it computes anew before it reads it."""
    copied = torch.Tensor.__deepcopy__

    def copy_values(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        return copied(self if self.is_leaf else self.detach(), memo)

    torch.Tensor.__deepcopy__ = copy_values
    try:
        yield
    finally:
        torch.Tensor.__deepcopy__ = copied


def _arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor_to_numpy(tensor) for name, tensor in everything(module).items()}


def _cast(leaf: Any, dtype: Any) -> Any:
    return np.asarray(leaf, dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _tensor(leaf: Any) -> torch.Tensor:
    """A batch as torch users hold it: with 64-bit integers, which indexing and losses ask for."""
    tensor = to_torch(leaf)
    return tensor.long() if tensor.dtype == torch.int32 else tensor
