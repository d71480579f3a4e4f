"""One set of bars in every shape that files of bars have: read back exactly, or refused with the row and the reason."""

from pathlib import Path

import numpy as np
import pytest
from trading_shapes_read import READ
from trading_shapes_refused import REFUSED

from crossfade.envs.trading import importers
from crossfade.envs.trading.bars import Bars
from crossfade.envs.trading.importers import formats
from crossfade.envs.trading.importers.times import Times
from crossfade.errors import DataError


def same(found: Bars, expected: Bars, volume: bool = True) -> bool:
    return all(
        np.array_equal(getattr(found, name), getattr(expected, name))
        for name in Bars._fields
        if volume or name != "volume"
    )


@pytest.mark.parametrize("name", READ)
def test_the_bars_come_back_exactly(name: str, tmp_path: Path):
    shape = READ[name]
    found = importers.read(shape.write(tmp_path, shape.bars), "ES", **shape.options)
    assert same(found.bars, shape.bars, shape.volume)
    assert found.report.source == shape.source
    assert found.report.cut == 0 and found.report.rounded == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_row_and_reason(name: str, tmp_path: Path):
    shape = REFUSED[name]
    path = shape.write(tmp_path, shape.bars)
    with pytest.raises(DataError) as refused:
        importers.read(path, "ES", **shape.options)
    told = str(refused.value)
    assert str(path) in told and shape.reason in told
    assert shape.row == 0 or told.startswith(f"{path}: row {shape.row}: "), told


def test_the_guard_of_exactness_sees_one_tick_and_one_minute(tmp_path: Path):
    """In every shape: if this passed with other bars, the comparison above would see nothing."""
    for shape in READ.values():
        close = shape.bars.close.copy()
        close[77] = shape.bars.low[77] + (shape.bars.close[77] == shape.bars.low[77])
        other = shape.bars._replace(close=close)
        found = importers.read(shape.write(tmp_path, other), "ES", **shape.options)
        assert same(found.bars, other, shape.volume) and not same(found.bars, shape.bars, shape.volume)


def test_what_is_told_is_needed(tmp_path: Path):
    """Without the options a shape is refused or read as other bars: nobody has to tell what a file says itself."""
    for name, shape in READ.items():
        for option in shape.options:
            fewer = {key: value for key, value in shape.options.items() if key != option}
            try:
                found = importers.read(shape.write(tmp_path, shape.bars), "ES", **fewer)
            except DataError as refused:
                assert f"--{option}" in str(refused), (name, refused)
            else:
                assert found.report.cut == 1, name


def test_twelve_comes_before_one():
    """Midnight is 12 AM, noon is 12 PM."""
    texts = [f"2022-01-03 {each}" for each in ("12:30 AM", "01:30 AM", "12:30 PM", "01:30 PM", "11:30 PM")]
    np.testing.assert_array_equal(Times(texts[0]).parse(texts).second / 1800, [1, 3, 25, 27, 47])


def test_there_are_enough_shapes_and_every_format_has_one():
    assert len(READ) + len(REFUSED) >= 52
    assert {shape.source for shape in READ.values()} == set(formats.FORMATS)


@pytest.mark.parametrize(
    "name, told",
    {
        "kibot": ["dates are mdy, as this source writes them", "times are by America/New_York, as kibot writes them"],
        "times of the end, by edges": ["times are the end of bars, by 14 of 14 edges of sessions"],
        "dates with points": ["dates are dmy, as dates with points are"],
        "US dates that tell": ["dates are mdy, row 2 has a second number above 12"],
        "ninjatrader": [
            "all rows are of ES 03-22, by the name of the file",
            "times are the end of bars, as ninjatrader",
        ],
        "zip of gzip and more": ["left out of the zip: condition.json"],
        "rows twice": ["1 duplicates"],
    }.items(),
)
def test_what_was_assumed_is_in_the_report(name: str, told: list[str], tmp_path: Path):
    shape = READ[name]
    text = importers.read(shape.write(tmp_path, shape.bars), "ES", **shape.options).report.text()
    assert all(each in text for each in told), text
