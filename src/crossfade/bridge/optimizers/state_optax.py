"""The neutral `OptimizerState` as an optax transformation and state, and back."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from ...errors import MappingError, NoCounterpart, UsageError, nearest
from ...optim.state import OptimizerState, slots
from ..libraries import leaf_names, named_leaves
from ..mapping import Entry, Mapping
from ..transfer import numpy_to_jax
from .clipping import clipping
from .plateau import PlateauState, carrying
from .rates import RatesState, after_updates, read_rates, scale_by_rates
from .skipping import SkippingState, WatchingState, skipping_zeros, watching
from .transforms import SLOTS, direction, map_slots, read_slots


class OptaxOptimizer(NamedTuple):
    """What `optax` needs to go on: `updates, opt_state = tx.update(grads, opt_state, params)`.

    `schedule(count)` gives the learning rate of each group after `count` updates, as torch's `get_last_lr()` does;
    without a scheduler the rates the optimiser came with, which `with_learning_rate(opt_state, ...)` changes.
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
    clip_value: float | None = None,
    skipped: Iterable[str] = (),
    count: int | None = None,
    clock: int | None = None,
    plateau: PlateauState | None = None,
) -> OptaxOptimizer:
    """The optax transformation of a neutral state, and the optax state that continues it.

    `schedule(count)` gives one learning rate, or a tuple with one for each group; by default each group's `lr` is in
    the state, for `with_learning_rate` to change. `skipped` are parameters that get no gradient at some updates.
    `count` is how many updates were made, by default `state.step`; `clock` the same as a scheduler counts them.
    `plateau` is a ReduceLROnPlateau, which `with_metric` moves on.
    """
    state = state.renamed(mapping.plain_name)  # a bundle may be of a module that torch.compile has wrapped
    groups = _leaf_groups(state, mapping)
    late = _late_entries(state, mapping, skipped)
    entries = {path: i for i, entry in enumerate(mapping.entries) for path in entry.jax}
    params = mapping.opened.params
    labels, chains = _chains(state, groups, _leaf_steps(state, mapping), late, entries)
    trained = jax.tree.map(lambda path: path in groups, leaf_names(params))
    everything = all(jax.tree.leaves(trained))
    if len(chains) > 1 or not everything:
        parts: dict[Hashable, Any] = {label: _chained(links) for label, links in chains.items()}
        parts["frozen"] = optax.set_to_zero()
        label = lambda tree: jax.tree.map(lambda path: labels.get(path, "frozen"), leaf_names(tree))
        links = [optax.partition(parts, label)]
    else:
        links = next(iter(chains.values()), [])
    if (clip := clipping(clip_norm, clip_value)) is not None:
        links = [clip if everything else optax.masked(clip, trained), *links]
    initial = tuple(group["lr"] for group in state.groups)
    rates = _per_group(schedule, initial)
    scale = scale_by_rates(groups, initial, None if schedule is None else rates)
    tx = optax.chain(*links, scale, *([] if plateau is None else [carrying(plateau)]))
    opt_state = write_optax(state, tx.init(params), mapping)
    if count is not None:
        opt_state = after_updates(opt_state, count, count if clock is None else clock)
    return OptaxOptimizer(tx, opt_state, rates)


def _chains(
    state: OptimizerState, groups: dict[str, int], steps: dict[str, int], late: set[int], entries: dict[str, int]
) -> tuple[dict[str, str], dict[str, list[optax.GradientTransformation]]]:
    """The chain each leaf goes through, by a label, and the links of each chain, learning rates apart."""
    fresh = {i for path, i in groups.items() if entries[path] not in late and not steps[path]}
    labels: dict[str, str] = {}
    chains: dict[str, list[optax.GradientTransformation]] = {}
    for path, i in groups.items():
        group, entry = state.groups[i], entries[path]
        labels[path] = f"group_{i}_entry_{entry}" if entry in late else f"group_{i}"
        if labels[path] in chains:
            continue
        links = direction(state.kind, group)
        if entry in late:
            links = [skipping_zeros(_chained(links))]
        elif i in fresh and links:
            links = [watching(_chained(links), entries)]
        chains[labels[path]] = links
    return labels, chains


def _chained(links: list[optax.GradientTransformation]) -> optax.GradientTransformation:
    return optax.chain(*links) if links else optax.identity()


def _per_group(schedule: Callable[[Any], Any] | None, initial: tuple[float, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if schedule is None:
        return lambda count: initial

    def rates_at(count):
        rates = schedule(count)
        return rates if isinstance(rates, tuple) else (rates,) * len(initial)

    return rates_at


def _leaf_groups(state: OptimizerState, mapping: Mapping) -> dict[str, int]:
    """The group of every JAX leaf that moves; refuses what one optax update cannot do as torch does."""
    trained = state.trained
    params = named_leaves(mapping.opened.params)
    groups: dict[str, int] = {}
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
        groups.update(dict.fromkeys(entry.jax, trained[entry.torch[0]]))
    return groups


def _leaf_steps(state: OptimizerState, mapping: Mapping) -> dict[str, int]:
    """The updates that the parameters in each moving leaf have had."""
    steps = state.steps
    return {path: steps[entry.torch[0]] for entry in mapping.entries for path in entry.jax if entry.torch[0] in steps}


def _late_entries(state: OptimizerState, mapping: Mapping, skipped: Iterable[str]) -> set[int]:
    """Entries of parameters that torch has skipped at times, or is said to."""
    known, skipped = state.steps, set(skipped)
    if unknown := [name + nearest(name, known) for name in sorted(skipped - known.keys())]:
        raise MappingError(f"skipped: expected names of parameters the optimiser moves, got {', '.join(unknown)}.")
    skipped |= state.behind
    late = set()
    for i, entry in enumerate(mapping.entries):
        steps = {name: known[name] for name in entry.torch if name in known}
        if len(set(steps.values())) > 1:
            counts = ", ".join(f"{name}: {step}" for name, step in steps.items())
            raise NoCounterpart(
                f"{entry}: JAX holds these as one, so they must have had the same updates; torch has made {counts}. It "
                f"skips parameters without a gradient: give every member one, or use a JAX model with leaves apart."
            )
        if not skipped.isdisjoint(steps):
            late.add(i)
    return late


def _moments_survive(entry: Entry, mapping: Mapping) -> bool:
    """A rule may lose digits of a weight (a constant is added) and still carry moments there and back."""
    shapes = [mapping.shapes[name] for name in entry.torch]
    probes = tuple(np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes))
    back = entry.rule.inverse(entry.rule.forward(probes, linear=True), linear=True)
    return all(np.array_equal(a, b) for a, b in zip(probes, back, strict=True))


# The numbers in an optax state


def write_optax(state: OptimizerState, opt_state: PyTree, mapping: Mapping) -> PyTree:
    """`opt_state`, of `build_optax` or of optax's own optimisers, with the moments and counts of `state` in place."""
    leaves: dict[str, dict[str, jax.Array]] = {}
    for slot in {slot for moments in state.moments.values() for slot in moments} - {"step"}:
        arrays = {n: state.moments[n][slot] for n in state.trained if slot in state.moments[n]}
        carried = mapping.leaves_to_jax(arrays, linear=True)
        leaves[slot] = {path: numpy_to_jax(array, f"{slot} of {path}") for path, array in carried.items()}
    steps = _leaf_steps(state, mapping)
    _check_counts(state, opt_state, mapping)

    def filled(tree: PyTree, step: int) -> PyTree:
        return jax.tree.map(lambda node: fill(node, step), tree, is_leaf=_is_known)

    def fill(node: Any, step: int) -> Any:
        match node:
            case RatesState():
                return after_updates(node, step, step)
            case WatchingState(used, inner):
                used = jax.tree.map(lambda path: jnp.asarray(steps[path] > 0), leaf_names(used))
                return WatchingState(used, filled(inner, step))
            case SkippingState(own, inner):
                counts = jax.tree.map(lambda path: jnp.asarray(steps[path], jnp.int32), leaf_names(own))
                return SkippingState(counts, filled(inner, int(jax.tree.leaves(counts)[0])))
            case _:
                return map_slots(lambda slot, old: value(slot, old, step), node)

    def value(slot: str, old: PyTree, step: int) -> PyTree:
        if slot == "step":
            return jnp.asarray(step, jnp.int32)
        if slot == "started":
            return jnp.asarray(step > 0)
        return jax.tree.map(lambda path: leaves[slot][path], leaf_names(old))

    return filled(opt_state, state.step)


def _check_counts(state: OptimizerState, opt_state: PyTree, mapping: Mapping) -> None:
    """optax's own optimisers have one count for all parameters."""
    apart = _own_steps(opt_state, 0)
    behind, steps = state.behind, state.steps
    names = [n for entry in mapping.entries for n in entry.torch if n in behind and not apart.keys() >= set(entry.jax)]
    if names:
        counts = ", ".join(f"{name}: {steps[name]}" for name in names)
        raise NoCounterpart(
            f"expected every parameter of {state.kind} at the same step, {state.step}, because this optax state counts "
            f"once for all; got {counts}. torch skips parameters without a gradient: use the transformation and state "
            f"that build_optax makes for this optimiser, or freeze them with requires_grad_(False)."
        )


def read_optax(opt_state: PyTree, template: OptimizerState, mapping: Mapping) -> OptimizerState:
    """The neutral form of an optax state; `template` gives the kind, the groups, and the moments of frozen parameters.

    Reads states made by `build_optax`, with their learning rates, and those of optax's own optimisers that count their
    updates, as torch's do.
    """
    found: dict[str, dict[str, Any]] = {}
    counts: set[int] = set()
    for slot, value in read_slots(opt_state):
        if slot == "step":
            counts.add(int(value))
        elif slot != "started":
            found.setdefault(slot, {}).update({p: np.asarray(a) for p, a in named_leaves(value).items()})
    rates = read_rates(opt_state)
    step = _one_count(counts, found, template.kind) if rates is None else int(rates.updates)
    own = _own_steps(opt_state, step)
    steps = {name: max(own.get(path, step) for path in e.jax) for e in mapping.entries for name in e.torch}
    named = {slot: mapping.leaves_to_torch(leaves, linear=True) for slot, leaves in found.items()}
    moments = dict(template.moments)
    for name, i in template.trained.items():
        expected = slots(template.kind, template.groups[i])
        if missing := [slot for slot in expected if name not in named.get(slot, {})]:
            raise UsageError(
                f"expected the optax state of {template.kind} with {', '.join(expected)} for {name}, missing "
                f"{', '.join(missing)}. Use the state made by to_optax for this optimiser."
            )
        count = {"step": np.asarray(steps.get(name, step), np.float32)}
        moments[name] = count | {slot: np.array(named[slot][name]) for slot in expected}
    return replace(template, moments=moments, groups=_with_rates(template.groups, rates))


def _one_count(counts: set[int], found: dict[str, dict[str, Any]], kind: str) -> int:
    if kind == "SGD" and not counts:
        counts = {int(any(np.any(trace) for trace in found.get("momentum_buffer", {}).values()))}
    if len(counts) != 1:
        raise UsageError(
            f"expected an optax state with one count of updates, got {sorted(counts)}. Use the state made by to_optax."
        )
    return counts.pop()


def _own_steps(opt_state: PyTree, step: int) -> dict[str, int]:
    """The updates of each leaf that may have had fewer than `step`, because torch would have skipped it."""
    own: dict[str, int] = {}
    for node in jax.tree.leaves(opt_state, is_leaf=_is_known):
        if isinstance(node, WatchingState):
            own |= {path: step if used else 0 for path, used in named_leaves(node.used).items()}
        elif isinstance(node, SkippingState):
            own |= {path: int(count) for path, count in named_leaves(node.step).items()}
    return own


def _with_rates(groups: tuple[dict[str, Any], ...], rates: RatesState | None) -> tuple[dict[str, Any], ...]:
    """The groups with the learning rates set by hand; one that is still torch's is kept in torch's precision."""
    if rates is None or rates.learning_rate is None:
        return groups
    now = [np.asarray(rate) for rate in rates.learning_rate]
    same = [np.asarray(group["lr"], rate.dtype) == rate for group, rate in zip(groups, now, strict=True)]
    return tuple(
        group if kept else group | {"lr": float(rate)} for group, rate, kept in zip(groups, now, same, strict=True)
    )


def _is_known(node: Any) -> bool:
    return isinstance(node, RatesState | WatchingState | SkippingState) or type(node) in SLOTS
