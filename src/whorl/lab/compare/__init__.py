"""``compare``: trains the same small model with each encoding, evaluates it at many lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.files import remove_parts, write_file_atomically
from whorl.lab import files
from whorl.lab.architectures import build_model
from whorl.lab.config import RunConfig
from whorl.lab.data import open_data_source
from whorl.lab.encodings import format_title
from whorl.lab.evaluate import add_scaling
from whorl.lab.files import lock_together
from whorl.lab.runs import Run
from whorl.processes import open_processes

from .gather import build_comparison, find_runs, load_comparison
from .plan import BUDGETS, BudgetName, ComparisonPlan, PlannedRun
from .pool import RunStatus, ShowStatus, count_cores, run_all
from .ray_workers import check_ray
from .search import SearchResult, search_rates
from .speed import measure_speed, read_speed
from .timing import estimate_steps, fit_plan
from .together import check_workers, run_together

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
    "name_by_encoding",
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
    interruption. Ctrl-C saves every run before KeyboardInterrupt is raised. Processes that a
    launcher started train one run after the other together; only the first one writes.

    Args:
        workers: how many runs are trained at a time, by default one per core, or as many as the Ray
            cluster has room for.
        show: called with the status of all runs several times a second.
        force: delete runs with the same names and other configs.
        speed: also measure the training speed of each encoding, after the runs.
        ray: train the runs as tasks of Ray: "local" starts one on this machine, "HOST:PORT" is a
            cluster. By default they are processes of this machine.
    """
    with open_processes() as processes:
        folder = Path(folder)
        runs = plan.list_runs()
        check_workers(workers, ray, processes)
        if ray is not None:
            check_ray(ray)
        # Too little text, or an encoding that the model cannot have, fails before anything starts.
        about = _check_runs(runs)
        show = show or _show_nothing
        with lock_together(processes, folder):
            if processes.is_main:
                remove_parts(folder, _REPORT_FILES)
            started = (runs, folder, about)
            if processes.world > 1:
                statuses = run_together(
                    *started, processes, show=show, force=force, command=command
                )
            else:
                ways: dict[str, Any] = {"workers": workers, "ray": ray, "show": show}
                statuses = run_all(*started, **ways, force=force, command=command)
            report = _Reporting(runs, statuses, folder, show, command, speed)
            outcome = report.write() if processes.is_main else Outcome(None, report.failed, folder)
            processes.wait()
        return outcome


def _check_runs(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """Raise ValueError if a run cannot be trained; returns the corpus."""
    source = open_data_source(runs[0].config)
    for run in runs:
        for scaling in (None, *run.scalings):
            shape = add_scaling(run.config, scaling)
            build_model(shape, vocab=source.vocab, longest=run.config.longest)
    return source.about


@dataclass
class _Reporting:
    """What the report of some runs is made of."""

    runs: Sequence[PlannedRun]
    statuses: Sequence[RunStatus]
    folder: Path
    show: ShowStatus
    command: str
    speed: bool

    @property
    def failed(self) -> tuple[RunStatus, ...]:
        return tuple(status for status in self.statuses if status.state == "failed")

    def write(self) -> Outcome:
        """Measure the speed, if asked for, and write the report."""
        both = zip(self.runs, self.statuses, strict=True)
        done = [run for run, status in both if status.state == "done"]
        failed = self.failed
        if not done:
            return Outcome(None, failed, self.folder)
        measured, stopped = None, False
        if self.speed:
            try:
                measured, last = measure_speed(
                    name_by_encoding([run.config for run in done]),
                    self.folder,
                    lambda status: self.show([*self.statuses, status]),
                )
                failed += (last,) if last.state == "failed" else ()
            except KeyboardInterrupt:  # the runs are finished, so report on them without a speed
                stopped = True
        comparison = build_comparison(
            [Run(self.folder / x.name) for x in done], command=self.command, speed=measured
        )
        comparison["unfinished"] = [
            {"name": status.name, "reason": status.reason} for status in failed
        ]
        write_report(comparison, self.folder)
        if stopped:
            raise KeyboardInterrupt
        return Outcome(comparison, failed, self.folder)


def rewrite_report(folder: str | Path) -> dict[str, Any]:
    """The comparison of the runs in ``folder``; writes the report again, without training."""
    folder = Path(folder)
    runs = find_runs(folder)
    speed = read_speed(folder, name_by_encoding([run.load_config() for run in runs]))
    comparison = build_comparison(runs, speed=speed)
    write_report(comparison, folder)
    return comparison


def name_by_encoding(configs: Sequence[RunConfig]) -> dict[str, RunConfig]:
    """The first config of each encoding by the encoding's title, because only that has a speed."""
    found: dict[str, RunConfig] = {}
    for config in configs:
        found.setdefault(format_title(config.model.encoding), config)
    return found


def write_report(comparison: dict[str, Any], folder: Path) -> None:
    """Write comparison.json, the tables as report.md, and report.html, a single file."""
    from .page import render_page
    from .tables import render_markdown

    files.write_json(folder / "comparison.json", comparison)
    write_file_atomically(folder / "report.md", render_markdown(comparison, claims=True).encode())
    write_file_atomically(folder / "report.html", render_page(comparison).encode())


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass
