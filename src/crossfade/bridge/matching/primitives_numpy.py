"""The commonest JAX primitives in NumPy, which needs no compiler and no dispatch.

They serve the search for a mapping (program_jax.py), where each is evaluated a few times on a small example. Whatever
is not here is evaluated by JAX, and so is every proof.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Primitive = Callable[..., Any]  # (params, *operands) -> the result, a list of them for `split`


def _dot_general(params: dict[str, Any], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    (left_in, right_in), (left_batch, right_batch) = params["dimension_numbers"]
    left_free = [a for a in range(left.ndim) if a not in (*left_in, *left_batch)]
    right_free = [a for a in range(right.ndim) if a not in (*right_in, *right_batch)]
    batch = [left.shape[a] for a in left_batch]
    inner = math.prod(left.shape[a] for a in left_in)
    rows, columns = [left.shape[a] for a in left_free], [right.shape[a] for a in right_free]
    ours = left.transpose([*left_batch, *left_free, *left_in]).reshape(*batch, math.prod(rows), inner)
    theirs = right.transpose([*right_batch, *right_in, *right_free]).reshape(*batch, inner, math.prod(columns))
    return (ours @ theirs).reshape(*batch, *rows, *columns)


def _broadcast_in_dim(params: dict[str, Any], array: np.ndarray) -> np.ndarray:
    opened = [1] * len(params["shape"])
    for axis, to in enumerate(params["broadcast_dimensions"]):
        opened[to] = array.shape[axis]
    return np.broadcast_to(array.reshape(opened), params["shape"])


def _slice(params: dict[str, Any], array: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * array.ndim
    return array[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]


def _split(params: dict[str, Any], array: np.ndarray) -> list[np.ndarray]:
    return np.split(array, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


PRIMITIVES: dict[str, Primitive] = {
    "dot_general": _dot_general,
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "split": _split,
    "transpose": lambda params, x: x.transpose(params["permutation"]),
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: x.squeeze(tuple(params["dimensions"])),
    "expand_dims": lambda params, x: np.expand_dims(x, tuple(params["dimensions"])),
    "concatenate": lambda params, *x: np.concatenate(x, axis=params["dimension"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "select_n": lambda params, which, *cases: np.select([which == i for i in range(len(cases))], cases),
    "clamp": lambda params, low, x, high: np.minimum(np.maximum(x, low), high),
    "integer_pow": lambda params, x: x ** float(params["y"]) if x.dtype.kind == "f" else x ** params["y"],
    "logistic": lambda params, x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda params, x: 1 / np.sqrt(x),
}


def _register(function: Callable[..., Any], *names: str) -> None:
    for name in names:
        PRIMITIVES[name] = lambda params, *operands: function(*operands)


for _name in ("exp", "log", "tanh", "sin", "cos", "sqrt", "abs", "sign", "floor", "ceil", "log1p", "expm1", "exp2"):
    _register(getattr(np, _name), _name)
_register(np.add, "add", "add_any")
_register(np.subtract, "sub")
_register(np.multiply, "mul")
_register(np.maximum, "max")
_register(np.minimum, "min")
_register(np.power, "pow")
_register(np.negative, "neg")
_register(np.square, "square")
_register(np.isfinite, "is_finite")
_register(lambda x: x, "copy", "copy_p", "stop_gradient")
for _name, _function in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}.items():
    _register(_function, _name)
_register(np.greater, "gt")
_register(np.greater_equal, "ge")
for _name, _reduce in {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}.items():
    PRIMITIVES[f"reduce_{_name}"] = lambda params, x, reduce=_reduce: reduce(x, axis=tuple(params["axes"]))
