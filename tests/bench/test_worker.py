"""Cells in processes of their own: the same results, and one that dies takes no other with it."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from whorl.bench import Cell, Plan, run
from whorl.bench.rotation import runner
from whorl.bench.rotation.peers import select_peers
from whorl.bench.rotation.runner import start_server

from .shapes import PREFILL

pytestmark = pytest.mark.skipif(not Plan(isolated=True).isolates, reason="forks on Linux only")

T = TypeVar("T")
CELL = Cell(PREFILL, "float32", "interleaved", 1)
QUICKLY = Plan(repeats=2, sample_seconds=0.0)
# None that loads transformers, which takes each server seconds.
PEERS = [peer for peer in select_peers(("meta",)) if peer.explain_missing() is None]


def test_an_isolated_run_finds_what_the_other_finds(tiny_plan: Plan) -> None:
    apart = run(dataclasses.replace(tiny_plan, isolated=True))
    together = run(tiny_plan)
    assert apart.complete
    for one, other in zip(apart.cells, together.cells, strict=True):
        assert one.cell == other.cell
        assert [r[:2] for r in map(dataclasses.astuple, one.results)] == [
            r[:2] for r in map(dataclasses.astuple, other.results)
        ]
        assert all(r.problem is None and r.timing is not None for r in one.results)
    assert apart.effort["isolated"]
    assert not together.effort["isolated"]


def test_a_cell_that_fails_is_a_problem_and_the_next_one_is_measured() -> None:
    impossible = dataclasses.replace(CELL, shape=dataclasses.replace(PREFILL, length=2**50))
    with start_server() as measure:
        failed = measure(impossible, PEERS, QUICKLY).results
        assert [result.name for result in failed] == ["copy", "whorl", "meta"]
        problems = {result.problem for result in failed}
        assert problems == {"the process of this cell ended with exit code 1"}
        fine = measure(CELL, PEERS, QUICKLY)
    assert {r.name for r in fine.results if r.timing} == {peer.name for peer in PEERS}


@pytest.mark.parametrize(
    ("status", "words"), [(3 << 8, "exit code 3"), (9, "SIGKILL"), (40, "signal 40")]
)
def test_how_a_process_ended(status: int, words: str) -> None:
    assert runner._describe_exit(status) == words


def test_a_server_that_is_gone_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with (
        pytest.raises(ChildProcessError, match=r"has ended; its messages are above\."),
        start_server() as measure,
    ):
        measure(CELL, PEERS, QUICKLY)
    assert "ModuleNotFoundError" in capfd.readouterr().err


def test_leaving_ends_the_cell_that_is_under_way() -> None:
    endless = dataclasses.replace(QUICKLY, repeats=10**9)
    with ThreadPoolExecutor() as pool, start_server() as measure:
        asked = pool.submit(measure, CELL, PEERS, endless)
        (parent,) = _until(lambda: _children(os.getpid()))
        (cell,) = _until(lambda: _children(parent))
    with pytest.raises(ChildProcessError, match="has ended"):
        asked.result()
    _until(lambda: not _is_running(parent) and not _is_running(cell))


def _children(process: int) -> list[int]:
    """Servers that it started, or cells that a server forked."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split() if "runner import serve" in _command(word)]


def _command(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has just ended
        return ""


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def _until(condition: Callable[[], T]) -> T:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in a minute"
        time.sleep(0.01)
    return found


def test_no_process_outlives_the_one_that_asked() -> None:
    code = (
        "from whorl.bench import Plan, run; import dataclasses;"
        "run(dataclasses.replace(Plan.quick(), repeats=10**9, accuracy=False).select(peers=[]))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as asking:
        try:
            (parent,) = _until(lambda: _children(asking.pid))
            (cell,) = _until(lambda: _children(parent))
        finally:
            asking.kill()
    _until(lambda: not _is_running(parent) and not _is_running(cell))
