"""Which verdict the results of a level deserve, and whether the comparison would have seen a difference."""

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
    distances,
    is_narrow,
    largest,
    noise,
)
from .levels import Levels
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
CHAOS = 1e-2  # float32 noise above this share of a quantity says nothing about the port


class Judge:
    """Judges the runs of one twin; what the reader should know beside the verdict goes to `note`."""

    def __init__(self, runs: dict[str, Levels], note: Callable[[str], None]):
        self.runs, self.note = runs, note
        self._grown: dict[str, dict[str, float]] = {}  # by quantity and leaf: what a unit in the last place has become

    def float64(self, level: str, torch: Quantities, jax: Quantities) -> dict[str, Comparison]:
        """The verdict on every quantity of a float64 run.

        Training can be chaotic in float64 too: where updates seem to differ, they are held to what moving every weight
        by one unit in the last place does to them.
        """
        comparisons = self._float64(level, torch, jax)
        if level == "updates" and any(c.verdict is Verdict.DIFFERENT for c in comparisons.values()):
            jittered = self.runs["float64"].jittered(level)
            self._grown = {quantity: distances(jax[quantity], jittered[quantity]) for quantity in jax}
            comparisons = self._float64(level, torch, jax)
            worst = max(noise(jax[quantity], jittered[quantity]) for quantity in jax)
            self.note(f"updates: a unit in the last place of float64 grows to {worst:.1e}; ten times that is allowed.")
        return comparisons

    def _float64(self, level: str, torch: Quantities, jax: Quantities) -> dict[str, Comparison]:
        comparisons = {}
        for quantity in names(torch, jax):
            a, b = torch.get(quantity, {}), jax.get(quantity, {})
            if narrow := [leaf for leaf in a if leaf in b and is_narrow(a[leaf]) and is_narrow(b[leaf])]:
                self.note(f"{level}: float32 came out of both float64 runs and is judged as such: {', '.join(narrow)}.")
            comparisons[quantity] = compare(a, b, self._allow64(level, quantity, a, b), dtypes=level != "env")
        return comparisons

    def _allow64(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> dict[str, float]:
        allowed = allow_float64(torch, jax, RELATIVE[level], self._floor(level, quantity, torch, jax))
        if quantity.startswith("change"):
            # Adam and its kin divide a gradient that is nothing but rounding by their epsilon.
            for leaf in allowed.keys() & self._rounding_only:
                allowed[leaf] = max(allowed[leaf], AMPLIFIED * largest(self.runs["float64"].weights))
        for leaf, distance in self._grown.get(quantity, {}).items():
            allowed[leaf] = max(allowed[leaf], NOISE_FACTOR * distance)
        return allowed

    @cached_property
    def _rounding_only(self) -> set[str]:
        found = self.runs["float64"].rounding_only()
        if found:
            self.note(f"gradient zero but for rounding, so updates are held to {AMPLIFIED}: {', '.join(found)}.")
        return set(found)

    def _floor(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> float:
        """What rounding may leave where numbers cancel: in units of the numbers the quantity is made of."""
        if level == "map":
            return 0.0
        if quantity.startswith("change"):
            return RELATIVE[level] * largest(self.runs["float64"].weights)
        if quantity in ("loss", "info", "metrics"):
            return 32 * EPS64
        return 32 * EPS64 * largest(torch, jax)

    def float32(
        self, level: str, plain: tuple[Quantities, Quantities], proof: tuple[Quantities, Quantities] | None
    ) -> dict[str, Comparison]:
        """The verdict on every quantity of a float32 run, beside the float64 run or without one."""
        comparisons = {}
        jittered = self.runs["float32"].jittered(level) if proof is None else {}
        for quantity in names(*plain):
            a, b = (side.get(quantity, {}) for side in plain)
            if level == "map":
                allowed = dict.fromkeys(a, 0.0)
            elif proof is None:
                allowed = allow_unproved(a, b, jittered.get(quantity, {}), self._longest_sum())
            else:
                a64, b64 = (side.get(quantity, {}) for side in proof)
                allowed = allow_float32(a, b, a64, b64)
                self._noise_notes(level, quantity, noise(a, a64), noise(b, b64))
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
        """Terms in the longest sum in sight: the fan-in of a layer."""
        arrays = next(iter(self.runs.values())).weights.values()
        return max((a.size // a.shape[0] for a in arrays if a.ndim and a.size), default=1)

    def guard(self, level: str, dtype: str, torch: Quantities, jax: Quantities) -> str | None:
        """The name of what was moved and seen to make a difference; None when nothing was."""
        run = self.runs[dtype]
        jittered = run.jittered(level) if dtype == "float32" else {}
        for name, disturbed in run.disturbed(level):
            for quantity in disturbed.keys() & torch.keys():
                a, b = torch[quantity], disturbed[quantity]
                if dtype == "float64":
                    allowed = self._allow64(level, quantity, a, b)
                else:
                    allowed = allow_unproved(a, jax[quantity], jittered[quantity], self._longest_sum())
                if compare(a, b, allowed).verdict is Verdict.DIFFERENT:
                    return name
        return None


def names(torch: Quantities, jax: Quantities) -> list[str]:
    """The quantities of both sides, torch's first."""
    return [*torch, *(quantity for quantity in jax if quantity not in torch)]
