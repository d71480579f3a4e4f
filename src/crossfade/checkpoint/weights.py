"""Weights by torch name: reading them off whatever holds them, storing tied ones once, and checking that they fit."""

import sys
from collections.abc import Iterator, Mapping as Named
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import CheckpointError, MappingError, UsageError, nearest
from . import tree
from .sides import is_array, memory, to_numpy

Arrays = dict[str, np.ndarray]
_SHOWN = 10  # lines of a long list of misfits


def is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_state_dict(value: Any) -> bool:
    """True for a flat dict of arrays."""
    return isinstance(value, Named) and all(is_array(item) for item in value.values())


def named_arrays(holder: Any, mapping: Any, label: str) -> dict[str, Any]:
    """Arrays by torch name, of any framework, from a module, a dict of arrays, or a JAX model with its mapping."""
    if is_module(holder):
        return holder.state_dict()
    if is_state_dict(holder):
        if odd := [name for name in holder if not isinstance(name, str)]:
            raise CheckpointError(f"{label}: expected names that are text, got {odd[0]!r}.")
        return dict(holder)
    if mapping is not None:
        return mapping.to_torch(holder)
    raise UsageError(
        f"{label}: expected a torch module, a flat dict of arrays by name, or a JAX model together with mapping=, got "
        f"{type(holder).__module__}.{type(holder).__qualname__}."
    )


def recorded_mapping(record: dict[str, Any], jax_model: Any, label: str) -> Any:
    """The `Mapping` a manifest holds, around a JAX model of the matched kind (or None, for its rules alone)."""
    from ..bridge.mapping import Mapping

    with reading_mapping(label):
        return Mapping.from_json(tree.decode(record, f"{label}: mapping", str), jax_model)


@contextmanager
def reading_mapping(label: str) -> Iterator[None]:
    """A mapping that was damaged can fail in many ways, also when it is used."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MappingError, UsageError) as error:
        raise CheckpointError(
            f"{label}: expected a mapping this crossfade can read, got {error!r}; match again and pass mapping=."
        ) from error


def store_once(named: dict[str, Any]) -> tuple[Arrays, dict[str, str]]:
    """NumPy arrays by first name, and for every further name of the same memory the name it is stored under."""
    arrays: Arrays = {}
    aliases: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, value in named.items():
        array, place = to_numpy(value, name), memory(value)
        if place is not None and place in first:
            aliases[name] = first[place]
        else:
            arrays[name] = array
            first[place] = name
    return arrays, aliases


def check_fits(weights: dict[str, Any], like: Any, mapping: Any) -> None:
    """Raises unless `weights` and `like` agree in names, shapes and dtypes."""
    stored = {name: _form(array) for name, array in weights.items()}
    wanted = {name: _form(array) for name, array in named_arrays(like, mapping, "like").items()}
    misfits = [f"{name}: missing in the bundle" for name in wanted.keys() - stored.keys()]
    misfits += [f"{name}: not in the model.{nearest(name, wanted)}" for name in stored.keys() - wanted.keys()]
    misfits += [
        f"{name}: expected {wanted[name]}, got {stored[name]}"
        for name in wanted.keys() & stored.keys()
        if wanted[name] != stored[name]
    ]
    if misfits:
        more = f"\n  and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        raise CheckpointError(
            "the bundle does not fit the model:\n  "
            + "\n  ".join(sorted(misfits)[:_SHOWN])
            + f"{more}\nBuild the model with the configuration it was saved with, or load the bundle of this model."
        )


def _form(array: Any) -> str:
    """Shape and dtype in the same words for every framework."""
    return f"{str(array.dtype).removeprefix('torch.')} {tuple(array.shape)}"
