"""Leaves that follow others otherwise in one half than in the other: targets, averages, copies.

What an update leaves behind proves it: l' = l + c (m - l) with one share c for all numbers of a leaf l, where m is
another leaf, as it was before the update or as the update leaves it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..side_torch import Quantities
from ..weights import Weights
from .trial import Trial

EXACT = 1e-9  # of the largest number


@dataclass(frozen=True)
class Follows:
    """What a half does with a leaf in an update: nothing, or it moves it a share of the way to another."""

    leaf: str = ""  # the other; empty where the leaf stands still
    after: bool = False  # the other as the update leaves it, not as it was before
    share: float = 0.0

    def words(self) -> str:
        """In words, after the name of the leaf."""
        if not self.leaf:
            return "stands still"
        whole = abs(self.share - 1) < EXACT
        to = f"is set to {self.leaf}" if whole else f"moves {self.share:.6g} of the way to {self.leaf}"
        return f"{to} {'after' if self.after else 'before'} the update"

    def is_like(self, other: "Follows") -> bool:
        """The same, but for rounding."""
        return (self.leaf, self.after) == (other.leaf, other.after) and abs(self.share - other.share) <= 1e-7


@dataclass(frozen=True)
class Parted:
    """A leaf that follows otherwise, and why."""

    leaf: str
    kind: str
    text: str


def follows_otherwise(trial: Trial, found: Quantities, before: Weights) -> Parted | None:
    """The first leaf that both halves move by such a rule, or not at all, and not by the same; `before` is the state
    before the last update."""
    apart = [(q, name) for q, name in trial.differences(found) if q.startswith("change") and name in before]
    rules: dict[str, tuple[Follows, Follows]] = {}
    for quantity, name in apart:
        halves = [_after(trial, half[quantity]) for half in (found, trial.expected)]
        both = [follows(name, before, after) for after in halves]
        if both[0] is not None and both[1] is not None and not both[0].is_like(both[1]):
            rules[name] = both[0], both[1]
    if not rules:
        return None
    name, (ours, theirs) = next(iter(rules.items()))
    words = f"{name}: torch {ours.words()}, JAX {theirs.words()}"
    if ours.leaf and theirs.leaf:
        same = (ours.leaf, ours.after) == (theirs.leaf, theirs.after)
        return Parted(name, "momentum" if same else "operand", words)
    turned = {own.leaf: name for name, (own, other) in rules.items() if own.leaf and not other.leaf and own.share == 1}
    if turned and _heals(trial, {to: before[of] for to, of in turned.items()}):
        to, of = next(iter(turned.items()))
        return Parted(name, "exchanged", f"torch copies {to} to {of}, JAX {of} to {to}")
    return Parted(name, "left out", words)


def follows(name: str, before: Weights, after: Weights) -> Follows | None:
    """The rule by which an update has moved a leaf; None where there is none."""
    own, move = before[name], after[name] - before[name]
    if own.size < 2 or own.dtype.kind != "f":
        return None
    floor = EXACT * max(np.abs(own).max(), np.abs(after[name]).max())
    if np.abs(move).max() <= floor:
        return Follows()
    for other in _like(name, before):
        for late, state in ((False, before), (True, after)):
            way = (state[other] - own).ravel()
            square = float(way @ way)
            share = float(way @ move.ravel()) / square if square else 0.0
            if share and np.abs(move.ravel() - share * way).max() <= floor:
                return Follows(other, late, 1.0 if abs(share - 1) < EXACT else share)
    return None


def _like(name: str, leaves: Weights) -> list[str]:
    """Leaves of the same shape and last word, those first whose names end alike."""
    words = name.split(".")
    alike = [
        n for n, a in leaves.items() if n != name and a.shape == leaves[name].shape and n.split(".")[-1] == words[-1]
    ]
    return sorted(alike, key=lambda n: -_common(n.split(".")[::-1], words[::-1]))


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _after(trial: Trial, change: Weights) -> Weights:
    return {name: trial.weights[name] + moved for name, moved in change.items() if name in trial.weights}


def _heals(trial: Trial, other: Weights) -> bool:
    """Whether the halves leave the same behind when torch begins with other leaves."""
    weights = trial.weights | other
    done = trial.attempt(weights=weights) if set(trial.steps) == {1} else None
    if done is None:
        return False
    shift = {name: weights[name] - trial.weights[name] for name in other}
    moved = {
        quantity: {n: a + shift.get(n, 0) for n, a in part.items()} if quantity.startswith("change") else part
        for quantity, part in done[0].items()
    }
    return not trial.differences(moved)
