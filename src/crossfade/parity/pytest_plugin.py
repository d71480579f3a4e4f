"""The `parity` fixture: `def test_policy(parity): parity(twin, "update")` fails with the full report when DIFFERENT.

pytest loads this module at start-up in every project where crossfade is installed, so it imports neither framework
until a test asks for the fixture.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .report import Report


@pytest.fixture
def parity() -> "Callable[..., Report]":
    """Check a twin up to the named level, fail the test when the sides differ, and return the report."""
    from .checking import check

    def run(twin: Any, levels: Any = "all", **options: Any) -> "Report":
        return check(twin, levels, **options).raise_if_different()

    return run
