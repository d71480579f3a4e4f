"""Optimisers that own some of the parameters, in JAX; torch's are given theirs when they are made."""

from collections.abc import Collection

import jax
import optax
from jaxtyping import PyTree


def only(tx: optax.GradientTransformation, names: Collection[str]) -> optax.GradientTransformation:
    """`tx` for the arrays with these torch names alone. The others have no moments, and their updates are None."""

    def owned(tree: PyTree) -> PyTree:
        name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
        return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf if name(path) in names else None, tree)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        return tx.update(owned(updates), state, None if params is None else owned(params))

    return optax.GradientTransformation(lambda params: tx.init(owned(params)), update)
