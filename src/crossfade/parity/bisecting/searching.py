"""`bisect`: the first place where the halves of a twin part at one level, and the cause."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ...bridge.mapping import Mapping
from ...errors import UsageError, nearest
from ..checking import find_mapping
from ..side_torch import Quantities
from ..twin import LEVELS, Twin
from ..weights import Weights
from .causes import Cause
from .cotangents import Stopped, stopped_in_one_half
from .divergence import Divergence, Place, Told
from .gradients import gradient_cause
from .inputs import InputCause, input_causes
from .points import Point
from .reasons import Blamed, Reasons
from .relations import jax_place, relation, torch_place
from .trial import PATIENCE, Leaf, Trial, quiet
from .updates import Updates
from .values import PASSING, Guilty, Values
from .watching import Call


def bisect(twin: Twin, level: str, *, steps: tuple[int, ...] = (1, 10)) -> Divergence | None:
    """The first place where the halves part at a level (`forward`, `loss`, `grad`, `update`, `updates`, `env`,
    `rollout`) in float64; None when they agree there. `steps` are the numbers of updates to look at.

    Values of both halves are paired by their numbers. From what differs the search goes back to the first torch call
    whose inputs JAX has and whose result it has not, then tries the usual causes there: the one that makes the
    difference vanish, when the torch half does the same, is the cause.
    """
    if level not in LEVELS or level == "map":
        known = [name for name in LEVELS if name != "map"]
        raise UsageError(f"unknown level {level!r}.{nearest(level, known)} Known: {', '.join(known)}.")
    if (missing := twin.missing(level)) is not None:
        raise UsageError(f"level {level!r} of twin {twin.name!r} needs {missing}; it was not given.")
    with quiet():
        return _bisect(twin, level, steps)


def _bisect(twin: Twin, level: str, steps: tuple[int, ...]) -> Divergence | None:
    mapping = find_mapping(twin, [level])
    if level in ("env", "rollout"):
        from .worlds import bisect_world

        return bisect_world(twin, mapping, level)
    if level == "updates":
        return _first_update(twin, mapping, steps)
    trial = Trial(twin, mapping, level)
    found, _ = trial.run()
    if not trial.differences(found):
        return None
    return Search(trial, found).search()


def _first_update(twin: Twin, mapping: Mapping, steps: tuple[int, ...]) -> Divergence | None:
    """Bisects over the number of updates: the search goes on with as many as it takes to differ."""
    trial = Trial(twin, mapping, "updates", tuple(range(1, max(steps) + 1)))
    found, _ = trial.run()
    apart = trial.differences(found)
    if not apart:
        return None
    step = min(int(quantity.rpartition(" ")[2]) for quantity, _ in apart)
    moved = found.get(f"change after {step - 1}", {})  # both halves agree on it
    trial = Trial(twin, mapping, "updates", (step,)) if step > 1 else Trial(twin, mapping, "update")
    before = {name: array + moved.get(name, 0) for name, array in trial.weights.items()}
    found, _ = trial.run()
    known = None if step == 1 else rate_before(twin, mapping, step)
    divergence = Search(trial, found, known, before).search()
    return replace(divergence, level="updates", step=step)


def rate_before(twin: Twin, mapping: Mapping, step: int) -> tuple[str, str] | None:
    """Whether the changes of one update differ by a constant ratio, after equal updates."""
    trial = Trial(twin, mapping, "updates", (step - 1, step))
    found, _ = trial.run()
    late, early = f"change after {step}", f"change after {step - 1}"
    if late not in found or late not in trial.expected:
        return None
    moves = [{n: side[late][n] - side[early][n] for n in side[late]} for side in (found, trial.expected)]
    ratios = []
    for name, ours in moves[0].items():
        theirs = moves[1].get(name)
        moved = np.abs(ours) > 1e-9 * np.abs(ours).max(initial=0.0)
        if theirs is None or theirs.shape != ours.shape or np.any(theirs[~moved]):
            return None
        ratios.append((theirs[moved] / ours[moved]).ravel())
    together = np.concatenate(ratios) if ratios else np.zeros(0)
    if (
        together.size > 1
        and np.ptp(together) <= 1e-6 * max(np.abs(together).max(), 1e-6)
        and abs(together[0] - 1) > 1e-6
    ):
        text = f"the learning rate at update {step}: every step of JAX is {together.mean():.6g} times torch's"
        return "lr", text
    return None


class Search:
    """One search at one level."""

    def __init__(
        self,
        trial: Trial,
        found: Quantities,
        known: tuple[str, str] | None = None,
        before: Weights | None = None,
    ):
        self.trial, self.found, self.known = trial, found, known
        self.before = trial.weights if before is None else before  # the last update
        self.apart = trial.differences(found)
        self.values: Values | None = None

    def search(self) -> Divergence:
        """The place and the cause, as far as they can be found."""
        if self.trial.level == "grad":
            told = self._gradients()
        elif self.trial.level.startswith("update"):
            updates = Updates(self.trial, self.found, self.before, self.known, self._paired)
            told = updates.search() or self._inputs() or self._values()
        else:
            told = self._values()
        quantity, leaf = self.apart[0]
        names = lambda found: tuple(_name(own) for own in found)[:8]
        return Divergence(
            self.trial.twin.name,
            self.trial.level,
            quantity,
            leaf,
            told.torch,
            told.jax,
            told.kind,
            told.cause,
            told.relation,
            None,
            names(self.apart),
            names(self.trial.agreeing(self.found)),
            (*told.notes, *(() if self.values is None else self.values.program.notes), *self._untried(told)),
        )

    def _untried(self, told: Told) -> tuple[str, ...]:
        """Where no cause was found: how many changes the torch half could not run, and whether the time was up."""
        refused, notes = self.trial.refused, ()
        if told.cause:
            return ()
        if refused:
            kinds = ", ".join(f"{kind} {n}" for kind, n in refused.most_common(3))
            notes = (f"{refused.total()} of the changes that were tried could not be run: {kinds}",)
        return (*notes, f"nothing more was tried after {PATIENCE:g} s") if self.trial.is_over else notes

    def _paired(self) -> Values:
        if self.values is None:
            self.values = Values(self.trial)
        return self.values

    # Values

    def _values(self) -> Told:
        values = self._paired()
        reasons = Reasons(values)
        if (odd := self._structure()) is not None:
            return odd
        told = all(quantity in ("info", "metrics") for quantity, _ in self.apart) or not values.region
        if told and (found := values.returned()) is not None:
            return self._returned(*found)
        if (first := reasons.first_of_several()) is not None:
            swapped = reasons.exchanged()  # in every layer
            return self._told(*first) if swapped is None else self._at(*swapped)
        guilty = values.guilty()
        given = self.trial.level in ("forward", "loss")  # an update is given a list of batches
        if given and guilty is not None and (unread := values.unread_in_jax(guilty)):
            if (told := self._inputs(unread)) is not None:
                return told
        if guilty is not None and (blamed := reasons.cause(guilty)) is not None:
            return self._told(guilty, blamed)
        late = guilty is None or _is_late(values, guilty)
        if late and (unread := values.never_read()):
            words = ", ".join(point.name for point, _ in unread)
            return Told(
                torch_place(unread[0][1]), kind="input", cause=f"JAX does not read {words}, which torch computes with"
            )
        if guilty is not None and (names := values.read_in_jax_alone(guilty)):
            if not names.startswith("batch") and (told := self._inputs()) is not None:
                return told  # a whole module for another
            return self._told(guilty, None, f"JAX reads {names} here, torch does not")
        self.trial.runs = 0
        if (found := reasons.stale() or reasons.exchanged()) is not None or (
            late and (found := reasons.cause_anywhere() or reasons.exchanged()) is not None
        ):
            return self._at(*found)
        if guilty is not None and (found := reasons.other_value(guilty)) is not None:
            return self._at(*found)
        if (told := self._inputs()) is not None:
            return told
        self.trial.runs = 0
        first = values.partly_guilty() if late else None
        if first is not None and (guilty is None or first.call.number < guilty.call.number):
            return self._told(first, reasons.cause(first))
        if (found := values.returned()) is not None:
            return self._returned(*found)
        return self._told(guilty, None) if guilty is not None else self._first_suspect()

    def _structure(self) -> Told | None:
        """Results that only one half has, or in another type or shape."""
        for quantity, name in self.apart:
            ours = self.found.get(quantity, {}).get(name)
            theirs = self.trial.expected.get(quantity, {}).get(name)
            places = self._result_places(quantity, name)
            if ours is None or theirs is None:
                side = "JAX" if ours is None else "torch"
                return Told(*places, kind="missing", cause=f"only {side} returns {name or quantity}")
            if ours.shape != theirs.shape:
                return Told(*places, kind="shape", cause=f"the shape: torch {ours.shape}, JAX {theirs.shape}")
            if ours.dtype != theirs.dtype and "f" in ours.dtype.kind + theirs.dtype.kind:
                return Told(*places, kind="cast", cause=f"the type: torch {ours.dtype}, JAX {theirs.dtype}")
        return None

    def _result_places(self, quantity: str, name: str) -> tuple[Place | None, Place | None]:
        """Where a result was computed last."""
        values = self._paired()
        number = values.watch.number_of(values.side.results.get((quantity, name)))
        if number is None:  # the other half has another name for it: look at what is returned beside it
            beside = [values.watch.number_of(leaf) for leaf in values.side.results.values()]
            number = next((n for n in reversed(beside) if n is not None), None)
        key = name if name in values.program.outputs else name.removeprefix("output.")
        out = values.program.outputs.get(key, next(iter(values.program.outputs.values())) if key == "output" else None)
        return (
            None if number is None else torch_place(values.points[number]),
            None if out is None else jax_place(values.jax_points.get(out)),
        )

    def _returned(self, leaf: Leaf, theirs: Point, ours: Point | None) -> Told:
        cause = f"JAX returns {self._paired().describe(theirs.number)} as {leaf[1]}"
        torch, jax = self._result_places(*leaf)
        return Told(torch if ours is None else torch_place(ours), jax, kind="returned", cause=cause)

    def _told(self, guilty: Guilty, blamed: Blamed | None, words: str = "") -> Told:
        values = self._paired()
        sizes = {n for p in (guilty.point, *(values.points[r] for r in guilty.point.reads)) for n in p.value.shape}
        sizes |= {p.value.size for p in (values.points[r] for r in guilty.point.reads)}
        sizes |= {n for p in values.points.values() if p.name.startswith("batch") for n in p.value.shape[:1]}
        compared = "" if guilty.jax is None else relation(guilty.point.value, guilty.jax.value, sizes)
        if blamed is not None:
            kind, text = blamed.cause.kind, blamed.cause.text
        else:
            kind, text = ("operand", words) if words else self._by_relation(guilty, compared)
        notes = () if guilty.whole else ("other places differ later: mend this one and look again",)
        place = torch_place(guilty.point if blamed is None else blamed.point)
        return Told(place, jax_place(guilty.jax), kind, text, compared, notes)

    def _by_relation(self, guilty: Guilty, compared: str) -> tuple[str, str]:
        """A cause from numbers alone: a factor, a constant, or other operands."""
        if "sum for a mean" in compared or "mean for a sum" in compared:
            return "reduction", compared
        if "other sign" in compared:
            return "sign", compared
        if "the size of an axis" in compared:
            return "factor", compared
        affine = " times torch plus " in compared
        if " times torch" in compared and not affine:
            other = self._other_constant(guilty)
            return self._constant(guilty) or (("constant", other) if other else ("factor", compared))
        if other := self._other_constant(guilty):
            return "constant", other
        words = self._paired().operands_apart(guilty)
        if not words.startswith("JAX reads") and (missing := self._paired().left_out(guilty)):
            return "left out", f"left out in JAX: {missing}"
        if affine:
            return "constant", f"other constants: {compared}"
        if words:
            return "operand", f"other operands: {words}"
        if " plus " in compared:
            return "constant", compared
        return "", ""

    def _other_constant(self, guilty: Guilty) -> str:
        """The buffer for which JAX has a constant with other numbers, when these make the difference vanish."""
        for name, theirs in self._paired().other_constants(guilty):
            ours = self.trial.weights[name]
            if self.trial.heals(weights={**self.trial.weights, name: theirs.astype(ours.dtype)}):
                at = np.unravel_index(int(np.abs(ours - theirs).argmax()), ours.shape)
                where = f", farthest at {list(map(int, at))}" if ours.size > 1 else ""
                return f"the constant {name}{where}: torch {ours[at]:.10g}, JAX {theirs[at]:.10g}"
        return ""

    def _constant(self, guilty: Guilty) -> tuple[str, str] | None:
        """The constants of a product, when it is one of a tensor and a number."""
        numbers = [a for a in guilty.call.args[:2] if isinstance(a, int | float)]
        if guilty.jax is None or guilty.call.name not in ("mul", "mul_", "rmul") or len(numbers) != 1:
            return None
        ours, theirs = guilty.point.value, guilty.jax.value
        at = np.abs(ours).argmax()
        other = numbers[0] * theirs.ravel()[at] / ours.ravel()[at]
        return "constant", f"the constant of {guilty.call.name}: torch {numbers[0]:.10g}, JAX {other:.10g}"

    def _at(self, call: Call, point: Point, cause: Cause) -> Told:
        values = self._paired()
        done = self.trial.attempt({call.number: cause.change})
        given = None if done is None else done[1].watch.changed.get(call.number)
        partners = values.jax_index.find(given.detach().numpy()) if isinstance(given, Tensor) else []
        partners = [n for n in partners if values.jax_points[n].lines]
        theirs = values.jax_points[partners[0]] if partners else values.nearest(point)
        return Told(torch_place(point), jax_place(theirs), cause.kind, cause.text)

    def _first_suspect(self) -> Told:
        values = self._paired()
        if not values.suspects:
            return Told(notes=("the torch half computes this outside of torch functions",))
        _, point = values.suspects[0]
        theirs = values.nearest(point)
        compared = "" if theirs is None else relation(point.value, theirs.value, point.value.shape)
        return Told(torch_place(point), jax_place(theirs), relation=compared)

    # Inputs

    def _inputs(self, names: Collection[str] | None = None) -> Told | None:
        """Other batches or weights; of some names alone, if they are given."""
        self.trial.runs = 0
        for cause in input_causes(self.trial):
            if names is not None and not set(names).issuperset(cause.names):
                continue
            others: dict[str, Any] = {"batches": cause.batches} if cause.batches is not None else {}
            others |= {"weights": cause.weights} if cause.weights is not None else {}
            if self.trial.heals(**others):
                return self._input_told(cause)
        return None

    def _input_told(self, cause: InputCause) -> Told:
        """The places where the halves first read the input."""
        values = self._paired()
        own = {p.number for p in values.points.values() if p.name in cause.names}
        reader = next((p for p in values.points.values() if own & set(p.reads) and p.lines), None)
        while reader is not None and reader.operation in PASSING:  # what is made of it comes after
            later = next((p for p in values.points.values() if reader.number in p.reads and p.lines), None)
            if later is None:
                break
            reader = later
        torch = None if reader is None else torch_place(reader)
        return Told(torch, jax_place(self._reader_in_jax(cause.names)), cause.kind, cause.text)

    def _reader_in_jax(self, names: Collection[str]) -> Point | None:
        """The first equation that reads an input; an update is given a list of batches."""
        values = self._paired()
        plain = lambda name: re.sub(r"^batch\.[0-9]+\b", "batch", name) if self.trial.level != "forward" else name
        own = {n for name, n in values.program.inputs.items() if name in names or plain(name) in names}
        return next((p for p in values.jax_points.values() if own & set(p.reads) and p.lines), None)

    # Gradients

    def _gradients(self) -> Told:
        values = self._paired()
        if (found := gradient_cause(values)) is None:
            stopped = stopped_in_one_half(values, self.found)
            return _remarked(self._leaves_without_gradient()) if stopped is None else self._stopped(stopped)
        _, point, cause, line = found
        partners = [values.jax_points[n] for n in values.matched[point.number] if values.jax_points[n].lines]
        stops = [p for p in partners if p.operation == "stop_gradient"]
        theirs = next(iter(stops or partners), None)
        if not stops and np.ptp(point.value) == 0:  # zeros are everywhere
            theirs = self._reader_in_jax({values.points[n].name for n in point.reads})
        there, place = jax_place(theirs), torch_place(point)
        if cause.kind == "detach" and not stops and (own := stopped_in_one_half(values, self.found, stops_alone=True)):
            there = self._stopped(own).jax
        return Told(replace(place, where=line or place.where), there, cause.kind, cause.text)

    def _stopped(self, found: Stopped) -> Told:
        """The equation, and the torch call that gave the same value."""
        values = self._paired()
        there = jax_place(found.point)
        numbers = [n for n, partners in values.matched.items() if found.point.number in partners]
        ours = next((values.points[n] for n in numbers if values.points[n].lines), None)
        return Told(
            None if ours is None else torch_place(ours),
            None if there is None else replace(there, where=found.line or there.where),
            "detach",
            found.text,
        )

    def _leaves_without_gradient(self) -> Told:
        """Parameters that one half gives no gradient."""
        none = {"torch": [], "JAX": []}
        for quantity, name in self.apart:
            ours, theirs = self.found[quantity].get(name), self.trial.expected[quantity].get(name)
            if ours is not None and theirs is not None and bool(np.any(ours)) != bool(np.any(theirs)):
                none["JAX" if np.any(ours) else "torch"].append(name)
        values = self._paired()
        for side, names in none.items():
            if names and len(names) == len(self.apart):
                own = {p.number for p in values.points.values() if p.name in names}
                reader = next((p for p in values.points.values() if own & set(p.reads) and p.lines), None)
                text = f"a detach: {side} gives no gradient to {', '.join(names[:4])}"
                place = None if reader is None else torch_place(reader)
                return Told(place, jax_place(self._reader_in_jax(names)), "detach", text)
        return Told()


def _is_late(values: Values, guilty: Guilty) -> bool:
    """Whether a place comes after the first that differs: in the end everything can be put right."""
    return guilty.point.number in values.roots or not all(values.has_partner(n) for n in guilty.point.reads)


def _remarked(told: Told) -> Told:
    """A remark where nothing was found."""
    if not told.cause:
        told.notes = ("values agree, gradients do not, and no single detach or kink explains it",)
    return told


def _name(leaf: Leaf) -> str:
    quantity, name = leaf
    return name if quantity in ("info", "metrics", "loss", "output") and name else f"{quantity}.{name}".rstrip(".")
