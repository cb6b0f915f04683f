"""Trains the runs of a comparison in parallel, and keeps the status of each.

Where they are trained is one of two: processes of this machine (``processes``), or a Ray cluster
(``ray_workers``). A run on one thread gives the same numbers, whatever else runs at the same time.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from .processes import LocalWorkers

__all__ = ["PlannedJob", "RunStatus", "RunWorkers", "ShowStatus", "count_cores", "run_all"]

RunState = Literal["waiting", "running", "done", "failed", "interrupted"]


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


class RunWorkers(Protocol):
    """Where runs are trained."""

    @property
    def has_room(self) -> bool:
        """Whether another run can be started now."""

    @property
    def is_busy(self) -> bool:
        """Whether a run that was started has not ended."""

    def start(self, n: int, job: PlannedJob, request: dict[str, Any]) -> None:
        """Begin run ``n``; its messages come from ``receive``."""

    def receive(self) -> list[tuple[int, dict[str, Any]]]:
        """Messages of the runs, after at most 0.2 s: changes of a ``RunStatus``.

        The last one of each run is {"state": "done" | "failed" | "interrupted", "reason": ...}.
        """

    def stop(self) -> None:
        """Ask all runs to save and end; wait for them, or until a second Ctrl-C."""

    def close(self) -> None:
        """End what still runs, at once."""


def run_all(
    runs: Sequence[PlannedJob],
    folder: Path,
    about: Mapping[str, Any],
    *,
    workers: int | None = None,
    show: ShowStatus,
    force: bool = False,
    command: str = "",
    ray: str | None = None,
) -> list[RunStatus]:
    """Train every run in its folder below ``folder``; returns their statuses.

    A run that fails does not stop the others. Runs whose folders have all results on the corpus
    ``about`` are not trained again. After KeyboardInterrupt, all runs are stopped and saved before
    it is raised again.

    Args:
        workers: how many runs are trained at a time; by default one per core, or as many as the
            Ray cluster has room for.
        ray: train them on Ray: "local", or the address of a cluster.
    """
    statuses = [_read_status(run, folder, about) for run in runs]
    waiting = [n for n, status in enumerate(statuses) if status.state == "waiting"]
    show(statuses)
    if not waiting:  # nothing is started or connected for nothing
        return statuses
    with closing(_open_workers(ray, workers, folder)) as pool:
        try:
            while waiting or pool.is_busy:
                while waiting and pool.has_room:
                    n = waiting.pop(0)
                    request = runs[n].build_request(folder / runs[n].name)
                    pool.start(n, runs[n], {**request, "force": force, "command": command})
                _update(statuses, pool.receive())
                show(statuses)
        except KeyboardInterrupt:
            pool.stop()
            _update(statuses, pool.receive())
            show(statuses)
            raise
    return statuses


def _open_workers(ray: str | None, workers: int | None, folder: Path) -> RunWorkers:
    if ray is None:
        return LocalWorkers(workers or count_cores())
    from .ray_workers import RayWorkers

    return RayWorkers(ray, workers, folder)


def _update(statuses: list[RunStatus], messages: Sequence[tuple[int, dict[str, Any]]]) -> None:
    for n, changes in messages:
        statuses[n] = replace(statuses[n], **changes)


def _read_status(run: PlannedJob, folder: Path, about: Mapping[str, Any]) -> RunStatus:
    """The status of a run before it starts: done if its folder has all results, else waiting."""
    done = run.is_finished(folder / run.name, about)
    return RunStatus(run.name, "done", done=1) if done else RunStatus(run.name)
