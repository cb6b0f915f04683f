"""Runs a plan cell by cell, each in a process of its own where that is asked for."""

from contextlib import nullcontext
from pathlib import Path

from whorl.bench import environment
from whorl.bench.runner import BenchmarkProgress, run_cells

from .accuracy import measure_accuracy
from .contest import measure_cell
from .peers import select_peers
from .plan import Cell, Plan
from .report import Report
from .results import CellResult
from .worker import start_server

__all__ = ["run"]


def run(
    plan: Plan,
    *,
    progress: BenchmarkProgress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
) -> Report:
    """Measure ``plan``; the options are those of ``run_cells``."""
    peers = select_peers(plan.peers)
    report = Report(environment.describe_environment(peers), plan.effort())
    usable = [peer for peer in peers if peer.name not in report.environment["missing"]]
    cells = plan.cells()

    def one(cell: Cell) -> CellResult:
        some = [p for p in usable if p.name != "hf-compiled" or plan.compiles(cell)]
        return measure_one(cell, some, plan)

    def finish(report: Report, tell: BenchmarkProgress) -> Report:
        if not plan.accuracy or report.accuracy is not None:
            return report
        tell(len(cells), len(cells), "accuracy of tables")
        return report.with_accuracy(measure_accuracy())

    with start_server() if plan.isolates else nullcontext(measure_cell) as measure_one:
        return run_cells(
            report,
            cells,
            one,
            progress=progress,
            sink=sink,
            resume=resume,
            finish=finish,
        )
