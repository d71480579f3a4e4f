"""Two environments stepped side by side from the same states."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge.libraries import leaf_names
from .arrays import jax_array, jax_tree, leaves
from .side_torch import Quantities
from .twin import Twin


def step_both(
    twin: Twin, dtype: str, step: Callable[..., Any], actions: np.ndarray, jax_actions: np.ndarray
) -> tuple[Quantities, Quantities]:
    """Resets both with the same key, then steps both, the second by its compiled `step`. Before each step the first
    side's state is copied into the second, so that one difference does not hide the next. Leaves are stacked over time.
    """
    from ..random import numpy as random

    first, second = twin.half("env", "torch"), twin.half("env", "jax")
    state, jax_state = first.reset(random.key(twin.seed)), second.reset(jax.random.key(twin.seed))
    reset, jax_reset = leaves(state, ""), leaves(jax_state, "")
    if _shapes(reset) != _shapes(jax_reset):
        return {"reset": reset}, {"reset": jax_reset}
    rows, jax_rows = [], []
    for action, jax_action in zip(actions, jax_actions, strict=True):
        jax_state = copy_state(leaves(state, ""), jax_state)
        state, outputs = first.step(state, action)
        rows.append(leaves((state, outputs), ""))
        jax_rows.append(leaves(step(jax_state, jax_tree(jax_action, dtype)), ""))
    return {"reset": reset, **_stack(rows)}, {"reset": jax_reset, **_stack(jax_rows)}


def _shapes(named: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in named.items()}


def copy_state(named: dict[str, np.ndarray], like: Any) -> Any:
    """A JAX state of the same kind as `like` that holds the other side's numbers."""

    def put(path, leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jax_array(named[path].astype(np.uint32)))
        return jax_array(named[path]).astype(leaf.dtype)

    return jax.tree.map(put, leaf_names(like), like)


def _stack(rows: list[dict[str, np.ndarray]]) -> Quantities:
    """(state, outputs) of every step as two quantities."""
    quantities: Quantities = {"state": {}, "outputs": {}}
    for name in rows[0]:
        part, _, leaf = name.partition(".")
        quantities["state" if part == "0" else "outputs"][leaf or "value"] = np.stack([row[name] for row in rows])
    return {name: part for name, part in quantities.items() if part}
