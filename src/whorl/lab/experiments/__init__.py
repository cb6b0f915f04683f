"""Experiments anyone can run again: rows that differ in one thing, and a sentence about them.

registry      all experiments by name; NAME.py and NAME.toml of each are beside it
plan, jobs    rows x seeds of a budget, as jobs for the workers of a comparison
results       numbers of each row, by seed
judging       the rule: lower, higher, tied, not decidable, not yet
document, sentence, tables, page    the report
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from whorl._support.files import remove_parts, write_file_atomically
from whorl._support.words import quote
from whorl.lab import files
from whorl.lab.compare.pool import RunStatus, ShowStatus, run_all
from whorl.lab.compare.ray_workers import check_ray
from whorl.lab.compare.speed import measure_speed, read_speed
from whorl.lab.compare.together import check_workers, run_together
from whorl.lab.environment import describe_environment
from whorl.lab.files import lock_together
from whorl.lab.integrity import read_checked, write_checked
from whorl.lab.toml_tables import read_toml
from whorl.processes import open_processes

from .definition import (
    BudgetName,
    CurveLabels,
    Experiment,
    LineStyle,
    MeasureLabel,
    ResultTable,
    RowRequest,
    Tables,
)
from .document import build_result, label_measures, load_result
from .jobs import check_jobs, list_configs, list_jobs, name_configs, read_rows
from .plan import ExperimentPlan
from .registry import NAMES, find_experiment, get_toml_path
from .results import RowMeasurement, RowResults

__all__ = [
    "NAMES",
    "BudgetName",
    "CurveLabels",
    "Experiment",
    "ExperimentOutcome",
    "ExperimentPlan",
    "LineStyle",
    "MeasureLabel",
    "ResultTable",
    "RowMeasurement",
    "RowRequest",
    "RowResults",
    "Tables",
    "find_experiment",
    "list_experiments",
    "load_result",
    "rewrite_report",
    "run_experiment",
    "write_report",
]

_PLAN_FILE = "plan.json"
_REPORT_FILES = r"result\.json|report\.md|report\.html|chart\.svg|plan\.json|speed\.json"


@dataclass(frozen=True)
class ExperimentOutcome:
    """The result, None if no row finished; the jobs that failed; the folder."""

    result: dict[str, Any] | None
    failed: tuple[RunStatus, ...]
    folder: Path


def list_experiments() -> list[dict[str, Any]]:
    """Name, question, rows and minutes by budget of every experiment.

    >>> list_experiments()[0]["name"]
    'base'
    """
    found = []
    for name in NAMES:
        tables = read_toml(get_toml_path(name))
        minutes = {x: tables["budgets"][x]["minutes"] for x in get_args(BudgetName)}
        rows = [row["name"] for row in tables["rows"]]
        found.append(
            {"name": name, "question": tables["question"], "rows": rows, "minutes": minutes}
        )
    return found


def run_experiment(
    plan: ExperimentPlan,
    folder: str | Path,
    *,
    workers: int | None = None,
    show: ShowStatus | None = None,
    force: bool = False,
    command: str = "",
    ray: str | None = None,
) -> ExperimentOutcome:
    """Run every row of ``plan`` with every seed below ``folder``, and write the report there.

    Rows that are already there are not run again, so that the same call continues after an
    interruption. Ctrl-C saves every run before KeyboardInterrupt is raised. Processes that a
    launcher started train one row after the other together; only the first one writes.

    Args:
        workers: how many rows run at a time, by default one per core, or as many as the Ray cluster
            has room for.
        show: called with the status of all rows several times a second.
        force: replace rows with the same names and other settings.
        ray: run the rows as tasks of Ray: "local" starts one on this machine, "HOST:PORT" is a
            cluster. By default they are processes of this machine.
    """
    with open_processes() as processes:
        folder = Path(folder)
        check_workers(workers, ray, processes)
        if ray is not None:
            check_ray(ray)
        jobs = list_jobs(plan)
        configs = list_configs(plan)
        label_measures(plan, configs)
        corpus = check_jobs(plan, configs)
        with lock_together(processes, folder):
            processes.run_on_main(lambda: _store_plan(plan, folder, corpus, command, force))
            show = show or _show_nothing
            if processes.world > 1:
                statuses = run_together(
                    jobs, folder, {}, processes, show=show, force=force, command=command
                )
            else:
                ways: dict[str, Any] = {"workers": workers, "ray": ray, "show": show}
                statuses = run_all(jobs, folder, {}, **ways, force=force, command=command)
            result, done = None, any(status.state == "done" for status in statuses)
            if processes.is_main and done and plan.experiment.timed:
                statuses = [*statuses, _time_rows(plan, folder, statuses, show)]
            failed = tuple(status for status in statuses if status.state == "failed")
            if processes.is_main and done:
                result = _build_report(plan, folder, {one.name: one.reason for one in failed})
            processes.wait()
    return ExperimentOutcome(result, failed, folder)


def rewrite_report(folder: str | Path) -> dict[str, Any]:
    """The result of the rows in ``folder``; writes the report again, without running any."""
    folder = Path(folder)
    path = folder / _PLAN_FILE
    if not path.is_file():
        raise ValueError(
            f"{str(folder)!r} holds no experiment: it has no {_PLAN_FILE}; choose a folder that"
            " whorl experiment wrote."
        )
    stored = read_checked(path)
    plan = ExperimentPlan.from_budget(stored["experiment"], stored["budget"], seeds=stored["seeds"])
    rows = {row["name"]: row["tables"] for row in stored["rows"]}
    return _build_report(plan.replace_tables(rows), folder, {})


def write_report(result: dict[str, Any], folder: Path) -> None:
    """Write result.json, report.md, report.html (a single file) and chart.svg."""
    from whorl import plots

    from .page import render_page
    from .tables import render_markdown

    files.write_json(folder / "result.json", result)
    write_file_atomically(folder / "report.md", render_markdown(result).encode())
    write_file_atomically(folder / "report.html", render_page(result).encode())
    if result["rows"]:
        plots.save(plots.experiment(result), folder / "chart.svg")


def _build_report(plan: ExperimentPlan, folder: Path, reasons: dict[str, str]) -> dict[str, Any]:
    stored = read_checked(folder / _PLAN_FILE)
    rows, missing = read_rows(plan, folder)
    if not rows:
        raise ValueError("none of the rows is finished; run the experiment again to go on.")
    if plan.experiment.timed and (speed := read_speed(folder, name_configs(plan))) is not None:
        seconds = {name: x for name, x in speed["seconds"].items() if name not in speed["missing"]}
        rows = [row.replace_step_seconds(seconds.get(row.name)) for row in rows]
    result = build_result(
        plan, rows, folder, corpus=stored["corpus"], environment=stored["environment"]
    )
    result["unfinished"] = [
        {"name": name, "reason": reasons.get(name, "not finished")} for name in missing
    ]
    write_report(result, folder)
    return result


def _time_rows(
    plan: ExperimentPlan, folder: Path, statuses: Sequence[RunStatus], show: ShowStatus
) -> RunStatus:
    """Time steps of all rows in turns, while no run is active, unless that was done; the status."""
    configs = name_configs(plan)
    _, last = measure_speed(configs, folder, lambda status: show([*statuses, status]))
    return last


def _store_plan(
    plan: ExperimentPlan, folder: Path, corpus: dict[str, Any], command: str, force: bool
) -> None:
    """Write what was asked for, which ``rewrite_report`` reads; refuse another experiment."""
    remove_parts(folder, _REPORT_FILES)
    path = folder / _PLAN_FILE
    if path.exists() and not force and (found := read_checked(path))["experiment"] != plan.name:
        raise ValueError(
            f"{str(folder)!r} holds the experiment {quote(found['experiment'])}; choose another"
            " folder, or pass force=True."
        )
    document = {
        "experiment": plan.name,
        "budget": plan.budget,
        "seeds": plan.seeds,
        "rows": [{"name": row.name, "tables": row.tables} for row in plan.rows],
        "corpus": corpus,
        "environment": describe_environment(command),
    }
    write_checked(path, document)


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass
