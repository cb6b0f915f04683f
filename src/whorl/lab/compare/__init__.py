"""``compare``: the same small model with one encoding after another, judged at many lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.files import remove_parts, write_file_atomically
from whorl.lab import files
from whorl.lab.data import open_data_source
from whorl.lab.model import Model
from whorl.lab.runs import Run

from .gather import build_comparison, find_runs, load_comparison
from .plan import BUDGETS, BudgetName, ComparisonPlan
from .pool import RunStatus, ShowStatus, count_cores, run_all
from .speed import measure_speed, read_speed
from .timing import estimate_steps, fit_plan

__all__ = [
    "BUDGETS",
    "BudgetName",
    "ComparisonPlan",
    "Outcome",
    "RunStatus",
    "build_comparison",
    "compare",
    "count_cores",
    "estimate_steps",
    "fit_plan",
    "load_comparison",
    "rebuild_report",
    "write_report",
]

# What a comparison writes into its folder, beside the runs.
_REPORT_FILES = r"comparison\.json|report\.md|report\.html|speed\.json|minutes\.json"


@dataclass(frozen=True)
class Outcome:
    """The comparison, None if nothing finished; the runs that failed; the folder of all."""

    comparison: dict[str, Any] | None
    failed: tuple[RunStatus, ...]
    folder: Path


def compare(
    plan: ComparisonPlan,
    folder: str | Path,
    *,
    workers: int | None = None,
    show: ShowStatus | None = None,
    force: bool = False,
    command: str = "",
    speed: bool = True,
) -> Outcome:
    """Train and evaluate everything in ``plan`` below ``folder``, and write the report there.

    What is there already is kept, so that the same call goes on after an interruption. Ctrl-C
    saves every run before KeyboardInterrupt is raised.

    Args:
        workers: runs at a time; as many as there are cores by default.
        show: called with the state of all runs several times a second.
        force: runs of other configs with the same names are deleted.
        speed: also measure how fast each encoding trains, when the runs are done.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be at least 1; got {workers}.")
    folder = Path(folder)
    jobs = plan.jobs()
    source = open_data_source(jobs[0].config)  # too little text fails before any process starts
    for job in jobs:  # and so does an encoding that the model cannot have
        Model(job.config.model, vocab=source.vocab, longest=job.config.longest)
    workers = min(count_cores(), len(jobs)) if workers is None else workers
    folder.mkdir(parents=True, exist_ok=True)
    show = show or _show_nothing
    with files.lock_folder(folder):
        remove_parts(folder, _REPORT_FILES)
        lanes = run_all(
            jobs,
            folder,
            source.about,
            workers=workers,
            show=show,
            force=force,
            command=command,
        )
        done = [job for job, lane in zip(jobs, lanes, strict=True) if lane.state == "done"]
        failed = tuple(lane for lane in lanes if lane.state == "failed")
        if not done:
            return Outcome(None, failed, folder)
        measured, stopped = None, False
        if speed:
            try:
                measured, last = measure_speed(done, folder, lambda lane: show([*lanes, lane]))
                failed += (last,) if last.state == "failed" else ()
            except KeyboardInterrupt:  # the runs are there: report on them, without a speed
                stopped = True
        comparison = build_comparison(
            [Run(folder / x.name) for x in done], command=command, speed=measured
        )
        comparison["unfinished"] = [{"name": lane.name, "reason": lane.reason} for lane in failed]
        write_report(comparison, folder)
    if stopped:
        raise KeyboardInterrupt
    return Outcome(comparison, failed, folder)


def rebuild_report(folder: str | Path) -> dict[str, Any]:
    """The comparison of all runs in ``folder``, with its report written anew, without training."""
    folder = Path(folder)
    runs = find_runs(folder)
    speed = read_speed(folder, [run.config() for run in runs])
    comparison = build_comparison(runs, speed=speed)
    write_report(comparison, folder)
    return comparison


def write_report(comparison: dict[str, Any], folder: Path) -> None:
    """comparison.json, the tables as report.md, and report.html, which stands alone."""
    from .page import render_page
    from .tables import render_markdown

    files.write_json(folder / "comparison.json", comparison)
    write_file_atomically(folder / "report.md", render_markdown(comparison, claims=True).encode())
    write_file_atomically(folder / "report.html", render_page(comparison).encode())


def _show_nothing(lanes: Sequence[RunStatus]) -> None:
    pass
