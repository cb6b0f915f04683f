"""Peers that more than one folder of tests asks, and settings of all tests."""

import gc
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

# No test depends on the clock: on a busy machine an example may take any time.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """Leave ten thousand tests and their modules out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """timm's file of position embeddings, under bare packages: timm itself needs torchvision."""
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("timm is not installed")
    root = next(iter(spec.submodule_search_locations))
    for name, path in (("timm", root), ("timm.layers", f"{root}/layers")):
        package = ModuleType(name)
        package.__path__ = [path]
        monkeypatch.setitem(sys.modules, name, package)
    return importlib.import_module("timm.layers.pos_embed_sincos")
