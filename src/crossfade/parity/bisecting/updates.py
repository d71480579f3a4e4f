"""Where updates part: leaves that follow others otherwise, the optimiser and what it is given, what it remembers."""

from collections.abc import Callable

import numpy as np

from ..side_torch import Quantities
from ..weights import Weights
from .divergence import Place, Told
from .following import follows_otherwise
from .points import Point
from .relations import jax_place, torch_place
from .training import by_leaves, by_rate, optimizer_place, training_causes
from .trial import Trial
from .values import Values


class Updates:
    """The search in updates, before values are compared. `before` is the state before the last update; `known` is a
    cause that was seen on the way to it."""

    def __init__(
        self,
        trial: Trial,
        found: Quantities,
        before: Weights,
        known: tuple[str, str] | None,
        paired: Callable[[], Values],
    ):
        self.trial, self.found, self.before, self.known, self.paired = trial, found, before, known, paired
        self.apart = trial.differences(found)

    def search(self) -> Told | None:
        """The place and the cause, if the update itself tells them."""
        return self._following() or self._training()

    def _following(self) -> Told | None:
        parted = follows_otherwise(self.trial, self.found, self.before)
        if parted is None:
            return None
        values = self.paired()
        state = {} if values.side.module is None else values.side.module.state_dict(keep_vars=True)
        number = values.watch.number_of(state.get(parted.leaf))
        ours = None if number is None or not values.points[number].lines else torch_place(values.points[number])
        quantity = next(q for q, name in self.apart if name == parted.leaf)
        left = self.trial.weights[parted.leaf] + self.trial.expected[quantity][parted.leaf]
        there = [values.jax_points[n] for n in values.jax_index.find(left) if values.jax_points[n].lines]
        theirs = jax_place(next(iter(there), None))
        return Told(ours, theirs, parted.kind, parted.text)

    def _training(self) -> Told | None:
        place = Place("optimizer", optimizer_place(self.trial.twin))
        module = self.trial.twin.torch
        trained = {name for name, p in module.named_parameters() if p.requires_grad}
        if not any(name in trained or not q.startswith(("change", "metrics")) for q, name in self.apart):
            still = {name for name, p in module.named_parameters() if not p.requires_grad}
            if not all(name in still for q, name in self.apart if q.startswith("change")) or self._moves_still():
                return None  # the optimiser has done its work: what differs is moved by others
        if (found := by_leaves(self.trial, self.found)) is not None:
            return Told(place, None, *found)
        for cause in training_causes(self.trial):
            with cause.while_running:
                healed = self.trial.heals(twin=cause.twin)
            if healed:
                own = Place("clip_grad_norm_", cause.line) if cause.line else place
                if cause.kind == "idle":
                    own = self._left_unread() or own
                return Told(own, self._step_in_jax(), cause.kind, cause.text)
        found = by_rate(self.trial, self.found) or self.known
        return None if found is None else Told(place, self._step_in_jax(), *found)

    def _left_unread(self) -> Place | None:
        """Where torch reads, in another update, what an idle parameter leads to in one update and nobody reads."""
        values = self.paired()
        names = {name for quantity, name in self.apart if quantity.startswith("change")}
        led = {p.number for p in values.points.values() if p.name in names}
        read: dict[int, Point] = {}
        for point in values.points.values():
            if led.intersection(point.reads):
                led.add(point.number)
            read |= {n: point for n in point.reads if n not in read}
        own = {c.number for c in values.calls.values() if c.lines and not c.by_optimizer}
        same = lambda p: (p.operation, p.lines)
        for end in (values.points[n] for n in sorted(led) if n not in read and values.points[n].call in own):
            others = [read[p.number] for p in values.points.values() if same(p) == same(end) and p.number in read]
            if others := [p for p in others if p.call in own]:
                return torch_place(others[0])
        return None

    def _step_in_jax(self) -> Place | None:
        """Where JAX computes the last step of a parameter that differs, if the update is the user's own."""
        if self.trial.twin.half("update", "jax") is None:
            return None
        values = self.paired()
        for quantity, name in self.apart:
            if quantity.startswith("change") and name in self.trial.expected[quantity]:
                step = self.trial.weights[name] + self.trial.expected[quantity][name] - self.before[name]
                found = values.jax_index.find(step) if np.any(step) else []
                if there := [values.jax_points[n] for n in found if values.jax_points[n].lines]:
                    return jax_place(there[0])
        return None

    def _moves_still(self) -> bool:
        """Whether the torch half moves parameters that it does not train."""
        return any(np.any(self.found[q].get(name, 0)) for q, name in self.apart if q.startswith("change"))
