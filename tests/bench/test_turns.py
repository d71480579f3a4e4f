"""benchmarks/turns.py: what it says of the times that two trees have taken."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "turns.py"


@pytest.fixture(scope="module")
def turns():
    spec = importlib.util.spec_from_file_location("turns", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_interval_of_a_median_holds_for_any_law(turns):
    """Of nine numbers the second and the eighth: the median is outside in 2 (1 + 9) / 2^9 of all cases, 3.9 %."""
    assert turns.interval([9, 1, 8, 2, 7, 3, 6, 4, 5]) == (2, 8)
    assert turns.interval(range(1, 21)) == (6, 15)
    assert turns.interval([3, 1, 2]) == (1, 3)  # too few for 95 %: all that was seen


def test_a_tree_that_takes_less_time_has_a_ratio_above_one(turns):
    times = lambda *seconds: [{"wall": s, "cpu": s, "numbers": [1.0]} for s in seconds]
    row = turns.line("work", times(2.0, 2.2, 1.8), times(1.0, 1.1, 0.9))
    assert row.count("2.000 [2.000, 2.000]") == 2 and row.endswith("same")


def test_other_numbers_are_told(turns):
    assert turns.same([1.0, 2.0], [1.0, 2.0]) == "same"
    assert turns.same([1.0, 2.0], [1.0, 2.00002]) == "same to 1e-05"
    assert turns.same([1.0, 2.0], [1.0, 3.0]) == "other numbers"


def test_modules_are_found_where_a_tree_has_them(turns):
    assert turns.place("bench.no_such_module", "bench.harness").__name__ == "crossfade.bench.harness"
    with pytest.raises(SystemExit, match="none of bench.no_such_module"):
        turns.place("bench.no_such_module")
