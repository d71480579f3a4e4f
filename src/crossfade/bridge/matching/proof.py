"""`Mapping.verify`, and the check for parameters on which the outputs do not depend, with which `match` ends."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...errors import MappingError
from ..libraries import named_leaves, open_model
from ..mapping import Entry, Mapping, leaves_of
from ..transfer import tensor_to_numpy
from .both_models import BothModels
from .draws import first_draw
from .probing import Gap, Probing


@dataclass(frozen=True)
class Verification:
    """The result of `Mapping.verify`; `ok` when every part of it holds."""

    bijective: bool  # every parameter of both sides is in exactly one entry
    round_trip: bool  # torch -> JAX -> torch gives the same bits; JAX -> torch -> JAX where a rule is lossy
    forward: float  # largest relative difference of the outputs, random weights, small and large numbers
    allowed: float
    unproved: tuple[str, ...]  # parameters on which the outputs do not depend
    precision: str = "float64"  # of both forward passes; float32 proves less
    unjudged: tuple[str, ...] = ()  # draws of weights and inputs on which the outputs could not be compared, and why

    @property
    def ok(self) -> bool:
        return self.bijective and self.round_trip and self.forward <= self.allowed

    def __str__(self) -> str:
        word = lambda good: "yes" if good else "NO"
        agree = self.forward <= self.allowed
        lines = [
            f"one to one                 {word(self.bijective)}",
            f"round trip bit-equal       {word(self.round_trip)}",
            f"outputs agree              {word(agree)}, {self.forward:.0e} of {self.allowed:.0e} relative, in "
            f"{self.precision}{', which proves less than float64' * (self.precision == 'float32')}",
        ]
        lines += [f"not proved by the example  {name}" for name in self.unproved]
        lines += [f"not compared               {why}" for why in self.unjudged]
        return "\n".join(lines)


def verify(
    mapping: Mapping,
    torch_module: torch.nn.Module,
    example: Any,
    jax_example: Any = None,
    jax_apply: Any = None,
    torch_apply: Any = None,
    training: bool = False,
) -> Verification:
    """Checks the mapping against the models it is for."""
    how = jax_example, jax_apply, torch_apply, training
    with BothModels(torch_module, mapping.jax_model, example, *how) as both:
        both.warn("Mapping.verify", stacklevel=4)
        probing, gap = _compare(both, mapping, meant=True)
        if gap.excess > 1 and both.torch_meant.changed:
            probing, gap = _compare(both, mapping, meant=False)
        unproved = guard(both, mapping.entries) if gap.excess <= 1 else ()
        unjudged = probing.unjudged(mapping.entries)
    names = [name for entry in mapping.entries for name in entry.torch]
    paths = [path for entry in mapping.entries for path in entry.jax]
    once = len(names) == len(set(names)) and len(paths) == len(set(paths))
    whole = both.parameters <= set(names) and named_leaves(both.opened.params).keys() <= set(paths)
    bijective = once and whole
    state = {name: t for name, t in both.module.state_dict().items() if isinstance(t, torch.Tensor)}
    round_trip = bijective and _round_trip(mapping, state)
    return Verification(bijective, round_trip, gap.size, gap.allowed, unproved, both.precision, unjudged)


def _compare(both: BothModels, mapping: Mapping, meant: bool) -> tuple[Probing, Gap]:
    both.draw_first(mapping.torch_only, meant)
    probing = Probing(both)
    return probing, probing.gap(mapping.entries)


def _round_trip(mapping: Mapping, state: dict[str, torch.Tensor]) -> bool:
    model = mapping.to_jax(state)
    back = mapping.to_torch(model)
    exact = [name for entry in mapping.entries if not entry.rule.lossy for name in entry.torch]
    if any(tensor_to_numpy(state[name]).tobytes() != tensor_to_numpy(back[name]).tobytes() for name in exact):
        return False
    leaves, again = (open_model(m).leaves() for m in (model, mapping.to_jax(back)))
    return all(
        np.allclose(leaves[path], again[path], rtol=0, atol=1e-6)  # an added constant rounds
        for entry in mapping.entries
        if entry.rule.lossy
        for path in entry.jax
    )


def guard(both: BothModels, entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Changes the arrays of one entry at a time and requires both outputs to change alike.

    Returns the names that change nothing: the example does not reach them, so they are not proved.
    """
    rng = np.random.default_rng(1)
    base = leaves_of(entries, both.weights)
    unproved: list[str] = []
    for entry in entries:
        changed = {name: first_draw(rng, both.shapes[name], name in both.positive) for name in entry.torch}
        ours = both.run_torch(changed)
        theirs = both.run_jax(base | leaves_of((entry,), changed))
        gap = both.difference(ours, theirs)
        if gap > both.tolerance:
            raise MappingError(
                f"{entry}: the outputs agreed, but after changing these parameters they differ by {gap:.1e} "
                f"(allowed {both.tolerance:.0e}): the two models use them differently."
            )
        if both.difference(ours, both.trace.outputs) <= both.tolerance:
            unproved += entry.torch
    return tuple(unproved)
