"""Pages of HTML that hold everything they show: one file, no outside asset, light and dark."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #1f2328; --quiet: #6b7075; --line: #dcd9d2; --card: #ffffff;
  --good: 158 60% 36%; --fair: 40 90% 42%; --bad: 4 72% 48%; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e8ea; --quiet: #9aa1a8; --line: #2d3338;
  --card: #1b1f23; --good: 158 45% 52%; --fair: 40 80% 60%; --bad: 4 80% 66%; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .6rem; }
p { max-width: 60rem; }
.lead, figcaption, caption { color: var(--quiet); font-size: .88rem; }
.scroll, figure, pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
caption { caption-side: bottom; text-align: left; padding: .5rem .8rem; }
th, td { text-align: left; padding: .4rem .8rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--quiet); font-size: .78rem; }
.num { text-align: right; font-variant-numeric: tabular-nums; }
.good { background: hsl(var(--good) / .14); } .fair { background: hsl(var(--fair) / .16); }
.bad { background: hsl(var(--bad) / .16); }
figure { padding: .8rem 1rem; } figure svg { width: min(100%, 54rem); height: auto; }
figure img { display: block; max-width: 100%; height: auto; border-radius: 4px; margin-bottom: .4rem; }
pre { padding: .8rem 1rem; font-size: .85rem; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--quiet); font-size: .92rem; padding: .2rem 0; }
details[open] > summary { color: var(--ink); }
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
    return document(title, f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n{body}')


def document(title: str, body: str, style: str = "", tone: str = "") -> str:
    """A file with this body, which is HTML already; `style` is added to the common one, `tone` is the body's class."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body class="{tone}">
{body}
</body>
</html>
"""


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def details(title: str, blocks: Sequence[str]) -> str:
    """Blocks that are folded away under their title until the reader opens them."""
    return f"<details>\n<summary>{escape(title)}</summary>\n" + "\n".join(blocks) + "\n</details>"


def figure(picture: str, caption: str = "") -> str:
    """A picture given as SVG (see plots.to_svg), which takes the page's text colour, or by `image`."""
    return f"<figure>\n{picture}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def image(data: bytes, kind: str, alt: str) -> str:
    """A picture of pixels, `kind` gif or png, that the page holds in itself; `alt` says what is to be seen."""
    return f'<img alt="{escape(alt)}" src="data:image/{kind};base64,{b64encode(data).decode()}">'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Cells are values or Cells; numbers stand to the right, floats in four digits, None is a dash."""
    cells = [[given if isinstance(given, Cell) else Cell(given) for given in row] for row in rows]
    numeric = {place for row in cells for place, cell in enumerate(row) if _is_number(cell.value)}
    top = "".join(_tag("th", name, "num" if place in numeric else "") for place, name in enumerate(head))
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in cells)
    below = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{below}\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _cell(cell: Cell) -> str:
    return _tag("td", show(cell.value), "num" if _is_number(cell.value) else "", cell.tone)


def _tag(tag: str, text: str, *classes: str) -> str:
    names = " ".join(filter(None, classes))
    return f'<{tag} class="{names}">{escape(text)}</{tag}>' if names else f"<{tag}>{escape(text)}</{tag}>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def show(value: Any) -> str:
    """A value as tables show it."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{value:,}" if _is_number(value) else str(value)
