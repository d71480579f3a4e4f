"""`match`: finds which JAX leaf holds which torch array by tracing both models, and proves it by running them."""

from collections.abc import Iterator, Mapping as Named
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase

from ...errors import AmbiguousMapping, CrossfadeError, MappingError, UsageError, nearest
from ..libraries import initialised, is_equinox, named_leaves
from ..mapping import Entry, Mapping
from ..rules import Rule
from ..transfer import tensor_to_numpy
from .axes import Shape
from .both_models import TORCH_RAN, Apply, BothModels
from .candidates import Candidate, Facts, Item, arrays, single_item, stacked_items, unstacked_items
from .constants import constants
from .examples import as_given, layouts
from .fusing import fusable, joined_items, split_candidates
from .probing import Probing
from .proof import guard
from .recurrent import cell_items
from .refusal import refuse
from .search import Search, likeness

Override = str | tuple[str, ...] | tuple[str | tuple[str, ...], Rule] | None


def match(
    torch_module: torch.nn.Module,
    jax_model: Any,
    example: Any,
    *,
    jax_example: Any = None,
    jax_apply: Apply | None = None,
    torch_apply: Apply | None = None,
    training: bool = False,
    overrides: Named[str | tuple[str, ...], Override] | None = None,
) -> Mapping:
    """The proved mapping between a torch module and a JAX model that compute the same function.

    `jax_model` is an Equinox or NNX module, `(linen_module, variables)`, `(haiku_transformed, params)`, a TrainState,
    `(apply_fn, params)`, or any pytree of arrays with `jax_apply`; a linen module or Haiku function alone is
    initialised on the example. `example` is the torch input with a batch axis: a tensor or array, a dict, or a tuple of
    arguments. `jax_example` is the same input in another layout; images with their channels last are tried without
    being asked. `jax_apply(model, x)` and `torch_apply(module, x)` replace the call that users write. `overrides`
    decide by hand: `{"fc.weight": "Dense_0.kernel"}`, or with a rule `{("a", "b"): ("c", Rule(add()))}`; a buffer that
    is a constant in JAX goes to None.

    Both models run in evaluation mode, or with `training` in training mode (noise held in buffers takes part; dropout
    must be zero), on copies, in float64. The mapping is returned only when their outputs agree: with random weights and
    buffers of both signs, and with small and large weights and inputs (draws.py). Where a model only runs in
    float32 the proof is made in float32, with a warning. Parameters on which the outputs do not depend are listed in
    `Mapping.unproved`.
    """
    decided = dict(overrides or {})
    how = jax_apply, torch_apply, training
    tries = [jax_example]
    if jax_example is None:
        tries = layouts(torch_module, example, channels_first=is_equinox(jax_model))
    errors: list[Exception] = []
    for given in tries:
        try:
            return _match(torch_module, jax_model, example, given, *how, decided)
        except Exception as error:  # whatever a model raises on an input in a layout that it is not made for
            if any(TORCH_RAN in note for note in getattr(error, "__notes__", ())):
                raise
            errors.append(error)
    raise next((error for error in errors if isinstance(error, CrossfadeError)), errors[0])


def _match(
    torch_module: torch.nn.Module,
    jax_model: Any,
    example: Any,
    jax_example: Any,
    jax_apply: Apply | None,
    torch_apply: Apply | None,
    training: bool,
    overrides: dict,
) -> Mapping:
    declared = {name for name, target in overrides.items() if target is None and isinstance(name, str)}
    jax_model = initialised(jax_model, as_given(example if jax_example is None else jax_example))
    origin = torch_module, example, jax_example, jax_apply, torch_apply, training
    with BothModels(torch_module, jax_model, *origin[1:]) as both:
        both.warn("bridge.match", stacklevel=4)
        shapes = {path: leaf.shape for path, leaf in both.floats.items()}
        _check_declared(both, declared)
        search = _find(both, shapes, {n: t for n, t in overrides.items() if n not in declared}, declared)
        entries = (*search.best, *_idle(both, search))
        try:
            refuse(both, entries, shapes, search)
        except MappingError as error:
            error.found, error.draw = _whole(both, entries, jax_model, origin), search.gap.draw
            raise
        unproved = guard(both, entries)
        fixed = constants(both, entries, declared)
        unjudged = search.probing.unjudged(entries)
    return replace(_mapping(both, entries, jax_model, origin), unproved=unproved, constants=fixed, unjudged=unjudged)


def _meant(both: BothModels, held: set[str]) -> dict[str, np.ndarray]:
    """Buffers that JAX has as numbers of its code, where these are not the very float32 ones."""
    alone = {n: both.own[n] for n in both.statistics if n not in held} if both.meant else {}
    return {n: a for n, a in alone.items() if not np.array_equal(a, tensor_to_numpy(both.buffers[n]))}


def _mapping(both: BothModels, entries: tuple[Entry, ...], jax_model: Any, origin: tuple[Any, ...]) -> Mapping:
    used = {path for entry in entries for path in entry.jax}
    held = {name for entry in entries for name in entry.torch}
    order = {name: at for at, name in enumerate(both.shapes)}
    return Mapping(
        entries=tuple(sorted(entries, key=lambda entry: order[entry.torch[0]])),
        shapes=both.shapes,
        jax_model=jax_model,
        tied=both.tied,
        torch_only={n: tensor_to_numpy(t) for n, t in both.buffers.items() if n not in held},
        jax_only=tuple(path for path in both.opened.leaves() if path not in used),
        precision=both.precision,
        meant=_meant(both, held),
        widened=both.widened,
        numbers=(both.torch_meant, both.jax_meant),
        origin=origin,
    )


def _whole(both: BothModels, entries: tuple[Entry, ...], jax_model: Any, origin: tuple[Any, ...]) -> Mapping | None:
    """The mapping that came farthest, where every parameter of both sides is in it."""
    names = {name for entry in entries for name in entry.torch}
    paths = {path for entry in entries for path in entry.jax}
    if both.parameters <= names and named_leaves(both.opened.params).keys() <= paths:
        return _mapping(both, entries, jax_model, origin)
    return None


def _check_declared(both: BothModels, declared: set[str]) -> None:
    for name in declared:
        if name not in both.buffers:
            what = "parameter" if name in both.parameters else "name the torch module does not have"
            raise UsageError(
                f"overrides: {name!r}: None declares a buffer to be a constant in JAX, got a {what}."
                f"{nearest(name, both.buffers)} The buffers are: {', '.join(both.buffers) or 'none'}"
            )


def _find(both: BothModels, leaves: dict[str, Shape], overrides: dict, declared: set[str]) -> Search:
    """The first search that ends in a proof; without one, the search that came farthest."""
    searches = []
    for fixed, meant in _constant_buffers(both, leaves, declared):
        if fixed:
            both.draw_first(fixed, meant)
        searches.append((_search(Probing(both), *_items(both, leaves, overrides, declared)), fixed, meant))
        if searches[-1][0].proved:
            return searches[-1][0]
    best, fixed, meant = max(searches, key=lambda found: (found[0].shown, -found[0].gap.excess))
    if len(searches) > 1:
        both.draw_first(fixed, meant)
    return best


def _constant_buffers(
    both: BothModels, leaves: dict[str, Shape], declared: set[str]
) -> Iterator[tuple[set[str], bool]]:
    """Which buffers keep the module's values while parameters are matched, and whether as the numbers that are meant.

    First those that fit no JAX leaf, then all but the statistics of batch normalisation, which JAX may have as
    constants. These it mostly has as numbers of its code, 0.4 for the float32 0.4000000059604645.
    """
    long = lambda shape: sorted(n for n in shape if n != 1)
    like = lambda one, other: long(one) == long(other) or one == other[1:] or other == one[1:]  # or stacked
    fits = {n for n in both.statistics if any(like(both.shapes[n], shape) for shape in leaves.values())}
    alone = both.statistics - fits | declared & both.statistics
    yield alone, True
    norms = {path for path, child in both.module.named_modules() if isinstance(child, _NormBase)}
    custom = {name for name in both.statistics if name.rpartition(".")[0] not in norms}
    if not custom <= alone:
        yield alone | custom, True
    if both.torch_meant.changed:
        yield alone | custom, False


def _search(probing: Probing, fixed: tuple[Entry, ...], ways: list[list[Item]]) -> Search:
    """The first of several groupings of arrays that ends in a proof; without one, the search that came farthest."""
    searches = []
    for items in ways:
        searches.append(Search(probing, items, fixed))
        if searches[-1].solve():
            return searches[-1]
    return max(searches, key=lambda search: (search.shown, -search.gap.excess))


def _items(
    both: BothModels, leaves: dict[str, Shape], overrides: dict, declared: set[str]
) -> tuple[tuple[Entry, ...], list[list[Item]]]:
    """The entries that overrides fix, and the ways to group all other arrays into items."""
    trace = both.trace
    untrained = set(both.buffers), leaves.keys() - named_leaves(both.opened.params).keys()
    attached, factors = (trace.attached, both.jax.attached), (trace.factors, both.jax.factors)
    facts = Facts(both.shapes, leaves, trace.uses, both.jax.uses, attached, factors, trace.joined, untrained)
    chosen = [_override(both, facts, names, target) for names, target in overrides.items()]
    fixed = tuple(entry for item in chosen if len(item.candidates) == 1 for entry in item.candidates[0].entries)
    items = [item for item in chosen if len(item.candidates) > 1]

    taken = {path for item in chosen for candidate in item.candidates for path in candidate.leaves}
    facts = replace(facts, leaves={path: shape for path, shape in leaves.items() if path not in taken})
    names = {name for name, tensor in both.tensors.items() if tensor.is_floating_point()} - declared
    names -= arrays(chosen)
    items += [item for item in cell_items(both.module, both.shapes, facts.leaves) if names >= set(item.names)]
    names -= arrays(items)
    ways = []
    for stacked in stacked_items(names, facts):
        joined = joined_items(names - arrays(stacked), facts)
        ways += [items + _remaining(both, facts, names, stacked + more) for more in ([joined, []] if joined else [[]])]
    return fixed, ways


def _remaining(both: BothModels, facts: Facts, names: set[str], grouped: list[Item]) -> list[Item]:
    """The items of several arrays, and one item for each array that is in none of them."""
    items = grouped + unstacked_items(names - arrays(grouped), facts)
    left = names - arrays(items)
    groups = fusable(facts.jax_uses, facts.attached[1], facts.leaves)
    for name in (name for name in both.shapes if name in left):
        item = single_item(name, facts)
        item.candidates += split_candidates(name, facts, groups)
        item.optional = name in both.buffers
        items.append(item)
    return items


def _override(both: BothModels, facts: Facts, names: str | tuple[str, ...], target: Override) -> Item:
    """The item of one override: a single candidate, or the several layouts one leaf can have."""
    rule: Rule | None = None
    paths: Any = target
    if isinstance(target, tuple) and len(target) == 2 and isinstance(target[1], Rule):
        paths, rule = target[0], target[1]
    names, paths = ((given,) if isinstance(given, str) else tuple(given) for given in (names, paths))
    for given, known, side in ((names, both.tensors, "torch module"), (paths, facts.leaves, "JAX model")):
        for name in given:
            if name not in known:
                raise UsageError(
                    f"overrides: the {side} has no array {name!r}.{nearest(name, known)} It has: {', '.join(known)}"
                )
    if rule is not None:
        return Item(names, [Candidate((Entry(names, paths, rule, "override"),), 0)])
    if len(names) != 1 or len(paths) != 1:
        raise UsageError(
            f"overrides: {names} -> {paths} puts several arrays together, so it needs a rule: "
            f"{names!r}: ({paths!r}, Rule(...))"
        )
    item = single_item(names[0], replace(facts, leaves={paths[0]: facts.leaves[paths[0]]}))
    if not item.candidates:
        raise UsageError(
            f"overrides: {names[0]} {facts.shapes[names[0]]} cannot take the shape of {paths[0]} "
            f"{facts.leaves[paths[0]]} by reordering axes. Give the rule: {names[0]!r}: ({paths[0]!r}, Rule(...))"
        )
    item.candidates = [Candidate(tuple(_because(e, "override") for e in c.entries), c.cost) for c in item.candidates]
    return item


def _because(entry: Entry, reason: str) -> Entry:
    return replace(entry, reason=reason)


def _idle(both: BothModels, search: Search) -> tuple[Entry, ...]:
    """Entries for arrays that the example never uses: only shape and name can assign them."""
    seen = {name for point in both.trace.points for name in point.names}
    settled = {name for entry in search.best for name in entry.torch}
    taken = {path for entry in search.best for path in entry.jax}
    found: list[Entry] = []
    for item in search.items:
        if settled & set(item.names) or seen & set(item.names):
            continue
        free = [c for c in item.candidates if not c.leaves & taken and not c.leaves & both.jax.uses.keys()]
        close = lambda c, item=item: (c.cost > 2, -max(likeness(item.names[0], p) for p in c.leaves))
        free.sort(key=close)
        rivals = [c for c in free if close(c) == close(free[0]) and c.leaves != free[0].leaves]
        if rivals and not item.optional:
            lines = "".join(f"  {item.names[0]!r}: {next(iter(c.leaves))!r},\n" for c in (free[0], *rivals))
            raise AmbiguousMapping(
                f"{item.names[0]} {both.shapes[item.names[0]]} is not used on the example, and several JAX leaves of "
                f"its shape are free. Use an example that reads it, or pass one of these in overrides:\n{lines}"
            )
        if free and not rivals:
            found += (_because(e, "name") for e in free[0].entries)
            taken |= free[0].leaves
    return tuple(found)
