"""The list of like cases is chosen by time and never leaves a test without a case."""

import like_cases


def test_a_test_keeps_its_quick_cases_and_one_of_the_long_ones():
    times = {"t.py::a[1]": 0.1, "t.py::a[2]": 3.0, "t.py::a[3]": 2.0, "t.py::b": 9.0}
    assert like_cases.chosen(times) == {"t.py::a[2]"}


def test_of_cases_that_are_all_long_a_quarter_is_kept():
    times = {f"t.py::a[{i}]": 1.0 + i for i in range(8)}
    assert like_cases.chosen(times) == {f"t.py::a[{i}]" for i in range(2, 8)}


def test_what_is_gone_or_would_be_left_without_a_case_is_told(monkeypatch):
    monkeypatch.setattr(like_cases, "left_out", lambda: {"t.py::a[1]", "t.py::b[1]", "t.py::c[1]", "other.py::x[1]"})
    collected = ["t.py::a[1]", "t.py::a[2]", "t.py::b[1]", "t.py::b[2]"]
    assert like_cases.faults(collected, slow=["t.py::b[2]"]) == [
        "t.py::c[1]: there is no such case",
        "t.py::b[1]: its test has no case left",
        "t.py::c[1]: its test has no case left",
    ]
