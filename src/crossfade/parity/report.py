"""Report: what a parity check found, as text, JSON or one HTML page."""

import json
import math
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import DifferentError, UsageError
from ..verdict import NOISE_FACTOR, Difference, Verdict
from .bisecting.divergence import Divergence

MEANING = {
    Verdict.EQUAL: "bit for bit the same",
    Verdict.ROUNDING: "the same system: only rounding separates the two halves",
    Verdict.DIFFERENT: "not the same system",
}


@dataclass(frozen=True)
class Row:
    """One quantity of one level; a level that was not run has a `status` and nothing else."""

    level: str
    quantity: str = ""
    verdict: Verdict | None = None
    float64: Difference | None = None
    float32: Difference | None = None
    guard: str | None = None  # what was moved on one side and seen to make a difference
    status: str = ""

    @property
    def noise(self) -> float | None:
        """The float32 noise floor of the worst leaf, relative to its scale."""
        return None if self.float32 is None else self.float32.allowed / NOISE_FACTOR

    @property
    def leaf(self) -> str:
        """The leaf that differs most, float64 before float32; empty when nothing differs."""
        return next((d.leaf for d in (self.float64, self.float32) if d is not None and d.size > 0), "")


@dataclass(frozen=True)
class Finding:
    """The first place where the halves differ."""

    level: str
    quantity: str
    difference: Difference
    jax_leaf: str
    dtype: str
    float32_only: bool = False  # the halves agree in float64
    elsewhere: str = ""  # the weights and inputs, when the halves agree at those of the twin
    divergence: Divergence | None = None  # the operation and the cause, when they were looked for

    @property
    def leaf(self) -> str:
        """The leaf by its torch name."""
        return self.difference.leaf

    def __str__(self) -> str:
        d = self.difference
        where = f"{self.quantity} of {d.leaf}" if d.leaf not in ("", self.quantity) else self.quantity
        if d.leaf != self.jax_leaf:
            where += f" (JAX: {self.jax_leaf})"
        match d.kind:
            case "hollow":
                return (
                    f"{self.level}: the comparison is hollow: {d.torch} on one side changes nothing that is compared. "
                    f"Make this level depend on what it is meant to prove."
                )
            case "no counterpart":
                return f"{self.level}: {d.torch}"
            case "missing" | "shape" | "dtype":
                words = {"missing": "only one half has it", "shape": "the shapes differ", "dtype": "the types differ"}
                text = f"{self.level}: {where}: {words[d.kind]}: torch {d.torch}, JAX {d.jax}."
                if d.kind == "dtype":
                    text += (
                        " Less than float64 in a float64 run is a float32 leak; if it is meant, use dtype='float32'."
                    )
                return text
        element = f"[{', '.join(map(str, d.index))}]" if d.index else ""
        text = (
            f"{self.level}: {where}, element {element or 'itself'}: torch {d.torch}, JAX {d.jax}; "
            f"{d.size:.1e} of the leaf's scale in {self.dtype}, at most {d.allowed:.1e} is rounding."
        )
        if self.elsewhere:
            text += f" The halves agree on the twin's own weights and batch; they differ with {self.elsewhere}."
        if self.dtype == "float64" and 1e-9 < d.size < 1e-6:
            text += (
                " A difference of this size is what a cast to float32, or a float32 constant, leaves in a float64 run."
            )
        if self.float32_only:
            text += (
                " In float64 the halves agree: look for what happens in float32 alone, a cast to bfloat16 or float16, "
                "or integers that overflow 32 bits."
            )
        return text


@dataclass(frozen=True)
class Report:
    """The verdict on a twin, the rows behind it, and the first place that differs."""

    name: str
    verdict: Verdict
    rows: tuple[Row, ...]
    first: Finding | None = None
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """For the command line: 0 well, 1 when DIFFERENT."""
        return int(self.verdict is Verdict.DIFFERENT)

    def raise_if_different(self) -> "Report":
        """Raises `DifferentError` with the whole report; otherwise returns the report."""
        if self.verdict is Verdict.DIFFERENT:
            raise DifferentError(self.text())
        return self

    def text(self) -> str:
        """Aligned plain text."""
        head = ("level", "quantity", "verdict", "float64", "float32", "noise", "worst leaf", "guard")
        table = [head, *(cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        lines = [f"parity of {self.name}: {self.verdict} ({MEANING[self.verdict]})", ""]
        for line in table:
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        lines.append("")
        if self.first is not None:
            lines.append(f"first difference: {self.first}")
            lines += [] if self.first.divergence is None else [self.first.divergence.text()]
        lines += [f"note: {note}" for note in self.notes]
        lines.append("differences are relative to the scale of their leaf; noise is the measured float32 noise floor")
        lines.append(", ".join(f"{name} {version}" for name, version in self.versions.items()))
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        first = None if self.first is None else {"text": str(self.first), **asdict(self.first)}
        rows = [{**asdict(row), "noise": row.noise} for row in self.rows]
        return _plain({**asdict(self), "first": first, "rows": rows})

    def html(self) -> str:
        """One self-contained page."""
        from .html import page

        return page(self)

    def save(self, path: str | Path) -> Path:
        """Writes the report as .html, .json or .txt, by the name's ending; the file appears whole or not at all."""
        path = Path(path)
        makers = {".html": self.html, ".json": lambda: json.dumps(self.json(), indent=1), ".txt": self.text}
        if path.suffix not in makers:
            raise UsageError(f"expected a path ending in {', '.join(makers)}, got {path.name!r}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(makers[path.suffix]() + "\n", encoding="utf-8")
        temporary.replace(path)
        return path


def cells(row: Row) -> tuple[str, ...]:
    """A row as words, for text and for HTML."""
    if row.verdict is None:
        return (row.level, row.status, "", "", "", "", "", "")
    return (
        row.level,
        row.quantity,
        str(row.verdict),
        _size(row.float64),
        _size(row.float32),
        "" if row.noise is None else _number(row.noise),
        row.leaf,
        row.guard or "",
    )


def _plain(value: Any) -> Any:
    """JSON has no verdicts, tuples or infinities."""
    match value:
        case Verdict():
            return str(value)
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value


def _size(difference: Difference | None) -> str:
    if difference is None:
        return ""
    return difference.kind if difference.kind not in ("values", "non-finite") else _number(difference.size)


def _number(value: float) -> str:
    return "0" if value == 0.0 else f"{value:.1e}"


def versions() -> dict[str, str]:
    """What the proof was made with."""
    installed = {distribution.name.lower() for distribution in metadata.distributions()}
    names = ("crossfade", "torch", "jax", "equinox", "flax", "dm-haiku", "optax", "numpy")
    return {"python": platform.python_version()} | {n: metadata.version(n) for n in names if n in installed}
