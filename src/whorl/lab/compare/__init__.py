"""``compare``: trains the same small model with each encoding, evaluates it at many lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.files import remove_parts, write_file_atomically
from whorl.lab import files
from whorl.lab.architectures import build_model
from whorl.lab.data import open_data_source
from whorl.lab.evaluate import add_scaling
from whorl.lab.runs import Run

from .gather import build_comparison, find_runs, load_comparison
from .plan import BUDGETS, BudgetName, ComparisonPlan
from .pool import RunStatus, ShowStatus, count_cores, run_all
from .ray_workers import check_ray
from .search import SearchResult, search_rates
from .speed import measure_speed, read_speed
from .timing import estimate_steps, fit_plan

__all__ = [
    "BUDGETS",
    "BudgetName",
    "ComparisonPlan",
    "Outcome",
    "RunStatus",
    "SearchResult",
    "build_comparison",
    "compare",
    "count_cores",
    "estimate_steps",
    "fit_plan",
    "load_comparison",
    "rewrite_report",
    "search_rates",
    "write_report",
]

# Files that a comparison writes to its folder, beside the folders of the runs.
_REPORT_FILES = r"comparison\.json|report\.md|report\.html|speed\.json|minutes\.json"


@dataclass(frozen=True)
class Outcome:
    """The comparison, None if no run finished; the runs that failed; the folder."""

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
    ray: str | None = None,
) -> Outcome:
    """Train and evaluate every run of ``plan`` below ``folder``, and write the report there.

    Runs that are already there are not trained again, so that the same call continues after an
    interruption. Ctrl-C saves every run before KeyboardInterrupt is raised.

    Args:
        workers: how many runs are trained at a time, by default one per core, or as many as the Ray
            cluster has room for.
        show: called with the status of all runs several times a second.
        force: delete runs with the same names and other configs.
        speed: also measure the training speed of each encoding, after the runs.
        ray: train the runs as tasks of Ray: "local" starts one on this machine, "HOST:PORT" is a
            cluster. By default they are processes of this machine.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}.")
    if ray is not None:
        check_ray(ray)
    folder = Path(folder)
    runs = plan.list_runs()
    # Too little text, or an encoding that the model cannot have, fails before any process starts.
    source = open_data_source(runs[0].config)
    for run in runs:
        for scaling in (None, *run.scalings):
            shape = add_scaling(run.config, scaling)
            build_model(shape, vocab=source.vocab, longest=run.config.longest)
    folder.mkdir(parents=True, exist_ok=True)
    show = show or _show_nothing
    with files.lock_folder(folder):
        remove_parts(folder, _REPORT_FILES)
        statuses = run_all(
            runs,
            folder,
            source.about,
            workers=workers,
            show=show,
            force=force,
            command=command,
            ray=ray,
        )
        done = [run for run, status in zip(runs, statuses, strict=True) if status.state == "done"]
        failed = tuple(status for status in statuses if status.state == "failed")
        if not done:
            return Outcome(None, failed, folder)
        measured, stopped = None, False
        if speed:
            try:
                measured, last = measure_speed(
                    done, folder, lambda status: show([*statuses, status])
                )
                failed += (last,) if last.state == "failed" else ()
            except KeyboardInterrupt:  # the runs are finished, so report on them without a speed
                stopped = True
        comparison = build_comparison(
            [Run(folder / x.name) for x in done], command=command, speed=measured
        )
        comparison["unfinished"] = [
            {"name": status.name, "reason": status.reason} for status in failed
        ]
        write_report(comparison, folder)
    if stopped:
        raise KeyboardInterrupt
    return Outcome(comparison, failed, folder)


def rewrite_report(folder: str | Path) -> dict[str, Any]:
    """The comparison of the runs in ``folder``; writes the report again, without training."""
    folder = Path(folder)
    runs = find_runs(folder)
    speed = read_speed(folder, [run.load_config() for run in runs])
    comparison = build_comparison(runs, speed=speed)
    write_report(comparison, folder)
    return comparison


def write_report(comparison: dict[str, Any], folder: Path) -> None:
    """Write comparison.json, the tables as report.md, and report.html, a single file."""
    from .page import render_page
    from .tables import render_markdown

    files.write_json(folder / "comparison.json", comparison)
    write_file_atomically(folder / "report.md", render_markdown(comparison, claims=True).encode())
    write_file_atomically(folder / "report.html", render_page(comparison).encode())


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass
