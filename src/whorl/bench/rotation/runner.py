"""Measures a plan of the rotation benchmark, each cell in a separate process if asked to."""

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
    """Measure every cell of ``plan``; the options are those of ``run_cells``."""
    peers = select_peers(plan.peers)
    report = Report(environment.describe_environment(peers), plan.describe_effort())
    usable = [peer for peer in peers if peer.name not in report.environment["missing"]]
    cells = plan.list_cells()

    def measure(cell: Cell) -> CellResult:
        peers = [p for p in usable if p.name != "hf-compiled" or plan.is_compiled(cell)]
        return measure_cell_of(cell, peers, plan)

    def finish(report: Report, show: BenchmarkProgress) -> Report:
        if not plan.accuracy or report.accuracy is not None:
            return report
        show(len(cells), len(cells), "accuracy of tables")
        return report.with_accuracy(measure_accuracy())

    with start_server() if plan.isolates else nullcontext(measure_cell) as measure_cell_of:
        return run_cells(
            report,
            cells,
            measure,
            progress=progress,
            sink=sink,
            resume=resume,
            finish=finish,
        )
