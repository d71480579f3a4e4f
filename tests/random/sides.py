"""The three ways a draw can be made, and how to compare one with JAX."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

import crossfade as cf
from crossfade.random import threefry_torch

SIDES = ("numpy", "torch", "torch_ops")  # torch_ops: what torch does on another device, where NumPy cannot help
BATCH = 4  # keys at most


class Side:
    """One twin behind a NumPy face: keys and results are arrays, dtypes are names."""

    def __init__(self, name: str, monkeypatch):
        self.name, self.module = name, cf.random.numpy if name == "numpy" else cf.random
        if name == "torch_ops":
            monkeypatch.setattr(threefry_torch, "on_host", lambda x: False)

    def __getattr__(self, function: str) -> Callable[..., np.ndarray]:
        if function.startswith("_"):
            raise AttributeError(function)

        def call(*args, **kwargs):
            args = [self.give(thaw(a)) for a in args]
            kwargs = {name: self.give(thaw(a), name) for name, a in kwargs.items()}
            return self.take(self.function(function)(*args, **kwargs))

        return call

    def function(self, name: str) -> Callable:
        """The public function without this suite's run-time check of types, which would speak before its own."""
        return inspect.unwrap(getattr(self.module, name))

    def give(self, x: Any, name: str = "") -> Any:
        if self.name == "numpy":
            return x
        if name == "dtype":
            return getattr(torch, x)
        return torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray | np.generic) else x

    def take(self, x: Any) -> np.ndarray:
        if self.name == "numpy":
            assert isinstance(x, np.ndarray)
            return x
        return x.numpy()


@functools.cache
def reference(name: str, *args, jitted: bool = True, **kwargs) -> Callable[[np.ndarray], np.ndarray]:
    """jax.random's function at each key of a batch of key words. Arrays among the arguments: as `Frozen`."""
    args, kwargs = [thaw(a) for a in args], {k: thaw(v) for k, v in kwargs.items()}
    draw = lambda key: getattr(jax.random, name)(key, *args, **kwargs)
    many = jax.jit(jax.vmap(draw)) if jitted else jax.vmap(draw)

    def call(keys: np.ndarray) -> np.ndarray:
        some = np.resize(keys, (BATCH, 2))  # one compilation for every batch
        result = many(jax.random.wrap_key_data(some))
        if jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key):
            result = jax.random.key_data(result)
        return np.asarray(result)[: math.prod(keys.shape[:-1])].reshape((*keys.shape[:-1], *result.shape[1:]))

    return call


class Frozen:
    """An array that may be an argument of a cached function: each is a case of its own."""

    def __init__(self, array: np.ndarray):
        self.array = array


def thaw(x: Any) -> Any:
    return x.array if isinstance(x, Frozen) else x


def ulps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How many floating-point numbers lie between two arrays of one dtype."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    signed = np.dtype(f"int{8 * got.itemsize}")
    lines = []
    for x in (got, wanted):
        bits = np.atleast_1d(x).view(signed)
        lines.append(np.where(bits < 0, np.iinfo(signed).min - bits, bits))
    return np.abs(lines[0] - lines[1])


def assert_same(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal shape and equal values; indices may differ in integer width."""
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)
