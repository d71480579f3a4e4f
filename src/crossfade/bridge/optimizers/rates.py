"""Learning rates in an optax state: one for each parameter group, following a schedule or set by hand."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from ...errors import UsageError
from ..libraries import leaf_names


class RatesState(NamedTuple):
    """How far training is, and the rates of the groups as long as no schedule gives them."""

    updates: Int[Array, ""]  # made so far
    clock: Int[Array, ""]  # the same as the scheduler counts them: its epochs times the updates in each, and the rest
    learning_rate: PyTree  # tuple[Float[Array, ""], ...], or None


def scale_by_rates(
    groups: Mapping[str, int], rates: Sequence[float], schedule: Callable[[Any], tuple[Any, ...]] | None
) -> optax.GradientTransformation:
    """Multiplies each leaf by minus the rate of its group: that of `schedule(count)`, or else the one in the state."""

    def init(params):
        zero = jnp.zeros([], jnp.int32)
        return RatesState(zero, zero, None if schedule else tuple(jnp.asarray(rate, float) for rate in rates))

    def update(updates, state, params=None):
        now = state.learning_rate if schedule is None else schedule(state.updates)
        scaled = lambda path, u: u * jnp.asarray(-1 * now[groups.get(path, 0)], u.dtype)
        updates = jax.tree.map(scaled, leaf_names(updates), updates)
        return updates, RatesState(state.updates + 1, state.clock + 1, state.learning_rate)

    return optax.GradientTransformation(init, update)


def with_learning_rate(opt_state: PyTree, learning_rate: Any) -> PyTree:
    """`opt_state` of `to_optax` with another learning rate, as `optimizer.param_groups[i]["lr"] = ...` in torch.

    `learning_rate` is a number for all groups, or a sequence with one for each; it may be traced. To anneal by hand,
    hand the optimiser over without `scheduler=` and call this before each update:

        opt_state = with_learning_rate(opt_state, (1 - update / updates) * 2.5e-4)
    """
    if (state := read_rates(opt_state)) is None:
        raise UsageError(
            "expected an optax state made by to_optax, got one without learning rates of its own. Of a state of "
            "optax's optimisers use optax.inject_hyperparams."
        )
    if (old := state.learning_rate) is None:
        raise UsageError(
            "the learning rates of this optax state follow a schedule. To set them by hand, call to_optax without "
            "scheduler=, or build_optax without schedule=."
        )
    several = isinstance(learning_rate, tuple | list) or getattr(learning_rate, "ndim", 0)
    given = tuple(learning_rate) if several else (learning_rate,) * len(old)
    if len(given) != len(old):
        raise UsageError(f"expected one learning rate, or one for each of {len(old)} groups, got {len(given)}.")
    new = tuple(jnp.asarray(rate, before.dtype) for rate, before in zip(given, old, strict=True))
    return _replaced(opt_state, learning_rate=new)


def after_updates(opt_state: PyTree, updates: int, clock: int) -> PyTree:
    """`opt_state` as after so many updates, which the scheduler counts as `clock`."""
    return _replaced(opt_state, updates=jnp.asarray(updates, jnp.int32), clock=jnp.asarray(clock, jnp.int32))


def read_rates(opt_state: PyTree) -> RatesState | None:
    """The rates in an optax state; None if it was not made by `to_optax`."""
    return next((node for node in jax.tree.leaves(opt_state, is_leaf=_is_rates) if _is_rates(node)), None)


def _replaced(opt_state: PyTree, **fields: Any) -> PyTree:
    return jax.tree.map(lambda node: node._replace(**fields) if _is_rates(node) else node, opt_state, is_leaf=_is_rates)


def _is_rates(node: Any) -> bool:
    return isinstance(node, RatesState)
