"""Stylised facts: figures that futures markets have in common, and the bands that the synthetic market is held to.

Returns are logarithmic, within sessions from 09:30 to 16:00 unless said otherwise. Figures of volatility are freed
from the shape of the day first, or they would only show that mornings are livelier than noons.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .bars import Bars
from .contracts import Contract, contract
from .sessions import Session, within

LENGTH = 390  # minutes from the open that figures are made of: to 16:00 in New York
LUNCH = 150, 240  # of these
LAGS = range(2, 11)
LEAST = 10  # returns that a figure needs at least
LEVERAGE_DAYS = 1000
LEVERAGE_LAGS = range(1, 11)
Returns = Float[np.ndarray, "days minutes"]


class Fact(NamedTuple):
    """One figure, and the band in which it is to lie; a figure that needs more data is nan and holds."""

    name: str
    value: float
    low: float
    high: float
    meaning: str

    @property
    def holds(self) -> bool:
        return bool(np.isnan(self.value) or self.low <= self.value <= self.high)

    def text(self) -> str:
        """One line of a table."""
        verdict = "-" if np.isnan(self.value) else "PASS" if self.holds else "FAIL"
        band = f"{self.low:.4g} to {self.high:.4g}"
        return f"{verdict:<6}{self.name:<22}{self.value:>9.3f}   {band:<16}{self.meaning}"

    def plain(self) -> dict[str, Any]:
        """The fields as plain Python values; None where there are too few data."""
        return {**self._asdict(), "value": None if np.isnan(self.value) else self.value, "holds": self.holds}


def facts(name: str, bars: Bars, spec: Contract | None = None) -> list[Fact]:
    """The stylised facts of a contract's bars; `spec` is that of one that is not built in."""
    spec = spec or contract(name)
    bars = within(bars, spec.session)
    r, volume, spread = _days(bars, spec.session)
    size = np.abs(r)
    usual = np.nansum(size, 0) / np.maximum(np.isfinite(size).sum(0), 1)
    calm = size / np.where(usual > 0, usual, np.nan)  # freed from the shape of the day
    kurtosis = {n: _kurtosis(_sums(r, n)) for n in (1, 30)}
    parkinson = np.sqrt(_ratio(_mean(spread**2) / (4 * np.log(2)), _mean(r**2)))
    minute = 1 + np.arange(r.shape[1])
    lively = _mean(r[:, minute < 30] ** 2)
    lunch = _mean(r[:, (minute >= LUNCH[0]) & (minute < LUNCH[1])] ** 2)
    sane = (bars.low <= np.minimum(bars.open, bars.close)) & (bars.high >= np.maximum(bars.open, bars.close))
    return [
        Fact("returns acf 2..10", max(abs(_acf(r, k)) for k in LAGS), 0, 0.05, "largest autocorrelation of returns"),
        Fact("kurtosis 1m", kurtosis[1], 5, 60, "fat tails of returns of one minute"),
        Fact("kurtosis 30m", kurtosis[30], 0, kurtosis[1], "thinner ones of returns of half an hour"),
        Fact("tail index", _hill(r), 2.5, 5, "Hill's index of the largest 1 % of absolute returns"),
        Fact("|returns| acf 1", _acf(calm, 1), 0.1, 0.35, "volatility clusters from one minute to the next"),
        Fact("|returns| acf 60", _acf(calm, 60), 0.03, 0.2, "and still does after an hour"),
        Fact("variance ratio 5", _variance_ratio(r, 5), 0.8, 1.1, "variance of 5 minutes over 5 times that of one"),
        Fact("variance ratio 30", _variance_ratio(r, 30), 0.8, 1.1, "variance of 30 minutes over 30 times that of one"),
        Fact("volume with |return|", _correlation(volume, size), 0.3, 0.7, "volume comes with movement"),
        Fact(
            "open / lunch",
            np.sqrt(_ratio(lively, lunch)),
            1.8,
            3.5,
            "volatility of the first half hour over that of noon",
        ),
        Fact("Parkinson", parkinson, 0.8, 1.1, "volatility by ranges over volatility by closes"),
        Fact("leverage", _leverage(bars), -1, 0, f"daily return and later |return|, {LEVERAGE_DAYS} days at least"),
        Fact("overnight share", _overnight(bars), 0.15, 0.35, "variance of the night over that of the whole day"),
        Fact(
            "bars in order",
            float(sane.mean()),
            1,
            1,
            f"low <= open, close <= high, in ticks of {spec.tick:g}",
        ),
    ]


def _days(bars: Bars, session: Session) -> tuple[Returns, Returns, Returns]:
    """Returns, volume and log range by day and minute after the first; nan where a bar is missing."""
    since = bars.minute - session.open
    of = bars.where((since >= 0) & (since < LENGTH))
    days, day = np.unique(of.date, return_inverse=True)
    table = np.full((4, len(days), LENGTH), np.nan)
    at = day, of.minute - session.open
    log = lambda ticks: np.log(np.where(ticks > 0, ticks, np.nan))  # crude oil was below 0 once
    for column, values in zip(table, (log(of.close), of.volume, log(of.high), log(of.low)), strict=True):
        column[at] = values
    close, volume, high, low = table
    return np.diff(close, axis=1), volume[:, 1:], (high - low)[:, 1:]


def _mean(x: Returns) -> float:
    """Over what is there; nan where too little is, as of all figures here."""
    x = x[np.isfinite(x)]
    return float(x.mean()) if len(x) >= LEAST else float("nan")


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _sums(r: Returns, n: int) -> Float[np.ndarray, " sums"]:
    """Returns over n minutes that do not overlap."""
    whole = r.shape[1] // n * n
    total = r[:, :whole].reshape(len(r), -1, n).sum(-1)
    return total[np.isfinite(total)]


def _acf(x: Returns, lag: int) -> float:
    return _correlation(x[:, :-lag], x[:, lag:])


def _correlation(a: Returns, b: Returns) -> float:
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    return float(np.corrcoef(a, b)[0, 1]) if len(a) >= LEAST and a.std() and b.std() else float("nan")


def _kurtosis(x: Float[np.ndarray, " sums"]) -> float:
    """Fourth moment over the square of the second: 3 of a normal law."""
    if len(x) < LEAST or not x.std():
        return float("nan")
    x = x - x.mean()
    return float((x**4).mean() / (x**2).mean() ** 2)


def _variance_ratio(r: Returns, n: int) -> float:
    total, single = _sums(r, n), _sums(r, 1)
    return float(total.var() / (n * single.var())) if len(total) >= LEAST and single.std() else float("nan")


def _hill(r: Returns, share: float = 0.01) -> float:
    size = np.sort(np.abs(r[np.isfinite(r)]))[::-1]
    k = max(int(share * len(size)), 10)
    if len(size) <= k or size[0] == size[k] or not size[k]:
        return float("nan")
    return float(1 / np.mean(np.log(size[:k] / size[k])))


def _closes(bars: Bars) -> tuple[np.ndarray, np.ndarray]:
    """Log price at the first and the last bar of each day on which both are above 0."""
    _, first = np.unique(bars.date, return_index=True)
    last = np.concatenate([first[1:], [len(bars.stamp)]]) - 1
    above = (bars.open[first] > 0) & (bars.close[last] > 0)
    return np.log(bars.open[first][above]), np.log(bars.close[last][above])


def _leverage(bars: Bars) -> float:
    """Mean correlation of a day's return with the absolute returns of the ten days after it."""
    _, close = _closes(bars)
    r = np.diff(close)
    if len(r) < LEVERAGE_DAYS - 1:
        return float("nan")
    return float(np.mean([np.corrcoef(r[:-k], np.abs(r[k:]))[0, 1] for k in LEVERAGE_LAGS]))


def _overnight(bars: Bars) -> float:
    first, last = _closes(bars)
    if len(first) < 3:
        return float("nan")
    night = np.var(first[1:] - last[:-1])
    return _ratio(float(night), float(night + np.var(last - first)))
