"""A model in a process of its own, which runs when it is told to.

How long transformers takes depends on where its T x S matrices come from. A process that has freed
blocks of another model hands them out again; a process of its own gets most of them from the
system, page by page, in every call. Users have one model in a process. Both processes begin with
the same state of the allocator, because it too depends on what was freed before.
"""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType

import torch
from torch import Tensor

from whorl._support.threads import use_threads
from whorl.bench.measure import prepare_allocator

__all__ = ["ModelProcess"]

_RUN, _COMPUTE = b"run", b"compute"
_DONE, _FAILED = b"+", b"-"
#: Processes start as copies of one that has imported what they need and has run nothing.
_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_IMPORTED = ["torch", "transformers", "whorl.hf", "whorl.bench.models.contestants"]

Build = Callable[[], tuple[Callable[[], Tensor], int]]


class ModelProcess:
    """Runs the call that ``build`` makes, in another process, until the with block ends.

    build: returns the call, and how often it does the work.
    """

    def __init__(self, build: Build, threads: int) -> None:
        context = multiprocessing.get_context(_METHOD)
        if _METHOD == "forkserver":
            multiprocessing.set_forkserver_preload(_IMPORTED)
        self._here, there = context.Pipe()
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_serve_calls, args=(there, build, threads), daemon=True
        )
        self._process.start()
        there.close()

    def __enter__(self) -> "ModelProcess":
        self.units = int(self._receive())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._here.close()
        self._process.kill()
        self._process.join()

    def run(self) -> None:
        """Do the work once."""
        self._here.send_bytes(_RUN)
        self._receive()

    def compute(self) -> Tensor:
        """Do the work once; returns its result as a vector."""
        self._here.send_bytes(_COMPUTE)
        return torch.frombuffer(bytearray(self._receive()), dtype=torch.float32)

    def _receive(self) -> bytes:
        try:
            answer = self._here.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            raise RuntimeError(f"the process of the model ended with exit code {code}") from None
        if answer[:1] == _FAILED:
            raise RuntimeError(answer[1:].decode())
        return answer[1:]


def _serve_calls(there: Connection, build: Build, threads: int) -> None:
    """The other process: does the work as often as it is asked, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    try:
        prepare_allocator()
        with use_threads(threads):
            call, units = build()
            there.send_bytes(_DONE + str(units).encode())
            while (asked := _read_question(there)) is not None:
                found = call()
                result = b"" if asked == _RUN else found.float().contiguous().numpy().tobytes()
                there.send_bytes(_DONE + result)
    except Exception as error:  # its failure is reported, and the benchmark goes on
        there.send_bytes(_FAILED + f"{type(error).__name__}: {error}".encode())


def _read_question(there: Connection) -> bytes | None:
    try:
        return there.recv_bytes()
    except EOFError:
        return None
