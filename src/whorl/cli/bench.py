"""``whorl bench``: time rotation, attention, training or models; show where it stands."""

from __future__ import annotations

import shlex
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import whorl

from . import INTERRUPTED
from ._options import check_chart, name_options, parse_thread_counts, split_words
from ._output import JsonFlag, open_progress_bar, print_result

__all__ = ["bench"]


class What(str, Enum):
    rotation = "rotation"
    attention = "attention"
    training = "training"
    models = "models"


Measured = typer.Argument(help="What is measured.")
Quick = typer.Option("--quick/--full", help="A minute or two, or every shape, dtype and thread.")
Out = typer.Option("--out", metavar="FILE.json", help="Keep results here, cell by cell.")
Chart = typer.Option("--chart", metavar="FILE", help="Draw them: .png, .svg, .html or .json.")
Peers = typer.Option(
    "--peers", metavar="A,B", help="Only these, such as hf,mlx; else all installed."
)
Shapes = typer.Option(
    "--shapes",
    metavar="A,B",
    help="Only these, such as decode-1,prefill-512 or, of models, t5/prefill.",
)
Dtypes = typer.Option("--dtypes", metavar="A,B", help="Only these, such as float32,bfloat16.")
Threads = typer.Option("--threads", metavar="1,all", help="Thread counts; 'all' is torch's number.")
Resume = typer.Option("--resume", help="Measure only what the file of --out does not hold yet.")


def bench(
    what: Annotated[What, Measured] = What.rotation,
    quick: Annotated[bool, Quick] = True,
    as_json: JsonFlag = False,
    out: Annotated[Path | None, Out] = None,
    chart: Annotated[Path | None, Chart] = None,
    peers: Annotated[str | None, Peers] = None,
    shapes: Annotated[str | None, Shapes] = None,
    dtypes: Annotated[str | None, Dtypes] = None,
    threads: Annotated[str | None, Threads] = None,
    resume: Annotated[bool, Resume] = False,
) -> None:
    """Time rotation against other libraries, attention against PyTorch's, training against GPT.

    And models of transformers against themselves, with whorl installed.
    """
    own = {"--chart": chart, "--peers": peers, "--shapes": shapes, "--dtypes": dtypes}
    part = _select_benchmark(what, [option for option, value in own.items() if value is not None])
    _check_files(out, chart, resume, part.Report)
    plan = part.Plan.quick() if quick else part.Plan.full()
    lists = {"peers": peers, "shapes": shapes, "dtypes": dtypes}
    given = {name: split_words(text) for name, text in lists.items() if text is not None}
    with name_options({name: f"--{name}" for name in lists}):
        plan = plan.select(threads=parse_thread_counts(threads), **given)
    names = name_options({"peers": "--peers"})
    with names, open_progress_bar() as show:  # Ctrl-C ends it with what is done
        report = part.run(plan, progress=show, sink=out, resume=out if resume else None)
    report = report.with_command(shlex.join(["whorl", *sys.argv[1:]]))
    if out is not None:
        report.save(out)
    if chart is not None and report.cells:
        from whorl.bench.rotation.peers import TITLES

        whorl.plots.save(whorl.plots.bench(report.to_dict(), titles=TITLES), chart)
    print_result(report, as_json, lambda report: report.build_terminal_tables())
    if not report.complete:
        saved = (
            f"kept in {out}: add --resume to go on" if out else "not kept, as --out was not given"
        )
        done = f"{len(report.cells)} of {len(plan.list_cells())} cells measured"
        print(f"{done}, {saved}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _select_benchmark(what: What, own: list[str]) -> ModuleType:
    """The package of that benchmark; ``own``: the given options that not all of them have."""
    for option in own:
        homes = ["rotation", "models"] if option == "--shapes" else ["rotation"]
        if what.value not in homes:
            where = " and ".join(homes)
            raise ValueError(f"{option} is for whorl bench {where}; leave it out for {what.value}.")
    return import_module(f"whorl.bench.{what.value}")


def _check_files(out: Path | None, chart: Path | None, resume: bool, report: Any) -> None:
    """Refuse before minutes of measuring what could not be read or written after them.

    report: the class of the reports that ``out`` may hold.
    """
    if out is not None and (out.suffix != ".json" or not out.parent.is_dir()):
        raise ValueError(f"--out: {str(out)!r} must be a .json file in a folder that exists.")
    check_chart(chart)
    if chart is not None and chart == out:
        raise ValueError(f"--chart would overwrite the results in {str(out)!r}; name another file.")
    if resume and out is None:
        raise ValueError("--resume goes on with the file of --out; add --out FILE.json.")
    if resume and out is not None and out.exists():
        try:
            report.load(out)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"--resume: {str(out)!r} is not a report of whorl bench ({error}); name another"
                " file, or leave out --resume to overwrite it."
            ) from None
