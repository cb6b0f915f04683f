"""``whorl bench``: time whorl against copy_ and its peers, and show where it stands."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from whorl import plots

from . import INTERRUPTED
from ._files import check_files
from ._json import JsonFlag, print_json
from ._lists import thread_counts, words
from ._progress import progress_bar

__all__ = ["bench"]

Quick = typer.Option("--quick/--full", help="A minute or two, or every shape, dtype and thread.")
Out = typer.Option("--out", metavar="FILE.json", help="Keep results here, cell by cell.")
Chart = typer.Option("--chart", metavar="FILE", help="Draw them: .png, .svg, .html or .json.")
Peers = typer.Option(
    "--peers", metavar="A,B", help="Only these, such as hf,mlx; else all installed."
)
Threads = typer.Option("--threads", metavar="1,all", help="Thread counts; 'all' is torch's number.")
Resume = typer.Option("--resume", help="Measure only what the file of --out does not hold yet.")


def bench(
    quick: Annotated[bool, Quick] = True,
    as_json: JsonFlag = False,
    out: Annotated[Path | None, Out] = None,
    chart: Annotated[Path | None, Chart] = None,
    peers: Annotated[str | None, Peers] = None,
    threads: Annotated[str | None, Threads] = None,
    resume: Annotated[bool, Resume] = False,
) -> None:
    """Time the rotation against copy_, the memory limit, and against other libraries."""
    from whorl.bench import Plan, run
    from whorl.bench.peers import TITLES

    check_files(out, chart, resume)
    plan = Plan.quick() if quick else Plan.full()
    plan = plan.only(peers=words(peers), threads=thread_counts(threads))
    with progress_bar() as show:  # Ctrl-C ends it with what is done
        report = run(plan, progress=show, sink=out, resume=out if resume else None)
    report = report.with_command(shlex.join(["whorl", *sys.argv[1:]]))
    if out is not None:
        report.save(out)
    if chart is not None and report.cells:
        plots.save(plots.bench(report.to_dict(), titles=TITLES), chart)
    if as_json:
        print_json(report.to_dict())
    else:
        Console(highlight=False).print(Group(*report.table()))
    if not report.complete:
        kept = (
            f"kept in {out}: add --resume to go on" if out else "not kept, as --out was not given"
        )
        done = f"{len(report.cells)} of {len(plan.cells())} cells measured"
        print(f"{done}, {kept}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
