"""Layers in JAX that are filled from parameters by torch's names.

torch brings all of this along, so the file has no twin.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import UsageError
from .parameters import check_shapes

Module = TypeVar("Module", bound=eqx.Module | dict[str, Any])
Layer = TypeVar("Layer", bound=eqx.nn.Linear)


def linear(fan_in: int, fan_out: int, kind: type[Layer] = eqx.nn.Linear) -> Layer:
    """A linear layer of zeros."""
    shapes = eqx.filter_eval_shape(kind, fan_in, fan_out, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def trunk(widths: list[int], kind: type[Layer] = eqx.nn.Linear) -> tuple[Layer, ...]:
    """Layers of zeros with these widths, the first being that of the input."""
    return tuple(linear(*pair, kind) for pair in zip(widths[:-1], widths[1:], strict=True))


def apply(layer: eqx.nn.Linear, x: Float[Array, "*nodes inputs"]) -> Float[Array, "*nodes outputs"]:
    """A linear layer over any leading axes, in the precision of its parameters."""
    assert layer.bias is not None
    y = x.astype(layer.weight.dtype) @ layer.weight.T
    return y + jnp.broadcast_to(layer.bias, y.shape)


class RowsLinear(eqx.nn.Linear):
    """A linear layer over any leading axes; for many rows, with a gradient that a CPU computes a tenth faster."""

    def __call__(self, x: Float[Array, "*nodes inputs"], *, key: Any = None) -> Float[Array, "*nodes outputs"]:
        return linear_of_rows(x, self.weight, self.bias)


def linear_of_rows(
    x: Float[Array, "*nodes inputs"], weight: Float[Array, "outputs inputs"], bias: Float[Array, " outputs"] | None
) -> Float[Array, "*nodes outputs"]:
    """W x + b in the precision of W."""
    y = _product(x.astype(weight.dtype), weight)
    return y if bias is None else y + jnp.broadcast_to(bias, y.shape)


@jax.custom_vjp
def _product(
    x: Float[Array, "*nodes inputs"], weight: Float[Array, "outputs inputs"]
) -> Float[Array, "*nodes outputs"]:
    return x @ weight.T


def _kept(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight.T, (x, weight)


def _gradients(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """The usual ones. Without the barrier XLA would fold the transposition into the product and use a slower kernel."""
    x, weight = kept
    rows = lambda a: a.reshape(-1, a.shape[-1])
    return gradient @ weight, jax.lax.optimization_barrier(rows(gradient).T) @ rows(x)


_product.defvjp(_kept, _gradients)


def features(
    layers: tuple[eqx.nn.Linear, ...], observation: Float[Array, "*nodes observation"]
) -> Float[Array, "*nodes features"]:
    """The last hidden layer. LeakyReLU(0.01), with torch's slope 0.01 at 0."""
    x = observation
    for layer in layers:
        y = apply(layer, x)
        x = jnp.where(y > 0, y, 0.01 * y)
    return x


def name(path: tuple[Any, ...]) -> str:
    """The name torch gives a parameter: `trunk.0.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def filled(policy: Module, parameters: Mapping[str, Any], dtype: str) -> Module:
    """The policy with the given parameters, by name, in a precision."""
    if dtype == "float64" and jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise UsageError("dtype=float64 needs JAX's 64-bit mode, which is off. Wrap the run in jax.enable_x64(True).")
    shapes = {name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(policy)}
    check_shapes(shapes, {name: tuple(array.shape) for name, array in parameters.items()})
    return jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.array(parameters[name(path)], dtype),  # a copy: training gives the old ones away
        policy,
    )
