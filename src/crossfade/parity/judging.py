"""Judges the results of a level, and checks that the comparison can detect a change."""

from collections.abc import Callable
from functools import cached_property

from ..verdict import (
    EPS64,
    NOISE_FACTOR,
    Comparison,
    Leaves,
    Verdict,
    allow_float32,
    allow_float64,
    allow_unproved,
    compare,
    is_narrow,
    largest,
    noise,
    relative,
    scale,
)
from .levels import Levels, Rounding
from .side_torch import Quantities

# What float64 may differ by, as a share of a leaf's scale. Clean ports measure 1e-15 and mostly stay below 1e-12; but
# a variance computed as E[x^2] - E[x]^2 of inputs with mean 1000 and deviation 1 is right, and 1e-10 away from one
# computed with more care. A value that passed through float32 is 1e-8 away.
RELATIVE = {
    "map": 0.0,
    "forward": 1e-10,
    "loss": 1e-10,
    "grad": 1e-10,
    "update": 1e-10,
    "updates": 1e-9,
    "env": 1e-10,
    "rollout": 1e-9,
}
AMPLIFIED = 1e-6  # of the largest weight: what an update may differ by where the gradient is rounding alone
CANCELLED = 1e-10  # of the largest loss or metric, at least of 1: rounding that a cancelling sum may show in float64
CHAOS = 1e-2  # float32 noise above this share of a quantity says nothing about the port
HYPERPARAMETERS = 1e-4  # of an update: what rounding an optimiser's constants to float32 does (Adam's 1 - 0.9999)
SCALARS = ("loss", "info", "metrics")
FEEDBACK = ("updates", "rollout")  # levels where rounding feeds on itself, and one half may have more of it by chance


class Judge:
    """Judges the runs of one twin; remarks for the report are passed to `note`."""

    def __init__(self, runs: dict[str, Levels], note: Callable[[str], None]):
        self.runs, self.note = runs, note

    def float64(self, level: str, torch: Quantities, jax: Quantities) -> dict[str, Comparison]:
        """The verdict on every quantity of a float64 run.

        Where it seems to differ, a quantity that rounding can move by more than a share of its scale is held to what
        rounding does to it, which is measured: updates, because training can be chaotic, and losses and metrics that
        are a difference of larger numbers, such as the KL divergence of two policies that are still the same.
        """
        comparisons = self._float64(level, torch, jax, {})
        doubtful = [quantity for quantity, c in comparisons.items() if c.verdict is Verdict.DIFFERENT]
        if level != "updates":
            doubtful = [quantity for quantity in doubtful if quantity in SCALARS]
        if not doubtful:
            return comparisons
        rounding = self.runs["float64"].rounding(level, torch, jax)
        if level == "updates":
            worst = max(self._share(rounding, quantity, jax) for quantity in rounding)
            self.note(f"updates: a unit in the last place of float64 grows to {worst:.1e}; ten times that is allowed.")
        else:
            most = CANCELLED * max(1.0, *(largest(torch[quantity], jax[quantity]) for quantity in doubtful))
            rounding = {q: {leaf: min(d, most) for leaf, d in rounding.get(q, {}).items()} for q in doubtful}
        return self._float64(level, torch, jax, rounding)

    def _share(self, rounding: Rounding, quantity: str, jax: Quantities) -> float:
        """The largest effect of rounding on a leaf, relative to its scale."""
        return max((relative(d, a := jax[quantity][leaf], a) for leaf, d in rounding[quantity].items()), default=0.0)

    def _float64(self, level: str, torch: Quantities, jax: Quantities, rounding: Rounding) -> dict[str, Comparison]:
        comparisons = {}
        for quantity in names(torch, jax):
            a, b = torch.get(quantity, {}), jax.get(quantity, {})
            if narrow := [leaf for leaf in a if leaf in b and is_narrow(a[leaf]) and is_narrow(b[leaf])]:
                self.note(f"{level}: float32 came out of both float64 runs and is judged as such: {', '.join(narrow)}.")
            allowed = self._allow64(level, quantity, a, b)
            for leaf in allowed.keys() & rounding.get(quantity, {}).keys():
                allowed[leaf] = max(allowed[leaf], NOISE_FACTOR * rounding[quantity][leaf])
            comparisons[quantity] = compare(a, b, allowed, dtypes=level != "env")
        return comparisons

    def _allow64(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> dict[str, float]:
        allowed = allow_float64(torch, jax, RELATIVE[level], self._floor(level, quantity, torch, jax))
        if quantity.startswith("change"):
            # Adam and its kin divide a gradient that is nothing but rounding by their epsilon.
            for leaf in allowed.keys() & self._rounding_only:
                allowed[leaf] = max(allowed[leaf], AMPLIFIED * largest(self.runs["float64"].weights))
        return allowed

    @cached_property
    def _rounding_only(self) -> set[str]:
        found = self.runs["float64"].rounding_only()
        if found:
            self.note(f"gradient zero but for rounding, so updates are held to {AMPLIFIED}: {', '.join(found)}.")
        return set(found)

    def _floor(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> float:
        """An absolute tolerance for sums that cancel, from the size of their terms."""
        if level == "map":
            return 0.0
        if quantity.startswith("change"):
            return RELATIVE[level] * largest(self.runs["float64"].weights)
        if quantity in SCALARS:
            return 32 * EPS64
        return 32 * EPS64 * largest(torch, jax)

    def float32(
        self, level: str, plain: tuple[Quantities, Quantities], proof: tuple[Quantities, Quantities] | None
    ) -> dict[str, Comparison]:
        """The verdict on every quantity of a float32 run, beside the float64 run or without one.

        Beside float64 the noise of the better half counts. That of the worse half counts as well as far as rounding
        explains it, which is measured where the halves seem to differ.
        """
        if proof is None:
            return self._float32(level, plain, proof, self.runs["float32"].rounding(level, *plain))
        comparisons = self._float32(level, plain, proof, {})
        if level != "map" and any(c.verdict is Verdict.DIFFERENT for c in comparisons.values()):
            comparisons = self._float32(level, plain, proof, self.runs["float32"].rounding(level, *plain))
        for quantity, comparison in comparisons.items():
            if comparison.verdict is Verdict.ROUNDING:
                self._noise_notes(
                    level, quantity, *(noise(a[quantity], b[quantity]) for a, b in zip(plain, proof, strict=True))
                )
        return comparisons

    def _float32(
        self,
        level: str,
        plain: tuple[Quantities, Quantities],
        proof: tuple[Quantities, Quantities] | None,
        rounding: Rounding,
    ) -> dict[str, Comparison]:
        comparisons = {}
        for quantity in names(*plain):
            a, b = (side.get(quantity, {}) for side in plain)
            known = rounding.get(quantity, {})
            if quantity == "change":
                known = {n: max(known.get(n, 0.0), HYPERPARAMETERS * scale(leaf, leaf)) for n, leaf in a.items()}
            if level == "map":
                allowed = dict.fromkeys(a, 0.0)
            elif proof is None:
                allowed = allow_unproved(a, b, known, self._longest_sum())
            else:
                a64, b64 = (side.get(quantity, {}) for side in proof)
                allowed = allow_float32(a, b, a64, b64, None if level in FEEDBACK else known)
            comparisons[quantity] = compare(a, b, allowed)
        return comparisons

    def _noise_notes(self, level: str, quantity: str, torch: float, jax: float) -> None:
        if level.startswith("update") and max(torch, jax) > CHAOS:
            self.note(
                f"{level}: rounding alone moves the float32 {quantity} by {max(torch, jax):.0%} of its size; there "
                f"float32 says nothing about the port, and float64 is the proof."
            )
        elif max(torch, jax) > 1e-4 and max(torch, jax) > 100 * min(torch, jax):
            worse = "torch" if torch > jax else "JAX"
            self.note(
                f"{level}: in float32 the {worse} half is far from its own float64 self ({quantity}: torch "
                f"{torch:.1e}, JAX {jax:.1e}): the same system, written with less care for rounding on that side."
            )

    def _longest_sum(self) -> int:
        """The largest fan-in of a layer: the number of terms in the longest sum."""
        arrays = next(iter(self.runs.values())).weights.values()
        return max((a.size // a.shape[0] for a in arrays if a.ndim and a.size), default=1)

    def guard(self, level: str, dtype: str, torch: Quantities, jax: Quantities) -> str | None:
        """The name of a parameter (or other input) whose change was detected; None when no change was."""
        run = self.runs[dtype]
        rounding = run.rounding(level, torch, jax) if dtype == "float32" else {}
        for name, disturbed in run.disturbed(level):
            for quantity in disturbed.keys() & torch.keys():
                a, b = torch[quantity], disturbed[quantity]
                if dtype == "float64":
                    allowed = self._allow64(level, quantity, a, b)
                else:
                    allowed = allow_unproved(a, jax[quantity], rounding.get(quantity, {}), self._longest_sum())
                if compare(a, b, allowed).verdict is Verdict.DIFFERENT:
                    return name
        return None


def names(torch: Quantities, jax: Quantities) -> list[str]:
    """The quantities of both sides, torch's first."""
    return [*torch, *(quantity for quantity in jax if quantity not in torch)]
