"""Cells in processes of their own: the same results, and one that dies takes no other with it."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from whorl.bench import Cell, Plan, run
from whorl.bench.rotation import worker
from whorl.bench.rotation.peers import chosen
from whorl.bench.rotation.worker import server

from .shapes import PREFILL

pytestmark = pytest.mark.skipif(not worker.can_isolate(), reason="forks on Linux only")

CELL = Cell(PREFILL, "float32", "interleaved", 1)
QUICKLY = Plan(repeats=2, sample_seconds=0.0)
PEERS = [peer for peer in chosen(("hf", "meta")) if peer.missing() is None]


def test_an_isolated_run_finds_what_the_other_finds(tiny_plan: Plan) -> None:
    with_peers = run(dataclasses.replace(tiny_plan, isolated=True))
    alone = run(tiny_plan)
    assert with_peers.complete
    for one, other in zip(with_peers.cells, alone.cells, strict=True):
        assert one.cell == other.cell
        assert [r[:2] for r in map(dataclasses.astuple, one.results)] == [
            r[:2] for r in map(dataclasses.astuple, other.results)
        ]
        assert all(r.problem is None and r.timing is not None for r in one.results)
    assert with_peers.effort["isolated"]
    assert not alone.effort["isolated"]


def test_a_cell_that_fails_is_a_problem_and_the_next_one_is_measured() -> None:
    impossible = Cell(dataclasses.replace(PREFILL, length=2**50), "float32", "half", 1)
    with server() as measure:
        (failed,) = measure(impossible, PEERS, QUICKLY).results
        assert failed.problem == "the process of this cell ended with exit code 1"
        fine = measure(CELL, PEERS, QUICKLY)
    assert {r.name for r in fine.results if r.timing} == {peer.name for peer in PEERS}


@pytest.mark.parametrize(("ending", "words"), [(3, "exit code 3"), (signal.SIGKILL, "SIGKILL")])
def test_how_a_process_ended(ending: int, words: str) -> None:
    code = f"import os; os.{'_exit(3)' if ending == 3 else f'kill(os.getpid(), {int(ending)})'}"
    done = subprocess.run([sys.executable, "-c", code], check=False)
    status = done.returncode << 8 if done.returncode >= 0 else -done.returncode
    assert worker._ending(status) == words


def test_a_server_that_is_gone_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with (
        pytest.raises(RuntimeError, match=r"has ended; what it said stands above\. Plan\(isolated"),
        server() as measure,
    ):
        measure(CELL, PEERS, QUICKLY)
    assert "ModuleNotFoundError" in capfd.readouterr().err


def test_an_interrupt_ends_the_processes_too(tiny_plan: Plan) -> None:
    def stop(done: int, total: int, label: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    report = run(dataclasses.replace(tiny_plan, isolated=True), progress=stop)
    assert not report.complete
    assert len(report.cells) == 1
    tasks = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{task}/cmdline").read_text() for task in tasks]
    assert not [command for command in commands if "worker" in command]
