"""Runs both halves of a twin level by level in one precision, also with a disturbed JAX half.

A comparison that would also pass on a broken system proves nothing. So every level can be run again with one input of
the JAX half changed (a weight by a thousandth of its scale; for an environment the actions), and must then differ.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..bridge.libraries import open_model
from ..bridge.mapping import Mapping
from ..verdict import EPS64, distances, largest
from .arrays import cast, jax_tree, jitter_tree, precision, to_numpy
from .env import step_both
from .side_jax import JaxSide
from .side_torch import Quantities, TorchSide, split_info
from .twin import Twin
from .weights import Weights, disturb, from_jax, from_torch, jitter, unmapped

Rounding = dict[str, dict[str, float]]  # by quantity and leaf, absolute


class Levels:
    """Both halves of a twin in one precision."""

    def __init__(self, twin: Twin, mapping: Mapping, dtype: str, steps: tuple[int, ...]):
        self.twin, self.mapping, self.dtype, self.steps = twin, mapping, dtype, tuple(sorted(steps))
        self.torch = TorchSide(twin, mapping, dtype)
        self.jax = JaxSide(twin, mapping, dtype, self.torch)
        state = {} if twin.torch is None else twin.torch.state_dict()
        self.weights: Weights = {name: cast(to_numpy(value), dtype) for name, value in state.items()}
        self.weights |= mapping.meant if dtype == "float64" else {}

    def run(self, level: str) -> tuple[Quantities, Quantities]:
        """The results of the torch half and of the JAX half."""
        with precision(self.dtype):
            if level == "map":
                with self._blaming("mapping", level):
                    return self._map(self.weights)
            if level == "env":
                with self._blaming("environments", level):
                    return step_both(self.twin, self.dtype, self.jax.env_step, self._actions, self._actions)
            first = self.call("torch", level, self.weights)
            return first, self.call("jax", level, self.weights)

    def disturbed(self, level: str) -> Iterator[tuple[str, Quantities]]:
        """The results of the JAX half with one parameter changed, by the name of the parameter, one after another."""
        for what, run in self._disturbances(level):
            with precision(self.dtype):
                quantities = run()
            yield what, quantities

    def rounding(self, level: str, torch: Quantities, jax: Quantities) -> Rounding:
        """The effect of rounding on the results `torch` and `jax` of a level, by quantity and leaf: the larger change
        of the two halves when all weights and inputs are moved by one unit in the last place."""
        if level in ("map", "env"):
            return {}
        weights = jitter(self.mapping, self.weights)
        with precision(self.dtype), self._jittered_data():
            moved = self.call("torch", level, weights), self.call("jax", level, weights)
        apart = [
            {quantity: distances(part, after[quantity]) for quantity, part in before.items() if quantity in after}
            for before, after in zip((torch, jax), moved, strict=True)
        ]
        return {
            quantity: {leaf: max(part.get(quantity, {}).get(leaf, 0.0) for part in apart) for leaf in leaves}
            for quantity, leaves in apart[0].items()
        }

    @contextmanager
    def _jittered_data(self) -> Iterator[None]:
        moved = self.twin.with_data(lambda tree: jitter_tree(tree, self.dtype))
        try:
            self.use_data(moved)
            yield
        finally:
            self.use_data(self.twin)

    def use_data(self, data: Twin) -> None:
        """Takes batches from another twin."""
        for side in (self.torch, self.jax):
            side.data = data
            side.__dict__.pop("batch", None)  # made anew from the data

    def rounding_only(self) -> list[str]:
        """Parameters whose gradient is zero but for rounding, such as a bias in front of a batch normalisation."""
        if self.twin.loss is None:
            return []
        with precision(self.dtype):
            sides = [self.call(side, "grad", self.weights)["grad"] for side in ("torch", "jax")]
        least = 32 * EPS64 * largest(*sides)
        return [n for n in sides[0] if 0 < max(float(np.abs(side[n]).max(initial=0.0)) for side in sides) < least]

    def _disturbances(self, level: str) -> Iterator[tuple[str, Callable[[], Quantities]]]:
        if level == "env":
            others = np.roll(self._actions, 1, axis=0)
            yield "actions", lambda: step_both(self.twin, self.dtype, self.jax.env_step, self._actions, others)[1]
            return
        for name in self._parameters():
            moved = disturb(self.mapping, self.weights, name)
            if level == "map":
                yield name, lambda moved=moved: self._map(moved)[1]
            else:
                yield name, lambda moved=moved: self.call("jax", level, moved)
        if level == "rollout":
            yield "key", lambda: self.jax.rollout(self.weights, key=self.twin.seed + 1)

    def _parameters(self) -> list[str]:
        named = dict(self.twin.torch.named_parameters()) if self.twin.torch is not None else {}
        return sorted(named, key=lambda name: not named[name].requires_grad)  # what trains comes first

    def call(self, side: str, level: str, weights: Weights) -> Quantities:
        """The results of one half with some weights."""
        extra = (self.steps,) if level == "updates" else ()
        with self._blaming(f"{side} half", level):
            return getattr(getattr(self, side), level)(weights, *extra)

    @contextmanager
    def _blaming(self, part: str, level: str) -> Iterator[None]:
        """Adds a note to an error, saying which part of the twin raised it."""
        try:
            yield
        except Exception as error:
            error.add_note(f"raised by the {part} of {self.twin.name!r} at level {level}, in {self.dtype}")
            raise

    def _map(self, weights: Weights) -> tuple[Quantities, Quantities]:
        """The weights before and after both round trips."""
        mapping, there = self.mapping, self.jax.model(weights)
        alone, jax_alone = unmapped(mapping, open_model(there).leaves())
        if alone or jax_alone:
            return {"unmapped": alone}, {"unmapped": jax_alone}
        back = mapping.to_torch(there)
        again = mapping.to_jax(back, like=there)
        names = ("torch to jax to torch", "jax to torch to jax")
        start = from_torch(mapping, weights), from_jax(mapping, open_model(there).leaves())
        end = from_torch(mapping, back), from_jax(mapping, open_model(again).leaves())
        return dict(zip(names, start, strict=True)), dict(zip(names, end, strict=True))

    @property
    def _actions(self) -> np.ndarray:
        return cast(np.asarray(self.twin.actions), self.dtype)


def program_of(levels: Levels, level: str, weights: Weights) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The JAX half of `forward` or `loss` as a function of named weights and a batch, and its arguments."""
    side, twin = levels.jax, levels.twin
    if level == "forward":
        given = side.batch if twin.forward is not None else jax_tree(side.data.inputs, levels.dtype)
        call = twin.half("forward", "jax") or side.template.call
        return lambda named, given: call(side.assemble(named), given), (side.named(weights), given)

    def loss(named: dict[str, Any], batch: Any) -> dict[str, Any]:
        value, info = split_info(twin.half("loss", "jax")(side.assemble(named), batch))
        return {"loss": value, **(info or {})}

    return loss, (side.named(weights), side.batch)
