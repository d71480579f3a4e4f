"""torch's optimisers written as optax chains.

Where optax computes what torch computes, the chain is plain optax. The few transformations defined here exist because
optax differs; each says where. `SLOTS` tells which field of which optax state holds which of torch's moments.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree

Schedule = Callable[[Any], Any]


def transformation(kind: str, group: dict[str, Any], schedule: Schedule) -> optax.GradientTransformation:
    """The optax chain of one parameter group; the updates it has made are counted by its schedule."""
    return optax.chain(*direction(kind, group), optax.scale_by_learning_rate(schedule))


def direction(kind: str, group: dict[str, Any]) -> list[optax.GradientTransformation]:
    """What torch multiplies by minus the learning rate: the links of the chain of one parameter group."""
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
    return links


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

    step: Int[Array, ""]
    mu: PyTree
    nu: PyTree
    nu_max: PyTree


def scale_by_amsgrad(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """AMSGrad over the raw second moment; optax takes the maximum after the bias correction."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AmsgradState(jnp.zeros([], jnp.int32), zeros, zeros, zeros)

    def update(updates, state, params=None):
        step = state.step + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu)
        c1, c2 = 1 - b1**step, 1 - b2**step
        scaled = jax.tree.map(
            lambda m, v: m / c1.astype(m.dtype) / (jnp.sqrt(v / c2.astype(v.dtype)) + eps), mu, nu_max
        )
        return scaled, AmsgradState(step, mu, nu, nu_max)

    return optax.GradientTransformation(init, update)


def scale_by_root_sum_of_squares(eps: float) -> optax.GradientTransformation:
    """Adagrad with eps beside the root; optax has it inside."""

    def update(updates, state, params=None):
        sums = jax.tree.map(lambda g, s: s + g * g, updates, state.sum_of_squares)
        scaled = jax.tree.map(lambda g, s: g / (jnp.sqrt(s) + eps), updates, sums)
        return scaled, optax.ScaleByRssState(sums)

    init = lambda params: optax.ScaleByRssState(jax.tree.map(jnp.zeros_like, params))
    return optax.GradientTransformation(init, update)


# State type -> field -> torch's slot. "step" is a count, one for the whole group; "started" tells if it is above 0.
SLOTS: dict[type, dict[str, str]] = {
    optax.ScaleByAdamState: {"count": "step", "mu": "exp_avg", "nu": "exp_avg_sq"},
    AmsgradState: {"step": "step", "mu": "exp_avg", "nu": "exp_avg_sq", "nu_max": "max_exp_avg_sq"},
    optax.TraceState: {"trace": "momentum_buffer"},
    DampenedTraceState: {"trace": "momentum_buffer", "started": "started"},
    optax.ScaleByRmsState: {"nu": "square_avg"},
    optax.ScaleByRStdDevState: {"mu": "grad_avg", "nu": "square_avg"},
    optax.ScaleByRssState: {"sum_of_squares": "sum"},
    optax.ScaleByScheduleState: {"count": "step"},
}


def read_slots(opt_state: PyTree) -> Iterator[tuple[str, Any]]:
    """Every (slot, value) in an optax state; the value is a tree like the parameters, or a scalar for `step`."""
    for node in jax.tree.leaves(opt_state, is_leaf=_has_slots):
        for field, slot in SLOTS.get(type(node), {}).items():
            yield slot, getattr(node, field)


def map_slots(function: Callable[[str, Any], Any], opt_state: PyTree) -> PyTree:
    """The same optax state with every slot's value replaced by `function(slot, value)`."""

    def mapped(node: Any) -> Any:
        fields = SLOTS.get(type(node), {})
        return node._replace(**{f: function(s, getattr(node, f)) for f, s in fields.items()}) if fields else node

    return jax.tree.map(mapped, opt_state, is_leaf=_has_slots)


def _has_slots(node: Any) -> bool:
    return type(node) in SLOTS
