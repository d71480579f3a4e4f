"""Divergence: where two halves part, what they do there, and why."""

from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from ...bridge.source_lines import line_text


@dataclass(frozen=True)
class Place:
    """One operation of one half."""

    operation: str
    where: str = ""  # "file:line", the user's own
    module: str = ""  # path of the torch module
    lines: tuple[str, ...] = ()  # all of the user's lines that led there

    @property
    def source(self) -> str:
        """The text of the line."""
        return line_text(self.where) if self.where else ""

    def __str__(self) -> str:
        module = f" in {self.module}" if self.module else ""
        return f"{self.operation}{module}" + (f" at {_short(self.where)}" if self.where else "")

    def text(self) -> str:
        """With the line itself."""
        return f"{self}: {self.source}" if self.source else str(self)


@dataclass
class Told:
    """What a search has found."""

    torch: Place | None = None
    jax: Place | None = None
    kind: str = ""
    cause: str = ""
    relation: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Divergence:
    """The first place where the halves of a twin part.

    `cause` is what makes the difference vanish when the torch half does it too; where nothing did, it is empty, and
    `relation` says how the numbers of the two places compare.
    """

    name: str
    level: str
    quantity: str
    leaf: str
    torch: Place | None = None
    jax: Place | None = None
    kind: str = ""
    cause: str = ""
    relation: str = ""
    step: int | None = None  # of the updates: the first that differs, from 1
    differ: tuple[str, ...] = ()
    agree: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Plain text, the conclusion first."""
        lines = [f"{self.name}: {self.conclusion}"]
        for side, place in (("torch", self.torch), ("JAX", self.jax)):
            if place is not None:
                lines.append(f"  {side:<6} {place.text()}")
        if self.relation:
            lines.append(f"  there  {self.relation}")
        if self.step is not None:
            lines.append(f"  when   the first {self.step - 1} updates agree, number {self.step} does not")
        if self.differ:
            lines.append(f"  differ {', '.join(self.differ)}")
        if self.agree:
            lines.append(f"  agree  {', '.join(self.agree)}")
        return "\n".join([*lines, *(f"  note   {note}" for note in self.notes)])

    @property
    def conclusion(self) -> str:
        """One sentence."""
        place = self.torch or self.jax
        where = f" at {place}" if place is not None else ""
        what = f"{self.quantity} of {self.leaf}" if self.leaf not in ("", self.quantity) else self.quantity
        start = f"{self.level}: {what} differs; the halves part{where}" if where else f"{self.level}: {what} differs"
        return f"{start}. Cause: {self.cause}." if self.cause else f"{start}. None of the usual causes explains it."

    def __str__(self) -> str:
        return self.conclusion

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "text": self.conclusion}

    def row(self) -> str:
        """A row of an HTML table: level, place of each half, cause, relation."""
        cells = (self.level, self.torch or "", self.jax or "", self.cause or "unknown", self.relation)
        return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"


def _short(where: str) -> str:
    """The path from the working directory, where it is below it."""
    path = Path(where)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return where
