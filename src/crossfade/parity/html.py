"""A report as one HTML page: no script, no outside asset, light and dark."""

import math
from html import escape

from ..run.page import document
from ..verdict import Difference, Verdict
from .report import MEANING, Report, Row, cells
from .twin import LEVELS

STYLE = """
:root { --rounding: 211 62% 46%; }
@media (prefers-color-scheme: dark) { :root { --rounding: 211 75% 66%; } }
.quiet { color: var(--quiet); }
.EQUAL { --tone: var(--good); } .ROUNDING { --tone: var(--rounding); } .DIFFERENT { --tone: var(--bad); }
.badge { display: inline-block; padding: .1rem .6rem; border-radius: 99px; font-weight: 650; font-size: .8rem;
  letter-spacing: .04em; color: hsl(var(--tone)); background: hsl(var(--tone) / .13); }
.panel { background: var(--card); border: 1px solid var(--line); border-left: 4px solid hsl(var(--tone));
  border-radius: 6px; padding: .9rem 1.1rem; margin-top: 1.2rem; overflow-wrap: anywhere; }
.leaf { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .92em; }
ol.climb { list-style: none; display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: 1.2rem 0 0; }
ol.climb li { border: 1px solid var(--line); border-radius: 6px; padding: .35rem .75rem; background: var(--card); }
ol.climb li[class] { border-color: hsl(var(--tone) / .6); background: hsl(var(--tone) / .1); }
ol.climb small { display: block; color: var(--quiet); font-size: .72rem; }
"""

HEADS = ("level", "quantity", "verdict", "float64", "float32", "float32 noise", "worst leaf", "guard")
NUMBERS = {3, 4, 5}


def page(report: Report) -> str:
    """The whole page."""
    body = f"<h1>{escape(report.name)}</h1>{_body(report)}"
    return document(f"parity of {report.name}: {report.verdict}", body, STYLE, str(report.verdict))


def several(title: str, parts: list[tuple[str, str, Report | None, str]]) -> str:
    """Several reports on one page, conclusions first. A part is (conclusion, verdict, report, text)."""
    heads = "".join(
        f'<li class="{tone}"><span class="badge">{verdict}</span> {escape(words)}</li>'
        for words, verdict, _, _ in parts
        for tone in (verdict if verdict in Verdict.__members__ else "DIFFERENT",)
    )
    bodies = [
        (
            ""
            if report is None
            else f'<section class="{report.verdict}"><h2>{escape(report.name)}</h2>{_body(report)}</section>'
        )
        + f"<pre>{escape(text)}</pre>"
        for _, _, report, text in parts
    ]
    return document(title, f"<h1>{escape(title)}</h1><ul>{heads}</ul>{''.join(bodies)}", STYLE, "EQUAL")


def _body(report: Report) -> str:
    first = f'<div class="panel DIFFERENT"><b>First difference.</b> {escape(str(report.first))}{_place(report)}</div>'
    notes = "".join(f"<p>{escape(note)}</p>" for note in report.notes)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"""<p><span class="badge">{report.verdict}</span> {MEANING[report.verdict]}</p>
<ol class="climb">{"".join(_step(report, level) for level in LEVELS)}</ol>
{first if report.first is not None else ""}
<h2>Differences, relative to the scale of their leaf</h2>
<div class="scroll"><table>
<thead><tr>{"".join(_head(i, head) for i, head in enumerate(HEADS))}</tr></thead>
<tbody>
{chr(10).join(_row(row) for row in report.rows)}
</tbody>
</table></div>
<p class="quiet">Float64 decides: two correct ports agree there to rounding. Float32 may differ by ten times its noise,
the distance of each half from its own float64 self. Guard: what was moved on one side, and was then seen to differ.</p>
{f"<h2>Notes</h2>{notes}" if notes else ""}
<p class="quiet">{escape(versions)}</p>"""


def _place(report: Report) -> str:
    """The operation and the cause, when they were looked for."""
    found = None if report.first is None else report.first.divergence
    if found is None:
        return ""
    heads = "".join(f"<th>{head}</th>" for head in ("level", "torch", "JAX", "cause", "there"))
    lines = "".join(f"<pre>{escape(p.source)}</pre>" for p in (found.torch, found.jax) if p is not None and p.source)
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{found.row()}</tbody></table></div>{lines}'
    )


def _step(report: Report, level: str) -> str:
    rows = [row for row in report.rows if row.level == level]
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if not verdicts:
        return f"<li>{level}<small>{rows[0].status}</small></li>"
    return f'<li class="{max(verdicts)}">{level}<small>{max(verdicts)}</small></li>'


def _head(i: int, head: str) -> str:
    return f'<th class="num">{head}</th>' if i in NUMBERS else f"<th>{head}</th>"


def _row(row: Row) -> str:
    words = [escape(cell) for cell in cells(row)]
    if row.verdict is None:
        return f'<tr class="quiet"><td>{words[0]}</td><td colspan="7">{words[1]}</td></tr>'
    words[2] = f'<span class="badge">{words[2]}</span>'
    words[6], words[7] = (f'<span class="leaf">{word}</span>' for word in words[6:8])
    heats = {3: _heat(row.float64, row.verdict), 4: _heat(row.float32, row.verdict)}
    tds = [
        f'<td class="num"{heats.get(i, "")}>{word}</td>' if i in NUMBERS else f"<td>{word}</td>"
        for i, word in enumerate(words)
    ]
    return f'<tr class="{row.verdict}">{"".join(tds)}</tr>'


def _heat(difference: Difference | None, verdict: Verdict) -> str:
    """Colour by order of magnitude: none at 1e-16, full at 1."""
    if difference is None or difference.size == 0.0 or verdict is Verdict.EQUAL:
        return ""
    strength = max(0.0, 1 + math.log10(min(difference.size, 1.0)) / 16)
    return f' style="background: hsl(var(--tone) / {0.05 + 0.45 * strength:.2f})"'
