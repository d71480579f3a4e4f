"""ReduceLROnPlateau in an optax state: what it has seen so far is data, and a metric moves it on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ...errors import UsageError
from .rates import read_rates, with_learning_rate


class PlateauState(NamedTuple):
    """A ReduceLROnPlateau as arrays: where it stands, and its settings."""

    best: Float[Array, ""]
    bad: Int[Array, ""]  # steps since it was best
    resting: Int[Array, ""]  # steps left in which none counts as bad
    epoch: Int[Array, ""]
    factor: Float[Array, ""]
    patience: Int[Array, ""]
    threshold: Float[Array, ""]
    relative: Bool[Array, ""]
    smaller: Bool[Array, ""]  # is better
    cooldown: Int[Array, ""]
    eps: Float[Array, ""]
    least: PyTree  # tuple[Float[Array, ""], ...]: the smallest rate of each group


def read_plateau(scheduler: ReduceLROnPlateau) -> PlateauState:
    """A torch scheduler as data."""
    number, count = (lambda x: jnp.asarray(x, float)), (lambda x: jnp.asarray(x, jnp.int32))
    return PlateauState(
        best=number(scheduler.best),
        bad=count(scheduler.num_bad_epochs),
        resting=count(scheduler.cooldown_counter),
        epoch=count(scheduler.last_epoch),
        factor=number(scheduler.factor),
        patience=count(scheduler.patience),
        threshold=number(scheduler.threshold),
        relative=jnp.asarray(scheduler.threshold_mode == "rel"),
        smaller=jnp.asarray(scheduler.mode == "min"),
        cooldown=count(scheduler.cooldown),
        eps=number(scheduler.eps),
        least=tuple(number(rate) for rate in scheduler.min_lrs),
    )


def write_plateau(opt_state: PyTree, scheduler: ReduceLROnPlateau) -> None:
    """Puts where the state stands into a torch scheduler, whose optimiser has the state's rates already."""
    if (plateau := _found(opt_state)) is None:
        raise UsageError("expected the optax state of a ReduceLROnPlateau, got another. Pass it to to_optax too.")
    scheduler.best = float(plateau.best)
    scheduler.num_bad_epochs, scheduler.cooldown_counter = int(plateau.bad), int(plateau.resting)
    scheduler.last_epoch = int(plateau.epoch)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def carrying(plateau: PlateauState) -> optax.GradientTransformation:
    """Leaves gradients as they are and has the plateau for its state."""
    return optax.GradientTransformation(lambda params: plateau, lambda updates, state, params=None: (updates, state))


def with_metric(opt_state: PyTree, metric: Any) -> PyTree:
    """`opt_state` after `scheduler.step(metric)` of the ReduceLROnPlateau that came with it; it may be traced.

    The rates become `max(factor rate, min_lr)` when the metric has not been better than the best by the threshold for
    more than `patience` steps.
    """
    plateau, rates = _found(opt_state), read_rates(opt_state)
    if plateau is None or rates is None or rates.learning_rate is None:
        raise UsageError(
            "expected the optax state of an optimiser with a ReduceLROnPlateau, got another. Pass it to to_optax as "
            "scheduler=."
        )
    metric = jnp.asarray(metric, plateau.best.dtype)
    by = jnp.where(plateau.smaller, -plateau.threshold, plateau.threshold)
    bound = jnp.where(plateau.relative, plateau.best * (1 + by), plateau.best + by)
    better = jnp.where(plateau.smaller, metric < bound, metric > bound)
    bad = jnp.where(better | (plateau.resting > 0), 0, plateau.bad + 1)
    resting = jnp.maximum(plateau.resting - 1, 0)
    reduce = bad > plateau.patience

    def reduced(rate, least):
        new = jnp.maximum(rate * plateau.factor, least)
        return jnp.where(reduce & (rate - new > plateau.eps), new, rate)

    after = plateau._replace(
        best=jnp.where(better, metric, plateau.best),
        bad=jnp.where(reduce, 0, bad),
        resting=jnp.where(reduce, plateau.cooldown, resting),
        epoch=plateau.epoch + 1,
    )
    opt_state = jax.tree.map(lambda node: after if _is_plateau(node) else node, opt_state, is_leaf=_is_plateau)
    new = tuple(reduced(rate, least) for rate, least in zip(rates.learning_rate, plateau.least, strict=True))
    return with_learning_rate(opt_state, new)


def _found(opt_state: PyTree) -> PlateauState | None:
    return next((node for node in jax.tree.leaves(opt_state, is_leaf=_is_plateau) if _is_plateau(node)), None)


def _is_plateau(node: Any) -> bool:
    return isinstance(node, PlateauState)
