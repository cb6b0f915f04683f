"""Jobs of the lab without what takes long: processes that import torch, and charts of a page."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import use_threads, worker
from whorl.lab.compare import ComparisonPlan, RunStatus
from whorl.lab.compare.pool import PlannedJob
from whorl.lab.experiments import worker as row_worker

__all__ = ["run_without_workers", "skip_page", "train_planned_runs"]

#: What the processes of each kind of job do with a request.
HANDLERS = {worker.__name__: worker._train_run, row_worker.__name__: row_worker._run_row}


def train_planned_runs(plan: ComparisonPlan, folder: Path, *, leave: Collection[str] = ()) -> None:
    """Train all runs of ``plan`` below ``folder`` but those in ``leave``, as its workers would."""
    runs = [run for run in plan.list_runs() if run.name not in leave]
    assert {status.state for status in run_without_workers(runs, folder, {})} <= {"done"}


def run_without_workers(
    jobs: Sequence[PlannedJob], folder: Path, about: Any, *, force: bool = False, **_: object
) -> list[RunStatus]:
    """What ``run_all`` does, one job after the other in this process."""
    statuses = []
    for job in jobs:
        if job.is_finished(folder / job.name, about):
            statuses.append(RunStatus(job.name, "done"))
            continue
        request = {**job.build_request(folder / job.name), "force": force, "command": ""}
        try:
            with use_threads(1):
                HANDLERS[job.worker](json.loads(json.dumps(request)), lambda moment: None)
        except (ValueError, TypeError, OSError) as error:
            statuses.append(RunStatus(job.name, "failed", reason=str(error)))
        else:
            statuses.append(RunStatus(job.name, "done"))
    return statuses


def skip_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, reports are written without the charts and tables of report.html."""
    monkeypatch.setattr("whorl.lab.compare.page.render_page", lambda comparison: "")
