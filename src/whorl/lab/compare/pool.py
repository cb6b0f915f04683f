"""Runs of a comparison side by side: one process per core, each on one thread.

A run on one thread gives the same numbers whatever else runs beside it.
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
from typing import IO, Any, Literal

from whorl.lab.runs import Run

from .plan import PlannedRun

__all__ = ["RunStatus", "count_cores", "describe_exit", "run_all"]

RunState = Literal["waiting", "running", "done", "failed", "interrupted"]
_SECONDS_TO_STOP = 60.0


@dataclass(frozen=True)
class RunStatus:
    """How one job stands, for people to look at."""

    name: str
    state: RunState = "waiting"
    phase: str = ""
    done: int = 0
    total: int = 1
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    reason: str = ""
    #: False for what is shown beside the runs.
    is_run: bool = True


ShowStatus = Callable[[Sequence[RunStatus]], None]


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(
    jobs: Sequence[PlannedRun],
    folder: Path,
    about: Mapping[str, Any],
    *,
    workers: int,
    show: ShowStatus,
    force: bool = False,
    command: str = "",
) -> list[RunStatus]:
    """Run every job in its folder below ``folder``; a failed one does not stop the others.

    Jobs whose folders hold all results on the corpus ``about`` are done already.
    KeyboardInterrupt asks all of them to stop, waits until they have saved, and is raised again.
    """
    pool = _WorkerPool(jobs, folder, about, force, command)
    show(pool.lanes)
    try:
        while pool.waiting or pool.busy:
            while pool.waiting and len(pool.busy) < workers:
                pool.start()
            pool.listen()
            show(pool.lanes)
    except KeyboardInterrupt:
        pool.stop()
        show(pool.lanes)
        raise
    finally:
        pool.kill()
    return pool.lanes


class _WorkerPool:
    def __init__(
        self,
        jobs: Sequence[PlannedRun],
        folder: Path,
        about: Mapping[str, Any],
        force: bool,
        command: str,
    ) -> None:
        self.jobs, self.folder, self.force, self.command = list(jobs), folder, force, command
        self.lanes = [_read_status(job, folder, about) for job in jobs]
        self.waiting = [n for n, lane in enumerate(self.lanes) if lane.state == "waiting"]
        self.busy: dict[int, subprocess.Popen[str]] = {}
        self._words: dict[int, IO[str]] = {}  # what each prints to standard error
        self._stopping = False
        self._heard: queue.Queue[tuple[int, str | None]] = queue.Queue()

    def start(self) -> None:
        n = self.waiting.pop(0)
        job = self.jobs[n]
        words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # until it ends
        process = subprocess.Popen(
            [sys.executable, "-m", "whorl.lab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C reaches this process only, which tells the others
        )
        assert process.stdin is not None
        order = {
            "folder": str(self.folder / job.name),
            "config": job.config.to_dict(),
            "scalings": list(job.scalings),
            "force": self.force,
            "command": self.command,
        }
        process.stdin.write(json.dumps(order))
        process.stdin.close()
        self.busy[n], self._words[n] = process, words
        self._set(n, state="running", phase="starting")
        threading.Thread(target=self._follow, args=(n, process), daemon=True).start()

    def listen(self) -> None:
        """Take in what workers said, waiting a moment if they said nothing."""
        with suppress(queue.Empty):
            self._take(*self._heard.get(timeout=0.2))
            while True:
                self._take(*self._heard.get_nowait())

    def stop(self) -> None:
        """Ask workers to save and end; wait until they have, or a second Ctrl-C."""
        self._stopping = True
        for process in self.busy.values():
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in list(self.busy.values()):
                process.wait(timeout=_SECONDS_TO_STOP)
        self.listen()

    def kill(self) -> None:
        for process in self.busy.values():
            with suppress(OSError):
                process.kill()

    def _follow(self, n: int, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._heard.put((n, line))
        process.wait()
        self._heard.put((n, None))

    def _take(self, n: int, line: str | None) -> None:
        if line is None:
            process = self.busy.pop(n)
            with self._words.pop(n) as words:
                if self.lanes[n].state == "running":  # it ended without a word
                    words.seek(0)
                    end = {
                        "state": "failed",
                        "reason": describe_exit(process.returncode, words.read()),
                    }
                    self._set(n, **({"state": "interrupted"} if self._stopping else end))
            return
        said = json.loads(line)
        said.pop("note", None)  # the notes of the report say it
        if "end" in said:
            self._set(n, state=said["end"], reason=said.get("reason", ""))
        else:
            if said["loss"] is None:  # an evaluation: the loss of training stays in view
                del said["loss"]
            self._set(n, **said)

    def _set(self, n: int, **changes: Any) -> None:
        self.lanes[n] = replace(self.lanes[n], **changes)


def _read_status(job: PlannedRun, folder: Path, about: Mapping[str, Any]) -> RunStatus:
    done = Run(folder / job.name).finished(job.config, about, job.scalings)
    return RunStatus(job.name, "done", done=1) if done else RunStatus(job.name)


def describe_exit(code: int, words: str) -> str:
    """Why a process ended that should not have: its signal, or the last line that it printed."""
    if code < 0:
        return f"its process was killed by signal {-code} (out of memory?); run again to go on"
    last = (words.strip().splitlines() or ["without a word"])[-1]
    return f"its process ended with code {code}: {last}"
