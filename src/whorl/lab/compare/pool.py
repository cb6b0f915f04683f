"""Trains the runs of a comparison in parallel: one process per core, each on one thread.

A run on one thread gives the same numbers, whatever else runs at the same time.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, Protocol

__all__ = ["PlannedJob", "RunStatus", "count_cores", "describe_exit", "run_all"]

RunState = Literal["waiting", "running", "done", "failed", "interrupted"]
_SECONDS_TO_STOP = 60.0


@dataclass(frozen=True)
class RunStatus:
    """Status of one run, for display."""

    name: str
    state: RunState = "waiting"
    phase: str = ""
    done: int = 0
    total: int = 1
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    reason: str = ""
    #: False for the measurement of speed, which is shown beside the runs.
    is_run: bool = True


ShowStatus = Callable[[Sequence[RunStatus]], None]


class PlannedJob(Protocol):
    """What a worker does in a folder of its own, such as a ``PlannedRun``."""

    @property
    def name(self) -> str:
        """Name of the folder."""

    @property
    def worker(self) -> str:
        """Module of the process: it reads a request and answers as ``whorl.lab.worker`` does."""

    def is_finished(self, folder: Path, about: Mapping[str, Any]) -> bool:
        """Whether ``folder`` has all results, made from the corpus ``about``."""

    def build_request(self, folder: Path) -> dict[str, Any]:
        """The request to the worker, but for "force" and "command"."""


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(
    runs: Sequence[PlannedJob],
    folder: Path,
    about: Mapping[str, Any],
    *,
    workers: int,
    show: ShowStatus,
    force: bool = False,
    command: str = "",
) -> list[RunStatus]:
    """Train every run in its folder below ``folder``; returns their statuses.

    A run that fails does not stop the others. Runs whose folders have all results on the corpus
    ``about`` are not trained again. After KeyboardInterrupt, all runs are stopped and saved before
    it is raised again.
    """
    pool = _WorkerPool(runs, folder, about, force, command)
    show(pool.statuses)
    try:
        while pool.waiting or pool.busy:
            while pool.waiting and len(pool.busy) < workers:
                pool.start()
            pool.receive()
            show(pool.statuses)
    except KeyboardInterrupt:
        pool.stop()
        show(pool.statuses)
        raise
    finally:
        pool.kill()
    return pool.statuses


class _WorkerPool:
    """Processes that train runs, and the status of every run."""

    def __init__(
        self,
        runs: Sequence[PlannedJob],
        folder: Path,
        about: Mapping[str, Any],
        force: bool,
        command: str,
    ) -> None:
        self.runs, self.folder, self.force, self.command = list(runs), folder, force, command
        self.statuses = [_read_status(run, folder, about) for run in runs]
        self.waiting = [n for n, status in enumerate(self.statuses) if status.state == "waiting"]
        self.busy: dict[int, subprocess.Popen[str]] = {}
        self._stderr: dict[int, IO[str]] = {}  # files with the standard error of each process
        self._stopping = False
        self._received: queue.Queue[tuple[int, str | None]] = queue.Queue()

    def start(self) -> None:
        n = self.waiting.pop(0)
        run = self.runs[n]
        words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # until it ends
        process = subprocess.Popen(
            [sys.executable, "-m", run.worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C reaches this process only, which stops the others
        )
        assert process.stdin is not None
        request = {
            **run.build_request(self.folder / run.name),
            "force": self.force,
            "command": self.command,
        }
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        self.busy[n], self._stderr[n] = process, words
        self._update(n, state="running", phase="starting")
        threading.Thread(target=self._read_lines, args=(n, process), daemon=True).start()

    def receive(self) -> None:
        """Handle the messages of the workers; wait 0.2 s if there is none."""
        with suppress(queue.Empty):
            self._handle_line(*self._received.get(timeout=0.2))
            while True:
                self._handle_line(*self._received.get_nowait())

    def stop(self) -> None:
        """Ask workers to save and end; wait for them, or until a second Ctrl-C."""
        self._stopping = True
        for process in self.busy.values():
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in list(self.busy.values()):
                process.wait(timeout=_SECONDS_TO_STOP)
        self.receive()

    def kill(self) -> None:
        for process in self.busy.values():
            with suppress(OSError):
                process.kill()

    def _read_lines(self, n: int, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._received.put((n, line))
        process.wait()
        self._received.put((n, None))

    def _handle_line(self, n: int, line: str | None) -> None:
        if line is None:
            process = self.busy.pop(n)
            with self._stderr.pop(n) as words:
                if self.statuses[n].state == "running":  # it ended without a message
                    words.seek(0)
                    end = {
                        "state": "failed",
                        "reason": describe_exit(process.returncode, words.read()),
                    }
                    self._update(n, **({"state": "interrupted"} if self._stopping else end))
            return
        message = json.loads(line)
        message.pop("note", None)  # the notes of the report contain it
        if "end" in message:
            self._update(n, state=message["end"], reason=message.get("reason", ""))
        else:
            if message["loss"] is None:  # an evaluation: the last training loss stays
                del message["loss"]
            self._update(n, **message)

    def _update(self, n: int, **changes: Any) -> None:
        self.statuses[n] = replace(self.statuses[n], **changes)


def _read_status(run: PlannedJob, folder: Path, about: Mapping[str, Any]) -> RunStatus:
    """The status of a run before it starts: done if its folder has all results, else waiting."""
    done = run.is_finished(folder / run.name, about)
    return RunStatus(run.name, "done", done=1) if done else RunStatus(run.name)


def describe_exit(code: int, words: str) -> str:
    """Why a process ended early: its signal, or its exit code and the last line it printed."""
    if code < 0:
        return f"its process was killed by signal {-code} (out of memory?); run again to continue"
    last = (words.strip().splitlines() or ["it printed nothing"])[-1]
    return f"its process ended with code {code}: {last}"
