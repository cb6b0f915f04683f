"""Comparisons without what takes long: processes that import torch, and the charts of a page."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from whorl.lab import train, use_threads
from whorl.lab.compare import ComparisonPlan, RunStatus
from whorl.lab.compare.plan import PlannedRun

__all__ = ["skip_page", "train_planned_runs", "train_without_workers"]


def train_planned_runs(plan: ComparisonPlan, folder: Path, *, leave: Collection[str] = ()) -> None:
    """Train all runs of ``plan`` below ``folder`` but those in ``leave``, as its workers would."""
    train_without_workers([run for run in plan.list_runs() if run.name not in leave], folder)


def train_without_workers(
    runs: Sequence[PlannedRun], folder: Path, *_: object, **__: object
) -> list[RunStatus]:
    """What ``run_all`` does, one run after the other in this process."""
    with use_threads(1):
        for run in runs:
            train(run.config, folder / run.name, scalings=run.scalings)
    return [RunStatus(run.name, "done") for run in runs]


def skip_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, reports are written without the charts and tables of report.html."""
    monkeypatch.setattr("whorl.lab.compare.page.render_page", lambda comparison: "")
