"""``whorl compare``: which encoding to choose, by experiment on this machine."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import whorl
from whorl._support.launch import is_main_process
from whorl._support.words import quote

from . import INTERRUPTED, _setup
from ._live import open_live_view
from ._options import check_chart, name_options, replace_names, split_words
from ._output import JsonFlag, print_json, print_page
from ._rate_search import check_search, fill_specs, render_search
from ._setup import CONFIG_NAMES, build_config

if TYPE_CHECKING:
    from whorl.lab.compare import ComparisonPlan, Outcome, SearchResult
    from whorl.lab.compare.spaces import SearchedSpec

__all__ = ["compare"]


class Budget(str, Enum):
    quick = "quick"
    standard = "standard"
    converged = "converged"
    full = "full"


Size = typer.Option(
    help="How much is trained, on two cores. quick takes five to ten minutes. standard has every"
    " encoding and three seeds. converged has every encoding, six times the steps and two seeds,"
    " and takes two to four hours. full takes a night."
)
Encodings = typer.Option(
    metavar="A,B",
    help="Compare only these encodings, such as rope,alibi,learned+rope, or with options:"
    " 'rope(base=100),rope(base=1e6)'.",
)
Scalings = typer.Option(
    metavar="A,B", help="Also evaluate trained rotations with these: yarn,ntk,... or none."
)
Seeds = typer.Option(
    help="Train each encoding with so many seeds, for intervals [1; 2 for converged; 3 for standard"
    " and full]."
)
Minutes = typer.Option(help="Choose the number of steps so that it takes about so many minutes.")
Rates = typer.Option(metavar="A,B", help="Train matrices at these learning rates, to compare them.")
Search = typer.Option(
    metavar="N",
    help="First give every encoding N trials of its learning rates, and of options that are written"
    " as 'rope(base=1e3..1e6)' or 'rope(layout=half|interleaved)'; then compare the best. Needs the"
    " extra search.",
)
Out = typer.Option(
    "--out", metavar="FOLDER", help="Write runs and report to this folder (runs/BUDGET)."
)
From = typer.Option(
    "--from", metavar="RUNS", help="Report on the runs in this folder, without training."
)
Chart = typer.Option(metavar="FILE", help="Draw the result: .png, .svg, .html or .json.")
NoSpeed = typer.Option("--no-speed", help="Do not measure how fast each encoding trains.")
Workers = typer.Option(
    help="Train so many runs at a time (one per core, or all that Ray has room for)."
)

_NAMES = {
    name: f"--{name}"
    for name in ("encodings", "scalings", "seeds", "minutes", "workers", "ray", "search")
}
_NAMES |= CONFIG_NAMES


def compare(
    config: _setup.ConfigFile = None,
    budget: Annotated[Budget, Size] = Budget.quick,
    encodings: Annotated[str | None, Encodings] = None,
    scalings: Annotated[str | None, Scalings] = None,
    seeds: Annotated[int | None, Seeds] = None,
    minutes: Annotated[float | None, Minutes] = None,
    out: Annotated[Path | None, Out] = None,
    rebuild: Annotated[Path | None, From] = None,
    chart: Annotated[Path | None, Chart] = None,
    workers: Annotated[int | None, Workers] = None,
    ray: _setup.Ray = None,
    files: _setup.Files = None,
    tokenizer: _setup.Tokenizer = None,
    task: _setup.Task = None,
    length: _setup.Length = None,
    batch: _setup.Batch = None,
    steps: _setup.Steps = None,
    layers: _setup.Layers = None,
    width: _setup.Width = None,
    heads: _setup.Heads = None,
    kind: _setup.Kind = None,
    architecture: _setup.Architecture = None,
    attention: _setup.Attention = None,
    qk_norm: _setup.QkNorm = None,
    learning_rates: Annotated[str | None, Rates] = None,
    search: Annotated[int | None, Search] = None,
    no_speed: Annotated[bool, NoSpeed] = False,
    force: _setup.Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Train the same small model with each encoding, and judge all at 0.5 to 16 times the length.

    Prints a verdict and a table, and writes report.html. Stop it whenever you like: the same
    command goes on.
    """
    options = locals()
    check_chart(chart)
    if rebuild is not None:
        _report_again(rebuild, options)
        return
    plan, searched = _plan_comparison(options)
    folder = out or Path("runs") / budget.value
    if minutes is not None:
        plan = _fit_minutes(plan, folder, options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: save, then stop
    try:
        outcome, found = _run_comparison(plan, searched, folder, options)
    except KeyboardInterrupt:
        if is_main_process():
            print(f"stopped; the same command goes on from {str(folder)!r}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for status in outcome.failed if is_main_process() else ():
        reason = replace_names(status.reason, _NAMES)
        print(f"{status.name} failed: {reason}", file=sys.stderr)
    if outcome.comparison is not None:
        _show(outcome.comparison, folder, chart, as_json, found)
    if outcome.failed:
        raise typer.Exit(2)


def _report_again(folder: Path, options: Mapping[str, Any]) -> None:
    """What ``--from`` does."""
    from whorl.lab.compare import rewrite_report

    others = options.keys() - {"budget", "rebuild", "chart", "no_speed", "force", "as_json"}
    if options["no_speed"] or any(options[name] is not None for name in others):
        raise ValueError("--from reports on runs as they are; leave out everything else.")
    _show(rewrite_report(folder), folder, options["chart"], options["as_json"])


def _plan_comparison(options: Mapping[str, Any]) -> tuple[ComparisonPlan, list[SearchedSpec]]:
    """The plan that the options ask for, and what is searched of its encodings."""
    from whorl.lab.compare import ComparisonPlan
    from whorl.lab.specs import split_specs

    encodings, scalings = options["encodings"], options["scalings"]
    with name_options(_NAMES):
        specs, searched = fill_specs(split_specs(encodings or ""))
        plan = ComparisonPlan.from_budget(
            options["budget"].value,
            encodings=None if encodings is None else specs,
            scalings=[] if scalings == "none" else split_words(scalings),
            seeds=options["seeds"],
        )
    rates = options["learning_rates"]
    _check_config(options["config"])
    contradicting = {"--learning-rates": rates, "--minutes": options["minutes"]}
    check_search(options["search"], searched, contradicting)
    base = build_config(options["config"], options, plan.base)
    return dataclasses.replace(plan, base=base, learning_rates=tuple(_parse_rates(rates))), searched


def _fit_minutes(plan: ComparisonPlan, folder: Path, options: Mapping[str, Any]) -> ComparisonPlan:
    """What ``--minutes`` does."""
    from whorl.lab.compare import count_cores, fit_plan

    workers = options["workers"]
    if workers is None and options["ray"] not in (None, "local"):
        raise ValueError(
            "--minutes needs --workers here: say how many runs the cluster trains at a time."
        )
    with name_options(_NAMES):
        return fit_plan(plan, options["minutes"], folder, workers or count_cores())


def _run_comparison(
    plan: ComparisonPlan,
    searched: Sequence[SearchedSpec],
    folder: Path,
    options: Mapping[str, Any],
) -> tuple[Outcome, SearchResult | None]:
    """Search first, if that is asked for, then compare; with a view of the runs."""
    from whorl.lab import compare as experiment

    with name_options(_NAMES), open_live_view() as show:
        how: dict[str, Any] = {name: options[name] for name in ("workers", "force", "ray")}
        how |= {"show": show, "command": shlex.join(["whorl", *sys.argv[1:]])}
        found = None
        if options["search"] is not None:
            names = [one.text for one in searched] or plan.encodings
            trials = {"trials": options["search"], **how}
            found = experiment.search_rates(names, plan.base, folder / "search", **trials)
            plan = found.apply(plan)
        speed = not options["no_speed"]
        return experiment.compare(plan, folder, speed=speed, **how), found


def _show(
    comparison: dict[str, Any],
    folder: Path,
    chart: Path | None,
    as_json: bool,
    found: SearchResult | None = None,
) -> None:
    if chart is not None:
        whorl.plots.save(whorl.plots.lab(comparison), chart)
    if as_json:
        print_json(comparison if found is None else {**comparison, "search": found.to_dict()})
        return
    from whorl.lab.compare.tables import build_terminal_tables

    where = Text(f"report: {folder / 'report.html'}", no_wrap=True, overflow="ignore")
    trials = [] if found is None else render_search(found)
    print_page(*trials, *build_terminal_tables(comparison), where)


def _check_config(file: Path | None) -> None:
    """Refuse what a comparison chooses by itself, rather than drop it."""
    from whorl.lab.toml_tables import read_toml

    tables = {} if file is None else read_toml(file)
    for table, name, instead in (
        ("model", "encoding", "--encodings"),
        ("training", "learning_rate", "--learning-rates"),
        ("training", "encoding_learning_rate", "whorl train"),
        ("training", "embedding_learning_rate", "whorl train"),
        ("training", "seed", "--seeds"),
    ):
        if isinstance(tables.get(table), dict) and name in tables[table]:
            raise ValueError(
                f"{str(file)!r}: a comparison chooses {table}.{name} itself; leave it out, and use"
                f" {instead} instead."
            )


def _parse_rates(text: str | None) -> list[float]:
    try:
        return [float(word) for word in split_words(text) or []]
    except ValueError:
        raise ValueError(
            f"--learning-rates takes numbers such as 0.01,0.02; got {quote(text)}."
        ) from None
