"""Weights of both halves under common names: torch's, or JAX's where several torch arrays are one leaf in JAX."""

from collections.abc import Mapping as Named
from typing import Any

import numpy as np

from ..bridge.mapping import Mapping
from . import arrays
from .arrays import to_numpy

Weights = dict[str, np.ndarray]  # a state_dict in NumPy


def from_torch(mapping: Mapping, state_dict: Named[str, Any]) -> Weights:
    """Every mapped array of a `state_dict`. Where a rule loses something (two biases that are only ever added), the
    two sides can only be compared as JAX holds them."""
    arrays = {name: to_numpy(value) for name, value in state_dict.items()}
    named = {}
    for entry in mapping.entries:
        if entry.rule.lossy:
            named |= mapping.leaves_to_jax({name: arrays[name] for name in entry.torch})
        else:
            named |= {name: arrays[name] for name in entry.torch}
    return named


def from_jax(mapping: Mapping, leaves: Named[str, Any]) -> Weights:
    """The leaves of a JAX model under the names of `from_torch`."""
    named = {}
    for entry in mapping.entries:
        part = {path: to_numpy(leaves[path]) for path in entry.jax}
        named |= part if entry.rule.lossy else mapping.leaves_to_torch(part)
    return named


def unmapped(mapping: Mapping, leaves: Named[str, Any]) -> tuple[Weights, Weights]:
    """Arrays that are in no entry, on the torch side and on the JAX side, by name; none in a complete mapping."""
    held = {name for entry in mapping.entries for name in entry.torch} | set(mapping.tied) | set(mapping.torch_only)
    used = {path for entry in mapping.entries for path in entry.jax} | set(mapping.jax_only)
    torch_side = {f"{name} (torch)": np.zeros(()) for name in mapping.shapes if name not in held}
    return torch_side, {f"{path} (JAX)": np.zeros(()) for path in leaves if path not in used}


def jax_names(mapping: Mapping) -> dict[str, str]:
    """The JAX paths of each name, for messages."""
    return {name: " + ".join(e.jax) for e in mapping.entries if not e.rule.lossy for name in e.torch}


def disturb(mapping: Mapping, weights: Weights, name: str) -> Weights:
    """The weights with one parameter changed by a thousandth of its scale, each element differently: softmax and
    normalisation are invariant to a common shift."""
    array = weights[name]
    scale = float(np.abs(array).max(initial=0.0)) or 1.0
    moved = array + (1e-3 * scale * np.cos(1.0 + np.arange(array.size))).reshape(array.shape).astype(array.dtype)
    return retie(mapping, {**weights, name: moved})


def jitter(mapping: Mapping, weights: Weights) -> Weights:
    """Every weight moved by one unit in the last place."""
    return retie(mapping, {name: arrays.jitter(array) for name, array in weights.items()})


def retie(mapping: Mapping, weights: Weights) -> Weights:
    """The weights with every further name of a shared tensor put right."""
    return weights | {alias: weights[name] for alias, name in mapping.tied.items()}
