"""Both systems of locks for the tests of this folder."""

import sys
from typing import Any

import pytest

from .windows import FakeMsvcrt


@pytest.fixture(params=["here", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The locks of this system, then those of Windows with its module replaced."""
    if request.param == "here":
        return None
    fake = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    return fake
