"""A record as a JAX function."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ...errors import NoCounterpart
from ..transfer import narrowed
from .graph import Graph, Node, Ref, Spec
from .table import find
from .values import jax_dtype


def play(graph: Graph, results: Sequence[Ref], arrays: Sequence[Array], key: Array | None) -> list[Array]:
    """The values of `results` for the given inputs; random operation i draws from `fold_in(key, i)`."""
    values = {ref.index: array for ref, array in zip(graph.inputs, arrays, strict=True)}
    for index, constant in graph.constants.items():
        values[index] = jnp.asarray(narrowed(constant, f"a constant of shape {constant.shape}"))
    follow(graph, values, key)
    return [values[ref.index] for ref in results]


def follow(graph: Graph, values: dict[int, Array], key: Array | None) -> None:
    """Adds what the operations make to the values."""
    for node in graph.nodes:
        outs = _outs(node, graph, _filled(node.args, values), _filled(node.kwargs, values), key)
        for ref, out in zip(node.outputs, outs, strict=False):
            if ref is not None:
                fitted = _fitted(out, graph.specs[ref.index], node)
                values[ref.index] = lax.stop_gradient(fitted) if node.stopped else fitted


def _outs(node: Node, graph: Graph, args: tuple, kwargs: dict[str, Any], key: Array | None) -> Sequence[Any]:
    rule = find(node.op)
    assert rule is not None, node.op
    if node.random is not None:
        assert key is not None and node.outputs[0] is not None
        spec = graph.specs[node.outputs[0].index]
        args = (jax.random.fold_in(key, node.random), spec.shape, jax_dtype(spec.dtype), *args)
    out = rule(*args, **kwargs)
    return out if isinstance(out, tuple | list) else (out,)


def _filled(tree: Any, values: dict[int, Array]) -> Any:
    if isinstance(tree, Ref):
        return values[tree.index]
    if isinstance(tree, tuple | list):
        return type(tree)(_filled(part, values) for part in tree)
    return {k: _filled(v, values) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _fitted(out: Any, spec: Spec, node: Node) -> Array:
    """The result in torch's dtype; another shape than torch's is a fault of the rule."""
    out = jnp.asarray(out)
    if out.shape != spec.shape:
        raise NoCounterpart(
            f"{node.place}: expected aten.{node.op} to give shape {spec.shape}, got {out.shape} from its rule in JAX. "
            f"Please report it; until then write it with other operations."
        )
    return out.astype(jax_dtype(spec.dtype))
