"""Optimiser state by parameter name, read off an optax state and put into one, where both sides use the same names."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from ..bridge.libraries import leaf_names, named_leaves
from ..bridge.optimizers.transforms import map_slots, read_slots
from ..errors import CheckpointError
from ..optim.state import OptimizerState, slots


def counted(tx: optax.GradientTransformation, policy: PyTree) -> optax.GradientTransformation:
    """`tx` with a count of its updates, if it has none by itself: a schedule of another mode may depend on it."""
    if any(slot == "step" for slot, _ in read_slots(jax.eval_shape(tx.init, policy))):
        return tx
    start = lambda params: optax.ScaleByScheduleState(jnp.zeros([], jnp.int32))
    count = lambda updates, state, params=None: (updates, optax.ScaleByScheduleState(state.count + 1))
    return optax.chain(tx, optax.GradientTransformation(start, count))  # pyright: ignore[reportArgumentType]


def read_moments(opt_state: PyTree, record: OptimizerState) -> OptimizerState:
    """The neutral state: kind and groups of `record`, moments and step of `opt_state`."""
    found: dict[str, dict[str, Any]] = {}
    step = 0
    for slot, value in read_slots(opt_state):
        if slot == "step":
            step = max(step, int(value))
        elif slot != "started":
            found.setdefault(slot, {}).update(named_leaves(value))
    count = np.asarray(step, np.float32)
    moments = {
        name: {"step": count} | {slot: np.array(found[slot][name]) for slot in slots(record.kind, record.groups[i])}
        for name, i in record.trained.items()
    }
    return replace(record, moments=moments)


def write_moments(state: OptimizerState, opt_state: PyTree) -> PyTree:
    """`opt_state` with the moments and the step of `state` in place."""
    step = state.step

    def value(slot: str, old: PyTree) -> PyTree:
        if slot == "step":
            return jnp.asarray(step, jnp.int32)
        if slot == "started":
            return jnp.asarray(step > 0)
        return jax.tree.map(lambda name, leaf: _fitting(state.moments, name, slot, leaf), leaf_names(old), old)

    return map_slots(value, opt_state)


def _fitting(moments: dict[str, dict[str, np.ndarray]], name: str, slot: str, leaf: Any) -> jax.Array:
    array = moments.get(name, {}).get(slot)
    form = lambda x: "nothing" if x is None else f"{x.dtype} {tuple(x.shape)}"
    if form(array) != form(leaf):
        raise CheckpointError(
            f"{slot} of {name}: expected {form(leaf)}, got {form(array)}. Use the run's own settings, or "
            "begin a new run with --weights."
        )
    return jnp.array(array)
