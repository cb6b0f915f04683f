"""Settings of all tests, and of the examples in src, docs and README."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tests import pages

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--few-cases",
        type=int,
        metavar="N",
        help="of a test with more than N sets of parameters, run only N, evenly spread",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what --few-cases does not take: the same cases every time, the first and the last
    of each test among them."""
    most = config.getoption("--few-cases")
    if most is None:
        return
    if most < 1:
        raise pytest.UsageError(f"--few-cases must be at least 1; got {most}.")
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    taken = {item for mine in cases.values() for item in _spread(mine, most)}
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = [item for item in items if item in taken]


def _spread(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    if len(items) <= most:
        return items
    steps = max(1, most - 1)
    return [items[n * (len(items) - 1) // steps] for n in range(most)]


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What an example registers is gone after it."""
    known = [(registry, dict(registry)) for registry in (encodings._REGISTRY, scalings._REGISTRY)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)


@pytest.fixture(autouse=True)
def _files_of_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files that a page tells its reader to write can be imported by its examples."""
    path = request.node.path
    files = pages.find_files(path.read_text(encoding="utf-8")) if path.suffix == ".md" else {}
    if not files:
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in files:
        sys.modules.pop(Path(name).stem, None)
