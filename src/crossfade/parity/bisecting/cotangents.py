"""Gradients of the JAX half, replayed equation by equation: stopped where JAX does not stop them, let through where it
does. The change that gives torch's gradients is the detach that one half has and the other has not, at JAX's line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge.jaxprs import compile_briefly
from ..arrays import precision
from ..side_torch import Quantities
from .points import Point
from .values import Values

MOST = 1500  # changes that are tried
LONG = 6_000  # equations: longer programs are not replayed
STOP = "stop_gradient"


@dataclass(frozen=True, eq=False)
class Stopped:
    """A detach in one half alone, at an equation of the JAX half."""

    point: Point
    line: str  # of all equations that are changed together
    in_jax: bool

    @property
    def text(self) -> str:
        """In words."""
        if self.in_jax:
            return "a detach: JAX stops the gradient here, torch does not"
        return "a detach: torch stops the gradient here, JAX does not"


def stopped_in_one_half(values: Values, found: Quantities, *, stops_alone: bool = False) -> Stopped | None:
    """The equations at which a gradient is to be stopped, or no longer stopped, for the halves to agree."""
    if len(values.program.equations) > LONG:
        return None
    with precision("float64"):
        replay = _Replay(values)
        if values.trial.differences({"grad": replay.gradients(())}):
            return None  # a derivative of its own (custom_jvp) is lost in the replay
        for tried, (numbers, line) in enumerate(replay.changes(stops_alone)):
            if tried >= MOST:
                return None
            if not values.trial.differences(found, {"grad": replay.gradients(numbers)}):
                return Stopped(values.jax_points[numbers[-1]], line, numbers[-1] in replay.stops)
    return None


class _Replay:
    """The loss as a program in which the gradient at every value may be stopped; compiled once."""

    def __init__(self, values: Values):
        self.values, self.program = values, values.program
        equations = [e for e in self.program.equations if e.outputs[0] in values.jax_points and e.lines]
        self.stops = {e.outputs[0] for e in equations if e.name == STOP}
        self.places = {n: e.lines for e in equations for n in e.outputs if self.program.kinds.get(n) == "f"}
        self.order = {n: i for i, n in enumerate(self.places)}
        side, trial = values.trial.levels.jax, values.trial
        given = side.named(trial.weights)
        trained = {name for name, _ in trial.twin.torch.named_parameters()} - trial.levels.torch.frozen
        self.moving = {name: given[name] for name in given if name in trained}
        self.args = [given[name] if name in given else None for name in self.program.inputs]
        batch = jax.tree.leaves(side.batch)
        self.args[len(given) :] = batch
        self.names = list(self.program.inputs)
        nothing = jnp.zeros(len(self.order), bool)
        self._run = compile_briefly(jax.grad(self._loss), self.moving, nothing)

    def gradients(self, numbers: tuple[int, ...]) -> dict[str, np.ndarray]:
        """With the gradient changed at some values."""
        chosen = np.zeros(len(self.order), bool)
        chosen[[self.order[n] for n in numbers]] = True
        return {name: np.asarray(g) for name, g in self._run(self.moving, jnp.asarray(chosen)).items()}

    def _loss(self, moving: dict[str, Any], chosen: Any) -> Any:
        values: list[Any] = [None] * self.program.count
        for number, constant in self.program.constants.items():
            values[number] = constant
        for name, arg in zip(self.names, self.args, strict=True):
            values[self.program.inputs[name]] = moving.get(name, arg)
        for equation in self.program.equations:
            out = equation.apply(*(values[i] for i in equation.inputs))
            for number, value in zip(equation.outputs, out, strict=True):
                if (at := self.order.get(number)) is not None:
                    free = values[equation.inputs[0]] if number in self.stops else value
                    pair = (free, jax.lax.stop_gradient(free))
                    value = jnp.where(chosen[at], *pair) if number in self.stops else jnp.where(chosen[at], *pair[::-1])
                values[number] = value
        return values[self.program.outputs["loss"]].sum()

    def changes(self, stops_alone: bool) -> Iterator[tuple[tuple[int, ...], str]]:
        """What to change together: one stop, those of one line, then one value, those of one line."""
        yield from self._groups([n for n in self.places if n in self.stops])
        if not stops_alone:
            yield from self._groups([n for n in self.places if n not in self.stops][::-1])

    def _groups(self, numbers: list[int]) -> Iterator[tuple[tuple[int, ...], str]]:
        for number in numbers:
            yield (number,), self.places[number][0]
        seen = set()
        for line in dict.fromkeys(line for n in numbers for line in self.places[n]):
            group = tuple(n for n in numbers if line in self.places[n])
            if len(group) > 1 and group not in seen:
                seen.add(group)
                yield group, line
