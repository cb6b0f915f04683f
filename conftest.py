"""Settings of all tests, and of the examples in src, docs and README."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from whorl.encodings import base as encodings
from whorl.scaling import base as scalings

# The first call loads code and starts threads, and CI machines are noisy: no test is timed.
settings.register_profile("whorl", deadline=None)
settings.load_profile("whorl")

# Inductor compiles here: a pool of its own would import torch once more for a few small graphs.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are shared by processes
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What an example registers is gone after it."""
    known = [(registry, dict(registry)) for registry in (encodings._REGISTRY, scalings._REGISTRY)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)
