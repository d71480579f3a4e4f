"""`save` and `load`: a training state as one bundle, given and taken in torch, JAX or NumPy."""

import math
import operator
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, UsageError
from . import optimizer as optimizer_state, store, tree, writer
from .folder import as_path
from .manifest import LAST_STEP, shortened
from .sides import KEY_WORDS, check_side, giver, is_tensor, key_to_words, words_to_key
from .weights import (
    Arrays,
    check_fits,
    is_module,
    is_state_dict,
    named_arrays,
    reading_mapping,
    recorded_mapping,
    store_once,
)


@dataclass(frozen=True)
class Bundle:
    """A loaded checkpoint, its arrays on the side that was asked for."""

    params: Any  # a state_dict; with a mapping on the JAX side, a model
    optimizer: Any  # a neutral `bridge.optimizers.OptimizerState`, or None
    buffers: dict[str, Any]  # given apart from `params`; inside the model where that is one
    normalizer: Any
    key: Any  # a typed JAX key, a `crossfade.random` torch key, or uint32 words
    replay: Any
    step: int
    meta: dict[str, Any]
    manifest: dict[str, Any]

    def restore(self, module: Any, optimizer: Any = None) -> None:
        """Loads the weights into a torch module and the moments into its optimiser, in place.

        Nothing is changed unless names, shapes and dtypes fit.
        """
        if not isinstance(self.params, dict) or not all(map(is_tensor, self.params.values())):
            raise UsageError("expected a bundle of torch tensors; load it with side='torch' to restore a module.")
        weights = {**self.params, **self.buffers}
        check_fits(weights, module, None)
        if optimizer is not None:
            from ..bridge.optimizers.exchange import write_torch

            write_torch(self._optimizer_state(), optimizer, module)
        module.load_state_dict(weights)

    def optax(self, mapping: Any, **options: Any) -> Any:
        """The optimiser in optax: `bridge.optimizers.build_optax` with its options (`schedule`, `clip_norm`)."""
        from ..bridge.optimizers.exchange import build_optax

        return build_optax(self._optimizer_state(), mapping, **options)

    def _optimizer_state(self) -> Any:
        if self.optimizer is None:
            raise CheckpointError(
                f"expected a bundle with an optimiser, got one without (step {self.step}); save with optimizer=."
            )
        return self.optimizer


def save(
    path: str | os.PathLike,
    *,
    params: Any,
    optimizer: Any = None,
    buffers: Any = None,
    normalizer: Any = None,
    key: Any = None,
    replay: Any = None,
    step: int = 0,
    mapping: Any = None,
    meta: dict[str, Any] | None = None,
    keep: int | None = 3,
    optimizer_like: Any = None,
) -> Path:
    """Writes the bundle `path/<step>` and returns its path; it is complete on disk, or absent.

    - `params`: a torch module, a state_dict, a dict of arrays by torch name, or (with `mapping`) a JAX model.
    - `optimizer`: an `OptimizerState`, a torch optimiser (with `params` its module), or (with `mapping`) an optax
      state; `optimizer_like` is then the torch optimiser it continues, or an `OptimizerState`, for its kind and groups.
    - `buffers`: further arrays by torch name, kept beside the weights.
    - `normalizer`, `replay`: nested dicts, lists and tuples of arrays and scalars. NumPy scalars come back as arrays.
    - `key`: a JAX key, or key words of shape (..., 2) as `crossfade.random` has them.
    - `meta`: anything JSON can hold. `mapping` is recorded too, so a JAX model can be loaded without matching again.
    - `keep`: how many of the highest steps stay in `path` (None: all). The bundle just written always stays.

    Saving a step again replaces it. Tied weights are stored once, under their first name.
    """
    _check_number("step", step, 0)
    if keep is not None:
        _check_number("keep", keep, 1)
    if not isinstance(meta, dict | None):
        raise UsageError(f"meta: expected a dict, got {type(meta).__qualname__}; put it under a name.")
    path, step = as_path(path), operator.index(step)
    state = optimizer_state.read(optimizer, params, mapping, optimizer_like)

    named, given = named_arrays(params, mapping, "params"), named_arrays(buffers or {}, None, "buffers")
    if both := sorted(named.keys() & given.keys()):
        raise CheckpointError(f"expected every array once, got {', '.join(both)} in both params and buffers.")
    weights, aliases = store_once(named | given)
    sections: dict[str, Arrays] = {"weights": weights, "optimizer": {}, "normalizer": {}, "replay": {}}
    words, impl = (None, None) if key is None else key_to_words(key)
    fields = {
        "aliases": aliases,
        "buffers": list(given),
        "optimizer": None if state is None else optimizer_state.pack(state, sections["optimizer"]),
        "normalizer": tree.encode(normalizer, "normalizer", sections["normalizer"]),
        "replay": tree.encode(replay, "replay", sections["replay"]),
        "key": None if words is None else {"impl": impl, "shape": list(words.shape), "words": words.ravel().tolist()},
        "mapping": None if mapping is None else tree.encode(mapping.to_json(), "mapping"),
        "meta": tree.encode(meta or {}, "meta"),
    }
    sections = {name: arrays for name, arrays in sections.items() if arrays or name == "weights"}
    return writer.write(path, step, sections, fields, keep)


def load(path: str | os.PathLike, *, side: str = "torch", mapping: Any = None, like: Any = None) -> Bundle:
    """Reads a bundle, or the latest one of a folder, after checking all of it.

    `side` is "torch", "jax" or "numpy". On the JAX side `params` is a model if there is a mapping: the one given, or
    the recorded one with `like` a model of the matched kind. Otherwise it is a dict of arrays by torch name.
    `like` (a torch module, a state_dict or, with a mapping, a JAX model) must have the same names, shapes and dtypes.
    A damaged bundle raises, naming the file and the newest intact bundle; there is no silent step back.
    """
    check_side(side)
    folder, fields, sections = store.read(path)
    label = str(folder)
    give = giver(side)

    stored = sections["weights"]
    _check_names(fields, stored, label)
    weights = stored | {name: _named(stored, first, label) for name, first in fields["aliases"].items()}
    with ExitStack() as stack:
        if like is not None:
            if mapping is None and fields["mapping"] is not None and not (is_module(like) or is_state_dict(like)):
                mapping = recorded_mapping(fields["mapping"], like, label)
                stack.enter_context(reading_mapping(label))  # it may be damaged in ways that show only in its use
            check_fits(weights, like, mapping)
        model = mapping.to_jax(weights) if side == "jax" and mapping is not None else None

    if model is not None:
        params, buffers = model, {}
    else:
        given = {name: give(array, name) for name, array in stored.items()}
        params = {name: given[fields["aliases"].get(name, name)] for name in weights}
        buffers = {name: _named(params, name, label) for name in fields["buffers"]}
        params = {name: array for name, array in params.items() if name not in buffers}
    trees = {
        part: tree.decode(fields[part], f"{label}: {part}", _giving(give, sections.get(part, {})))
        for part in ("normalizer", "replay", "meta")
    }
    return Bundle(
        params=params,
        optimizer=optimizer_state.unpack(fields["optimizer"], sections.get("optimizer", {}), weights, label),
        buffers=buffers,
        key=None if fields["key"] is None else _key(fields["key"], side, label),
        step=fields["step"],
        manifest=fields,
        **trees,
    )


def _giving(give: Callable[[np.ndarray, str], Any], arrays: Arrays) -> Callable[[str], Any]:
    return lambda name: give(arrays[name], name)


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= operator.index(value) <= LAST_STEP:
        raise UsageError(f"{name}: expected an integer from {least} to {LAST_STEP}, got {shortened(value)}.")


def _check_names(fields: dict[str, Any], stored: Arrays, label: str) -> None:
    """Every weight has one place: an alias stands for no other, and a buffer is listed once."""
    for name, first in fields["aliases"].items():
        if name in stored:
            raise CheckpointError(
                f"{label}: expected an alias {name!r} of {shortened(first)} beside the weights, but there is an array "
                f"stored under that name too; the manifest was damaged or edited. Bring it back from a copy."
            )
    names = fields["buffers"]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise CheckpointError(f"{label}: buffers: expected every name once, got {shortened(twice[0])} twice.")


def _named(arrays: dict[str, Any], name: Any, label: str) -> Any:
    if not isinstance(name, str) or name not in arrays:
        raise CheckpointError(f"{label}: expected an array {str(name)[:80]!r} among the weights, got none.")
    return arrays[name]


def _key(record: dict[str, Any], side: str, label: str) -> Any:
    """The random key: words of 32 bits, as many as its generator has, along the last axis."""
    match record:
        case {"impl": str(impl), "shape": [*shape], "words": [*words]} if len(record) == 3:
            plain = all(type(n) is int and n >= 0 for n in (*shape, *words)) and max(words, default=0) < 2**32
            if impl in KEY_WORDS and plain and shape[-1:] == [KEY_WORDS[impl]] and math.prod(shape) == len(words):
                return words_to_key(np.array(words, np.uint32).reshape(shape), impl, side)
    kinds = ", ".join(f"{impl} (..., {count})" for impl, count in KEY_WORDS.items())
    raise CheckpointError(
        f"{label}: expected impl, shape and words of a random key, one of {kinds}, got {shortened(record, 200)}; the "
        f"manifest was damaged or edited. Bring it back from a copy."
    )
