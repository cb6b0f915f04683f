"""``whorl experiment``: one question about position encodings, answered on this machine."""

from __future__ import annotations

import shlex
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import whorl
from whorl._support.launch import is_main_process

from . import INTERRUPTED, _setup
from ._live import open_live_view
from ._options import check_chart, name_options, replace_names
from ._output import JsonFlag, print_json, print_page
from ._setup import CONFIG_NAMES

__all__ = ["experiment"]


class ExperimentBudget(str, Enum):
    smoke = "smoke"
    quick = "quick"
    standard = "standard"


Name = typer.Argument(metavar="NAME", help="The experiment; without it, all are listed.")
Size = typer.Option(
    help="How much is run. smoke takes seconds and shows nothing but that it runs, quick at most"
    " eight minutes on two cores, standard as long as --list says."
)
Seeds = typer.Option(help="Run each row with so many seeds, for intervals.")
Out = typer.Option(
    "--out", metavar="FOLDER", help="Write runs and report here (runs/experiments/NAME-BUDGET)."
)
From = typer.Option(
    "--from", metavar="FOLDER", help="Report on what is in this folder, without running anything."
)
Chart = typer.Option(metavar="FILE", help="Draw the result: .png, .svg, .html or .json.")
List = typer.Option("--list", help="List all experiments, and stop.")
Workers = typer.Option(
    help="Run so many rows at a time (one per core, or all that Ray has room for)."
)

_NAMES = {name: f"--{name}" for name in ("seeds", "steps", "workers", "ray")} | CONFIG_NAMES
_NAMES |= {"training.steps": "--steps"}


def experiment(
    name: Annotated[str | None, Name] = None,
    budget: Annotated[ExperimentBudget, Size] = ExperimentBudget.quick,
    seeds: Annotated[int | None, Seeds] = None,
    steps: _setup.Steps = None,
    files: _setup.Files = None,
    out: Annotated[Path | None, Out] = None,
    rebuild: Annotated[Path | None, From] = None,
    chart: Annotated[Path | None, Chart] = None,
    workers: Annotated[int | None, Workers] = None,
    ray: _setup.Ray = None,
    list_: Annotated[bool, List] = False,
    force: _setup.Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Train the rows of one experiment, and say in one sentence what their numbers support.

    Writes result.json, report.html, report.md and chart.svg. Stop it whenever you like: the same
    command goes on.
    """
    from whorl.lab import experiments

    check_chart(chart)
    if rebuild is not None:
        if name is not None or any(x is not None for x in (seeds, steps, files, out, workers, ray)):
            raise ValueError("--from reports on rows as they are; leave out everything else.")
        _show(experiments.rewrite_report(rebuild), rebuild, chart, as_json)
        return
    if name is None or list_:
        _list(experiments.list_experiments(), as_json)
        return
    folder = out or Path("runs") / "experiments" / f"{name}-{budget.value}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: save, then stop
    try:
        with name_options(_NAMES), open_live_view() as show:
            plan = experiments.ExperimentPlan.from_budget(
                name, budget.value, seeds=seeds, steps=steps, files=files or ()
            )
            command = shlex.join(["whorl", *sys.argv[1:]])
            outcome = experiments.run_experiment(
                plan, folder, workers=workers, show=show, force=force, command=command, ray=ray
            )
    except KeyboardInterrupt:
        if is_main_process():
            print(f"stopped; the same command goes on from {str(folder)!r}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for status in outcome.failed if is_main_process() else ():
        print(f"{status.name} failed: {replace_names(status.reason, _NAMES)}", file=sys.stderr)
    if outcome.result is not None:
        _show(outcome.result, folder, chart, as_json)
    if outcome.failed:
        raise typer.Exit(2)


def _list(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("experiment", no_wrap=True)
    table.add_column("question")
    for budget in ("quick", "standard"):
        table.add_column(budget, justify="right", no_wrap=True)
    for one in found:
        minutes = [f"{one['minutes'][budget]:g} min" for budget in ("quick", "standard")]
        table.add_row(one["name"], one["question"], *minutes)
    print_page(table)


def _show(result: dict[str, Any], folder: Path, chart: Path | None, as_json: bool) -> None:
    if chart is not None:
        whorl.plots.save(whorl.plots.experiment(result), chart)
    if as_json:
        print_json(result)
        return
    from whorl.lab.experiments.tables import build_terminal_tables

    where = Text(f"report: {folder / 'report.html'}", no_wrap=True, overflow="ignore")
    print_page(*build_terminal_tables(result), where)
