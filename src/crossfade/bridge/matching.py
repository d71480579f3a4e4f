"""`match`: the correspondence between a torch module and a JAX model, found from what both compute, and proved."""

from collections.abc import Mapping as Named
from dataclasses import replace
from typing import Any

import torch

from ..errors import AmbiguousMapping, MappingError, NoCounterpart, UsageError, nearest
from .candidates import Candidate, Facts, Item, Shape, arrays, single_item, stacked_items, unstacked_items
from .layers import cell_items
from .libraries import named_leaves
from .mapping import Entry, Mapping
from .pair import Pair
from .proof import guard
from .rules import Rule
from .search import Search, likeness
from .transfer import tensor_to_numpy

Override = str | tuple[str, ...] | tuple[str | tuple[str, ...], Rule]


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
    decide by hand: `{"fc.weight": "Dense_0.kernel"}`, or with a rule `{("a", "b"): ("c", Rule(add()))}`.

    Both models run in evaluation mode, on copies, in float64 and with random weights. The mapping is returned only when
    their outputs agree; parameters on which the outputs do not depend are listed in `Mapping.unproved`.
    """
    with Pair(torch_module, jax_model, example, jax_example, jax_apply) as pair:
        shapes = {path: leaf.shape for path, leaf in pair.floats.items()}
        search = _search(pair, *_items(pair, shapes, dict(overrides or {})))
        entries = (*search.best, *_idle(pair, search))
        _refuse(pair, entries, shapes, search)
        unproved = guard(pair, entries)
    used = {path for entry in entries for path in entry.jax}
    held = {name for entry in entries for name in entry.torch}
    order = {name: at for at, name in enumerate(pair.shapes)}
    return Mapping(
        entries=tuple(sorted(entries, key=lambda entry: order[entry.torch[0]])),
        shapes=pair.shapes,
        jax_model=jax_model,
        tied=pair.tied,
        torch_only={n: tensor_to_numpy(t) for n, t in pair.buffers.items() if n not in held},
        jax_only=tuple(path for path in pair.opened.leaves() if path not in used),
        unproved=unproved,
        origin=(torch_module, example, jax_example, jax_apply),
    )


def _search(pair: Pair, fixed: tuple[Entry, ...], ways: list[list[Item]]) -> Search:
    """The first search that ends in a proof; without one, the search that came farthest."""
    searches = []
    for items in ways:
        searches.append(Search(pair, items, fixed))
        if searches[-1].solve():
            return searches[-1]
    return max(searches, key=lambda search: (search.shown, -search.gap))


def _items(pair: Pair, leaves: dict[str, Shape], overrides: dict) -> tuple[tuple[Entry, ...], list[list[Item]]]:
    """What the overrides settle, and the ways to group everything else into items."""
    trace = pair.trace
    untrained = set(pair.buffers), leaves.keys() - named_leaves(pair.opened.params).keys()
    facts = Facts(pair.shapes, leaves, trace.uses, pair.jax.uses, trace.flattened, trace.joined, untrained)
    chosen = [_override(pair, facts, names, target) for names, target in overrides.items()]
    fixed = tuple(entry for item in chosen if len(item.candidates) == 1 for entry in item.candidates[0].entries)
    items = [item for item in chosen if len(item.candidates) > 1]

    taken = {path for item in chosen for candidate in item.candidates for path in candidate.leaves}
    facts = replace(facts, leaves={path: shape for path, shape in leaves.items() if path not in taken})
    names = {name for name, tensor in pair.tensors.items() if tensor.is_floating_point()}
    names -= arrays(chosen)
    items += [item for item in cell_items(pair.module, pair.shapes, facts.leaves) if names >= set(item.names)]
    names -= arrays(items)
    return fixed, [items + _remaining(pair, facts, names, stacked) for stacked in stacked_items(names, facts)]


def _remaining(pair: Pair, facts: Facts, names: set[str], stacked: list[Item]) -> list[Item]:
    """The stacked items and one for each array that is in none of them."""
    items = stacked + unstacked_items(names - arrays(stacked), facts)
    left = names - arrays(items)
    for name in (name for name in pair.shapes if name in left):
        item = single_item(name, facts)
        item.optional = name in pair.buffers
        items.append(item)
    return items


def _override(pair: Pair, facts: Facts, names: str | tuple[str, ...], target: Override) -> Item:
    """The item of one override: a single candidate, or the several layouts one leaf can have."""
    rule: Rule | None = None
    paths: Any = target
    if isinstance(target, tuple) and len(target) == 2 and isinstance(target[1], Rule):
        paths, rule = target[0], target[1]
    names, paths = ((given,) if isinstance(given, str) else tuple(given) for given in (names, paths))
    for given, known, side in ((names, pair.tensors, "torch module"), (paths, facts.leaves, "JAX model")):
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


def _idle(pair: Pair, search: Search) -> tuple[Entry, ...]:
    """Arrays that the example never uses: only shape and name can pair them."""
    seen = {name for point in pair.trace.points for name in point.names}
    settled = {name for entry in search.best for name in entry.torch}
    taken = {path for entry in search.best for path in entry.jax}
    found: list[Entry] = []
    for item in search.items:
        if settled & set(item.names) or seen & set(item.names):
            continue
        free = [c for c in item.candidates if not c.leaves & taken and not c.leaves & pair.jax.uses.keys()]
        close = lambda c, item=item: (c.cost > 2, -max(likeness(item.names[0], p) for p in c.leaves))
        free.sort(key=close)
        rivals = [c for c in free if close(c) == close(free[0]) and c.leaves != free[0].leaves]
        if rivals and not item.optional:
            lines = "".join(f"  {item.names[0]!r}: {next(iter(c.leaves))!r},\n" for c in (free[0], *rivals))
            raise AmbiguousMapping(
                f"{item.names[0]} {pair.shapes[item.names[0]]} is not used on the example, and several JAX leaves of "
                f"its shape are free. Use an example that reads it, or pass one of these in overrides:\n{lines}"
            )
        if free and not rivals:
            found += (_because(e, "name") for e in free[0].entries)
            taken |= free[0].leaves
    return tuple(found)


def _refuse(pair: Pair, entries: tuple[Entry, ...], leaves: dict[str, Shape], search: Search) -> None:
    """Raises unless every parameter has its counterpart and the outputs agree."""
    used = {path for entry in entries for path in entry.jax}
    held = {name for entry in entries for name in entry.torch}
    torch_left = [n for n in pair.shapes if n in pair.parameters and n not in held]
    trainable = named_leaves(pair.opened.params)
    jax_left = [p for p in leaves if p in trainable and p not in used]
    proved = search.gap <= pair.tolerance
    if proved and not torch_left and not jax_left:
        return
    lines = [f"the torch {type(pair.module).__name__} and the {pair.opened.library} model could not be matched."]
    if entries:
        lines += ["  matched:"] + [f"    {_shaped(entry, pair, leaves)}" for entry in entries]
    tried = {name: item.tried for item in search.items for name in item.names}
    lines += [f"  torch only: {n} {pair.shapes[n]} (tried: {tried.get(n, 'override')})" for n in torch_left]
    lines += [f"  JAX only: {p} {leaves[p]}" for p in jax_left]
    if torch_left and not jax_left or jax_left and not torch_left:
        here, there = ("torch", "JAX") if torch_left else ("JAX", "torch")
        lines.append(
            f"  {', '.join(torch_left or jax_left)} has nothing to go to: the {there} model lacks it. "
            f"Build the {here} layer without it, or the {there} layer with it."
        )
        for alias, name in pair.tied.items():
            if sorted(pair.shapes[alias]) in [sorted(leaves[path]) for path in jax_left]:
                lines.append(f"  {alias} and {name} are one tensor in torch: make them one leaf in JAX as well.")
        raise NoCounterpart("\n".join(lines))
    if not torch_left and not proved:
        lines.append(f"  under this mapping the outputs differ by {search.gap:.2e} (allowed {pair.tolerance:.0e}).")
    if not proved and (point := search.first_difference()) is not None:
        lines.append(
            f"  first difference: what torch computes in {point.where} from {', '.join(sorted(point.names))}, shape "
            f"{point.value.shape}, is nowhere in the JAX model. If the pairs above are right, look there: epsilon, "
            f"activation, padding, the order of layers, the layout of the input (jax_example)."
        )
    guesses = [f"{e.torch[0]!r}: {e.jax[0]!r}" for e in entries if len(e.torch) == len(e.jax) == 1 and not torch_left]
    for name in torch_left:
        fits = [p for p in jax_left if sorted(leaves[p]) == sorted(pair.shapes[name])]
        guess = max(fits, key=lambda path, name=name: likeness(name, path), default=None)
        guesses.append(f"{name!r}: {repr(guess) if guess else '(<JAX paths>, Rule(...))'}")
    if guesses:
        lines += ["  To decide pairs by hand, pass these and correct them:", "    overrides={"]
        lines += [f"        {guess}," for guess in guesses] + ["    }"]
    raise MappingError("\n".join(lines))


def _shaped(entry: Entry, pair: Pair, leaves: dict[str, Shape]) -> str:
    ours = " + ".join(f"{n} {pair.shapes[n]}" for n in entry.torch)
    return f"{ours} -> {' + '.join(f'{p} {leaves[p]}' for p in entry.jax)}  [{entry.rule!r}; {entry.reason}]"
