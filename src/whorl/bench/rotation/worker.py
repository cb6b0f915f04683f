"""Measurement of each cell in a separate process, so that cells do not influence each other.

The state of the memory allocator depends on earlier cells. At prefill-4096 in bfloat16, temporary
tensors of Hugging Face have the size from which glibc requests every block from the system, unless
an earlier cell left a large enough free block: 28 ms or 92 ms, depending on the order of the cells.
And if a peer crashes, one cell is lost, not the benchmark.

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
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from .contest import measure_cell
from .peers import Peer, select_peers
from .plan import Cell, Plan
from .results import CellResult, Result

__all__ = ["serve", "start_server"]

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>

MeasureFunction = Callable[[Cell, Sequence[Peer], Plan], CellResult]


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
        request = {"cell": cell.to_dict(), "peers": names, "effort": plan.describe_timing()}
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
