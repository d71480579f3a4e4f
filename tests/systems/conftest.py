"""For all systems."""

import pytest


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.find_compiler", lambda: ("", "this is a test"))
