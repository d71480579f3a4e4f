"""`check`: runs the levels of a twin in order, judges each in float64 and float32, and stops at the first failure."""

from collections.abc import Sequence
from dataclasses import replace

from ..bridge.mapping import Mapping
from ..errors import NoCounterpart, UsageError, nearest
from ..verdict import Comparison, Difference, Verdict
from .arrays import torch_tree
from .covering import Coverage
from .elsewhere import SCALES, Scale, look, scaled_twin
from .judging import Judge
from .levels import Levels
from .report import Finding, Report, Row, versions
from .side_torch import Quantities
from .twin import LEVELS, Twin
from .weights import jax_names

UNFIT = ("hollow", "no counterpart")  # kinds of differences that are no difference of values


def check(
    twin: Twin,
    levels: str | Sequence[str] = "all",
    dtype: str = "both",
    steps: tuple[int, ...] = (1, 10, 100),
    bisect: bool = False,
) -> Report:
    """Proves that the halves of a twin are the same system, up to the levels asked for.

    `levels`: "all" that the twin has functions for, one name (that level and all below), or a list of names. `dtype`:
    "both", "float64" or "float32". Float64 decides; float32 is held to its measured noise, that of the better half
    unless rounding explains more. `steps` are the numbers of updates after which the level `updates` compares. The
    report stops at the first level that fails; with `bisect` it names the operation there, both lines, and the cause.
    """
    if dtype not in ("both", "float64", "float32"):
        raise UsageError(f"expected dtype 'both', 'float64' or 'float32', got {dtype!r}.")
    if not steps or min(steps) < 1:
        raise UsageError(f"expected steps to be numbers of updates, each at least 1; got {steps}.")
    wanted = _select(twin, levels)
    if not wanted:
        raise UsageError(f"twin {twin.name!r} has nothing to prove; map, for one, needs {twin.missing('map')}.")
    if "updates" in wanted and max(steps) < 2:
        raise UsageError(f"level 'updates' compares after several updates, got steps={steps}; 'update' is one update.")
    mapping = find_mapping(twin, wanted)
    report = _Climb(twin, mapping, dtype, tuple(steps)).climb(wanted)
    return _bisected(report, replace(twin, mapping=mapping), steps) if bisect else report


def _bisected(report: Report, twin: Twin, steps: Sequence[int]) -> Report:
    """The report with the place and the cause of its first difference."""
    from .bisecting import bisect

    first = report.first
    if first is None or first.level == "map" or first.float32_only or first.difference.kind in UNFIT:
        return report
    if first.elsewhere:
        scale = next(scale for scale in SCALES if str(scale) == first.elsewhere)
        twin = scaled_twin(twin, twin.mapping, scale)
    return replace(report, first=replace(first, divergence=bisect(twin, first.level, steps=tuple(steps))))


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


def find_mapping(twin: Twin, wanted: list[str]) -> Mapping:
    """The twin's mapping, or the one that `bridge.match` finds; an empty one where no models are compared."""
    if twin.torch is None or wanted == ["env"]:
        return Mapping((), {}, None)
    if twin.mapping is not None:
        return twin.mapping
    from ..bridge.matching.match import match

    if twin.inputs is None:
        raise UsageError(
            f"twin {twin.name!r} has no mapping=, and nothing to call its models on: give example=, an array or a "
            f"tuple of arguments, so that bridge.match can find the mapping."
        )
    return match(twin.torch, twin.jax, torch_tree(twin.inputs, "float32"))


class _Climb:
    """One run of `check`: both halves in each precision, and the rows of the report so far."""

    def __init__(self, twin: Twin, mapping: Mapping, dtype: str, steps: tuple[int, ...]):
        self.twin, self.jax_names = twin, jax_names(mapping)
        dtypes = ("float64", "float32") if dtype == "both" else (dtype,)
        self.runs = {d: Levels(twin, mapping, d, steps) for d in dtypes}
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.first: Finding | None = None
        self.judge = Judge(self.runs, self._note)
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
                judged["float64"] = self.judge.float64(level, *proof)
            if "float32" in self.runs and not _failed(judged):
                results["float32"] = self._results("float32", level)
                judged["float32"] = self.judge.float32(level, results["float32"], proof)
        except NoCounterpart as error:
            return self._fail(level, "optimiser", Difference("", "no counterpart", torch=str(error)))
        if level == "updates" and self.twin.batches is None:
            self._note("updates: every update was made on the same batch.")
        rows = _rows(level, judged)
        if _failed(judged):
            self.rows += rows
            row = next(row for row in rows if row.verdict is Verdict.DIFFERENT)
            dtype = "float64" if row.float32 is None else "float32"
            return self._found(level, row.quantity, judged[dtype][row.quantity].worst, dtype, len(judged) == 2)
        dtype = next(iter(results))
        guard = self.judge.guard(level, dtype, *results[dtype])
        self.rows += [replace(row, guard=guard) for row in rows]
        if guard is not None and "float64" in results:
            return self._look_elsewhere(level)
        if guard is None:
            what = "exchanging the actions" if level == "env" else "moving any one parameter by a thousandth"
            self._fail(level, "guard", Difference("", "hollow", torch=what))

    def _look_elsewhere(self, level: str) -> None:
        """The level at other scales, and the branches that were never taken."""
        run = self.runs["float64"]
        covered = Coverage(run, level)
        for found in look(run, level, self._note, covered.around):
            covered.look(found.scale)
            for quantity, comparison in found.comparisons.items():
                if comparison.verdict is Verdict.DIFFERENT:
                    self.rows.append(Row(level, quantity, Verdict.DIFFERENT, comparison.worst))
                    self._found(level, quantity, comparison.worst, "float64", elsewhere=found.scale)
                    return
        for note in covered.notes():
            self._note(note)

    def _fail(self, level: str, quantity: str, difference: Difference) -> None:
        self.rows.append(Row(level, quantity, verdict=Verdict.DIFFERENT, float64=difference))
        self._found(level, quantity, difference, "float64")

    def _found(
        self,
        level: str,
        quantity: str,
        worst: Difference,
        dtype: str,
        float32_only: bool = False,
        elsewhere: Scale | None = None,
    ) -> None:
        name = self.jax_names.get(worst.leaf, worst.leaf)
        where = "" if elsewhere is None else str(elsewhere)
        self.first = Finding(level, quantity, worst, name, dtype, float32_only, where)

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
        if level == "grad":
            self._gradient_notes(run)
        return result

    def _results(self, dtype: str, level: str) -> tuple[Quantities, Quantities]:
        run = self.runs[dtype]
        torch, jax = run.run(level)
        if run.jax.unread is not None:
            self._note(f"the optimiser's moments were not compared: {run.jax.unread}")
            torch = {quantity: part for quantity, part in torch.items() if quantity in jax}
        return torch, jax

    def _gradient_notes(self, run: Levels) -> None:
        if run.torch.idle:
            self._note(f"no gradient in torch, taken as zero: {', '.join(sorted(run.torch.idle))}.")
        if stray := run.jax.stray_gradients(run.weights):
            self._note(f"frozen in torch but differentiated in JAX (the optimiser must hold them): {', '.join(stray)}.")


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
