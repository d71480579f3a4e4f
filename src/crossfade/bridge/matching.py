"""`match`: finds which JAX leaf holds which torch array by tracing both models, and proves it by running them."""

from collections.abc import Iterator, Mapping as Named
from dataclasses import replace
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from ..errors import AmbiguousMapping, MappingError, NoCounterpart, UsageError, nearest
from .both_models import BothModels
from .candidates import Candidate, Facts, Item, Shape, arrays, single_item, stacked_items, unstacked_items
from .constants import constants
from .libraries import named_leaves
from .mapping import Entry, Mapping
from .probing import Probing
from .proof import guard
from .recurrent import cell_items
from .rules import Rule
from .search import Search, likeness
from .transfer import tensor_to_numpy

Override = str | tuple[str, ...] | tuple[str | tuple[str, ...], Rule] | None


def match(
    torch_module: torch.nn.Module,
    jax_model: Any,
    example: Any,
    *,
    jax_example: Any = None,
    jax_apply: Any = None,
    overrides: Named[str | tuple[str, ...], Override] | None = None,
) -> Mapping:
    """The proved mapping between a torch module and a JAX model that compute the same function.

    `jax_model` is an Equinox or NNX module, `(linen_module, variables)` or `(haiku_transformed, params)`; `example` is
    the torch input, a tensor or a tuple of arguments, with a batch axis. `jax_example` is the same input in another
    layout (NHWC) where needed; `jax_apply(model, x)` replaces the call that the library's users write. `overrides`
    decide by hand: `{"fc.weight": "Dense_0.kernel"}`, or with a rule `{("a", "b"): ("c", Rule(add()))}`; a buffer that
    is a constant in JAX goes to None.

    Both models run in evaluation mode, on copies, in float64. The mapping is returned only when their outputs agree:
    with random weights and buffers of both signs, and with small and large weights and inputs (bridge/draws.py). Where
    a model only runs in float32 the proof is made in float32, with a warning. Parameters on which the outputs do not
    depend are listed in `Mapping.unproved`.
    """
    overrides = dict(overrides or {})
    declared = {name for name, target in overrides.items() if target is None and isinstance(name, str)}
    with BothModels(torch_module, jax_model, example, jax_example, jax_apply) as both:
        both.warn("bridge.match", stacklevel=3)
        shapes = {path: leaf.shape for path, leaf in both.floats.items()}
        _check_declared(both, declared)
        search = _find(both, shapes, {n: t for n, t in overrides.items() if n not in declared}, declared)
        entries = (*search.best, *_idle(both, search))
        origin = (torch_module, example, jax_example, jax_apply)
        try:
            _refuse(both, entries, shapes, search)
        except MappingError as error:
            error.found = _whole(both, entries, jax_model, origin)
            raise
        unproved = guard(both, entries)
        fixed = constants(both, entries, declared)
        unjudged = search.probing.unjudged(entries)
    return replace(_mapping(both, entries, jax_model, origin), unproved=unproved, constants=fixed, unjudged=unjudged)


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
    for fixed, decimal in _constant_buffers(both, leaves, declared):
        if fixed:
            both.draw_first(fixed, decimal)
        searches.append(_search(Probing(both), *_items(both, leaves, overrides, declared)))
        if searches[-1].gap.excess <= 1:
            return searches[-1]
    return max(searches, key=lambda search: (search.shown, -search.gap.excess))


def _constant_buffers(
    both: BothModels, leaves: dict[str, Shape], declared: set[str]
) -> Iterator[tuple[set[str], bool]]:
    """Which buffers keep the module's values while parameters are matched, and whether as decimals.

    First those that fit no JAX leaf, then all but the statistics of batch normalisation, which JAX may have as
    constants; these it may have as decimals, 0.4 for the float32 0.4000000059604645.
    """
    long = lambda shape: sorted(n for n in shape if n != 1)
    like = lambda one, other: long(one) == long(other) or one == other[1:] or other == one[1:]  # or stacked
    fits = {n for n in both.statistics if any(like(both.shapes[n], shape) for shape in leaves.values())}
    alone = both.statistics - fits | declared & both.statistics
    yield alone, False
    norms = {path for path, child in both.module.named_modules() if isinstance(child, _NormBase)}
    custom = {name for name in both.statistics if name.rpartition(".")[0] not in norms}
    if not custom <= alone:
        yield alone | custom, False
    if custom | alone:
        yield alone | custom, True


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
    facts = Facts(both.shapes, leaves, trace.uses, both.jax.uses, trace.flattened, trace.joined, untrained)
    chosen = [_override(both, facts, names, target) for names, target in overrides.items()]
    fixed = tuple(entry for item in chosen if len(item.candidates) == 1 for entry in item.candidates[0].entries)
    items = [item for item in chosen if len(item.candidates) > 1]

    taken = {path for item in chosen for candidate in item.candidates for path in candidate.leaves}
    facts = replace(facts, leaves={path: shape for path, shape in leaves.items() if path not in taken})
    names = {name for name, tensor in both.tensors.items() if tensor.is_floating_point()} - declared
    names -= arrays(chosen)
    items += [item for item in cell_items(both.module, both.shapes, facts.leaves) if names >= set(item.names)]
    names -= arrays(items)
    return fixed, [items + _remaining(both, facts, names, stacked) for stacked in stacked_items(names, facts)]


def _remaining(both: BothModels, facts: Facts, names: set[str], stacked: list[Item]) -> list[Item]:
    """The stacked items, and one item for each array that is in none of them."""
    items = stacked + unstacked_items(names - arrays(stacked), facts)
    left = names - arrays(items)
    for name in (name for name in both.shapes if name in left):
        item = single_item(name, facts)
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


def _refuse(both: BothModels, entries: tuple[Entry, ...], leaves: dict[str, Shape], search: Search) -> None:
    """Raises unless every parameter has its counterpart and the outputs agree."""
    used = {path for entry in entries for path in entry.jax}
    held = {name for entry in entries for name in entry.torch}
    torch_left = [n for n in both.shapes if n in both.parameters and n not in held]
    trainable = named_leaves(both.opened.params)
    jax_left = [p for p in leaves if p in trainable and p not in used]
    proved = search.gap.excess <= 1
    if proved and not torch_left and not jax_left:
        return
    lines = [f"the torch {type(both.module).__name__} and the {both.opened.library} model could not be matched."]
    if entries:
        lines += ["  matched:"] + [f"    {_shaped(entry, both, leaves)}" for entry in entries]
    tried = {name: item.tried for item in search.items for name in item.names}
    lines += [f"  torch only: {n} {both.shapes[n]} (tried: {tried.get(n, 'override')})" for n in torch_left]
    lines += [f"  JAX only: {p} {leaves[p]}" for p in jax_left]
    if torch_left and not jax_left or jax_left and not torch_left:
        here, there = ("torch", "JAX") if torch_left else ("JAX", "torch")
        lines.append(
            f"  {', '.join(torch_left or jax_left)} has nothing to go to: the {there} model lacks it. "
            f"Build the {here} layer without it, or the {there} layer with it."
        )
        for alias, name in both.tied.items():
            if sorted(both.shapes[alias]) in [sorted(leaves[path]) for path in jax_left]:
                lines.append(f"  {alias} and {name} are one tensor in torch: make them one leaf in JAX as well.")
        raise NoCounterpart("\n".join(lines))
    if not torch_left and not proved:
        lines.append(_told(search))
    if not proved and (point := search.first_difference()) is not None:
        lines.append(
            f"  first difference: what torch computes in {point.where} from {', '.join(sorted(point.names))}, shape "
            f"{point.value.shape}, is nowhere in the JAX model. If the pairs above are right, look there: epsilon, "
            f"activation, padding, the order of layers, the layout of the input (jax_example)."
        )
    guesses = [f"{e.torch[0]!r}: {e.jax[0]!r}" for e in entries if len(e.torch) == len(e.jax) == 1 and not torch_left]
    for name in torch_left:
        fits = [p for p in jax_left if sorted(leaves[p]) == sorted(both.shapes[name])]
        guess = max(fits, key=lambda path, name=name: likeness(name, path), default=None)
        guesses.append(f"{name!r}: {repr(guess) if guess else '(<JAX paths>, Rule(...))'}")
    if guesses:
        lines += ["  To decide pairs by hand, pass these and correct them:", "    overrides={"]
        lines += [f"        {guess}," for guess in guesses] + ["    }"]
    raise MappingError("\n".join(lines))


def _told(search: Search) -> str:
    gap = search.gap
    if gap.draw is None:
        return f"  under this mapping the outputs differ by {gap.size:.2e} (allowed {gap.allowed:.0e})."
    return (
        f"  under this mapping the outputs agree on positive weights of size one, but differ by {gap.size:.2e} "
        f"(allowed {gap.allowed:.0e}) with {gap.draw.probe}: look for a bound or a kink that only one model has (relu6 "
        f"for relu, abs, a clamp)."
    )


def _shaped(entry: Entry, both: BothModels, leaves: dict[str, Shape]) -> str:
    ours = " + ".join(f"{n} {both.shapes[n]}" for n in entry.torch)
    return f"{ours} -> {' + '.join(f'{p} {leaves[p]}' for p in entry.jax)}  [{entry.rule!r}; {entry.reason}]"
