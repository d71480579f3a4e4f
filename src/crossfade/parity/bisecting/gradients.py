"""Where gradients part although values agree: a detach that one half has and the other has not, or a kink."""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .causes import Cause
from .points import Point
from .trial import Trial
from .values import Values
from .watching import Call, Change

MANY = 200  # calls that are tried one by one
PAIRED = 12  # changes that are tried two at a time

Found = tuple[Call, Point, Cause, str]  # the last: the line, where it is not the call's own
Group = tuple[Call, dict[int, Change], Cause, str]


def gradient_cause(values: Values) -> Found | None:
    """What makes the gradients agree: the call, its point, and the cause."""
    trial, calls = values.trial, _computing(values)
    better: list[tuple[int, Group]] = []

    def tried(groups: Iterable[Group]) -> Group | None:
        for group in groups:
            left = trial.left(group[1])
            if left == 0:
                return group
            if left < len(values.differing):
                better.append((left, group))
        return None

    stopping = [c for c in calls if _stops_in_jax(values, c)]
    single = (*reversed(stopping), *(c for c in reversed(calls[-MANY:]) if c not in stopping))
    found = tried(_undone(values)) or tried(_kinks(values)) or tried(_stopped(c) for c in single if _cuts(c))
    found = found or tried(_by_line(values)) or _both(trial, [group for _, group in sorted(better, key=lambda b: b[0])])
    return None if found is None else (found[0], values.points[found[0].points[0]], *found[2:])


def _both(trial: Trial, better: list[Group]) -> Group | None:
    """Two of the changes that make fewer gradients differ, together; the first is told."""
    for one, other in combinations(better[:PAIRED], 2):
        if trial.left(one[1] | other[1]) == 0:
            return one
    return None


def _computing(values: Values) -> list[Call]:
    """Calls that give floating tensors, in order."""
    return [c for c in values.calls.values() if c.points and values.points[c.points[0]].value.dtype.kind == "f"]


def _stops_in_jax(values: Values, call: Call) -> bool:
    """Whether JAX stops a gradient at the same value."""
    partners = values.matched[call.points[0]]
    return any(values.jax_points[n].operation == "stop_gradient" for n in partners)


def _cuts(call: Call) -> bool:
    """Whether a gradient flows through the call, so that stopping it would make a difference."""
    out = call.tensor
    return out is not None and out.requires_grad and not (call.args and out is call.args[0])


def _detached(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
    return f(*a, **k).detach()


def _stopped(call: Call) -> Group:
    text = f"a detach: JAX stops the gradient at the result of {call.name}, torch does not"
    return call, {call.number: _detached}, Cause("detach", text, _detached), ""


def _undone(values: Values) -> Iterator[Group]:
    """Torch stops a gradient, JAX does not: each detach alone, all together, then whatever runs without gradients."""
    own = [c for c in values.calls.values() if c.lines]
    cutting = [c for c in own if c.name in ("detach", "detach_", "data") and c.differentiable]
    attached: Change = lambda f, a, k: a[0]
    cause = Cause("detach", "a detach: torch stops the gradient here, JAX does not", attached)
    for call in cutting:
        yield call, {call.number: attached}, cause, ""
    fixed = _fixed(values)
    for call in cutting:  # a whole module as a constant, where only its parameters should be
        held = {n: change for n, change in fixed.items() if call.lines[0] in values.calls[n].lines}
        if held:
            yield call, held | {call.number: attached}, cause, ""
    for line, group in _groups(cutting):
        yield group[0], {c.number: attached for c in group}, cause, line
    resting = [c for c in own if not c.differentiable]
    cause = Cause("detach", "a detach: torch computes this without gradients, JAX differentiates it", _recorded)
    for line, group in _groups(resting):
        yield group[-1], {c.number: _recorded for c in group}, cause, line
    if resting:
        changes = {c.number: _recorded for c in resting} | {c.number: attached for c in cutting}
        yield _leaving(values, resting), changes, cause, ""


def _recorded(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
    with torch.enable_grad():
        return f(*a, **k)


def _leaving(values: Values, resting: list[Call]) -> Call:
    """The last of some calls whose result others read."""
    inside = {c.number for c in resting}
    read = {n for c in values.calls.values() if c.number not in inside for n in c.reads}
    return next((c for c in reversed(resting) if set(c.points) & read), resting[-1])


def _groups(calls: list[Call]) -> Iterator[tuple[str, list[Call]]]:
    """Calls that share one of the user's lines, the innermost such line first."""
    seen = set()
    for line in dict.fromkeys(line for call in calls for line in call.lines):
        group = [c for c in calls if line in c.lines]
        if (key := tuple(c.number for c in group)) not in seen:
            seen.add(key)
            yield line, group


def _by_line(values: Values) -> Iterator[Group]:
    """Everything called from one line: with constant parameters, or with constant results."""
    fixed = _fixed(values)
    text = "a detach: JAX holds the parameters fixed that are used here, torch does not"
    for line, group in _groups([values.calls[number] for number in fixed]):
        changes = {c.number: fixed[c.number] for c in group}
        yield group[0], changes, Cause("detach", text, changes[group[0].number]), line
    text = "a detach: JAX stops the gradient of what is computed here, torch does not"
    for line, group in _groups([c for c in _computing(values) if _cuts(c)]):
        if len(group) > 1:
            yield group[-1], {c.number: _detached for c in group}, Cause("detach", text, _detached), line


def _fixed(values: Values) -> dict[int, Change]:
    """For each call that reads parameters beside other values: the same with constant parameters."""
    calls = [c for c in _computing(values) if c.differentiable and c.lines]
    return {c.number: _with_fixed(at) for c in calls if (at := _parametric(values, c))}


def _parametric(values: Values, call: Call) -> tuple[int | str, ...]:
    """The arguments of a call that are parameters, or computed from parameters alone, beside others that are not."""
    given = {at: a for at, a in (*enumerate(call.args), *call.kwargs.items()) if isinstance(a, Tensor)}
    own = tuple(at for at, a in given.items() if values.watch.number_of(a) in values.parametric)
    return own if len(own) < len(given) else ()


def _with_fixed(places: tuple[int | str, ...]) -> Change:
    hold = lambda at, x: x.detach() if at in places else x
    return lambda f, a, k: f(*(hold(at, x) for at, x in enumerate(a)), **{at: hold(at, x) for at, x in k.items()})


# Kinks: equal values, other derivatives

KINKS: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "clamp": [("half the gradient at the bounds of clamp", lambda x, low=None, high=None: _soft_clamp(x, low, high))],
    "abs": [
        ("the gradient 1 of abs at zero", lambda x: torch.where(x >= 0, x, -x)),
        ("the gradient 0 of abs at zero", lambda x: x * torch.sign(x)),
    ],
    "norm": [("no finite gradient of the norm at zero", lambda x, *_, **__: x.square().sum().sqrt())],
    "relu": [
        ("half the gradient of relu at zero", lambda x: torch.maximum(x, torch.zeros_like(x))),
        ("the gradient 1 of relu at zero", lambda x: torch.where(x >= 0, x, torch.zeros_like(x))),
    ],
    "leaky_relu": [
        ("the gradient 1 of leaky_relu at zero", lambda x, slope=0.01, *_: torch.where(x >= 0, x, slope * x))
    ],
    "sign": [("a gradient of sign", lambda x: x)],
}


def _soft_clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    fill = lambda bound: torch.as_tensor(bound, dtype=x.dtype).expand_as(x)
    x = x if low is None else torch.maximum(x, fill(low))
    return x if high is None else torch.minimum(x, fill(high))


def _max(call: Call) -> Iterator[tuple[str, Change]]:
    """The maximum along an axis: one winner, or the gradient shared among equals."""
    if isinstance(call.result, tuple):
        shared = torch.amax if call.name == "max" else torch.amin

        def change(f: Callable[..., Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
            x, right = a[0], f(*a, **k)
            dim: Any = k.get("dim", a[1] if len(a) > 1 else None)
            return type(right)((shared(x, dim=dim, keepdim=right[0].ndim == x.ndim), *right[1:]))

        yield "the gradient shared among equal maxima", change


def _kinks(values: Values) -> Iterator[Group]:
    for call in reversed(_computing(values)):
        if not call.differentiable:
            continue
        changes: list[tuple[str, Change]] = [
            (text, lambda f, a, k, own=function: own(*a, **k)) for text, function in KINKS.get(call.name, [])
        ]
        if call.name in ("max", "min"):
            changes += list(_max(call))
        if call.name in ("minimum", "maximum"):
            changes += [("the gradient of one winner where both are equal", _winner(call.name))]
        if call.name == "softplus":
            changes += [
                ("the gradient of softplus above its threshold", lambda f, a, k: F.softplus(a[0], threshold=1e9))
            ]
        for text, change in changes:
            yield call, {call.number: change}, Cause("kink", f"{text} in JAX", change), ""


def _winner(name: str) -> Change:
    return lambda f, a, k: torch.where(a[0] >= a[1] if name == "maximum" else a[0] <= a[1], a[0], a[1])
