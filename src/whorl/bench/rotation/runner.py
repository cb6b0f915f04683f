"""Measures a plan of the rotation benchmark, each cell in a separate process if asked to.

Cells in one process influence each other, because the state of the memory allocator depends on
earlier cells. At prefill-4096 in bfloat16, temporary tensors of Hugging Face have the size from
which glibc requests every block from the system, unless an earlier cell left a large enough free
block: 28 ms or 92 ms, depending on the order of the cells. And if a peer crashes, one cell is lost,
not the benchmark.

A server process imports the peers once and forks for each cell, which takes milliseconds.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import torch

from whorl._support.threads import use_threads
from whorl.bench.contestants import describe_error
from whorl.bench.measure import prepare_allocator
from whorl.bench.runner import BenchmarkProgress, describe_environment, run_cells

from .accuracy import measure_accuracy
from .case import RotationCase
from .peers import COPY, Peer, PeerCall, select_peers
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result

__all__ = ["measure_cell", "run", "serve", "start_server", "verify"]

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>

MeasureFunction = Callable[[Cell, Sequence[Peer], Plan], CellResult]


def run(
    plan: Plan,
    *,
    progress: BenchmarkProgress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
) -> Report:
    """Measure every cell of ``plan``; the options are those of ``run_cells``."""
    peers = select_peers(plan.peers)
    missing = {peer.name: problem for peer in peers if (problem := peer.explain_missing())}
    usable = [peer for peer in peers if peer.name not in missing]
    versions = {peer.package: peer.read_version() for peer in usable}
    environment = describe_environment() | {
        "peers": {name: version for name, version in versions.items() if name and version},
        "missing": missing,
        "notes": {peer.title: peer.note for peer in usable if peer.note},
    }
    cells = plan.list_cells()

    def measure(cell: Cell) -> CellResult:
        peers = [p for p in usable if p.name != "hf-compiled" or plan.is_compiled(cell)]
        return measure_cell_of(cell, peers, plan)

    def finish(report: Report, show: BenchmarkProgress) -> Report:
        if not plan.accuracy or report.accuracy is not None:
            return report
        show(len(cells), len(cells), "accuracy of tables")
        return replace(report, accuracy=measure_accuracy())

    with start_server() if plan.isolates else nullcontext(measure_cell) as measure_cell_of:
        return run_cells(
            Report(environment, plan.describe_effort()),
            cells,
            measure,
            progress=progress,
            sink=sink,
            resume=resume,
            finish=finish,
        )


def measure_cell(cell: Cell, peers: Sequence[Peer], plan: Plan) -> CellResult:
    """The results of one cell, whose contestants are verified and then timed."""
    prepare_allocator()
    with use_threads(cell.threads), torch.set_grad_enabled(cell.shape.kind == "training"):
        case = RotationCase(cell)
        results: list[Result] = []
        entries: list[tuple[str, PeerCall]] = []
        for peer in peers:
            if not peer.supports(cell):
                continue
            try:
                for entry in peer.build_calls(case):
                    if problem := verify(peer, entry, case):
                        results.append(Result(peer.name, entry.mode, problem=problem))
                    else:
                        entries.append((peer.name, entry))
            except Exception as error:  # its failure is reported, and the benchmark goes on
                results.append(Result(peer.name, "", problem=describe_error(error)))
        case.reset(fill=0.0)
        timings = plan.time_calls([entry.call for _, entry in entries])
    timed = [
        Result(name, entry.mode, timing)
        for (name, entry), timing in zip(entries, timings, strict=True)
    ]
    return CellResult(cell, (*timed, *results))


def verify(peer: Peer, entry: PeerCall, case: RotationCase) -> str | None:
    """What is wrong with the rotation of a call; None if it is right, and for ``copy_``."""
    if peer.name == COPY:
        return None
    case.reset()
    return case.find_problem(entry.results(), own_angles=peer.own_angles)


@contextmanager
def start_server() -> Iterator[MeasureFunction]:
    """Yield a ``measure_cell`` that measures in another process, which Ctrl-C does not reach."""
    folders = [str(folder) for folder in sys.path]
    code = f"import sys; sys.path[:] = {folders}; from {__name__} import serve; serve()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def measure(cell: Cell, peers: Sequence[Peer], plan: Plan) -> CellResult:
        assert process.stdin is not None
        assert process.stdout is not None
        names = [peer.name for peer in peers]
        request = {"cell": cell.to_dict(), "peers": names, "effort": plan.describe_effort()}
        with suppress(BrokenPipeError):  # the missing answer is handled below
            print(json.dumps(request), file=process.stdin, flush=True)
        if not (line := process.stdout.readline()):
            raise ChildProcessError(
                "the process that measures cells has ended; its messages are above. Cells measured"
                " so far are in the file of the report, if one was given."
            )
        answer = json.loads(line)
        if "problem" in answer:
            there = [peer.name for peer in peers if peer.supports(cell)]
            return CellResult(cell, tuple(Result(n, "", problem=answer["problem"]) for n in there))
        return CellResult.from_dict(answer)

    try:
        yield measure
    finally:
        with suppress(ProcessLookupError):  # it has already ended
            os.killpg(process.pid, signal.SIGKILL)  # with the process of a cell
        with suppress(BrokenPipeError):
            process.communicate()


def serve() -> None:
    """The server process: answer requests, each a line of JSON, until the input ends."""
    _stop_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        peers = [
            p for p in select_peers(None) if p.name in request["peers"] and not p.explain_missing()
        ]
        pid = os.fork()
        if pid == 0:
            _answer(request, peers, answers)
        _, status = os.waitpid(pid, 0)
        if status:
            problem = f"the process of this cell ended with {_describe_exit(status)}"
            print(json.dumps({"problem": problem}), file=answers, flush=True)


def _answer(request: dict[str, Any], peers: Sequence[Peer], answers: TextIO) -> None:
    _stop_with_parent()
    try:
        plan = Plan(**request["effort"])
        result = measure_cell(Cell.from_dict(request["cell"]), peers, plan)
        print(json.dumps(result.to_dict()), file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # at once: only the server runs Python's exit handlers


def _stop_with_parent() -> None:
    """Let the system kill this process when its parent has ended, for whatever reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _describe_exit(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    known = {int(one): one.name for one in signal.Signals}
    return known.get(-code, f"signal {-code}")
