"""Why a call gives something else than JAX: the usual causes, tried one after another at the place that was found, or
at places where a change makes the difference vanish."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .causes import REDUCTIONS, Cause, put, substitute, usual_causes
from .pairing import EQUAL, distance, same_numbers
from .points import Point
from .values import ATTRIBUTES, LAYOUTS, PASSING, Guilty, Values, is_telling
from .watching import Call, Change

WINDOWS = ("split", "chunk", "getitem", "narrow", "tensor_split")
BACK = 4  # calls before a value that are looked at for its layout
FIRST = 4  # calls that are looked at as the first of several
OTHERS = 60  # values that are tried for an operand
STRETCH = 16  # calls after a place that are looked at for another operand


@dataclass(frozen=True, eq=False)
class Blamed:
    """A cause and the point it belongs to."""

    point: Point
    cause: Cause


class Reasons:
    """Tries causes on the values of a level."""

    def __init__(self, values: Values):
        self.values, self.trial, self.watch = values, values.trial, values.watch
        self.points, self.calls = values.points, values.calls

    def cause(self, guilty: Guilty) -> "Blamed | None":
        """What makes the guilty call give JAX's numbers. An operand that JAX only seems to have may be wrong itself:
        then what computed it is the place."""
        target = None if guilty.jax is None else guilty.jax.value
        for cause in usual_causes(guilty.call):
            if self._explains(guilty.call, cause, target, guilty.whole):
                return self._simpler(guilty, cause) or Blamed(guilty.point, cause)
        for number in guilty.point.reads if guilty.whole else ():
            for maker in self._doubtful(number):
                for cause in usual_causes(maker):
                    if self._explains(maker, cause, None, True):
                        return Blamed(self.points[maker.points[0]], cause)
        for cause in (
            *self._in_jax_layout(guilty.call),
            *self._moved_factor(guilty.call),
            *self._other_operands(guilty.call),
        ):
            if self._explains(guilty.call, cause, target, guilty.whole):
                return Blamed(guilty.point, cause)
        if (window := self._window(guilty)) is not None:
            return Blamed(guilty.point, window)
        for number in guilty.point.reads:
            maker = self._maker(number)
            if maker is None or maker.name not in REDUCTIONS:
                continue
            for cause in usual_causes(maker):
                if self._through(maker, cause, guilty):
                    return Blamed(self.points[maker.points[0]], cause)
        return None

    def _simpler(self, guilty: Guilty, cause: Cause) -> "Blamed | None":
        """A call of the same line that is left out, for an operation that would undo it."""
        if cause.kind not in ("operation", "only in JAX") or not guilty.whole:
            return None
        for call in (c for c in self.calls.values() if set(guilty.call.points) & set(c.reads)):
            for other in usual_causes(call) if call.lines[:1] == guilty.call.lines[:1] else ():
                if other.kind == "left out" and self._explains(call, other, None, True):
                    return Blamed(self.points[call.points[0]], other)
        return None

    def _window(self, guilty: Guilty) -> Cause | None:
        """Other rows of the same operand than torch takes."""
        x = self.watch.number_of(guilty.call.args[0]) if guilty.call.args else None
        if guilty.jax is None or x is None or guilty.call.name not in WINDOWS:
            return None
        source, theirs = self.points[x].value, guilty.jax.value
        for axis in range(source.ndim):
            others = [np.delete(value.shape, axis).tolist() for value in (source, theirs) if value.ndim == source.ndim]
            n = theirs.shape[axis] if len(others) == 2 and others[0] == others[1] else 0
            for first in range(source.shape[axis] - n + 1 if n else 0):
                taken = np.take(source, range(first, first + n), axis)
                if same_numbers(taken, theirs):
                    text = (
                        f"{guilty.call.name}: JAX takes the {n} from number {first} on along axis {axis}, torch others"
                    )
                    kind = "order" if self._are_all_taken(guilty.call, x) else "index"
                    return Cause(kind, text, substitute(theirs, guilty.call.points.index(guilty.point.number)))
        return None

    def _are_all_taken(self, call: Call, x: int) -> bool:
        """Whether JAX cuts a value into parts of the same sizes as torch, but in another order."""
        partners = set(self.values.matched[x])
        parts = [p.value for p in self.values.jax_points.values() if p.operation == "slice" and partners & set(p.reads)]
        ours = sorted(self.points[n].value.size for n in call.points)
        numbers = np.concatenate([part.ravel() for part in parts]) if parts else np.zeros(0)
        return sorted(part.size for part in parts) == ours and same_numbers(
            np.sort(numbers), np.sort(self.points[x].value.ravel())
        )

    def _maker(self, number: int) -> Call | None:
        """The call that computed a value, not one that only handed it on."""
        call = self.calls.get(self.points[number].call)
        while call is not None and call.name in PASSING and call.name not in LAYOUTS and call.reads:
            call = self.calls.get(self.points[call.reads[0]].call)
        return call

    def _doubtful(self, number: int) -> Iterator[Call]:
        """Calls before a value whose results JAX seems to have: it may have them in another order, or do something
        there that does not show in the values."""
        maker, partner = self._maker(number), self.values.has_partner(number)
        if maker is not None and partner and (not self._in_order(number) or self._changes_nothing(maker)):
            yield maker
        for _ in range(BACK):
            if maker is not None and maker.name in LAYOUTS:
                yield maker
            if maker is None or not maker.reads:
                return
            maker = self._maker(maker.reads[0])

    def _changes_nothing(self, call: Call) -> bool:
        """Whether a call gave what it was given: JAX may do something else there that does not show in the values."""
        x = self.watch.number_of(call.args[0]) if call.args else None
        if x is None or x in call.points or not call.points:
            return False
        return same_numbers(self.points[x].value, self.points[call.points[0]].value)

    def _in_order(self, number: int) -> bool:
        """Whether JAX has a value in the same order too."""
        if self.points[number].operation in ("input", "constant"):
            return True
        own = self.points[number].value.astype(np.float64).ravel()
        partners = (self.values.jax_points[n].value.astype(np.float64).ravel() for n in self.values.matched[number])
        return any(p.size != own.size or distance(p, own) <= EQUAL for p in partners)

    def _explains(self, call: Call, cause: Cause, target: np.ndarray | None, whole: bool) -> bool:
        """Whether the difference vanishes, and JAX has the value that the call then gives; or it gives JAX's value."""
        done = self.trial.attempt({call.number: cause.change})
        if done is None:
            return False
        found, side = done
        given = side.watch.changed.get(call.number)
        if whole:
            return not self.trial.differences(found) and self._is_in_jax(given)
        return target is not None and isinstance(given, Tensor) and same_numbers(given.detach().numpy(), target)

    def _is_in_jax(self, given: object) -> bool:
        """Whether JAX has a value too. Where little of it counts, such as the place of a maximum, many causes would
        make a difference vanish."""
        if not isinstance(given, Tensor) or not given.is_floating_point() or given.numel() < 2:
            return True
        return bool(self.values.jax_index.find(given.detach().numpy()))

    def _through(self, maker: Call, cause: Cause, guilty: Guilty) -> bool:
        """Whether a change of a call before makes the guilty one give JAX's value."""
        done = self.trial.attempt({maker.number: cause.change}, write=True)
        point = None if done is None else done[1].watch.points.get(guilty.point.number)
        if done is None or point is None or guilty.jax is None:
            return False
        if guilty.whole:
            return not self.trial.differences(done[0]) and self._is_in_jax(done[1].watch.changed.get(maker.number))
        return same_numbers(point.value, guilty.jax.value)

    def first_of_several(self) -> tuple[Guilty, Blamed] | None:
        """A usual cause that makes the first call that differs give a value that JAX alone has, where there are more
        such calls and the difference goes on: a mistake that is made in every layer is mended by no single change."""
        alone = self.values.only_in_jax
        names = Counter(call.name for call, _ in self.values.suspects)
        for call, point in self.values.suspects[:FIRST] if self.trial.level == "forward" else ():
            if names[call.name] < 2 or not all(self.values.has_partner(n) for n in point.reads):
                continue
            for cause in usual_causes(call):
                done = self.trial.attempt({call.number: cause.change})
                given = None if done is None else done[1].watch.changed.get(call.number)
                if not isinstance(given, Tensor) or not is_telling(given.detach().numpy(), numbers=False):
                    continue
                theirs = [n for n in self.values.jax_index.find(given.detach().numpy()) if n in alone]
                if theirs and done is not None and self.trial.differences(done[0]):
                    return Guilty(call, point, self.values.jax_points[theirs[0]], False), Blamed(point, cause)
        return None

    def cause_anywhere(self) -> tuple[Call, Point, Cause] | None:
        """A usual cause at a suspect: at all calls of its line, its function or its module, or at the call alone. That
        a call is left out comes first: other causes can undo a call."""
        for scope, simple in (("line", True), ("line", False), ("function", False), ("module", False), ("call", False)):
            seen = set()
            for call, point in (*self._last, *self.values.suspects[:12]):
                group = [c for c in self.calls.values() if c.name == call.name and _alike(c, call, scope)]
                key = tuple(c.number for c in group)
                if (len(group) < 2 and scope != "call") or key in seen:
                    continue
                seen.add(key)
                for cause, changes in _of_all(call, group):
                    if (cause.kind == "left out" or not simple) and self.trial.heals(changes):
                        return call, point, cause
        return None

    @cached_property
    def _last(self) -> list[tuple[Call, Point]]:
        """The calls that gave what differs."""
        own = [self.points[n] for n in self.values.roots if self.points[n].call in self.calls]
        return [(self.calls[p.call], p) for p in own if p.operation not in ATTRIBUTES][:4]

    def stale(self) -> tuple[Call, Point, Cause] | None:
        """Parameters as they were before the update, at all calls of a line."""
        for call, point in self.values.suspects[:12] if self.trial.level.startswith("update") else ():
            changes = {}
            for other in (c for c in self.calls.values() if c.name == call.name and _alike(c, call, "line")):
                for at, operand in enumerate(other.args):
                    own = isinstance(operand, Tensor) and operand is not other.result
                    name = self._parameter(operand) if own else None
                    if name is not None:
                        changes[other.number] = put(at, torch.as_tensor(self.trial.weights[name]))
            if changes and self.trial.heals(changes):
                text = f"an operand of {call.name}: JAX reads the parameters from before the update"
                return call, point, Cause("operand", text, next(iter(changes.values())))
        return None

    def _parameter(self, operand: Tensor) -> str | None:
        """The parameter that an operand is, or a copy of as the update leaves it."""
        if (name := self.watch.parameter_of(operand)) is not None:
            return name
        if (number := self.watch.number_of(operand)) is None:
            return None
        for name, change in self.values.found.get("change", {}).items():
            before = self.trial.weights[name]
            if change.shape == tuple(operand.shape) and np.any(change) and change.size > 1:
                if same_numbers(self.points[number].value, before + change):
                    return name
        return None

    def exchanged(self) -> tuple[Call, Point, Cause] | None:
        """Two calls of one value each, one after the other: in JAX the second comes first, wherever the two lines do
        that."""
        for call, point in self.values.suspects[:8]:
            for after in (c for c in self.calls.values() if point.number in c.reads):
                if not (_is_unary(call) and _is_unary(after)) or call.number == after.number:
                    continue
                ones = [c for c in self.calls.values() if c.name == call.name and _alike(c, call, "line")]
                others = [c for c in self.calls.values() if c.name == after.name and _alike(c, after, "line")]
                pairs = [(one, other) for one in ones for other in others if set(one.points) & set(other.reads)]
                changes: dict[int, Change] = {one.number: lambda f, a, k: a[0] for one, _ in pairs}
                changes |= {other.number: _followed_by(one) for one, other in pairs}
                if self.trial.heals(changes):
                    text = f"the order: torch {call.name} then {after.name}, JAX {after.name} then {call.name}"
                    return call, point, Cause("order", text, changes[after.number])
        return None

    def other_value(self, guilty: Guilty) -> tuple[Call, Point, Cause] | None:
        """A later call that reads in JAX, in place of what the guilty one leads to, a value that both halves have."""
        led = {guilty.point.number}
        for point in [p for p in self.points.values() if p.number > guilty.point.number]:
            own, call = led.intersection(point.reads), self.calls.get(point.call)
            if not own or call is None or not guilty.whole or len(led) > STRETCH:
                continue
            led.add(point.number)
            for cause in self._other_operands(call, own):
                if self._explains(call, cause, None, True):
                    return call, point, cause
        return None

    def _in_jax_layout(self, call: Call) -> Iterator[Cause]:
        """Operands whose elements stand in another order in JAX."""
        for at, operand in enumerate(call.args):
            number = self.watch.number_of(operand)
            if number is None:
                continue
            own = self.points[number].value.reshape(-1)
            for partner in self.values.matched[number]:
                value = self.values.jax_points[partner].value
                if value.size == own.size and not same_numbers(value.reshape(-1), own):
                    numbers = torch.as_tensor(value.reshape(operand.shape).copy()).to(operand.dtype)
                    text = f"the elements of operand {at + 1} of {call.name} stand in another order in JAX"
                    yield Cause("layout", text, put(at, numbers))

    def _moved_factor(self, call: Call) -> Iterator[Cause]:
        """c x - y and x - c y: a factor on the other operand."""
        if call.name not in ("add", "sub") or len(call.args) < 2:
            return
        for at in (0, 1):
            number = self.watch.number_of(call.args[at])
            maker = None if number is None else self.calls.get(self.points[number].call)
            if maker is None or maker.name not in ("mul", "rmul", "div") or len(maker.args) != 2:
                continue
            x, factor = maker.args if isinstance(maker.args[0], Tensor) else maker.args[::-1]
            if isinstance(factor, int | float):
                factor = 1 / factor if maker.name == "div" else factor

                def change(f, a, k, x=x, factor=factor, at=at):
                    pair = (x, factor * a[1]) if at == 0 else (factor * a[0], x)
                    return f(*pair, *a[2:], **k)

                text = f"the factor {factor:g}: torch on operand {at + 1} of {call.name}, JAX on the other"
                yield Cause("factor", text, change)

    def _other_operands(self, call: Call, numbers: set[int] | None = None) -> Iterator[Cause]:
        """Another value of the same shape for one operand, or for one of some: inputs first, then what was computed
        before."""
        for at, operand in enumerate(call.args):
            if not isinstance(operand, Tensor):
                continue
            own = self.watch.number_of(operand)
            if numbers is not None and own not in numbers:
                continue
            before = [p for p in self.points.values() if p.number < min(call.points) and p.number != own]
            alike = [p for p in before if p.value.shape == tuple(operand.shape) and p.number in self._in_jax]
            alike = [p for p in alike if p.value.dtype.kind == _kind(operand)]
            named = [p for p in alike if p.name]
            others = [p for p in alike if not p.name][-OTHERS:]
            for point in (*named, *reversed(others)):
                words = f"torch {self.values.describe(own)}, JAX {self.values.describe(point.number)}"
                text = f"operand {at + 1} of {call.name}: {words}"
                yield Cause("operand", text, put(at, torch.as_tensor(point.value.copy()).to(operand.dtype)))

    @cached_property
    def _in_jax(self) -> set[int]:
        return {n for n in self.points if self.values.has_partner(n)}


def _of_all(call: Call, group: list[Call]) -> Iterator[tuple[Cause, dict[int, Change]]]:
    """Each usual cause of a call, at all calls of a group: by what it means for each of them."""
    others = {c.number: _by_words(c) for c in group if c.number != call.number}
    for words, cause in _by_words(call).items():
        if all(words in causes for causes in others.values()):
            yield cause, {call.number: cause.change} | {n: causes[words].change for n, causes in others.items()}


def _by_words(call: Call) -> dict[tuple[str, str, int], Cause]:
    """Causes by kind, by their words without numbers, and by how many there were of the same before."""
    found: dict[tuple[str, str, int], Cause] = {}
    for cause in usual_causes(call):
        words = re.sub(r"-?[0-9][0-9.e+-]*", "", cause.text)
        found[cause.kind, words, sum(key[:2] == (cause.kind, words) for key in found)] = cause
    return found


def _alike(one: Call, other: Call, scope: str) -> bool:
    if scope == "line":
        return one.line == other.line and one.lines[:1] == other.lines[:1]
    if scope == "module":
        return bool(one.module) and one.module == other.module
    return scope == "function" or one.number == other.number


def _is_unary(call: Call) -> bool:
    x, out = call.args[0] if call.args else None, call.tensor
    return isinstance(x, Tensor) and out is not None and x.shape == out.shape and out is not x


def _followed_by(call: Call) -> Change:
    return lambda f, a, k: _again(call, f(*a, **k))


def _again(call: Call, x: Tensor) -> Tensor:
    """A recorded call on another first argument."""
    function = getattr(torch.nn.functional, call.name, None) or getattr(torch, call.name)
    return function(x, *call.args[1:], **call.kwargs)


def _kind(tensor: Tensor) -> str:
    return "f" if tensor.is_floating_point() else "b" if tensor.dtype is torch.bool else "i"
