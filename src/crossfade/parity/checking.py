"""`check`: climbs the levels of a twin, judges each in float64 and float32, and stops at the first that fails."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ..bridge.mapping import Mapping
from ..errors import NoCounterpart, UsageError, nearest
from .arrays import torch_tree
from .levels import Levels
from .report import Finding, Report, Row, versions
from .side_torch import Quantities
from .twin import LEVELS, Twin
from .verdict import (
    EPS64,
    Comparison,
    Difference,
    Leaves,
    Verdict,
    allow_float32,
    allow_float64,
    allow_unproved,
    compare,
    is_narrow,
    largest,
    noise,
)
from .weights import jax_names

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


def check(
    twin: Twin,
    levels: str | Sequence[str] = "all",
    dtype: str = "both",
    steps: tuple[int, ...] = (1, 10, 100),
) -> Report:
    """Proves that the halves of a twin are the same system, as far up as asked.

    `levels`: "all" that the twin has functions for, one name (that level and all below), or a list of names. `dtype`:
    "both", "float64" or "float32"; float64 decides, float32 is held to its measured noise. `steps` are the numbers of
    updates after which the level `updates` compares. The report stops at the first level that fails.
    """
    if dtype not in ("both", "float64", "float32"):
        raise UsageError(f"expected dtype 'both', 'float64' or 'float32', got {dtype!r}.")
    if not steps or min(steps) < 1:
        raise UsageError(f"expected steps to be numbers of updates, each at least 1; got {steps}.")
    wanted = _select(twin, levels)
    if "updates" in wanted and max(steps) < 2:
        raise UsageError(f"level 'updates' compares after several updates, got steps={steps}; 'update' is one update.")
    return _Climb(twin, _mapping(twin), dtype, tuple(steps)).climb(wanted)


def _select(twin: Twin, levels: str | Sequence[str]) -> list[str]:
    if levels == "all":
        return [level for level in LEVELS if twin.missing(level) is None]
    names = [levels] if isinstance(levels, str) else list(levels)
    for name in names:
        if name not in LEVELS:
            raise UsageError(f"unknown level {name!r}.{nearest(name, LEVELS)} Known: all, {', '.join(LEVELS)}.")
        if (missing := twin.missing(name)) is not None:
            raise UsageError(f"level {name!r} of twin {twin.name!r} needs {missing}; it was not given.")
    if isinstance(levels, str):
        below = LEVELS[: LEVELS.index(levels) + 1]
        return [level for level in below if twin.missing(level) is None]
    return [level for level in LEVELS if level in names]


def _mapping(twin: Twin) -> Mapping:
    if twin.torch is None:
        return Mapping((), {}, None)
    if twin.mapping is not None:
        return twin.mapping
    from ..bridge.matching import match

    if twin.inputs is None:
        raise UsageError(
            f"twin {twin.name!r} has no mapping=, and nothing to call its models on: give example=, an array or a "
            f"tuple of arguments, so that bridge.match can find the mapping."
        )
    return match(twin.torch, twin.jax, torch_tree(twin.inputs, "float32"))


class _Climb:
    """One run of `check`: the halves in each precision, and the report as it grows."""

    def __init__(self, twin: Twin, mapping: Mapping, dtype: str, steps: tuple[int, ...]):
        self.twin, self.jax_names = twin, jax_names(mapping)
        dtypes = ("float64", "float32") if dtype == "both" else (dtype,)
        self.runs = {d: Levels(twin, mapping, d, steps) for d in dtypes}
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.first: Finding | None = None
        if dtype == "float32":
            self._note("float64 was not asked for: float32 is judged by an estimated noise floor, which proves less.")

    def climb(self, wanted: list[str]) -> Report:
        for level in LEVELS:
            if self.twin.missing(level) is not None:
                self.rows.append(Row(level, status="not given"))
            elif level not in wanted:
                self.rows.append(Row(level, status="not asked"))
            elif self.first is not None:
                self.rows.append(Row(level, status="not reached"))
            else:
                self._prove(level)
        if "updates" in wanted and self.twin.batches is None:
            self._note("updates: every update was made on the same batch.")
        verdict = max((row.verdict for row in self.rows if row.verdict is not None), default=Verdict.DIFFERENT)
        return Report(self.twin.name, verdict, tuple(self.rows), self.first, tuple(self.notes), versions())

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # One level

    def _prove(self, level: str) -> None:
        results: dict[str, tuple[Quantities, Quantities]] = {}
        judged: dict[str, dict[str, Comparison]] = {}
        try:
            if (proof := self._run_float64(level)) is not None:
                results["float64"] = proof
                judged["float64"] = {quantity: self._compare64(level, quantity, *proof) for quantity in _names(*proof)}
            if "float32" in self.runs and not _failed(judged):
                results["float32"] = self._results("float32", level)
                judged["float32"] = self._compare32(level, results["float32"], proof)
        except NoCounterpart as error:
            return self._fail(level, "optimiser", Difference("", "no counterpart", torch=str(error)))
        rows = _rows(level, judged)
        if _failed(judged):
            self.rows += rows
            row = next(row for row in rows if row.verdict is Verdict.DIFFERENT)
            dtype = "float64" if row.float32 is None else "float32"
            return self._found(level, row.quantity, judged[dtype][row.quantity].worst, dtype)
        dtype = next(iter(results))
        guard = self._guard(level, dtype, *results[dtype])
        self.rows += [replace(row, guard=guard) for row in rows]
        if guard is None:
            what = "exchanging the actions" if level == "env" else "moving any one parameter by a thousandth"
            self._fail(level, "guard", Difference("", "hollow", torch=what))

    def _fail(self, level: str, quantity: str, difference: Difference) -> None:
        self.rows.append(Row(level, quantity, verdict=Verdict.DIFFERENT, float64=difference))
        self._found(level, quantity, difference, "float64")

    def _found(self, level: str, quantity: str, worst: Difference, dtype: str) -> None:
        self.first = Finding(level, quantity, worst, self.jax_names.get(worst.leaf, worst.leaf), dtype)

    def _run_float64(self, level: str) -> tuple[Quantities, Quantities] | None:
        run = self.runs.get("float64")
        if run is None:
            return None
        try:
            result = self._results("float64", level)
        except NoCounterpart:
            raise
        except Exception as error:
            if "float32" not in self.runs:
                raise
            where = error.__notes__[-1]  # written by Levels
            self._note(
                f"{level}: float64 could not run, so float32 is judged by an estimated noise floor, which proves less. "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} ({where})"
            )
            return None
        for quantity in _names(*result):
            if narrow := [n for n, a in result[0].get(quantity, {}).items() if is_narrow(a)]:
                self._note(f"{level}: float32 came out of a float64 run and is judged as float32: {', '.join(narrow)}.")
        self._gradient_notes(run, level)
        return result

    def _results(self, dtype: str, level: str) -> tuple[Quantities, Quantities]:
        run = self.runs[dtype]
        torch, jax = run.run(level)
        if run.jax.unread is not None:
            self._note(f"the optimiser's moments were not compared: {run.jax.unread}")
            torch = {quantity: part for quantity, part in torch.items() if quantity in jax}
        return torch, jax

    def _gradient_notes(self, run: Levels, level: str) -> None:
        if level != "grad":
            return
        if run.torch.idle:
            self._note(f"no gradient in torch, taken as zero: {', '.join(sorted(run.torch.idle))}.")
        if stray := run.jax.stray_gradients(run.weights):
            self._note(f"frozen in torch but differentiated in JAX (the optimiser must hold them): {', '.join(stray)}.")

    # Judging

    def _compare64(self, level: str, quantity: str, torch: Quantities, jax: Quantities) -> Comparison:
        a, b = torch.get(quantity, {}), jax.get(quantity, {})
        return compare(a, b, self._allow64(level, quantity, a, b), dtypes=level != "env")

    def _allow64(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> dict[str, float]:
        allowed = allow_float64(torch, jax, RELATIVE[level], self._floor(level, quantity, torch, jax))
        if quantity.startswith("change"):
            # Adam and its kin divide a gradient that is nothing but rounding by their epsilon.
            for leaf in self.rounding_only:
                allowed[leaf] = max(allowed[leaf], AMPLIFIED * largest(self.runs["float64"].weights))
        return allowed

    @cached_property
    def rounding_only(self) -> list[str]:
        names = self.runs["float64"].rounding_only()
        if names:
            self._note(
                f"the gradient is zero but for rounding, so updates are held to {AMPLIFIED}: {', '.join(names)}."
            )
        return names

    def _floor(self, level: str, quantity: str, torch: Leaves, jax: Leaves) -> float:
        """What rounding may leave where numbers cancel: in units of the numbers the quantity is made of."""
        if level == "map":
            return 0.0
        if quantity.startswith("change"):
            return RELATIVE[level] * largest(self.runs["float64"].weights)
        if quantity in ("loss", "info", "metrics"):
            return 32 * EPS64
        return 32 * EPS64 * largest(torch, jax)

    def _compare32(
        self, level: str, plain: tuple[Quantities, Quantities], proof: tuple[Quantities, Quantities] | None
    ) -> dict[str, Comparison]:
        comparisons = {}
        jittered = self.runs["float32"].jittered(level) if proof is None else {}
        for quantity in _names(*plain):
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
            self._note(
                f"{level}: rounding alone moves the float32 {quantity} by {max(torch, jax):.0%} of its size; there "
                f"float32 says nothing about the port, and float64 is the proof."
            )
        elif max(torch, jax) > 1e-4 and max(torch, jax) > 100 * min(torch, jax):
            worse = "torch" if torch > jax else "JAX"
            self._note(
                f"{level}: in float32 the {worse} half is far from its own float64 self ({quantity}: torch "
                f"{torch:.1e}, JAX {jax:.1e}): the same system, written with less care for rounding on that side."
            )

    def _longest_sum(self) -> int:
        """Terms in the longest sum in sight: the fan-in of a layer."""
        arrays = next(iter(self.runs.values())).weights.values()
        return max((a.size // a.shape[0] for a in arrays if a.ndim and a.size), default=1)

    def _guard(self, level: str, dtype: str, torch: Quantities, jax: Quantities) -> str | None:
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


def _rows(level: str, judged: dict[str, dict[str, Comparison]]) -> list[Row]:
    quantities = dict.fromkeys(quantity for comparisons in judged.values() for quantity in comparisons)
    rows = []
    for quantity in quantities:
        by = {dtype: comparisons[quantity] for dtype, comparisons in judged.items() if quantity in comparisons}
        worst = {dtype: comparison.worst for dtype, comparison in by.items()}
        verdict = max(comparison.verdict for comparison in by.values())
        rows.append(Row(level, quantity, verdict, worst.get("float64"), worst.get("float32")))
    return rows


def _failed(judged: dict[str, dict[str, Comparison]]) -> bool:
    return any(c.verdict is Verdict.DIFFERENT for comparisons in judged.values() for c in comparisons.values())


def _names(torch: Quantities, jax: Quantities) -> list[str]:
    return [*torch, *(quantity for quantity in jax if quantity not in torch)]
