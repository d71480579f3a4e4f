"""What a trading policy did on the days held out: equity and drawdown, a session's trades, and its worth beside others.

What a run has not left behind is not shown; `crossfade eval` leaves everything.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...run.plots import COLOURS, INK, STYLE, to_svg
from .config import TradingConfig
from .judging import statistics
from .judging.baselines import BLIND
from .judging.findings import Findings, join
from .judging.tearsheet import BASELINES
from .summary import last_study

SIMULATED = "A simulation, no promise of profit."
WORTH = (
    "Dollars per day with 95 % intervals of the bootstrap over days; fill rules are the policy under other answers to "
    f"what a bar does not say. {SIMULATED}"
)
GAIN, LOSS = COLOURS[2], COLOURS[3]


class Line(NamedTuple):
    """Results of a trader, day by day."""

    label: str
    daily: Float[np.ndarray, " days"]
    baseline: bool
    days: Int[np.ndarray, " days"] | None = None
    """Since 1970; none where an earlier version has not kept them."""


class Bar(NamedTuple):
    """A mean with an interval, or without."""

    label: str
    value: float
    low: float | None
    high: float | None
    colour: str


def pictures(config: TradingConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG with captions."""
    shown = []
    if lines := _lines(runs):
        caption = (
            "Above: sum of the results of the greedy policy over the days held out, in dollars after costs, beside "
        )
        caption += "those it is compared with. Below: how far it is under its highest so far. "
        if len(runs) > 1:
            caption += f"Traders who enter as often do so as {next(iter(runs))}. "
        shown.append((equity(lines), caption + SIMULATED))
    for title, run in list(runs.items())[:2]:
        if (session := _session(run)) is not None:
            name = f"{config.markets[int(session['market'])]}, {np.datetime64(int(session['day']), 'D')}"
            caption = f"{title}: the session of the median result, {name}. Triangles are entries, up for long and down "
            shown.append((trades(session), caption + "for short; a line ends at the exit, coloured by gain or loss."))
    studies = {title: study for title, run in runs.items() if (study := last_study(run)) is not None}
    if worth := worth_of(studies):
        shown.append((forest(worth), WORTH))
    return [(to_svg(figure), caption) for figure, caption in shown]


def equity(lines: Sequence[Line], edges: Sequence[int] = ()) -> Figure:
    """Sums of results by date, and the drawdown of the policies below; upright lines at the days in `edges`.

    Where the dates of a trader are not known, days are counted.
    """
    dated = all(line.days is not None for line in lines)
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 4.6 + 0.1 * len(lines)), layout="constrained")
        above, below = picture.subplots(2, sharex=True, height_ratios=(3, 1))
        for place, line in enumerate(lines):
            colour, total = COLOURS[place % len(COLOURS)], np.concatenate([[0.0], np.cumsum(line.daily)])
            style = {"linewidth": 1.1, "linestyle": "--"} if line.baseline else {"linewidth": 2.0}
            at = np.arange(len(total)) if line.days is None or not dated else _dates(line.days)
            above.plot(at, total, color=colour, label=line.label, **style)
            if not line.baseline:
                under = -statistics.drawdown(line.daily)
                below.fill_between(at, under, color=colour, alpha=0.35, linewidth=0)
        above.axhline(0, color=INK, linewidth=0.6)
        above.set_ylabel("dollars")
        below.set(xlabel="days held out", ylabel="drawdown")
        if dated:
            _show_dates(below, [line.days for line in lines if line.days is not None])
        picture.legend(loc="outside lower center", fontsize="small", ncols=2)
        for axes in (above, below):
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.grid(True)
            axes.margins(x=0.01)
            for edge in edges:
                axes.axvline(np.datetime64(edge, "D") if dated else edge, color=INK, linewidth=0.8, linestyle=":")
        return picture


def joined_equity(folds: Sequence[Findings]) -> Figure:
    """The policies of a walk, one after the other."""
    whole = join(folds)
    others = [(name, whole.others[name].mean(0)) for name in (*BLIND, "hold", "breakout")]
    lines = [Line("policy", whole.columns["daily"], False, whole.days)]
    lines += [Line(BASELINES[name], daily, True, whole.days) for name, daily in others]
    return equity(lines, [int(fold.days[0]) for fold in folds[1:]])


def trades(session: Mapping[str, np.ndarray]) -> Figure:
    """The closes of a session with its trades."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = picture.subplots()
        axes.plot(session["close"], color=INK, linewidth=0.8, alpha=0.75)
        for begin, end, side, entry, leave, dollars in session["trades"]:
            colour = GAIN if dollars > 0 else LOSS
            axes.plot([begin, end], [entry, leave], color=colour, linewidth=1.8)
            axes.plot(begin, entry, marker="^" if side > 0 else "v", color=colour, markersize=6)
            axes.plot(end, leave, marker=".", color=colour, markersize=5)
        minutes = session["minute"]
        hours = np.flatnonzero(minutes % 60 == 0)
        axes.set_xticks(hours, [f"{minutes[bar] // 60}:00" for bar in hours])
        total = session["trades"][:, 5].sum()
        axes.set(
            xlabel="New York time", ylabel="points", title=f"{len(session['trades'])} trades, {total:,.0f} dollars"
        )
        axes.title.set_fontsize("medium")
        axes.grid(True)
        axes.margins(x=0.01)
        return picture


def forest(worth: Sequence[Bar]) -> Figure:
    """Means with intervals, one below the other."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 0.9 + 0.3 * len(worth)), layout="constrained")
        axes = picture.subplots()
        for place, bar in enumerate(worth):
            _mark(axes, place, bar)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(worth)), [bar.label for bar in worth])
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("dollars per day")
        axes.grid(True, axis="x")
        return picture


def _mark(axes: Axes, place: int, bar: Bar) -> None:
    if bar.low is not None and bar.high is not None:
        axes.plot([bar.low, bar.high], [place, place], color=bar.colour, linewidth=2, solid_capstyle="butt")
    axes.plot(bar.value, place, marker="o" if bar.low is not None else "D", color=bar.colour, markersize=5)


def _lines(runs: Mapping[str, Path]) -> list[Line]:
    """The policies, then those that the first run is compared with: they hardly differ between runs."""
    known = [(title, run, _array(run, "daily")) for title, run in runs.items()]
    lines = [Line(title, daily, False, _array(run, "days")) for title, run, daily in known if daily is not None]
    for _, run, daily in known[:1] if lines else []:
        for name in (*BLIND, "hold", "breakout"):
            other = _array(run, f"{name}_daily")
            if daily is not None and other is not None:
                lines.append(Line(BASELINES[name], other, True, _array(run, "days")))
    return lines


def _session(run: Path) -> dict[str, Any] | None:
    """What study.py left of one session."""
    found = {name: _array(run, f"shown_{name}") for name in ("close", "trades", "day", "minute", "market")}
    return None if any(array is None for array in found.values()) else found


def worth_of(studies: Mapping[str, Mapping[str, Any]]) -> list[Bar]:
    """The policies, then those that the first is compared with, and other fill rules for it."""
    of = lambda label, figure, colour: Bar(label, figure["value"], figure["low"], figure["high"], colour)
    bars = [of(title, study["figures"]["per_day"], COLOURS[0]) for title, study in studies.items()]
    for study in list(studies.values())[:1]:
        bars += [of(BASELINES[name], other["per_day"], COLOURS[7]) for name, other in study["baselines"].items()]
        bars += [Bar(f"fills: {name}", of["per_day"], None, None, COLOURS[1]) for name, of in study["fills"].items()]
    return bars


def _show_dates(axes: Axes, days: Sequence[np.ndarray]) -> None:
    """A day and a month at each mark, or a month and a year; the first and the last of the days below."""
    first, last = (np.datetime64(int(day), "D") for day in (min(d[0] for d in days), max(d[-1] for d in days)))
    formats = ["%Y", "%b %Y", "%d %b", "%d %b", "%d %b", "%d %b"]
    locator = dates.AutoDateLocator(minticks=4, maxticks=8)
    locator.intervald[dates.HOURLY] = [24]  # no hours, however few days there are
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        dates.ConciseDateFormatter(
            locator, formats=formats, zero_formats=["", *formats[:1], *formats[2:]], show_offset=False
        )
    )
    axes.set_xlabel(f"{first} to {last}")


def _dates(days: Int[np.ndarray, " days"]) -> np.ndarray:
    """The days on which a sum of results changes, and the one before the first."""
    return np.concatenate([days[:1] - 1, days]).astype("datetime64[D]")


def _array(run: Path, name: str) -> np.ndarray | None:
    path = run / "eval" / f"{name}.npy"
    return np.load(path, allow_pickle=False) if path.exists() else None
