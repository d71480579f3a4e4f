"""What `match` says when two models cannot be matched: the conclusion, the pairs that hold, and what to do."""

from ...errors import MappingError, NoCounterpart
from ..libraries import named_leaves
from ..mapping import Entry
from .axes import Shape
from .both_models import BothModels
from .search import Search, likeness


def refuse(both: BothModels, entries: tuple[Entry, ...], leaves: dict[str, Shape], search: Search) -> None:
    """Raises unless every parameter has its counterpart and the outputs agree."""
    used = {path for entry in entries for path in entry.jax}
    placed = {name for entry in entries for name in entry.torch}
    torch_left = [n for n in both.shapes if n in both.parameters and n not in placed]
    trainable = named_leaves(both.opened.params)
    jax_left = [p for p in leaves if p in trainable and p not in used]
    if search.proved and not torch_left and not jax_left:
        return
    held = entries if search.proved else search.held
    pair = f"The torch {type(both.module).__name__} and the {both.opened.library} model could not be matched."
    pairs = ["  pairs that hold:", *(f"    {_shaped(entry, both, leaves)}" for entry in held)] if held else []
    tried = {name: item.tried for item in search.items for name in item.names}
    left = [f"  torch only: {n} {both.shapes[n]} (tried: {tried.get(n, 'override')})" for n in torch_left]
    left += [f"  JAX only: {p} {leaves[p]}" for p in jax_left]
    if bool(torch_left) != bool(jax_left):
        here, there = ("torch", "JAX") if torch_left else ("JAX", "torch")
        conclusion = (
            f"{', '.join(torch_left or jax_left)} has nothing to go to: the {there} model lacks it. Build the {here} "
            f"layer without it, or the {there} layer with it. {pair}"
        )
        tied = [
            f"  {alias} and {name} are one tensor in torch: make them one leaf in JAX as well."
            for alias, name in both.tied.items()
            if sorted(both.shapes[alias]) in [sorted(leaves[path]) for path in jax_left]
        ]
        raise NoCounterpart("\n".join([conclusion, *tied, *pairs, *left]))
    conclusion = f"{_conclusion(both, search, len(held), torch_left)} {pair}"
    raise MappingError("\n".join([conclusion, *pairs, *left, *_overrides(both, held, leaves, torch_left, jax_left)]))


def _conclusion(both: BothModels, search: Search, held: int, torch_left: list[str]) -> str:
    """What is wrong, in one or two sentences."""
    if torch_left:
        return f"{held} pairs were found, but {', '.join(torch_left)} could not be placed."
    every = sum(1 for entry in search.best)
    found = f"all {every} pairs were found" if held == every else f"{held} of {every} pairs hold"
    gap = search.gap
    where = f"with {gap.draw.probe} " if gap.draw else ""
    apart = f"under this mapping the outputs differ by {gap.size:.2e} (allowed {gap.allowed:.0e})"
    if gap.draw is not None:
        apart = (
            f"{apart} {where}though they agree on positive weights of size one: look for a bound or a kink that only "
            f"one model has (relu6 for relu, abs, a clamp)"
        )
    point, operation = search.first_difference()
    differ = f"the functions differ at {operation}" if operation is not None else "the functions differ"
    if point is None:
        return f"{found}, but {differ}, after the last of them; {apart}."
    return (
        f"{found}, but {differ}; first difference: what torch computes in {point.where} from "
        f"{', '.join(sorted(point.names))}, shape {point.value.shape}, is nowhere in the JAX model. Look there: "
        f"epsilon, activation, padding, the order of layers, the layout of the input (jax_example); {apart}."
    )


def _overrides(
    both: BothModels, held: tuple[Entry, ...], leaves: dict[str, Shape], torch_left: list[str], jax_left: list[str]
) -> list[str]:
    guesses = [f"{e.torch[0]!r}: {e.jax[0]!r}" for e in held if len(e.torch) == len(e.jax) == 1 and not torch_left]
    for name in torch_left:
        fits = [p for p in jax_left if sorted(leaves[p]) == sorted(both.shapes[name])]
        guess = max(fits, key=lambda path, name=name: likeness(name, path), default=None)
        guesses.append(f"{name!r}: {repr(guess) if guess else '(<JAX paths>, Rule(...))'}")
    if not guesses:
        return []
    lines = [f"        {guess}," for guess in guesses]
    return ["  To decide pairs by hand, pass these and correct them:", "    overrides={", *lines, "    }"]


def _shaped(entry: Entry, both: BothModels, leaves: dict[str, Shape]) -> str:
    ours = " + ".join(f"{n} {both.shapes[n]}" for n in entry.torch)
    return f"{ours} -> {' + '.join(f'{p} {leaves[p]}' for p in entry.jax)}  [{entry.rule!r}; {entry.reason}]"
