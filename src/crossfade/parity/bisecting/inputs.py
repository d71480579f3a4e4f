"""Causes that lie in what a half is given: a leaf of the batch inverted, turned round or exchanged, weights swapped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from ...bridge.libraries import leaf_names, named_leaves
from ..weights import Weights
from .trial import Trial

SHORT = 4  # rows of an axis that is searched for rows used twice


@dataclass(frozen=True, eq=False)
class InputCause:
    """A change of the batch or of the weights, and the names of what is changed."""

    kind: str
    text: str
    names: tuple[str, ...]
    batches: Callable[[Any], Any] | None = None
    weights: Weights | None = None


def input_causes(trial: Trial) -> Iterator[InputCause]:
    """What to try, weights first."""
    if trial.twin.torch is not None:
        yield from _exchanged_weights(trial)
    if trial.level == "forward" and trial.twin.forward is None:
        return
    tensors = {name: leaf for name, leaf in named_leaves(trial._batch(0)).items() if isinstance(leaf, Tensor)}
    for name, leaf in tensors.items():
        for kind, text, move in _moves(leaf):
            yield InputCause(kind, f"batch.{name} {text} in JAX", (f"batch.{name}",), _on(name, move))
    for (one, a), (other, b) in combinations(tensors.items(), 2):
        if a.shape == b.shape and a.dtype == b.dtype and a.ndim:
            text = f"batch.{one} and batch.{other} are exchanged in JAX"
            yield InputCause("exchanged", text, (f"batch.{one}", f"batch.{other}"), _swap(one, other))
            for to, of in ((one, other), (other, one)):
                text = f"JAX reads batch.{of} for batch.{to}"
                yield InputCause("operand", text, (f"batch.{to}",), _copy(to, of))


def _moves(x: Tensor) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    floating = x.is_floating_point()
    if x.dtype is torch.bool or (x.numel() and bool(((x == 0) | (x == 1)).all())):
        yield "mask", "is inverted", lambda x: ~x if x.dtype is torch.bool else 1 - x
    if x.dtype is torch.bool or floating:
        yield "left out", "is taken as one everywhere", torch.ones_like
        yield "left out", "is taken as zero everywhere", torch.zeros_like
    if floating:
        yield "sign", "has the other sign", torch.neg
        yield "constant", "is one wherever it is not zero", torch.sign
        top = float(x.max()) if x.numel() and bool((x == 0).any()) else 0.0
        for other in dict.fromkeys((top, 1.0, 0.99, 0.9, 0.95)) if top > 0 else ():
            text = f"is {other:g} where it should be zero"
            yield "mask", text, lambda x, other=other: torch.where(x == 0, torch.full_like(x, other), x)
        yield "mask", "is turned into 1 - itself", lambda x: 1 - x
        yield "constant", "is squared", torch.square
    elif x.dtype is not torch.bool:
        yield "index", "is one lower", lambda x: x - 1
        yield "index", "is one higher", lambda x: x + 1
    for axis in range(x.ndim):
        n = x.shape[axis]
        if n > 1:
            yield "order", f"is in reversed order along axis {axis}", lambda x, axis=axis: x.flip(axis)
            for by in (-1, 1):
                text = f"is shifted by one {'back' if by < 0 else 'on'} along axis {axis}"
                yield "order", text, lambda x, axis=axis, by=by: x.roll(by, axis)
        if 1 < n <= SHORT and x.ndim > 1:
            for to in range(n):
                for of in range(n):
                    if to != of:
                        text = f"has its part {of} of axis {axis} used for part {to} too"
                        yield "operand", text, lambda x, axis=axis, to=to, of=of: _row(x, axis, to, of)


def _row(x: Tensor, axis: int, to: int, of: int) -> Tensor:
    order = torch.arange(x.shape[axis])
    order[to] = of
    return x.index_select(axis, order)


def _on(name: str, move: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda own, leaf: move(leaf) if own == name else leaf, leaf_names(tree), tree)


def _swap(one: str, other: str) -> Callable[[Any], Any]:
    def change(tree: Any) -> Any:
        named = named_leaves(tree)
        swapped = {one: named[other], other: named[one]}
        return jax.tree.map(lambda own, leaf: swapped.get(own, leaf), leaf_names(tree), tree)

    return change


def _copy(to: str, of: str) -> Callable[[Any], Any]:
    def change(tree: Any) -> Any:
        named = named_leaves(tree)
        return jax.tree.map(lambda own, leaf: named[of] if own == to else leaf, leaf_names(tree), tree)

    return change


def _exchanged_weights(trial: Trial) -> Iterator[InputCause]:
    """Parameters, then whole modules, of equal shapes; one for the other, and one in place of the other."""
    weights = {name: a for name, a in trial.weights.items() if a.dtype.kind == "f" and a.ndim}
    modules: dict[str, dict[str, np.ndarray]] = {}
    for name, array in weights.items():
        words = name.split(".")
        for depth in range(1, len(words)):
            modules.setdefault(".".join(words[:depth]), {})[".".join(words[depth:])] = array
    for (one, a), (other, b) in combinations(modules.items(), 2):
        if _shapes(a) == _shapes(b):
            swap = {f"{one}.{n}": b[n] for n in a} | {f"{other}.{n}": a[n] for n in a}
            names = tuple(swap)
            yield InputCause("exchanged", f"{one} and {other} are exchanged in JAX", names, None, _put(trial, swap))
            for to, of, named in ((one, other, b), (other, one, a)):
                own = {f"{to}.{n}": named[n] for n in named}
                yield InputCause("operand", f"JAX reads {of} for {to}", tuple(own), None, _put(trial, own))
    for (one, a), (other, b) in combinations(weights.items(), 2):
        if a.shape == b.shape and one.rpartition(".")[2] == other.rpartition(".")[2]:
            text = f"{one} and {other} are exchanged in JAX"
            yield InputCause("exchanged", text, (one, other), None, _put(trial, {one: b, other: a}))
    for name, array in weights.items():
        if array.ndim == 2 and array.shape[0] == array.shape[1] > 1:
            yield InputCause("transposed", f"{name} is transposed in JAX", (name,), None, _put(trial, {name: array.T}))
        for axis in range(array.ndim):
            if array.shape[axis] > 1:
                text = f"{name} is in reversed order along axis {axis} in JAX"
                yield InputCause("order", text, (name,), None, _put(trial, {name: np.flip(array, axis)}))


def _shapes(arrays: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _put(trial: Trial, changed: dict[str, np.ndarray]) -> Weights:
    return trial.weights | {name: np.ascontiguousarray(array) for name, array in changed.items()}
