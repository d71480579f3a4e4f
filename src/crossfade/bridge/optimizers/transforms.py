"""torch's optimisers written as optax chains.

Where optax computes what torch computes, the chain is plain optax. The few transformations defined here exist because
optax differs; each says where. `SLOTS` tells which field of which optax state holds which of torch's moments.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, PyTree

Schedule = Callable[[Any], Any]

TABLE = 1 << 17  # steps for which RAdam's factor is tabulated at most


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
        case "RAdam":
            links.append(scale_by_radam(*group["betas"], eps=group["eps"]))
        case "NAdam":
            product = "float64" if group.get("mu_product_dtype") == "float64" else "float32"
            decay = group["momentum_decay"]
            links.append(scale_by_nadam(*group["betas"], eps=group["eps"], decay=decay, product_dtype=product))
        case "Adamax":
            links.append(scale_by_adamax(*group["betas"], eps=group["eps"]))
        case "Adadelta":
            links.append(optax.scale_by_adadelta(group["rho"], eps=group["eps"]))
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
        mu, nu = _moments(b1, b2, updates, state)
        nu_max = jax.tree.map(jnp.maximum, state.nu_max, nu)
        c1, c2 = 1 - b1**step, 1 - b2**step
        scaled = jax.tree.map(
            lambda m, v: m / c1.astype(m.dtype) / (jnp.sqrt(v / c2.astype(v.dtype)) + eps), mu, nu_max
        )
        return scaled, AmsgradState(step, mu, nu, nu_max)

    return optax.GradientTransformation(init, update)


def scale_by_radam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """RAdam with eps beside the root before its correction, and no rectification while rho <= 5.

    rho_t = rho - 2 t b2^t / (1 - b2^t) with rho = 2 / (1 - b2) - 1; optax corrects first and begins at rho_t = 5.
    """
    factors = _rectifications(b2)

    def update(updates, state, params=None):
        step = state.count + 1
        mu, nu = _moments(b1, b2, updates, state)
        c1, c2 = 1 - b1**step, 1 - b2**step
        factor = jnp.asarray(factors)[jnp.minimum(step, len(factors) - 1)]
        adaptive = lambda v: jnp.sqrt(c2).astype(v.dtype) / (jnp.sqrt(v) + eps) * factor.astype(v.dtype)
        scale = lambda v: jnp.where(factor > 0, adaptive(v), jnp.ones_like(v))
        scaled = jax.tree.map(lambda m, v: m / c1.astype(m.dtype) * scale(v), mu, nu)
        return scaled, optax.ScaleByAdamState(step, mu, nu)

    return optax.GradientTransformation(optax.scale_by_adam(b1, b2).init, update)


def _rectifications(b2: float) -> np.ndarray:
    """RAdam's factor at each step until it no longer changes; 0 before it begins.

    As a table, because the difference of two large numbers in rho_t has no digits left in float32.
    """
    full = 2 / (1 - b2) - 1
    step = np.arange(1, 2 + min(int(40 / (1 - b2)), TABLE))
    power = b2 ** step.astype(float)
    rho = full - 2 * step * power / (1 - power)
    with np.errstate(invalid="ignore"):
        factor = np.sqrt((rho - 4) * (rho - 2) * full / ((full - 4) * (full - 2) * rho))
    return np.concatenate([[0.0], np.where(rho > 5, factor, 0.0)])


class NadamState(NamedTuple):
    """Moments of NAdam; the product of all momenta so far has the shape of the parameter, as the others."""

    step: Int[Array, ""]
    mu: PyTree
    nu: PyTree
    mu_product: PyTree


def scale_by_nadam(
    b1: float, b2: float, eps: float, decay: float, product_dtype: str = "float32"
) -> optax.GradientTransformation:
    """NAdam with a momentum that grows to b1, as torch has it; optax has Nesterov's step at a constant momentum.

    mu_t = b1 (1 - 0.96^(t decay) / 2), and the product of these is kept in a precision of its own.
    """

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return NadamState(jnp.zeros([], jnp.int32), zeros, zeros, jax.tree.map(jnp.ones_like, params))

    def update(updates, state, params=None):
        step = state.step + 1
        mu, nu = _moments(b1, b2, updates, state)
        now, after = (b1 * (1 - 0.5 * jnp.exp(t * (decay * math.log(0.96)))) for t in (step, step + 1))
        own = jax.dtypes.canonicalize_dtype(product_dtype)
        times = lambda p: (p.astype(own) * now.astype(own)).astype(p.dtype)
        product, c2 = jax.tree.map(times, state.mu_product), 1 - b2**step

        def scaled(g, m, v, p):
            now_, after_, c2_ = (number.astype(g.dtype) for number in (now, after, c2))
            denominator = jnp.sqrt(v / c2_) + eps
            return ((1 - now_) / (1 - p) * g + after_ / (1 - p * after_) * m) / denominator

        return jax.tree.map(scaled, updates, mu, nu, product), NadamState(step, mu, nu, product)

    return optax.GradientTransformation(init, update)


class AdamaxState(NamedTuple):
    """The average, and the decaying largest size of gradients."""

    step: Int[Array, ""]
    mu: PyTree
    norm: PyTree


def scale_by_adamax(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Adamax; optax computes the same, but keeps it in the state of Adam."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AdamaxState(jnp.zeros([], jnp.int32), zeros, zeros)

    def update(updates, state, params=None):
        step = state.step + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        norm = jax.tree.map(lambda g, n: jnp.maximum(b2 * n, jnp.abs(g) + eps), updates, state.norm)
        c1 = 1 - b1**step
        return jax.tree.map(lambda m, n: m / c1.astype(m.dtype) / n, mu, norm), AdamaxState(step, mu, norm)

    return optax.GradientTransformation(init, update)


def _moments(b1: float, b2: float, updates: PyTree, state: Any) -> tuple[PyTree, PyTree]:
    """The averages of gradients and of their squares."""
    mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
    return mu, jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)


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
    NadamState: {"step": "step", "mu": "exp_avg", "nu": "exp_avg_sq", "mu_product": "mu_product"},
    AdamaxState: {"step": "step", "mu": "exp_avg", "norm": "exp_inf"},
    optax.ScaleByAdaDeltaState: {"e_g": "square_avg", "e_x": "acc_delta"},
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
