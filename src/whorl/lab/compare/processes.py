"""Worker processes: each handles one request, as ``whorl.lab.worker`` says, on one thread."""

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from whorl._support.launch import build_environment

if TYPE_CHECKING:
    from .pool import PlannedJob

__all__ = ["LocalWorkers", "WorkerProcess", "describe_exit", "parse_message", "start_module"]

#: How long a worker may take to save what it has.
SECONDS_TO_STOP = 60.0


def start_module(
    module: str, words: IO[str], environment: Mapping[str, str], *, cwd: str | None = None
) -> "subprocess.Popen[str]":
    """A process that runs a module, reads and writes lines, and prints all else to ``words``."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        text=True,
        cwd=cwd,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the first process only, which stops the others
    )


class WorkerProcess:
    """A process that runs a worker module on one request; its lines are what it answers."""

    def __init__(self, module: str, request: Mapping[str, Any], *, cwd: str | None = None) -> None:
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = start_module(
            module, self._words, build_environment(OMP_NUM_THREADS="1"), cwd=cwd
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request))
        self._process.stdin.close()

    def read_lines(self) -> Iterator[str]:
        """All lines, until the process has ended."""
        assert self._process.stdout is not None
        with self._process.stdout:
            yield from self._process.stdout
        self._process.wait()

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended the process."""
        return (self._process.returncode or 0) < 0

    def describe_exit(self) -> str:
        """Why the process ended without an answer; it is closed after that."""
        with self._words:
            self._words.seek(0)
            return describe_exit(self._process.returncode, self._words.read())

    def ask_to_stop(self) -> None:
        """Let the worker save what it has and end."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Return when the process has ended, or after a minute."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=SECONDS_TO_STOP)

    def kill(self) -> None:
        with suppress(OSError):
            self._process.kill()
        self._process.wait()


class LocalWorkers:
    """Worker processes on this machine, so many at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._stopping = most, False
        self._busy: dict[int, WorkerProcess] = {}
        self._ended: set[int] = set()  # runs whose last message has come
        self._received: queue.Queue[tuple[int, str | None]] = queue.Queue()

    @property
    def has_room(self) -> bool:
        return len(self._busy) < self._most

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    def start(self, n: int, job: "PlannedJob", request: dict[str, Any]) -> None:
        self._busy[n] = process = WorkerProcess(job.worker, request)
        threading.Thread(target=self._read_lines, args=(n, process), daemon=True).start()

    def receive(self) -> list[tuple[int, dict[str, Any]]]:
        found: list[tuple[int, str | None]] = []
        with suppress(queue.Empty):
            found.append(self._received.get(timeout=0.2))
            while True:
                found.append(self._received.get_nowait())
        return [(n, changes) for n, line in found for changes in self._handle_line(n, line)]

    def stop(self) -> None:
        self._stopping = True
        for process in self._busy.values():
            process.ask_to_stop()
        with suppress(KeyboardInterrupt):
            for process in self._busy.values():
                process.wait()

    def close(self) -> None:
        for process in self._busy.values():
            process.kill()

    def _read_lines(self, n: int, process: WorkerProcess) -> None:
        self._received.put((n, '{"phase": "starting"}'))
        for line in process.read_lines():
            self._received.put((n, line))
        self._received.put((n, None))

    def _handle_line(self, n: int, line: str | None) -> Iterator[dict[str, Any]]:
        if line is not None:
            changes = parse_message(line)
            if changes["state"] != "running":
                self._ended.add(n)
            yield changes
            return
        reason = self._busy.pop(n).describe_exit()
        if n not in self._ended:  # it ended without a message
            yield (
                {"state": "interrupted"}
                if self._stopping
                else {"state": "failed", "reason": reason}
            )


def parse_message(line: str) -> dict[str, Any]:
    """A line of a worker as changes of the ``RunStatus`` of its run."""
    message = json.loads(line)
    if "end" in message:
        return {"state": message["end"], "reason": message.get("reason", "")}
    message.pop("note", None)  # the notes of the report contain it
    if message.get("loss") is None:  # an evaluation: the last training loss stays
        message.pop("loss", None)
    return {"state": "running", **message}


def describe_exit(code: int, words: str) -> str:
    """Why a process ended early: its signal, or its exit code and the last line it printed."""
    if code < 0:
        return f"its process was killed by signal {-code} (out of memory?); run again to continue"
    last = (words.strip().splitlines() or ["it printed nothing"])[-1]
    return f"its process ended with code {code}: {last}"
