"""Optimisers that own some of the parameters, and their gradient step, in JAX. In torch: eager_torch.py."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import Array, PyTree

Loss = Callable[[Any, Any], tuple[Array, Mapping[str, Array]]]


def named(tree: PyTree, names: Collection[str]) -> PyTree:
    """Of every array, whether it has one of these torch names."""
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return jax.tree_util.tree_map_with_path(lambda path, _: name(path) in names, tree)


def only(tx: optax.GradientTransformation, names: Collection[str]) -> optax.GradientTransformation:
    """`tx` for the arrays with these torch names alone. The others have no moments, and their updates are None."""
    owned = lambda tree: eqx.filter(tree, named(tree, names))

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        return tx.update(owned(updates), state, None if params is None else owned(params))

    return optax.GradientTransformation(lambda params: tx.init(owned(params)), update)


def update(
    policy: PyTree, tx: optax.GradientTransformation, opt_state: PyTree, loss: Loss, batch: Any
) -> tuple[PyTree, PyTree, dict[str, Array]]:
    """The step of `tx` down `loss(policy, batch) -> (value, info)`: policy and state after it, `info` of before it."""
    (_, info), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(policy, batch)
    changes, opt_state = tx.update(gradient, opt_state, policy)
    return eqx.apply_updates(policy, changes), opt_state, dict(info)
