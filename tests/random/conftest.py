import pytest
from sides import SIDES, Side


@pytest.fixture(params=SIDES)
def side(request, monkeypatch) -> Side:
    return Side(request.param, monkeypatch)
