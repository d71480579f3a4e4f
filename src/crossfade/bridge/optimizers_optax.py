"""The neutral `OptimizerState` as an optax transformation and state, and back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from ..errors import MappingError, NoCounterpart, UsageError, nearest
from ..optim.clipping_jax import clip_by_global_norm
from ..optim.state import OptimizerState, slots
from .libraries import leaf_names, named_leaves
from .mapping import Entry, Mapping
from .transfer import numpy_to_jax
from .transforms import map_slots, read_slots, transformation


class OptaxOptimizer(NamedTuple):
    """What `optax` needs to go on: `updates, opt_state = tx.update(grads, opt_state, params)`.

    `schedule(count)` gives the learning rate of each group after `count` updates, as torch's `get_last_lr()` does.
    """

    tx: optax.GradientTransformation
    opt_state: PyTree
    schedule: Callable[[Any], tuple[Any, ...]]


def build_optax(
    state: OptimizerState,
    mapping: Mapping,
    *,
    schedule: Callable[[Any], Any] | None = None,
    clip_norm: float | None = None,
) -> OptaxOptimizer:
    """The optax transformation of a neutral state, and the optax state that continues it.

    `schedule(count)` gives one learning rate, or a tuple with one for each group; by default each group's `lr` is kept.
    """
    rates = _per_group(schedule, state)
    groups = _leaf_groups(state, mapping)
    params = mapping.opened.params
    chains = [
        transformation(state.kind, group, lambda count, i=i: rates(count)[i]) for i, group in enumerate(state.groups)
    ]
    trained = jax.tree.map(lambda path: path in groups, leaf_names(params))
    everything = all(jax.tree.leaves(trained))
    links: list[optax.GradientTransformation] = chains
    if len(chains) > 1 or not everything:
        labels = lambda tree: jax.tree.map(lambda path: groups.get(path, "frozen"), leaf_names(tree))
        named = {f"group_{i}": chain for i, chain in enumerate(chains)}
        links = [optax.partition({**named, "frozen": optax.set_to_zero()}, labels)]
    if clip_norm is not None:
        clip = clip_by_global_norm(clip_norm)
        links.insert(0, clip if everything else optax.masked(clip, trained))
    tx = optax.chain(*links) if len(links) > 1 else links[0]
    return OptaxOptimizer(tx, write_optax(state, tx.init(params), mapping), rates)


def read_optax(opt_state: PyTree, template: OptimizerState, mapping: Mapping) -> OptimizerState:
    """The neutral form of an optax state; `template` gives the kind, the groups, and the moments of frozen parameters.

    Reads states made by `build_optax`, and those of optax's own optimisers that count their updates, as torch's do.
    """
    found: dict[str, dict[str, Any]] = {}
    steps = set()
    for slot, value in read_slots(opt_state):
        if slot == "step":
            steps.add(int(value))
        elif slot != "started":
            found.setdefault(slot, {}).update({p: np.asarray(a) for p, a in named_leaves(value).items()})
    if template.kind == "SGD" and not steps:
        steps.add(int(any(np.any(trace) for trace in found.get("momentum_buffer", {}).values())))
    if len(steps) != 1:
        raise UsageError(
            f"expected an optax state with one count of updates, got {sorted(steps)}. Use the state made by to_optax."
        )
    named = {slot: mapping.leaves_to_torch(leaves, linear=True) for slot, leaves in found.items()}
    step = np.asarray(steps.pop(), np.float32)
    moments = dict(template.moments)
    for name, i in template.trained.items():
        expected = slots(template.kind, template.groups[i])
        if missing := [slot for slot in expected if name not in named.get(slot, {})]:
            raise UsageError(
                f"expected the optax state of {template.kind} with {', '.join(expected)} for {name}, missing "
                f"{', '.join(missing)}. Use the state made by to_optax for this optimiser."
            )
        moments[name] = {"step": step} | {slot: np.array(named[slot][name]) for slot in expected}
    return replace(template, moments=moments)


def _per_group(schedule: Callable[[Any], Any] | None, state: OptimizerState) -> Callable[[Any], tuple[Any, ...]]:
    if schedule is None:
        rates = tuple(group["lr"] for group in state.groups)
        return lambda count: rates

    def rates_at(count):
        rates = schedule(count)
        return rates if isinstance(rates, tuple) else (rates,) * len(state.groups)

    return rates_at


def _leaf_groups(state: OptimizerState, mapping: Mapping) -> dict[str, str]:
    """The group of every JAX leaf that moves; refuses what one optax update cannot do as torch does."""
    trained = state.trained
    params = named_leaves(mapping.opened.params)
    groups: dict[str, str] = {}
    known = {name for entry in mapping.entries for name in entry.torch}
    if unknown := [name + nearest(name, known) for name in trained if name not in known]:
        raise MappingError(f"the optimiser updates parameters the mapping does not know: {', '.join(unknown)}.")
    for entry in mapping.entries:
        labels = {trained.get(name) for name in entry.torch}
        if labels == {None}:
            continue
        if entry.rule.lossy and not _moments_survive(entry, mapping):
            raise NoCounterpart(
                f"{entry}: torch trains arrays that JAX holds only as their sum, so one update moves the sum twice in "
                f"torch and once in JAX. Use a JAX layer with the same parameters, or leave them out of the optimiser."
            )
        if len(labels) > 1:
            raise NoCounterpart(f"{entry}: JAX holds these as one, so they must sit in one parameter group together.")
        if outside := [path for path in entry.jax if path not in params]:
            raise MappingError(f"{entry}: optax cannot move {', '.join(outside)}, not a trainable leaf in JAX.")
        groups.update(dict.fromkeys(entry.jax, f"group_{labels.pop()}"))
    return groups


def _moments_survive(entry: Entry, mapping: Mapping) -> bool:
    """A rule may lose digits of a weight (a constant is added) and still carry moments there and back."""
    shapes = [mapping.shapes[name] for name in entry.torch]
    probes = tuple(np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes))
    back = entry.rule.inverse(entry.rule.forward(probes, linear=True), linear=True)
    return all(np.array_equal(a, b) for a, b in zip(probes, back, strict=True))


def write_optax(state: OptimizerState, opt_state: PyTree, mapping: Mapping) -> PyTree:
    """`opt_state`, of `build_optax` or of optax's own optimisers, with the moments and counts of `state` in place."""
    step = state.step
    leaves: dict[str, dict[str, jax.Array]] = {}
    for slot in {slot for moments in state.moments.values() for slot in moments} - {"step"}:
        arrays = {n: state.moments[n][slot] for n in state.trained if slot in state.moments[n]}
        carried = mapping.leaves_to_jax(arrays, linear=True)
        leaves[slot] = {path: numpy_to_jax(array, f"{slot} of {path}") for path, array in carried.items()}

    def value(slot: str, old: PyTree) -> PyTree:
        if slot == "step":
            return jnp.asarray(step, jnp.int32)
        if slot == "started":
            return jnp.asarray(step > 0)
        return jax.tree.map(lambda path: leaves[slot][path], leaf_names(old))

    return map_slots(value, opt_state)
