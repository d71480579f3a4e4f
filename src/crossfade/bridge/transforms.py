"""torch's optimisers written as optax chains.

Where optax computes what torch computes, the chain is plain optax. The few transformations defined here exist because
optax differs; each says where. `SLOTS` tells which field of which optax state holds which of torch's moments.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree

from ..errors import NoCounterpart

Schedule = Callable[[Any], Any]

HYPERPARAMETERS: dict[str, tuple[str, ...]] = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"),
    "RMSprop": ("lr", "alpha", "eps", "momentum", "centered", "weight_decay", "maximize"),
    "Adagrad": ("lr", "lr_decay", "eps", "initial_accumulator_value", "weight_decay", "maximize"),
}


def slots(kind: str, group: dict[str, Any]) -> tuple[str, ...]:
    """The moments torch keeps for each parameter of a group, `step` apart."""
    match kind:
        case "SGD":
            return ("momentum_buffer",) if group["momentum"] else ()
        case "Adam" | "AdamW":
            return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        case "RMSprop":
            momentum = ("momentum_buffer",) if group["momentum"] else ()
            return ("square_avg",) + (("grad_avg",) if group["centered"] else ()) + momentum
        case "Adagrad":
            return ("sum",)
        case _:
            raise NoCounterpart(f"expected one of {', '.join(HYPERPARAMETERS)}, got {kind!r}.")


def transformation(kind: str, group: dict[str, Any], schedule: Schedule) -> optax.GradientTransformation:
    """The optax chain of one parameter group; the updates it has made are counted by its schedule."""
    links = [optax.scale(-1.0)] if group["maximize"] else []
    decoupled = group.get("decoupled_weight_decay", kind == "AdamW")
    if group["weight_decay"] and not decoupled:
        links.append(optax.add_decayed_weights(group["weight_decay"]))
    match kind:
        case "SGD" if group["momentum"] and group["dampening"]:
            links.append(trace_with_dampening(group["momentum"], group["dampening"]))
        case "SGD" if group["momentum"]:
            links.append(optax.trace(group["momentum"], nesterov=group["nesterov"]))
        case "Adam" | "AdamW":
            adam = scale_by_amsgrad if group["amsgrad"] else optax.scale_by_adam
            links.append(adam(*group["betas"], eps=group["eps"]))
        case "RMSprop":
            rms = optax.scale_by_stddev if group["centered"] else optax.scale_by_rms
            links.append(rms(group["alpha"], eps=group["eps"], eps_in_sqrt=False))
            if group["momentum"]:  # before the learning rate; `optax.rmsprop` has it after, inside the buffer
                links.append(optax.trace(group["momentum"]))
        case "Adagrad":
            links.append(scale_by_root_sum_of_squares(group["eps"]))
            if decay := group["lr_decay"]:
                links.append(optax.scale_by_schedule(lambda count: 1 / (1 + decay * count)))
    if group["weight_decay"] and decoupled:
        links.append(optax.add_decayed_weights(group["weight_decay"]))
    return optax.chain(*links, optax.scale_by_learning_rate(schedule))


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """`torch.nn.utils.clip_grad_norm_`: optax's clip has no 1e-6 beside the norm."""

    def update(updates, state, params=None):
        factor = jnp.minimum(1.0, max_norm / (optax.global_norm(updates) + 1e-6))
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


class DampenedTraceState(NamedTuple):
    """Momentum, and whether it has begun."""

    trace: PyTree
    started: Bool[Array, ""]


def trace_with_dampening(decay: float, dampening: float) -> optax.GradientTransformation:
    """Momentum whose first step takes the gradient whole and later ones `1 - dampening` of it; optax has none."""

    def update(updates, state, params=None):
        share = jnp.where(state.started, 1 - dampening, 1.0)
        trace = jax.tree.map(lambda g, t: decay * t + share.astype(g.dtype) * g, updates, state.trace)
        return trace, DampenedTraceState(trace, jnp.array(True))

    init = lambda params: DampenedTraceState(jax.tree.map(jnp.zeros_like, params), jnp.array(False))
    return optax.GradientTransformation(init, update)


class AmsgradState(NamedTuple):
    """Moments of AMSGrad as torch keeps them: `nu_max` is the largest raw `nu`."""

    count: Int[Array, ""]
    mu: PyTree
    nu: PyTree
    nu_max: PyTree


def scale_by_amsgrad(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """AMSGrad over the raw second moment; optax takes the maximum after the bias correction."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AmsgradState(jnp.zeros([], jnp.int32), zeros, zeros, zeros)

    def update(updates, state, params=None):
        count = state.count + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu)
        c1, c2 = 1 - b1**count, 1 - b2**count
        scaled = jax.tree.map(
            lambda m, v: m / c1.astype(m.dtype) / (jnp.sqrt(v / c2.astype(v.dtype)) + eps), mu, nu_max
        )
        return scaled, AmsgradState(count, mu, nu, nu_max)

    return optax.GradientTransformation(init, update)


def scale_by_root_sum_of_squares(eps: float) -> optax.GradientTransformation:
    """Adagrad with eps beside the root; optax has it inside."""

    def update(updates, state, params=None):
        sums = jax.tree.map(lambda g, s: s + g * g, updates, state.sum_of_squares)
        scaled = jax.tree.map(lambda g, s: g / (jnp.sqrt(s) + eps), updates, sums)
        return scaled, optax.ScaleByRssState(sums)

    init = lambda params: optax.ScaleByRssState(jax.tree.map(jnp.zeros_like, params))
    return optax.GradientTransformation(init, update)


# State type -> field -> torch's slot. "step" fields are counts, one for the whole group.
SLOTS: dict[type, dict[str, str]] = {
    optax.ScaleByAdamState: {"count": "step", "mu": "exp_avg", "nu": "exp_avg_sq"},
    AmsgradState: {"count": "step", "mu": "exp_avg", "nu": "exp_avg_sq", "nu_max": "max_exp_avg_sq"},
    optax.TraceState: {"trace": "momentum_buffer"},
    DampenedTraceState: {"trace": "momentum_buffer", "started": "started"},
    optax.ScaleByRmsState: {"nu": "square_avg"},
    optax.ScaleByRStdDevState: {"mu": "grad_avg", "nu": "square_avg"},
    optax.ScaleByRssState: {"sum_of_squares": "sum"},
    optax.ScaleByScheduleState: {"count": "step"},
}
