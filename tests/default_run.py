"""Which cases of a test are in the default run: the others are like them and stay slow."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def few(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """All cases of one argument, slow but for those that are kept."""
    cases = list(cases)
    assert kept and all(case in cases for case in kept), f"expected some of {cases}, got {kept}"
    return [pytest.param(case, marks=() if case in kept else pytest.mark.slow) for case in cases]


def few_of(cases: Mapping[str, Any], *kept: str, many: bool = False) -> list[Any]:
    """All cases by name, slow but for those that are kept. `many`: a case is a tuple of several arguments."""
    assert kept and set(kept) <= set(cases), f"expected some of {list(cases)}, got {kept}"
    values = {name: case if many else (case,) for name, case in cases.items()}
    return [pytest.param(*values[n], id=n, marks=() if n in kept else pytest.mark.slow) for n in cases]


def few_pairs(cases: Iterable[tuple[Any, ...]], *kept: tuple[Any, ...]) -> list[Any]:
    """All cases of several arguments, slow but for those that are kept."""
    cases = list(cases)
    assert kept and all(case in cases for case in kept), f"expected some of {cases}, got {kept}"
    return [pytest.param(*case, marks=() if case in kept else pytest.mark.slow) for case in cases]
