"""Pages of HTML that hold everything they show: one file, no outside asset, light and dark."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5c6675; --back: #fff; --line: #dde2e8; --head: #f4f6f8;
  --good: #d8f0dd; --fair: #fdf1cf; --bad: #f9d6d5; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #98a2b0; --back: #14181e; --line: #303742;
  --head: #1c222a; --good: #1c4229; --fair: #4c3f14; --bad: #5a2224; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 68rem;
  margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
.lead, figcaption, caption { color: var(--soft); }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; padding-top: .4rem; }
th, td { padding: .32rem .8rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { background: var(--head); font-weight: 600; }
.num { text-align: right; }
.good { background: var(--good); } .fair { background: var(--fair); } .bad { background: var(--bad); }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
pre { background: var(--head); padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; border-radius: 4px; }
"""


class Cell(NamedTuple):
    """A cell of a table with a tone behind it."""

    value: Any
    tone: Literal["", "good", "fair", "bad"] = ""


def page(title: str, lead: str, sections: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A whole page; each section is a heading and blocks made by the functions below."""
    body = "\n".join(
        f"<section>\n<h2>{escape(head)}</h2>\n" + "\n".join(blocks) + "\n</section>" for head, blocks in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{body}
</body>
</html>
"""


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def figure(svg: str, caption: str = "") -> str:
    """A picture given as SVG (see plots.to_svg), which takes the page's text colour."""
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Cells are values or Cells; numbers stand to the right, floats in four digits, None is a dash."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{below}\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _cell(given: Any) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    number = isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
    classes = " ".join(filter(None, ("num" if number else "", cell.tone)))
    return (
        f'<td class="{classes}">{escape(show(cell.value))}</td>' if classes else f"<td>{escape(show(cell.value))}</td>"
    )


def show(value: Any) -> str:
    """A value as tables show it."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
