"""Benchmark of models of transformers: as they come, and with whorl installed.

    report = run(Plan.quick(), sink="report.json")    measures and saves after every cell
    print(report.render_markdown())

Two layers of base size (width 768, 12 heads) with random weights, in float32 and without a head.
The two models of a cell have the same weights, are compared first and then timed alternately.
"""

from .plan import Cell, CellResult, Plan, Result
from .report import Report, check_targets
from .runner import run

__all__ = ["Cell", "CellResult", "Plan", "Report", "Result", "check_targets", "run"]
