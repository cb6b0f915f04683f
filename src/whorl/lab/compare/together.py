"""Runs that several processes train together, one after the other, instead of by workers.

Under torchrun and accelerate launch all processes share each run, as in ``whorl train``. A job that
is no training run of the lab, such as a row of an image experiment, is done whole by a worker of
one process; the processes take such jobs in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from whorl.lab.loop import Interrupted, TrainingProgress
from whorl.lab.trainer import train
from whorl.processes import ProcessGroup

from .plan import PlannedRun
from .pool import PlannedJob, RunStatus, ShowStatus, run_all

__all__ = ["check_workers", "run_together"]


def check_workers(workers: int | None, ray: str | None, processes: ProcessGroup) -> None:
    """Refuse less than one worker, and workers and Ray beside the processes of a launcher."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}.")
    for name, value in (("workers", workers), ("ray", ray)):
        if value is not None and processes.world > 1:
            raise ValueError(
                f"{name} must be left out under torchrun and accelerate launch, whose"
                f" {processes.world} processes train one run after the other together; got"
                f" {value!r}."
            )


def run_together(
    jobs: Sequence[PlannedJob],
    folder: Path,
    about: Mapping[str, Any],
    processes: ProcessGroup,
    *,
    show: ShowStatus,
    force: bool = False,
    command: str = "",
) -> list[RunStatus]:
    """Do every job in its folder below ``folder``; returns their statuses, in all processes.

    As with ``run_all``, a job that fails does not stop the others, those that have all results are
    not done again, and KeyboardInterrupt is raised when the run under way is saved. Only the first
    process calls ``show``.
    """
    done = processes.run_on_main(
        lambda: [job.is_finished(folder / job.name, about) for job in jobs]
    )
    found = [
        RunStatus(job.name, "done", done=1) if ended else RunStatus(job.name)
        for job, ended in zip(jobs, done, strict=True)
    ]
    show = show if processes.is_main else _show_nothing
    alone = [n for n, job in enumerate(jobs) if not isinstance(job, PlannedRun) and not done[n]]
    for n, job in enumerate(jobs):
        if isinstance(job, PlannedRun) and not done[n]:
            _train_together(job, n, found, folder, show, {"force": force, "command": command})
    mine = alone[processes.rank :: processes.world]

    def show_mine(statuses: Sequence[RunStatus]) -> None:
        for n, status in zip(mine, statuses, strict=True):
            found[n] = status
        show(found)

    rows = [jobs[n] for n in mine]
    show_mine(run_all(rows, folder, about, workers=1, show=show_mine, force=force, command=command))
    for rank, statuses in enumerate(processes.collect([asdict(one) for one in found])):
        for n in alone[rank :: processes.world]:
            found[n] = RunStatus(**statuses[n])
    show(found)
    return found


def _train_together(
    job: PlannedRun,
    number: int,
    statuses: list[RunStatus],
    folder: Path,
    show: ShowStatus,
    options: Mapping[str, Any],
) -> None:
    """Train a run in all processes, and keep its status up to date."""

    def update(**changes: Any) -> None:
        statuses[number] = replace(statuses[number], **changes)
        show(statuses)

    def show_progress(moment: TrainingProgress) -> None:
        changes = asdict(moment)
        del changes["note"]  # the notes of the report contain it
        if moment.loss is None:  # an evaluation: the last training loss stays
            del changes["loss"]
        update(**changes)

    update(state="running", phase="starting")
    try:
        scalings = job.scalings
        train(job.config, folder / job.name, scalings=scalings, progress=show_progress, **options)
        update(state="done")
    except Interrupted:
        update(state="interrupted")
        raise KeyboardInterrupt from None
    except (ValueError, TypeError) as error:  # the same one in all processes
        update(state="failed", reason=str(error))


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass
